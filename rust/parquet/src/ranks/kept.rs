//! Leaves whose pages hold what keys take: their values can be read without a cast.
//!
//! # Not here
//! Reading them (`search`, `keys`).

use parquet::basic::Type as Physical;
use plait_core::Result;
use plait_core::key::KeyType;

use crate::block::Layout;
use crate::leaf::OutputLeaf;
use crate::schema::{LeafAdapter, LevelMap};
use crate::source::Source;

/// The source's leaf and what becomes of its levels, if its pages hold what keys of type `ty` take.
///
/// # Errors
/// [`Kind::Internal`] for a source that was not reconciled.
pub(crate) fn kept_as_keys_take_it<'a>(
    source: &Source,
    output: &'a OutputLeaf,
    ty: KeyType,
) -> Result<Option<(usize, &'a LevelMap)>> {
    let LeafAdapter::Same { leaf, levels } = output.adapter(source.id)? else { return Ok(None) };
    let descr = source.leaf(*leaf);
    let physical = descr.physical_type();
    let fits = match ty {
        KeyType::Null => false,
        KeyType::Bytes { .. } => {
            matches!(physical, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY)
        }
        _ => matches!(
            (ty.width(), Layout::of(&descr)),
            (Some(width), Layout::Fixed(stored)) if width == stored && width <= size_of::<u64>()
        ),
    };
    let is_flat = descr.max_rep_level() == 0 && descr.max_def_level() <= i16::from(u8::MAX);
    Ok((fits && is_flat).then_some((*leaf, levels)))
}
