//! Key columns of any type, as typed values: cast, decimals, legacy timestamps.
//!
//! # Not here
//! Values that pages hold as keys need them (`paged`).

use std::sync::Arc;

use parquet::basic::Type as Physical;
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type,
    Int64Type, Int96, Int96Type,
};
use plait_core::key::{Column, Values};
use plait_core::{Error, Kind, Result};

use crate::leaf::{self, Leaf, LocationCache, OutputLeaf, Span};
use crate::runtime::Context;
use crate::source::Source;

struct Typed<T: DataType> {
    leaf: Box<dyn Leaf<T>>,
    span: Span<T::T>,
}

impl<T: DataType> Typed<T> {
    fn fill(&mut self, rows: usize) -> Result<()> {
        self.span.clear();
        let mut left = rows;
        while left > 0 {
            let read = self.leaf.read(left, &mut self.span)?;
            if read == 0 {
                let what = "key column ends before its row group";
                return Err(Error::new(Kind::CorruptSource, what));
            }
            left -= read;
        }
        Ok(())
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

/// The values of one key column of some rows, and which rows have one.
pub(super) struct TypedColumn {
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

impl TypedColumn {
    /// Opens the column at `row`.
    pub(super) fn open(
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

    /// Reads `rows` rows.
    pub(super) fn fill(&mut self, rows: usize) -> Result<()> {
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

    /// Whether a row has a value.
    pub(super) fn has_values(&self) -> bool {
        each!(&self.any, typed => !typed.span.values.is_empty())
    }

    /// The values as byte slices, for types that are such.
    pub(super) fn slices(&self) -> Vec<&[u8]> {
        match &self.any {
            AnyColumn::Bytes(typed) => typed.span.values.iter().map(|v| v.data()).collect(),
            AnyColumn::Fixed(typed) => typed.span.values.iter().map(|v| v.data()).collect(),
            _ => Vec::new(),
        }
    }

    /// The rows, with what [`slices`](Self::slices) gave.
    pub(super) fn column<'a>(&'a self, slices: &'a [&'a [u8]]) -> Column<'a> {
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
