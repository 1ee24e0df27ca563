//! Text as a value of a field.
//!
//! # Not here
//! Which fields have such values (`adapter`, `selection`).

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::Field;

use plait_base::{Error, Kind, Result, type_text};

/// The value that `text` means for a field: JSON text without quotes, cast to the field's type.
///
/// # Errors
/// [`Kind::InvalidArgument`] when the text is no value of the type.
pub fn constant(text: &str, field: &Field) -> Result<ArrayRef> {
    let texts: ArrayRef = Arc::new(arrow_array::StringArray::from(vec![text]));
    let made = arrow_cast::cast(&texts, field.data_type()).ok().filter(|made| made.is_valid(0));
    made.ok_or_else(|| {
        Error::new(Kind::InvalidArgument, "value is not of the column's type")
            .with_column(field.name())
            .with_got(format!("`{text}` for {}", type_text(field.data_type())))
    })
}
