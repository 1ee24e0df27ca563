//! Pages that the parquet crate's writer makes: delta, byte stream split, and dictionaries that
//! have to be found by hashing values.
//!
//! ```text
//! PageBuffer ─▶ typed values ─▶ column writer ─▶ pages
//! ```
//!
//! # Cost
//! A typed copy of one page.

use std::ops::Range;

use bytes::Bytes;
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{ByteArray, DataType, FixedLenByteArray, Int96};
use plait_core::Result;

use super::buffer::PageBuffer;
use crate::block::Layout;
use crate::page::unwrap_error;

/// A value read from where it lies in a plain page, without prefix.
pub(crate) trait FromPlain: Sized {
    /// The value; missing bytes are zeros.
    fn from_plain(bytes: &[u8]) -> Self;

    /// The value at `range` of a page.
    fn from_page(page: &Bytes, range: Range<usize>) -> Self {
        Self::from_plain(page.get(range).unwrap_or_default())
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

macro_rules! from_plain {
    ($($t:ty),*) => {
        $(impl FromPlain for $t {
            fn from_plain(bytes: &[u8]) -> Self {
                <$t>::from_le_bytes(array(bytes))
            }
        })*
    };
}
from_plain!(i32, i64, f32, f64);

impl FromPlain for bool {
    fn from_plain(bytes: &[u8]) -> Self {
        bytes.first().is_some_and(|flag| *flag != 0)
    }
}

impl FromPlain for Int96 {
    fn from_plain(bytes: &[u8]) -> Self {
        let all: [u8; 12] = array(bytes);
        let word = |i: usize| u32::from_le_bytes(array(&all[4 * i..]));
        let mut value = Self::new();
        value.set_data(word(0), word(1), word(2));
        value
    }
}

impl FromPlain for ByteArray {
    fn from_plain(bytes: &[u8]) -> Self {
        Self::from(bytes.to_vec())
    }

    fn from_page(page: &Bytes, range: Range<usize>) -> Self {
        match range.end <= page.len() {
            true => Self::from(page.slice(range)),
            false => Self::new(),
        }
    }
}

impl FromPlain for FixedLenByteArray {
    fn from_plain(bytes: &[u8]) -> Self {
        Self::from(ByteArray::from(bytes.to_vec()))
    }

    fn from_page(page: &Bytes, range: Range<usize>) -> Self {
        Self::from(ByteArray::from_page(page, range))
    }
}

/// Plain values, one by one.
pub(super) fn typed_values<V: FromPlain>(bytes: &[u8], layout: Layout) -> Vec<V> {
    let page = match layout {
        Layout::Prefixed => Bytes::copy_from_slice(bytes),
        Layout::Fixed(_) => Bytes::new(),
    };
    let mut values = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let Some(len) = layout.len_at(bytes, at).filter(|len| *len > 0) else { break };
        values.push(match layout {
            Layout::Prefixed => V::from_page(&page, at + 4..at + len),
            Layout::Fixed(_) => V::from_plain(bytes.get(at..at + len).unwrap_or_default()),
        });
        at += len;
    }
    values
}

/// Writes the rows of `page` and empties it.
///
/// # Errors
/// What the writer's sink says.
pub(crate) fn write_page<T: DataType>(
    page: &mut PageBuffer,
    layout: Layout,
    levels: (bool, bool),
    def_max: i16,
    writer: &mut ColumnWriterImpl<'_, T>,
) -> Result<()>
where
    T::T: FromPlain,
{
    if page.rows() == 0 {
        return Ok(());
    }
    let mut values: Vec<T::T> = typed_values(page.values(), layout);
    values.resize_with(page.value_count(), || T::T::from_plain(&[]));
    let (has_rep, has_def) = levels;
    let rep: Vec<i16> = page.rep().iter().map(|level| i16::from(*level)).collect();
    let def: Vec<i16> = match page.def() {
        [] => vec![def_max; page.levels()],
        def => def.iter().map(|level| i16::from(*level)).collect(),
    };
    let rep = has_rep.then_some(rep.as_slice());
    let def = has_def.then_some(def.as_slice());
    writer.write_batch(&values, def, rep).map_err(unwrap_error)?;
    page.clear();
    Ok(())
}
