//! Types that differ only in what is of the null type: the one drift that some callers allow.
//!
//! ```text
//! {a: null,  m: {x: int32}}  ─▶  {a: utf8, m: {x: int32}}     filled: nulls of the type
//! {a: int32, m: {x: int32}}  ─▶  {a: utf8, m: {x: int32}}     refused, and so would int64 be
//! ```
//!
//! # Invariants
//! Decided by the plan that scans adapt with, of which only what takes and what fills with nulls is
//! allowed: nothing is cast, left out, added or moved.
//!
//! # Not here
//! Which types hold others (`supertype`), doing it (`convert`).

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field};

use super::convert::{Convert, Rules};
use super::convert_values::nulls_of;
use super::policy::{Allow, SchemaPolicy};
use super::supertype::supertype;
use super::unify::only_nulls;

/// `array` of the field `from` as one of the field `to`, or `None` if more than nulls would change.
#[must_use]
pub(crate) fn fill(array: &ArrayRef, from: &Field, to: &Field) -> Option<ArrayRef> {
    let policy = checked();
    let rules = Rules { policy: &policy, refuse_extra: true };
    let way = rules.plan(array.data_type(), to.data_type()).ok()?;
    if !way.only_fills(array.data_type()) {
        return None;
    }
    let mut misfits = Vec::new();
    let made = if way == Convert::Same {
        ArrayRef::clone(array)
    } else {
        way.run(array, &mut misfits).ok()?
    };
    if rules.nullable(from, to).ok()? {
        nulls_of(&made, &mut misfits);
    }
    misfits.is_empty().then_some(made)
}

/// The type that values of both types are filled to, or `None` if there is no such type.
#[must_use]
pub(crate) fn filled(a: &DataType, b: &DataType) -> Option<DataType> {
    let policy = checked();
    let rules = Rules { policy: &policy, refuse_extra: true };
    let both = supertype(a, b)?;
    let fills = |ty| rules.plan(ty, &both).is_ok_and(|way| way.only_fills(ty));
    (fills(a) && fills(b)).then_some(both)
}

/// Whether anything of the type is of the null type.
pub(crate) fn has_nulls(ty: &DataType) -> bool {
    use DataType as T;
    let inside = |field: &Field| has_nulls(field.data_type());
    match ty {
        T::Struct(fields) => fields.iter().any(|f| inside(f)),
        T::List(item)
        | T::LargeList(item)
        | T::ListView(item)
        | T::LargeListView(item)
        | T::FixedSizeList(item, _)
        | T::Map(item, _) => inside(item),
        ty => only_nulls(ty),
    }
}

/// Nulls may come where none may be, and are looked for.
fn checked() -> SchemaPolicy {
    SchemaPolicy { nullability: Allow::Cast, ..SchemaPolicy::default() }
}
