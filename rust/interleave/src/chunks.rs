//! An interleave a chunk at a time: bounded memory, and no offset that does not fit.
//!
//! # Invariants
//! The chunks are the rows, in order; none is empty. A chunk has at most as many rows and bytes as
//! it may, unless a single row is larger. Whatever does not fit 32 bits is halved until it does.
//!
//! # Cost
//! What a chunk holds; sizes are found a range at a time.
//!
//! # Not here
//! Streams of batches (whoever exports them).

use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use crate::gather::gather;
use crate::levels::Levels;
use crate::select::{Cursor, Selection};
use crate::size;
use plait_base::{Kind, Result};

/// Rows of a chunk, at most.
pub const CHUNK_ROWS_MAX: usize = 65_536;

/// Bytes of a chunk, at most, unless one row is larger.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;

/// Ranges are measured in steps of as many rows.
const STEP_ROWS: usize = 1024;

/// The chunks of an interleave; made by [`Interleave::chunks`](crate::Interleave::chunks).
#[derive(Debug)]
pub struct Chunks {
    values: Vec<ArrayRef>,
    selection: Selection<'static>,
    out: DataType,
    levels: Levels,
    rows_max: usize,
    bytes_max: usize,
    cursor: Cursor,
    left: usize,
}

impl Chunks {
    pub(crate) fn new(
        values: Vec<ArrayRef>,
        selection: Selection<'_>,
        out: DataType,
        rows_max: usize,
        bytes_max: usize,
        levels: Levels,
    ) -> Self {
        let left = selection.len();
        let rows_max = rows_max.max(1);
        let cursor = Cursor::default();
        let (selection, _) = selection.part(cursor, left);
        Self { values, selection, out, levels, rows_max, bytes_max, cursor, left }
    }

    /// Number of rows from the cursor that have at most `bytes_max` bytes; at least 1.
    fn rows_that_fit(&self) -> Result<usize> {
        let (mut rows, mut bytes) = (0, 0_usize);
        let most = self.rows_max.min(self.left);
        let mut cursor = self.cursor;
        while rows < most {
            let Some((array, start, len)) = self.selection.range(&cursor) else { break };
            let mut len = len.min(STEP_ROWS).min(most - rows);
            let values = &self.values[array];
            let mut more = size::bytes(values, start, len);
            while bytes.saturating_add(more) > self.bytes_max && len > 1 {
                len /= 2;
                more = size::bytes(values, start, len);
            }
            if bytes.saturating_add(more) > self.bytes_max && rows > 0 {
                break;
            }
            rows += len;
            bytes = bytes.saturating_add(more);
            cursor = self.selection.after(cursor, len);
        }
        Ok(rows.max(1))
    }

    fn chunk(&mut self) -> Result<ArrayRef> {
        let mut rows = self.rows_that_fit()?;
        let values: Vec<&dyn Array> = self.values.iter().map(|array| &**array).collect();
        loop {
            let (part, after) = self.selection.part(self.cursor, rows);
            match gather(&values, &part, &self.out, self.levels) {
                // `gather` has no other reason for this kind than numbers that do not fit.
                Err(e) if e.kind() == Kind::Unsupported && rows > 1 => rows /= 2,
                Err(e) => return Err(e),
                Ok(chunk) => {
                    self.cursor = after;
                    self.left -= rows;
                    return Ok(chunk);
                }
            }
        }
    }
}

impl Iterator for Chunks {
    type Item = Result<ArrayRef>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let chunk = self.chunk();
        if chunk.is_err() {
            self.left = 0;
        }
        Some(chunk)
    }
}
