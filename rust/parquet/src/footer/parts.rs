//! Where the parts of a footer are: those that other footers may have, too, and those of its chunks.
//!
//! ```text
//! version │ schema │ rows │ row groups │ entries: ARROW:schema, plait.… │ writer │ orders
//! ```
//!
//! # Invariants
//! Parts lie in the footer that they were found in.
//!
//! # Cost
//! One walk over the footer, and another one over its row groups for those that are stored.
//!
//! # Not here
//! How they are stored (`stored`); whether they are sound (`checks`).

use std::ops::Range;

use crate::thrift::{Reader, Stop, TYPE_LIST};

/// Pieces that are shorter are not looked for in other footers.
const PIECE_BYTES_MIN: usize = 64;

/// Numbers of fields of a footer.
const SCHEMA: i16 = 2;
const ROWS: i16 = 3;
const ROW_GROUPS: i16 = 4;
const ENTRIES: i16 = 5;
/// Of a row group.
const COLUMNS: i16 = 1;
const ENCRYPTION: i16 = 8;

/// Where the parts of a footer are.
#[derive(Debug, Default)]
pub(super) struct FooterParts {
    pub(super) schema: Option<Range<usize>>,
    /// The pieces that other footers may have, too.
    pub(super) pieces: Vec<Range<usize>>,
    /// The number of rows and the row groups, which each file has for itself.
    own: Vec<Range<usize>>,
    /// The row groups.
    pub(super) row_groups: Option<Range<usize>>,
    /// Whether columns are encrypted.
    pub(super) is_encrypted: bool,
}

impl FooterParts {
    /// Finds the parts of a footer; `schema` reads over the list of the elements of its schema.
    ///
    /// # Errors
    /// Bytes that are no footer, and those of `schema`.
    pub(super) fn find<'a>(
        footer: &'a [u8],
        schema: impl Fn(&mut Reader<'a>) -> Result<(), Stop>,
    ) -> Result<Self, Stop> {
        let (mut reader, mut last, mut found) = (Reader::new(footer), 0, Self::default());
        while let Some((id, kind)) = reader.field(&mut last)? {
            found.is_encrypted |= id == ENCRYPTION;
            if (id, kind) == (ENTRIES, TYPE_LIST) {
                let (kind, entries) = reader.list()?;
                for _ in 0..entries {
                    let start = reader.position();
                    reader.skip(kind)?;
                    found.pieces.push(start..reader.position());
                }
                continue;
            }
            let start = reader.position();
            match (id, kind) {
                (SCHEMA, TYPE_LIST) => schema(&mut reader)?,
                _ => reader.skip(kind)?,
            }
            let part = start..reader.position();
            if (id, kind) == (ROW_GROUPS, TYPE_LIST) {
                found.row_groups = Some(part.clone());
            }
            match id {
                SCHEMA => {
                    if found.schema.is_some() {
                        return Err(Stop::Malformed("footer has two schemas"));
                    }
                    found.schema = Some(part.clone());
                    found.pieces.push(part);
                }
                ROWS | ROW_GROUPS => found.own.push(part),
                _ => found.pieces.push(part),
            }
        }
        found.pieces.retain(|piece| piece.len() >= PIECE_BYTES_MIN);
        Ok(found)
    }

    /// Where the entries of chunks begin in `footer`, and where those of each row group end; none if
    /// some row group has other than `leaves` of them.
    pub(super) fn chunks(&self, footer: &[u8], leaves: usize) -> Option<Vec<usize>> {
        let start = self.row_groups.clone()?.start;
        let mut reader = Reader::new(footer.get(start..)?);
        let (_, groups) = reader.list().ok()?;
        let mut found = Vec::with_capacity(groups.checked_mul(leaves + 1)?.min(footer.len()));
        for group in 1..=groups {
            let mut last = 0;
            while let Some((id, kind)) = reader.field(&mut last).ok()? {
                if (id, kind) != (COLUMNS, TYPE_LIST) {
                    reader.skip(kind).ok()?;
                    continue;
                }
                let (kind, chunks) = reader.list().ok()?;
                for _ in 0..chunks {
                    found.push(start + reader.position());
                    reader.skip(kind).ok()?;
                }
                found.push(start + reader.position());
            }
            if found.len() != group * (leaves + 1) {
                return None;
            }
        }
        Some(found)
    }

    /// The footer without its number of rows and its row groups: schema, entries, writer, orders.
    pub(super) fn of_all(&self, footer: &[u8]) -> Vec<u8> {
        let starts = [0].into_iter().chain(self.own.iter().map(|own| own.end));
        let ends = self.own.iter().map(|own| own.start).chain([footer.len()]);
        let kept = starts.zip(ends).filter_map(|(start, end)| footer.get(start..end));
        kept.flatten().copied().collect()
    }
}
