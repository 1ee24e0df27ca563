//! The one type of many arrays: equal up to nullability, dictionaries and names inside of lists.
//!
//! ```text
//! list<item: int32 not null>, list<element: int32>        ─▶ list<item: int32>
//! dictionary<int8, utf8>, dictionary<int32, utf8>         ─▶ dictionary<int32, utf8>
//! dictionary<int8, utf8>, utf8                            ─▶ utf8
//! ```
//!
//! # Invariants
//! The order of the arrays does not change whether there is a type. Names and metadata are those of
//! the first; extension types must be the same.
//!
//! # Not here
//! Types that can hold each other's values (`schema`): interleaving casts nothing.

use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, FieldRef, Fields, UnionFields};

/// The field of values of `a` and `b`; `None` if they differ by more than nullability.
pub(crate) fn common_field(a: &FieldRef, b: &FieldRef) -> Option<FieldRef> {
    if Arc::ptr_eq(a, b) || a == b {
        return Some(Arc::clone(a));
    }
    let extension = |field: &Field, key| field.metadata().get(key).cloned();
    for key in [EXTENSION_TYPE_NAME_KEY, EXTENSION_TYPE_METADATA_KEY] {
        if extension(a, key) != extension(b, key) {
            return None;
        }
    }
    let data_type = common(a.data_type(), b.data_type())?;
    let nullable = a.is_nullable() || b.is_nullable();
    Some(Arc::new(a.as_ref().clone().with_data_type(data_type).with_nullable(nullable)))
}

/// Whether two types are equal; of most, only their kinds are compared.
#[inline]
pub(crate) fn are_equal(a: &DataType, b: &DataType) -> bool {
    let is_alone = a.is_integer() || a.is_floating() || matches!(a, DataType::Utf8);
    std::mem::discriminant(a) == std::mem::discriminant(b) && (is_alone || are_equal_inside(a, b))
}

fn are_equal_inside(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::Dictionary(ka, va), DataType::Dictionary(kb, vb)) => {
            are_equal(ka, kb) && are_equal(va, vb)
        }
        (a, b) => a == b,
    }
}

/// The type of values of `a` and `b`.
fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    if a == b {
        return Some(a.clone());
    }
    Some(match (a, b) {
        (T::Dictionary(ka, va), T::Dictionary(kb, vb)) => {
            T::Dictionary(Box::new(wider(ka, kb)), Box::new(common(va, vb)?))
        }
        (T::Dictionary(_, value), other) | (other, T::Dictionary(_, value)) => {
            common(value, other)?
        }
        (T::List(a), T::List(b)) => T::List(common_field(a, b)?),
        (T::LargeList(a), T::LargeList(b)) => T::LargeList(common_field(a, b)?),
        (T::ListView(a), T::ListView(b)) => T::ListView(common_field(a, b)?),
        (T::LargeListView(a), T::LargeListView(b)) => T::LargeListView(common_field(a, b)?),
        (T::FixedSizeList(a, n), T::FixedSizeList(b, m)) if n == m => {
            T::FixedSizeList(common_field(a, b)?, *n)
        }
        (T::Struct(a), T::Struct(b)) => T::Struct(common_fields(a, b, true)?),
        (T::Map(a, x), T::Map(b, y)) => {
            // Keys and values are found by place: their names are not part of the type.
            let (T::Struct(fa), T::Struct(fb)) = (a.data_type(), b.data_type()) else {
                return None;
            };
            let entries = T::Struct(common_fields(fa, fb, false)?);
            T::Map(Arc::new(a.as_ref().clone().with_data_type(entries)), *x && *y)
        }
        (T::RunEndEncoded(ea, va), T::RunEndEncoded(eb, vb))
            if ea.data_type() == eb.data_type() =>
        {
            T::RunEndEncoded(Arc::clone(ea), common_field(va, vb)?)
        }
        (T::Union(a, x), T::Union(b, y)) if x == y && a.len() == b.len() => {
            let both = a.iter().zip(b.iter()).map(|((i, a), (j, b))| {
                let same = i == j && a.name() == b.name();
                Some((i, common_field(a, b).filter(|_| same)?))
            });
            let both: Vec<_> = both.collect::<Option<_>>()?;
            T::Union(UnionFields::from_iter(both), *x)
        }
        _ => return None,
    })
}

fn common_fields(a: &Fields, b: &Fields, named: bool) -> Option<Fields> {
    if a.len() != b.len() || named && a.iter().zip(b).any(|(a, b)| a.name() != b.name()) {
        return None;
    }
    a.iter().zip(b).map(|(a, b)| common_field(a, b)).collect()
}

/// The key type that numbers more values.
fn wider(a: &DataType, b: &DataType) -> DataType {
    let bits = |key: &DataType| {
        let bytes = key.primitive_width().unwrap_or(0);
        16 * bytes - usize::from(key.is_signed_integer())
    };
    // All of 64 bits number more than there can be.
    if bits(b) > bits(a) { b.clone() } else { a.clone() }
}

/// `data_type` with 64-bit offsets at every level; maps have none.
pub(crate) fn large(data_type: &DataType) -> DataType {
    use DataType as T;
    let below = |field: &FieldRef| {
        Arc::new(field.as_ref().clone().with_data_type(large(field.data_type())))
    };
    match data_type {
        T::Utf8 => T::LargeUtf8,
        T::Binary => T::LargeBinary,
        T::List(field) | T::LargeList(field) => T::LargeList(below(field)),
        T::ListView(field) | T::LargeListView(field) => T::LargeListView(below(field)),
        T::FixedSizeList(field, size) => T::FixedSizeList(below(field), *size),
        T::Struct(fields) => T::Struct(fields.iter().map(below).collect()),
        T::Map(field, ordered) => T::Map(below(field), *ordered),
        T::Dictionary(key, value) => T::Dictionary(key.clone(), Box::new(large(value))),
        T::RunEndEncoded(ends, values) => T::RunEndEncoded(Arc::clone(ends), below(values)),
        T::Union(fields, mode) => {
            T::Union(fields.iter().map(|(id, field)| (id, below(field))).collect(), *mode)
        }
        other => other.clone(),
    }
}
