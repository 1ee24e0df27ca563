//! Reads the key columns of one source and encodes them, batch by batch.
//!
//! ```text
//! leaf a ─ span ─┐
//! leaf b ─ span ─┼─ encode ─▶ Keys   (never across a row group of the source)
//! leaf c ─ span ─┘
//! ```
//!
//! # Invariants
//! Keys are made from values in the shape of the output, so that sources of different width or
//! nullability compare. With no key columns every row has the empty key and nothing is read.
//!
//! # Cost
//! One page of every key column, one batch of keys.
//!
//! # Not here
//! Comparing keys (`plait_core::plan`).

use std::sync::Arc;

use parquet::basic::Type as Physical;
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type,
    Int64Type, Int96, Int96Type,
};
use plait_core::key::{Column, KeyShape, KeyType, Keys, Values, encode};
use plait_core::{Error, Kind, Result};

use crate::context::{Charge, Context};
use crate::leaf::{self, Leaf, LocationCache, OutputLeaf, Span};
use crate::source::Source;

/// The key columns of the output.
#[derive(Clone)]
pub struct KeyLeaves {
    /// Types and directions.
    pub shape: KeyShape,
    /// The leaves, in key order.
    pub leaves: Vec<OutputLeaf>,
}

/// Reads the keys of one source forward from some row.
pub struct KeyReader {
    source: Arc<Source>,
    shape: KeyShape,
    columns: Vec<KeyColumn>,
    row: u64,
    charge: Charge,
}

impl KeyReader {
    /// Opens the key columns of `source` at `row`.
    ///
    /// # Errors
    /// As [`leaf::open`].
    pub fn open(
        source: &Arc<Source>,
        keys: &KeyLeaves,
        row: u64,
        cache: &Arc<LocationCache>,
        context: &Context,
    ) -> Result<Self> {
        let open = |leaf: &OutputLeaf| KeyColumn::open(source, leaf, row, cache, context);
        Ok(Self {
            source: Arc::clone(source),
            shape: keys.shape.clone(),
            columns: keys.leaves.iter().map(open).collect::<Result<_>>()?,
            row,
            charge: context.charge(0),
        })
    }

    /// The row that is read next.
    #[must_use]
    pub fn row(&self) -> u64 {
        self.row
    }

    /// Keys of up to `rows_max` rows of one row group, and whether they start it; `None` at the
    /// end of the source.
    ///
    /// # Errors
    /// Whatever is wrong with the source, with file and column.
    pub fn next(&mut self, rows_max: usize) -> Result<Option<(Keys, bool)>> {
        if self.row >= self.source.rows() {
            return Ok(None);
        }
        let (row_group, in_group) = self.source.row_group_of(self.row);
        let left = self.source.row_group_rows(row_group) - in_group;
        let rows = rows_max.min(usize::try_from(left).unwrap_or(usize::MAX));
        for column in &mut self.columns {
            column.fill(rows).map_err(|e| e.with_path(self.source.path()))?;
        }
        for (column, kind) in self.columns.iter().zip(self.shape.columns()) {
            if kind.ty == KeyType::Null && column.has_values() {
                return Err(Error::new(Kind::CorruptSource, "column of nulls holds values")
                    .with_path(self.source.path())
                    .with_column(&kind.name)
                    .with_row(self.row));
            }
        }
        let bytes: Vec<Vec<&[u8]>> = self.columns.iter().map(KeyColumn::slices).collect();
        let kinds = self.shape.columns().iter().map(|kind| kind.ty);
        let columns: Vec<Column<'_>> = self
            .columns
            .iter()
            .zip(&bytes)
            .zip(kinds)
            .map(|((column, slices), ty)| match ty {
                KeyType::Null => Column { present: None, values: Values::None },
                _ => column.column(slices),
            })
            .collect();
        let keys = encode(&self.shape, rows, &columns)
            .map_err(|e| e.with_path(self.source.path()).with_row(self.row))?;
        self.row += rows as u64;
        self.charge.set(keys.memory_size());
        Ok(Some((keys, in_group == 0)))
    }
}

/// The encoded key of one row.
///
/// # Errors
/// As [`KeyReader::next`]; a row behind the end is [`Kind::Internal`].
pub fn key_at(
    source: &Arc<Source>,
    keys: &KeyLeaves,
    row: u64,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<Vec<u8>> {
    let mut reader = KeyReader::open(source, keys, row, cache, context)?;
    match reader.next(1)? {
        Some((key, _)) => Ok(key.to_bytes(&keys.shape, 0)),
        None => Err(Error::new(Kind::Internal, "row lies behind the end of its source")
            .with_path(source.path())
            .with_row(row)),
    }
}

struct Typed<T: DataType> {
    leaf: Box<dyn Leaf<T>>,
    span: Span<T::T>,
}

impl<T: DataType> Typed<T> {
    fn fill(&mut self, rows: usize) -> Result<()> {
        self.span.clear();
        let read = self.leaf.read(rows, &mut self.span)?;
        if read == rows {
            return Ok(());
        }
        Err(Error::new(Kind::CorruptSource, "key column ends before its row group"))
    }
}

enum AnyColumn {
    Boolean(Typed<BoolType>),
    Int32(Typed<Int32Type>),
    Int64(Typed<Int64Type>),
    Int96(Typed<Int96Type>, Vec<[u8; 12]>),
    Float(Typed<FloatType>),
    Double(Typed<DoubleType>),
    Bytes(Typed<ByteArrayType>),
    Fixed(Typed<FixedLenByteArrayType>),
}

/// One key column: its values and which rows have one.
struct KeyColumn {
    any: AnyColumn,
    max_def: i16,
    present: Vec<bool>,
}

macro_rules! each {
    ($any:expr, $typed:ident => $body:expr) => {
        match $any {
            AnyColumn::Boolean($typed) => $body,
            AnyColumn::Int32($typed) => $body,
            AnyColumn::Int64($typed) => $body,
            AnyColumn::Int96($typed, _) => $body,
            AnyColumn::Float($typed) => $body,
            AnyColumn::Double($typed) => $body,
            AnyColumn::Bytes($typed) => $body,
            AnyColumn::Fixed($typed) => $body,
        }
    };
}

impl KeyColumn {
    fn open(
        source: &Arc<Source>,
        output: &OutputLeaf,
        row: u64,
        cache: &Arc<LocationCache>,
        context: &Context,
    ) -> Result<Self> {
        macro_rules! typed {
            () => {
                Typed {
                    leaf: leaf::open(source, output, row, cache, context)?,
                    span: Span::default(),
                }
            };
        }
        let any = match output.descr.physical_type() {
            Physical::BOOLEAN => AnyColumn::Boolean(typed!()),
            Physical::INT32 => AnyColumn::Int32(typed!()),
            Physical::INT64 => AnyColumn::Int64(typed!()),
            Physical::INT96 => AnyColumn::Int96(typed!(), Vec::new()),
            Physical::FLOAT => AnyColumn::Float(typed!()),
            Physical::DOUBLE => AnyColumn::Double(typed!()),
            Physical::BYTE_ARRAY => AnyColumn::Bytes(typed!()),
            Physical::FIXED_LEN_BYTE_ARRAY => AnyColumn::Fixed(typed!()),
        };
        Ok(Self { any, max_def: output.descr.max_def_level(), present: Vec::new() })
    }

    fn fill(&mut self, rows: usize) -> Result<()> {
        each!(&mut self.any, typed => {
            typed.fill(rows)?;
            self.present.clear();
            if typed.span.values.len() < rows {
                self.present.extend(typed.span.def.iter().map(|&def| def == self.max_def));
            }
        });
        if let AnyColumn::Int96(typed, raw) = &mut self.any {
            raw.clear();
            raw.extend(typed.span.values.iter().map(int96_bytes));
        }
        Ok(())
    }

    fn has_values(&self) -> bool {
        each!(&self.any, typed => !typed.span.values.is_empty())
    }

    /// The values as byte slices, for types that are such.
    fn slices(&self) -> Vec<&[u8]> {
        match &self.any {
            AnyColumn::Bytes(typed) => typed.span.values.iter().map(|v| v.data()).collect(),
            AnyColumn::Fixed(typed) => typed.span.values.iter().map(|v| v.data()).collect(),
            _ => Vec::new(),
        }
    }

    fn column<'a>(&'a self, slices: &'a [&'a [u8]]) -> Column<'a> {
        let values = match &self.any {
            AnyColumn::Boolean(typed) => Values::Boolean(&typed.span.values),
            AnyColumn::Int32(typed) => Values::Int32(&typed.span.values),
            AnyColumn::Int64(typed) => Values::Int64(&typed.span.values),
            AnyColumn::Int96(_, raw) => Values::Int96(raw),
            AnyColumn::Float(typed) => Values::Float(&typed.span.values),
            AnyColumn::Double(typed) => Values::Double(&typed.span.values),
            AnyColumn::Bytes(_) | AnyColumn::Fixed(_) => Values::Bytes(slices),
        };
        let present = (!self.present.is_empty()).then_some(self.present.as_slice());
        Column { present, values }
    }
}

fn int96_bytes(value: &Int96) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (slot, word) in bytes.chunks_exact_mut(4).zip(value.data()) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
