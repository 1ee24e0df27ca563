//! Which leaf stores the values of several, and the casts that get them there.
//!
//! ```text
//! INT32 (INTEGER(8,false)) ─┐ meaning                supertype          node
//! INT32                    ─┴─────────> uint8, int32 ─────────> int32 ──────> INT32
//! ```
//!
//! # Invariants
//! Leaves that agree are carried as they are, whatever they mean; others are stored as
//! [`plait_core::schema::supertype_of`] what they store, and only if a cast exists for every one.
//!
//! # Not here
//! What one leaf means (`leaf`); casting values (the leaf readers, by [`Cast`]).

use arrow_schema::{DataType, TimeUnit};
use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use plait_core::schema::supertype_of;

use super::leaf::{LeafType, StoredType};
use super::summary::is_reread;

/// How a decimal's digits are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecimalForm {
    /// As INT32.
    Int32,
    /// As INT64.
    Int64,
    /// As FIXED_LEN_BYTE_ARRAY: big-endian two's complement.
    Fixed {
        /// Bytes of every value.
        bytes: usize,
    },
    /// As BYTE_ARRAY: big-endian two's complement of any length.
    Bytes,
}

/// A cast of values that loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    /// INT32 to INT64, with its sign.
    I32ToI64,
    /// INT32 bits that are unsigned, to INT64.
    U32ToI64,
    /// INT32 to DOUBLE.
    I32ToF64,
    /// Two bytes of half precision to FLOAT.
    F16ToF32,
    /// Two bytes of half precision to DOUBLE.
    F16ToF64,
    /// FLOAT to DOUBLE.
    F32ToF64,
    /// INT32 to INT64, times a constant: milliseconds of a day to a finer unit; never overflows.
    I32ToI64Mul {
        /// The factor.
        by: i64,
    },
    /// INT64 times a constant: a time to a finer unit. A value that overflows is an error.
    I64Mul {
        /// The factor.
        by: i64,
    },
    /// A decimal to another form, with more digits after the point. A value that does not fit
    /// has more digits than its file declared, and is an error.
    Decimal {
        /// The source's form.
        from: DecimalForm,
        /// The output's form, never [`DecimalForm::Bytes`].
        to: DecimalForm,
        /// The power of ten to multiply with.
        mul10: u32,
    },
}

/// What stores the values of all `sources`, which go together, or `None` when nothing known here
/// does.
pub(super) fn storage(sources: &[&StoredType]) -> Option<StoredType> {
    let (first, rest) = sources.split_first()?;
    if rest.iter().all(|s| s == first) {
        return Some((*first).clone());
    }
    let types: Vec<DataType> = sources.iter().map(|s| s.ty()).collect::<Option<_>>()?;
    let all = supertype_of(&types)?;
    let leaves: Vec<&LeafType> = sources.iter().map(|s| &s.leaf).collect();
    let built = build(&all, &leaves);
    // A source's own node says more than a built one: names of legacy and of new annotations.
    let of_a_source = leaves
        .iter()
        .zip(&types)
        .filter(|(leaf, ty)| is_stored_as(ty, &all) && fits(leaf, built.as_ref()))
        .map(|(leaf, _)| *leaf)
        .reduce(|a, b| if a.logical.is_none() && b.logical.is_some() { b } else { a });
    let leaf = of_a_source.cloned().or(built)?;
    let reread = leaf.meaning().is_some_and(|m| is_reread(&m.ty, &all)).then_some(all);
    let stored = StoredType { leaf, reread };
    sources.iter().all(|source| cast(source, &stored).is_some()).then_some(stored)
}

/// Whether values of both types are the same bytes: a zone changes none.
fn is_stored_as(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::Timestamp(u, Some(_)), DataType::Timestamp(v, Some(_))) => u == v,
        _ => a == b,
    }
}

/// Whether a source's leaf stores values as the built one would.
fn fits(ty: &LeafType, built: Option<&LeafType>) -> bool {
    built.is_none_or(|built| ty.physical == built.physical && ty.length == built.length)
}

/// The leaf of a type that may be in no source.
fn build(ty: &DataType, types: &[&LeafType]) -> Option<LeafType> {
    use DataType as T;
    Some(match ty {
        T::Int8 => LeafType::integer(8),
        T::Int16 => LeafType::integer(16),
        T::Int32 => LeafType::bare(PhysicalType::INT32),
        T::Int64 => LeafType::bare(PhysicalType::INT64),
        T::Float64 => LeafType::bare(PhysicalType::DOUBLE),
        T::Decimal128(p, s) | T::Decimal256(p, s) => {
            let (precision, scale) = (i32::from(*p), i32::from(*s));
            let all =
                |physical: &[PhysicalType]| types.iter().all(|t| physical.contains(&t.physical));
            let (physical, length) = if precision <= 9 && all(&[PhysicalType::INT32]) {
                (PhysicalType::INT32, -1)
            } else if precision <= 18 && all(&[PhysicalType::INT32, PhysicalType::INT64]) {
                (PhysicalType::INT64, -1)
            } else if types.iter().all(|t| t.physical == PhysicalType::BYTE_ARRAY)
                && types.iter().all(|t| (t.precision, t.scale) == (precision, scale))
            {
                (PhysicalType::BYTE_ARRAY, -1)
            } else {
                let widest = types.iter().map(|t| t.length).max().unwrap_or(0);
                (PhysicalType::FIXED_LEN_BYTE_ARRAY, widest.max(decimal_bytes(*p)))
            };
            LeafType {
                physical,
                length,
                precision,
                scale,
                logical: Some(LogicalType::decimal(scale, precision)),
                converted: ConvertedType::DECIMAL,
            }
        }
        _ => return None,
    })
}

/// Bytes of a two's complement number of `precision` digits.
fn decimal_bytes(precision: u8) -> i32 {
    // One bit for the sign, log2(10) bits a digit; no power of ten is a power of two.
    let bits = 1.0 + f64::from(precision) * std::f64::consts::LOG2_10;
    (1..=32).find(|bytes| f64::from(bytes * 8) >= bits).unwrap_or(32)
}

/// How values of `from` become values of `to`: `Ok(None)` when they are the same values already.
pub(super) fn cast(source: &StoredType, output: &StoredType) -> Option<Option<Cast>> {
    use DataType as T;
    if source == output {
        return Some(None);
    }
    let (a, b) = (source.ty()?, output.ty()?);
    let (from, to) = (&source.leaf, &output.leaf);
    let by = |from: &TimeUnit, to: &TimeUnit| match (nanos(*to), nanos(*from)) {
        (to, from) if from % to == 0 => Some(from / to),
        _ => None,
    };
    let cast = match (&a, &b) {
        (T::Decimal128(_, s) | T::Decimal256(_, s), T::Decimal128(_, t) | T::Decimal256(_, t)) => {
            let mul10 = u32::try_from(i32::from(*t) - i32::from(*s)).ok()?;
            let (from, to) = (decimal_form(from), decimal_form(to));
            if mul10 == 0 && from == to {
                return Some(None);
            }
            Cast::Decimal { from, to, mul10 }
        }
        (T::Time32(u), T::Time64(v)) => Cast::I32ToI64Mul { by: by(u, v)? },
        (T::Time64(u), T::Time64(v))
        | (T::Timestamp(u, _), T::Timestamp(v, _))
        | (T::Duration(u), T::Duration(v))
            if u != v =>
        {
            Cast::I64Mul { by: by(u, v)? }
        }
        (T::Float16, T::Float32) => Cast::F16ToF32,
        (T::Float16, T::Float64) => Cast::F16ToF64,
        (T::Float32, T::Float64) => Cast::F32ToF64,
        (T::Time32(u), T::Time32(v)) if u != v => return None,
        _ if from.physical == to.physical && from.length == to.length => return Some(None),
        (T::UInt32, T::Int64 | T::UInt64) => Cast::U32ToI64,
        (_, T::Int64 | T::UInt64) if from.physical == PhysicalType::INT32 => Cast::I32ToI64,
        (_, T::Float64) if from.physical == PhysicalType::INT32 => Cast::I32ToF64,
        _ => return None,
    };
    Some(Some(cast))
}

/// How the digits of a decimal leaf are stored.
fn decimal_form(leaf: &LeafType) -> DecimalForm {
    match leaf.physical {
        PhysicalType::INT32 => DecimalForm::Int32,
        PhysicalType::INT64 => DecimalForm::Int64,
        PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            DecimalForm::Fixed { bytes: usize::try_from(leaf.length).unwrap_or(0) }
        }
        _ => DecimalForm::Bytes,
    }
}

fn nanos(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    }
}
