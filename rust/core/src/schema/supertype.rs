//! The least type that holds every value of two types, or none.
//!
//! ```text
//! left                        right                       together
//! ─────────────────────────── ─────────────────────────── ─────────────────────────────────────
//! T                           T                           T
//! null, dictionary of nulls   T                           T
//! dictionary of V             dictionary of W, or W       supertype(V, W)
//! intN                        intM                        the wider
//! uintN                       uintM                       the wider
//! intN                        uintM, M < 64               signed, of more than M bits
//! int32 and narrower,         float16, 32, 64             float64
//!   uint16 and narrower
//! floatN                      floatM                      the wider
//! decimal(p, s)               decimal(q, t)               digits enough on both sides, at most 76
//! timestamp(u, zone)          timestamp(v, zone)          finer unit
//! timestamp(u, zone)          timestamp(v, other zone)    finer unit, UTC
//! time(u), duration(u)        time(v), duration(v)        finer unit
//! utf8 < utf8 view < large    another of the three        the greater
//! binary, likewise            another of the three        the greater
//! list of V, any layout       list of W, any layout       list of supertype(V, W): fixed size if
//!                                                         both are alike, else the greater of
//!                                                         list < view < large view < large
//! struct                      struct                      by name; absent on one side: nullable
//! map of K, V                 map of L, W                 map of supertypes
//! anything else               anything else               conflict
//! ```
//!
//! Conflicts worth naming: int64 or uint32 with floats, uint64 with signed integers, integers with
//! decimals, numbers with text, text with binary, zoned with naive time, date with timestamp.
//!
//! # Invariants
//! Commutative, associative and idempotent; a conflict stays a conflict whatever is added, so any
//! grouping of the sources gives the same answer. Struct fields are in the order first seen, the one
//! thing that depends on the order of the arguments. Upheld by a property test.
//! - `uint32` is kept from floats although it would fit a float64: with int32 in between it becomes
//!   int64, which does not fit, and the answer would depend on the order.
//! - Instants of different zones are the same instants: they meet in UTC, which loses no value.
//! - Names of list items and map entries say nothing; where they differ the usual ones are taken.
//! - Field metadata is kept where all that have the field agree on it.
//!
//! # Cost
//! Linear in the number of fields; struct fields are matched through a map.
//!
//! # Not here
//! Which kinds of drift a caller allows (policies), and casting values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Metadata, TimeUnit};

/// Decimals of more digits do not exist.
const DECIMAL_DIGITS_MAX: i16 = 76;

/// The least type that holds every value of `a` and of `b`, or `None` when they conflict.
#[must_use]
pub(super) fn supertype(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    if a == b {
        return Some(a.clone());
    }
    Some(match (a, b) {
        _ if only_nulls(a) && only_nulls(b) => T::Null,
        _ if only_nulls(a) => b.clone(),
        _ if only_nulls(b) => a.clone(),
        (T::Dictionary(..), _) | (_, T::Dictionary(..)) => {
            return supertype(without_dictionary(a), without_dictionary(b));
        }
        (T::Timestamp(u, zone), T::Timestamp(v, other)) => {
            let zone = match (zone, other) {
                (None, None) => None,
                (Some(zone), Some(other)) if zone == other => Some(Arc::clone(zone)),
                (Some(_), Some(_)) => Some("UTC".into()),
                _ => return None,
            };
            T::Timestamp((*u).max(*v), zone)
        }
        (T::Duration(u), T::Duration(v)) => T::Duration((*u).max(*v)),
        (T::Time32(u) | T::Time64(u), T::Time32(v) | T::Time64(v)) => match (*u).max(*v) {
            unit @ (TimeUnit::Second | TimeUnit::Millisecond) => T::Time32(unit),
            unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond) => T::Time64(unit),
        },
        (T::Struct(a), T::Struct(b)) => T::Struct(union_by_name(a, b)?),
        (T::Map(a, a_sorted), T::Map(b, b_sorted)) => {
            T::Map(Arc::new(entries(a, b)?), *a_sorted && *b_sorted)
        }
        _ => {
            return number(a, b)
                .or_else(|| decimal(a, b))
                .or_else(|| bytes(a, b))
                .or_else(|| list(a, b));
        }
    })
}

/// The common type of any number of types; of none, the null type.
#[must_use]
pub fn supertype_of<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Option<DataType> {
    types.into_iter().try_fold(DataType::Null, |all, next| supertype(&all, next))
}

fn without_dictionary(mut ty: &DataType) -> &DataType {
    while let DataType::Dictionary(_, values) = ty {
        ty = values;
    }
    ty
}

/// Whether the type is null, or a dictionary of nulls.
fn only_nulls(ty: &DataType) -> bool {
    without_dictionary(ty).is_null()
}

fn number(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    /// Bits and whether signed.
    fn integer(ty: &DataType) -> Option<(u8, bool)> {
        Some(match ty {
            T::Int8 => (8, true),
            T::Int16 => (16, true),
            T::Int32 => (32, true),
            T::Int64 => (64, true),
            T::UInt8 => (8, false),
            T::UInt16 => (16, false),
            T::UInt32 => (32, false),
            T::UInt64 => (64, false),
            _ => return None,
        })
    }
    fn float(ty: &DataType) -> Option<u8> {
        Some(match ty {
            T::Float16 => 16,
            T::Float32 => 32,
            T::Float64 => 64,
            _ => return None,
        })
    }
    if let (Some(x), Some(y)) = (float(a), float(b)) {
        return Some(if x > y { a.clone() } else { b.clone() });
    }
    let with_float = integer(a).filter(|_| float(b).is_some());
    if let Some((bits, signed)) = with_float.or(integer(b).filter(|_| float(a).is_some())) {
        return (bits < 32 || (bits == 32 && signed)).then_some(T::Float64);
    }
    let ((x, x_signed), (y, y_signed)) = (integer(a)?, integer(b)?);
    if x_signed == y_signed {
        return Some(if x > y { a.clone() } else { b.clone() });
    }
    let (signed, unsigned) = if x_signed { (x, y) } else { (y, x) };
    Some(match signed.max(unsigned.saturating_mul(2)) {
        8 => T::Int8,
        16 => T::Int16,
        32 => T::Int32,
        64 => T::Int64,
        _ => return None,
    })
}

fn decimal(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    /// Digits that the width holds, precision, scale.
    fn parts(ty: &DataType) -> Option<(i16, i16, i16)> {
        let (width, precision, scale) = match ty {
            T::Decimal32(p, s) => (9, p, s),
            T::Decimal64(p, s) => (18, p, s),
            T::Decimal128(p, s) => (38, p, s),
            T::Decimal256(p, s) => (76, p, s),
            _ => return None,
        };
        Some((width, i16::from(*precision), i16::from(*scale)))
    }
    let ((x_width, x, x_scale), (y_width, y, y_scale)) = (parts(a)?, parts(b)?);
    let scale = x_scale.max(y_scale);
    let precision = (x - x_scale).max(y - y_scale) + scale;
    if precision > DECIMAL_DIGITS_MAX {
        return None;
    }
    let (p, s) = (u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
    Some(match x_width.max(y_width).max(precision) {
        ..=9 => T::Decimal32(p, s),
        10..=18 => T::Decimal64(p, s),
        19..=38 => T::Decimal128(p, s),
        _ => T::Decimal256(p, s),
    })
}

fn bytes(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    /// Text or not, and the layout's place: a large one holds values that a view cannot.
    fn layout(ty: &DataType) -> Option<(bool, u8)> {
        Some(match ty {
            T::Utf8 => (true, 0),
            T::Utf8View => (true, 1),
            T::LargeUtf8 => (true, 2),
            T::Binary => (false, 0),
            T::BinaryView => (false, 1),
            T::LargeBinary => (false, 2),
            _ => return None,
        })
    }
    let ((x_text, x), (y_text, y)) = (layout(a)?, layout(b)?);
    (x_text == y_text).then(|| if x > y { a.clone() } else { b.clone() })
}

fn list(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    fn layout(ty: &DataType) -> Option<(u8, &FieldRef)> {
        Some(match ty {
            T::FixedSizeList(item, _) => (0, item),
            T::List(item) => (1, item),
            T::ListView(item) => (2, item),
            T::LargeListView(item) => (3, item),
            T::LargeList(item) => (4, item),
            _ => return None,
        })
    }
    let ((x, x_item), (y, y_item)) = (layout(a)?, layout(b)?);
    let item = Arc::new(union(x_item, y_item, Field::LIST_FIELD_DEFAULT_NAME)?);
    Some(match (a, b) {
        (T::FixedSizeList(_, m), T::FixedSizeList(_, n)) if m == n => T::FixedSizeList(item, *m),
        _ => match x.max(y) {
            0 | 1 => T::List(item),
            2 => T::ListView(item),
            3 => T::LargeListView(item),
            _ => T::LargeList(item),
        },
    })
}

fn entries(a: &Field, b: &Field) -> Option<Field> {
    let (DataType::Struct(x), DataType::Struct(y)) = (a.data_type(), b.data_type()) else {
        return None;
    };
    let ([x_key, x_value], [y_key, y_value]) = (&x[..], &y[..]) else {
        return None;
    };
    let fields = [union(x_key, y_key, "key")?, union(x_value, y_value, "value")?];
    Some(
        Field::new(
            if a.name() == b.name() { a.name() } else { "entries" },
            DataType::Struct(Fields::from(fields.to_vec())),
            a.is_nullable() || b.is_nullable(),
        )
        .with_metadata(common(a.metadata(), b.metadata())),
    )
}

/// The field that holds both; `name` is taken when theirs differ.
fn union(a: &Field, b: &Field, name: &str) -> Option<Field> {
    if a == b {
        return Some(a.clone());
    }
    let nullable = a.is_nullable()
        || b.is_nullable()
        || only_nulls(a.data_type()) != only_nulls(b.data_type());
    let name = if a.name() == b.name() { a.name() } else { name };
    Some(
        Field::new(name, supertype(a.data_type(), b.data_type())?, nullable)
            .with_metadata(common(a.metadata(), b.metadata())),
    )
}

fn union_by_name(a: &Fields, b: &Fields) -> Option<Fields> {
    let index = |fields: &Fields| -> Option<HashMap<String, usize>> {
        let names: HashMap<_, _> =
            fields.iter().enumerate().map(|(i, f)| (f.name().clone(), i)).collect();
        (names.len() == fields.len()).then_some(names)
    };
    let (in_a, in_b) = (index(a)?, index(b)?);
    let mut fields: Vec<FieldRef> = Vec::with_capacity(a.len());
    for field in a {
        fields.push(match in_b.get(field.name()).and_then(|i| b.get(*i)) {
            Some(other) => Arc::new(union(field, other, "")?),
            None => Arc::new(field.as_ref().clone().with_nullable(true)),
        });
    }
    for field in b.iter().filter(|f| !in_a.contains_key(f.name())) {
        fields.push(Arc::new(field.as_ref().clone().with_nullable(true)));
    }
    Some(fields.into())
}

fn common(a: &Metadata, b: &Metadata) -> Metadata {
    let mut both = Metadata::new();
    for (key, value) in a {
        if b.get(key) == Some(value) {
            both.insert(key.clone(), value.clone());
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use DataType as T;
    use proptest::prelude::*;

    use super::*;

    fn zoned(unit: TimeUnit, zone: &str) -> DataType {
        T::Timestamp(unit, Some(zone.into()))
    }

    fn dictionary(key: DataType, value: DataType) -> DataType {
        T::Dictionary(Box::new(key), Box::new(value))
    }

    #[test]
    fn the_table_says_what_it_says() {
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        for (a, b, both) in [
            (T::Null, T::Utf8, T::Utf8),
            (T::Int8, T::Int32, T::Int32),
            (T::UInt8, T::UInt32, T::UInt32),
            (T::Int8, T::UInt8, T::Int16),
            (T::Int64, T::UInt8, T::Int64),
            (T::Int32, T::UInt32, T::Int64),
            (T::Int32, T::Float32, T::Float64),
            (T::UInt16, T::Float16, T::Float64),
            (T::Float16, T::Float32, T::Float32),
            (T::Decimal128(10, 2), T::Decimal128(12, 6), T::Decimal128(14, 6)),
            (T::Decimal128(38, 0), T::Decimal128(38, 38), T::Decimal256(76, 38)),
            (T::Decimal32(9, 0), T::Decimal32(9, 2), T::Decimal64(11, 2)),
            (T::Decimal32(3, -2), T::Decimal32(3, 1), T::Decimal32(6, 1)),
            (zoned(Second, "UTC"), zoned(Nanosecond, "UTC"), zoned(Nanosecond, "UTC")),
            (zoned(Second, "Asia/Tokyo"), zoned(Second, "+01:00"), zoned(Second, "UTC")),
            (T::Time32(Second), T::Time64(Microsecond), T::Time64(Microsecond)),
            (T::Duration(Millisecond), T::Duration(Second), T::Duration(Millisecond)),
            (T::Utf8, T::Utf8View, T::Utf8View),
            (T::LargeBinary, T::BinaryView, T::LargeBinary),
            (dictionary(T::Int8, T::Utf8), dictionary(T::Int32, T::Utf8), T::Utf8),
            (dictionary(T::Int8, T::Int8), T::Int16, T::Int16),
        ] {
            assert_eq!(supertype(&a, &b).as_ref(), Some(&both), "{a} and {b}");
            assert_eq!(supertype(&b, &a).as_ref(), Some(&both), "{b} and {a}");
        }
        for (a, b) in [
            (T::Int64, T::Float64),
            (T::UInt32, T::Float64),
            (T::UInt64, T::Int8),
            (T::Int32, T::Decimal128(10, 0)),
            (T::Decimal256(76, 0), T::Decimal128(3, 1)),
            (T::Int32, T::Utf8),
            (T::Utf8, T::Binary),
            (T::Date32, T::Timestamp(Second, None)),
            (zoned(Second, "UTC"), T::Timestamp(Second, None)),
            (T::FixedSizeBinary(4), T::FixedSizeBinary(8)),
            (T::Int32, T::Struct(Fields::empty())),
        ] {
            assert_eq!(supertype(&a, &b), None, "{a} and {b}");
        }
    }

    #[test]
    fn structs_meet_by_name_and_what_is_absent_becomes_nullable() {
        let a = T::Struct(
            vec![Field::new("x", T::Int8, false), Field::new("y", T::Utf8, false)].into(),
        );
        let b = T::Struct(
            vec![Field::new("z", T::Date32, false), Field::new("x", T::Int16, false)].into(),
        );
        let both = vec![
            Field::new("x", T::Int16, false),
            Field::new("y", T::Utf8, true),
            Field::new("z", T::Date32, true),
        ];
        assert_eq!(supertype(&a, &b), Some(T::Struct(both.into())));
        let twice =
            T::Struct(vec![Field::new("x", T::Int8, true), Field::new("x", T::Int8, true)].into());
        assert_eq!(supertype(&a, &twice), None, "which x is meant?");
    }

    #[test]
    fn lists_and_maps_meet_in_their_items() {
        let list = |name, ty| T::List(Arc::new(Field::new(name, ty, false)));
        assert_eq!(
            supertype(&list("element", T::Int8), &list("array", T::Int16)),
            Some(list("item", T::Int16))
        );
        let fixed = |n| T::FixedSizeList(Arc::new(Field::new("item", T::Int8, false)), n);
        assert_eq!(supertype(&fixed(2), &fixed(3)), Some(list("item", T::Int8)));
        let map = |value| {
            let fields = vec![Field::new("key", T::Utf8, false), Field::new("value", value, true)];
            T::Map(Arc::new(Field::new("entries", T::Struct(fields.into()), false)), false)
        };
        assert_eq!(supertype(&map(T::Null), &map(T::Int8)), Some(map(T::Int8)));
        assert_eq!(supertype(&map(T::Utf8), &map(T::Int8)), None);
    }

    /// Families whose members mostly meet, so that whole structs of them do.
    fn families() -> Vec<Vec<DataType>> {
        use TimeUnit::{Microsecond, Millisecond, Second};
        vec![
            vec![T::Int8, T::Int16, T::Int32, T::UInt8, T::UInt16, T::Float16, T::Float64],
            vec![T::Int8, T::Int32, T::Int64, T::UInt8, T::UInt32, T::UInt64, T::Float32],
            vec![
                T::Decimal32(5, 2),
                T::Decimal32(9, -1),
                T::Decimal64(12, 6),
                T::Decimal128(38, 1),
                T::Decimal256(70, 3),
                T::Decimal256(76, 76),
            ],
            vec![T::Utf8, T::Utf8View, T::LargeUtf8],
            vec![T::Binary, T::BinaryView, T::LargeBinary, T::Utf8],
            vec![
                zoned(Second, "UTC"),
                zoned(Millisecond, "Asia/Tokyo"),
                zoned(Microsecond, "+01:00"),
            ],
            vec![T::Time32(Millisecond), T::Time64(Microsecond), T::Time32(Second)],
            vec![T::Date32, T::Timestamp(Second, None), T::Boolean],
        ]
    }

    fn types(leaves: Vec<DataType>) -> impl Strategy<Value = DataType> {
        let leaf = prop_oneof![1 => Just(T::Null), 6 => prop::sample::select(leaves)];
        leaf.prop_recursive(3, 24, 3, |inner| {
            let field = |names: Vec<&'static str>, inner: BoxedStrategy<DataType>| {
                let metadata = prop::sample::select(vec![None, Some("1"), Some("2")]);
                (prop::sample::select(names), inner, any::<bool>(), metadata).prop_map(
                    |(name, ty, nullable, metadata)| {
                        let mut field = Field::new(name, ty, nullable);
                        if let Some(value) = metadata {
                            field.metadata_mut().insert("m", value);
                        }
                        field
                    },
                )
            };
            let item = field(vec!["item", "element", "array"], inner.clone().boxed());
            let pair = (
                field(vec!["key", "k"], inner.clone().boxed()),
                field(vec!["value", "v"], inner.clone().boxed()),
            );
            prop_oneof![
                (item, 0..6).prop_map(|(item, layout)| {
                    let item = Arc::new(item);
                    match layout {
                        0 => T::FixedSizeList(item, 2),
                        1 => T::FixedSizeList(item, 3),
                        2 => T::ListView(item),
                        3 => T::LargeListView(item),
                        4 => T::LargeList(item),
                        _ => T::List(item),
                    }
                }),
                prop::collection::vec(field(vec!["a", "b", "c"], inner.clone().boxed()), 0..3)
                    .prop_map(|fields| T::Struct(fields.into())),
                (pair, any::<bool>()).prop_map(|((key, value), sorted)| {
                    let entries = T::Struct(vec![key, value].into());
                    T::Map(Arc::new(Field::new("entries", entries, false)), sorted)
                }),
                (prop::sample::select(vec![T::Int8, T::Int32]), inner)
                    .prop_map(|(key, value)| dictionary(key, value)),
            ]
        })
    }

    /// The type with struct fields sorted by name.
    fn sorted(ty: &DataType) -> DataType {
        let field =
            |f: &FieldRef| Arc::new(f.as_ref().clone().with_data_type(sorted(f.data_type())));
        match ty {
            T::Struct(fields) => {
                let mut fields: Vec<_> = fields.iter().map(field).collect();
                fields.sort_by(|a, b| a.name().cmp(b.name()));
                T::Struct(fields.into())
            }
            T::List(item) => T::List(field(item)),
            T::ListView(item) => T::ListView(field(item)),
            T::LargeList(item) => T::LargeList(field(item)),
            T::LargeListView(item) => T::LargeListView(field(item)),
            T::FixedSizeList(item, n) => T::FixedSizeList(field(item), *n),
            T::Dictionary(key, value) => dictionary(key.as_ref().clone(), sorted(value)),
            // Key and value are distinguished by place, not by name.
            T::Map(entries, ordered) => {
                let T::Struct(pair) = entries.data_type() else { unreachable!() };
                let pair = T::Struct(pair.iter().map(field).collect());
                let entries = entries.as_ref().clone().with_data_type(pair);
                T::Map(Arc::new(entries), *ordered)
            }
            other => other.clone(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn order_and_grouping_never_change_the_answer(
            (a, b, c) in prop::sample::select(families()).prop_flat_map(|leaves| {
                (types(leaves.clone()), types(leaves.clone()), types(leaves))
            })
        ) {
            let join = |x: &Option<DataType>, y: &Option<DataType>| {
                supertype(x.as_ref()?, y.as_ref()?)
            };
            let [a, b, c] = [a, b, c].map(Some);
            let ab = join(&a, &b);
            let left = join(&ab, &c).as_ref().map(sorted);
            prop_assert_eq!(ab.as_ref().map(sorted), join(&b, &a).as_ref().map(sorted));
            prop_assert_eq!(&left, &join(&a, &join(&b, &c)).as_ref().map(sorted));
            prop_assert_eq!(&left, &join(&join(&a, &c), &b).as_ref().map(sorted));
            prop_assert_eq!(&join(&a, &a), &a);
            if ab.is_some() {
                prop_assert_eq!(join(&a, &ab).as_ref().map(sorted), ab.as_ref().map(sorted), "absorbs");
            }
        }

        #[test]
        fn numbers_agree_whatever_the_order(
            set in prop::collection::vec(prop::sample::select(vec![
                T::Null, T::Int8, T::Int16, T::Int32, T::Int64, T::UInt8, T::UInt16, T::UInt32,
                T::UInt64, T::Float16, T::Float32, T::Float64,
            ]), 1..6).prop_flat_map(|set| (Just(set.clone()), Just(set).prop_shuffle()))
        ) {
            prop_assert_eq!(supertype_of(&set.0), supertype_of(&set.1));
        }
    }
}
