//! The name of a schema.
//!
//! # Invariants
//! Two schemas have one name if they are equal, with nullability and metadata of fields.
//!
//! # Not here
//! Whose schema it is (`frozen`, `selection`).

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};

/// Names a schema: FNV-1a of 128 bits over its canonical text.
pub(super) fn fingerprint(fields: &Fields) -> String {
    let mut text = String::new();
    describe(fields, &mut text);
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in text.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    format!("{hash:032x}")
}

fn describe(fields: &Fields, text: &mut String) {
    for field in fields {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:?}{}", field.name(), if field.is_nullable() { "?" } else { "!" });
        match field.data_type() {
            DataType::Struct(inner) => inside("struct", inner, text),
            DataType::Map(entries, sorted) => {
                inside(
                    if *sorted { "sorted map" } else { "map" },
                    &vec![Arc::clone(entries)].into(),
                    text,
                );
            }
            ty => match super::unify::list_item(ty) {
                Some(item) => {
                    let hollow = Arc::new(Field::new("", DataType::Null, true));
                    let layout = format!("{:?}", super::unify::with_item(ty, hollow));
                    inside(&layout, &vec![Arc::clone(item)].into(), text);
                }
                None => drop(write!(text, "{ty:?}")),
            },
        }
        for (key, value) in field.metadata() {
            let _ = write!(text, "{key:?}={value:?}");
        }
        text.push(';');
    }
}

fn inside(name: &str, fields: &Fields, text: &mut String) {
    text.push_str(name);
    text.push('(');
    describe(fields, text);
    text.push(')');
}
