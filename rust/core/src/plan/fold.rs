//! Sums and products of values of one type.
//!
//! ```text
//! Int64   2, null, 40  ─ as i128 ─▶ 42 ─ does it fit? ─▶ Int64
//! ```
//!
//! # Invariants
//! The result is a value of the type of the values, or an error. Nulls count for nothing; of nulls
//! alone the result is null. Values are taken in merged order, so that floats are rounded in the same
//! way each time.
//!
//! # Not here
//! Which values (`combine`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, DecimalType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow_cast::cast;
use arrow_schema::DataType;

use plait_base::{Error, Kind, Result};

/// Digits of a decimal of 128 bits.
const DIGITS_MAX: u8 = 38;

/// How numbers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// They are added.
    Sum,
    /// They are multiplied.
    Product,
}

/// A number of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer, or the digits of a decimal.
    Int(i128),
    /// A float of 32 bits.
    Float32(f32),
    /// A float of 64 bits.
    Float64(f64),
}

/// What numbers became.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Folded {
    /// A number of their column; none of nulls alone.
    Fits(Option<Number>),
    /// An integer that the column cannot hold; none if 128 bits cannot, either.
    DoesNotFit(Option<i128>),
}

/// The numbers of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberType {
    /// Integers from the first to the second.
    Int(i128, i128),
    /// Floats of 32 bits.
    Float32,
    /// Floats of 64 bits.
    Float64,
}

impl NumberType {
    /// The numbers of columns of `data_type`, if it has numbers.
    #[must_use]
    pub fn of(data_type: &DataType) -> Option<Self> {
        let signed = |bits: u32| Self::Int(-(1 << (bits - 1)), (1 << (bits - 1)) - 1);
        let unsigned = |bits: u32| Self::Int(0, (1 << bits) - 1);
        let digits = |precision: u8| {
            let max = 10_i128.checked_pow(u32::from(precision))? - 1;
            Some(Self::Int(-max, max))
        };
        Some(match data_type {
            DataType::Int8 => signed(8),
            DataType::Int16 => signed(16),
            DataType::Int32 => signed(32),
            DataType::Int64 => signed(64),
            DataType::UInt8 => unsigned(8),
            DataType::UInt16 => unsigned(16),
            DataType::UInt32 => unsigned(32),
            DataType::UInt64 => unsigned(64),
            DataType::Decimal32(precision, _)
            | DataType::Decimal64(precision, _)
            | DataType::Decimal128(precision, _) => digits(*precision)?,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Dictionary(_, values) => return Self::of(values),
            _ => return None,
        })
    }

    /// What `function` makes of `numbers`.
    ///
    /// # Errors
    /// Those of `numbers`.
    pub fn fold(
        self,
        function: Fold,
        numbers: impl Iterator<Item = Result<Option<Number>>>,
    ) -> Result<Folded> {
        let is_product = function == Fold::Product;
        let mut result: Option<Number> = None;
        for number in numbers {
            let Some(number) = number? else { continue };
            result = Some(match (result, number) {
                (None, number) => number,
                (Some(Number::Int(a)), Number::Int(b)) => {
                    let made = if is_product { a.checked_mul(b) } else { a.checked_add(b) };
                    match made {
                        Some(made) => Number::Int(made),
                        None => return Ok(Folded::DoesNotFit(None)),
                    }
                }
                (Some(Number::Float32(a)), Number::Float32(b)) => {
                    Number::Float32(if is_product { a * b } else { a + b })
                }
                (Some(Number::Float64(a)), Number::Float64(b)) => {
                    Number::Float64(if is_product { a * b } else { a + b })
                }
                _ => return Err(Error::new(Kind::Internal, "numbers of a column differ in type")),
            });
        }
        match (self, result) {
            (Self::Int(min, max), Some(Number::Int(n))) if n < min || n > max => {
                Ok(Folded::DoesNotFit(Some(n)))
            }
            (_, result) => Ok(Folded::Fits(result)),
        }
    }
}

/// The error for an integer that a column of `data_type` cannot hold; `key` is that of the rows, in
/// words.
#[must_use]
pub fn does_not_fit(number: Option<i128>, data_type: &DataType, key: &str) -> Error {
    let scale = match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    let number = match number {
        Some(number) => Decimal128Type::format_decimal(number, DIGITS_MAX, scale),
        None => "more than 38 digits".to_owned(),
    };
    Error::new(Kind::LossyCast, "the aggregate of the rows of a key does not fit its column")
        .with_got(format!("{number} for key {key}"))
        .with_hint("widen the type of the column in a source first")
}

macro_rules! each_number_type {
    ($data_type:expr, $T:ident => $body:expr, $other:expr) => {
        match $data_type {
            DataType::Int8 => each_number_type!(@ Int8Type, $T, $body),
            DataType::Int16 => each_number_type!(@ Int16Type, $T, $body),
            DataType::Int32 => each_number_type!(@ Int32Type, $T, $body),
            DataType::Int64 => each_number_type!(@ Int64Type, $T, $body),
            DataType::UInt8 => each_number_type!(@ UInt8Type, $T, $body),
            DataType::UInt16 => each_number_type!(@ UInt16Type, $T, $body),
            DataType::UInt32 => each_number_type!(@ UInt32Type, $T, $body),
            DataType::UInt64 => each_number_type!(@ UInt64Type, $T, $body),
            DataType::Decimal32(..) => each_number_type!(@ Decimal32Type, $T, $body),
            DataType::Decimal64(..) => each_number_type!(@ Decimal64Type, $T, $body),
            DataType::Decimal128(..) => each_number_type!(@ Decimal128Type, $T, $body),
            DataType::Float32 => each_number_type!(@ Float32Type, $T, $body),
            DataType::Float64 => each_number_type!(@ Float64Type, $T, $body),
            _ => $other,
        }
    };
    (@ $Type:ident, $T:ident, $body:expr) => {{
        type $T = $Type;
        $body
    }};
}

/// A primitive value as a number, and back.
trait Numeric: Copy {
    fn number(self) -> Number;
    fn of(number: Number) -> Option<Self>;
}

macro_rules! integers {
    ($($t:ty),+) => {$(
        impl Numeric for $t {
            fn number(self) -> Number {
                Number::Int(i128::from(self))
            }
            fn of(number: Number) -> Option<Self> {
                match number {
                    Number::Int(n) => Self::try_from(n).ok(),
                    _ => None,
                }
            }
        }
    )+};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64, i128);

impl Numeric for f32 {
    fn number(self) -> Number {
        Number::Float32(self)
    }
    fn of(number: Number) -> Option<Self> {
        if let Number::Float32(n) = number { Some(n) } else { None }
    }
}

impl Numeric for f64 {
    fn number(self) -> Number {
        Number::Float64(self)
    }
    fn of(number: Number) -> Option<Self> {
        if let Number::Float64(n) = number { Some(n) } else { None }
    }
}

/// The number at `row` of an array of a type with numbers; none if it is null.
#[must_use]
pub(crate) fn number_at(array: &dyn Array, row: usize) -> Option<Number> {
    if array.is_null(row) {
        return None;
    }
    if let DataType::Dictionary(_, values) = array.data_type() {
        return number_at(&cast(&array.slice(row, 1), values).ok()?, 0);
    }
    each_number_type!(array.data_type(), T => {
        Some(array.as_primitive_opt::<T>()?.value(row).number())
    }, None)
}

/// Numbers as an array of `data_type`.
///
/// # Errors
/// [`Kind::Internal`] for numbers that are none of the type.
pub(crate) fn number_array(data_type: &DataType, numbers: &[Option<Number>]) -> Result<ArrayRef> {
    fn build<T: ArrowPrimitiveType>(
        data_type: &DataType,
        numbers: &[Option<Number>],
    ) -> Result<ArrayRef>
    where
        T::Native: Numeric,
    {
        let value = |number: &Option<Number>| match number {
            None => Ok(None),
            Some(number) => T::Native::of(*number).map(Some).ok_or_else(|| {
                Error::new(Kind::Internal, "an aggregate is none of the type of its column")
            }),
        };
        let values = numbers.iter().map(value).collect::<Result<Vec<_>>>()?;
        let array = PrimitiveArray::<T>::from_iter(values).with_data_type(data_type.clone());
        Ok(Arc::new(array))
    }
    if let DataType::Dictionary(_, values) = data_type {
        let values = number_array(values, numbers)?;
        return cast(&values, data_type).map_err(Error::from_arrow);
    }
    each_number_type!(data_type, T => build::<T>(data_type, numbers), {
        Err(Error::new(Kind::Internal, "a column without numbers was aggregated"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_fit_their_type_or_are_refused() {
        let sum = |data_type: DataType, numbers: &[Option<i128>]| {
            let numbers = numbers.iter().map(|n| Ok(n.map(Number::Int)));
            NumberType::of(&data_type).unwrap().fold(Fold::Sum, numbers)
        };
        let fits = |n: i128| Folded::Fits(Some(Number::Int(n)));
        let int8 = |numbers: &[Option<i128>]| sum(DataType::Int8, numbers).unwrap();
        assert_eq!(int8(&[Some(100), None, Some(27)]), fits(127));
        assert_eq!(int8(&[None, None]), Folded::Fits(None));
        assert_eq!(int8(&[Some(100), Some(28)]), Folded::DoesNotFit(Some(128)));
        // What does not fit on the way may fit in the end.
        let numbers = [Some(200), Some(200), Some(-150)];
        assert_eq!(sum(DataType::UInt8, &numbers).unwrap(), fits(250));
        let digits = |numbers: &[Option<i128>]| sum(DataType::Decimal128(3, 1), numbers).unwrap();
        assert_eq!(digits(&[Some(999)]), fits(999));
        assert_eq!(digits(&[Some(999), Some(1)]), Folded::DoesNotFit(Some(1000)));
    }

    #[test]
    fn a_decimal_that_does_not_fit_is_told_with_its_point() {
        let error = does_not_fit(Some(10_000), &DataType::Decimal128(4, 2), "`a`");
        assert_eq!(error.got(), Some("100.00 for key `a`"));
        assert_eq!(does_not_fit(Some(-128), &DataType::Int8, "1").got(), Some("-128 for key 1"));
    }

    #[test]
    fn numbers_go_into_arrays_and_back() {
        let types = [
            DataType::Int8,
            DataType::UInt64,
            DataType::Decimal32(5, 2),
            DataType::Decimal128(38, 4),
        ];
        for data_type in types {
            let numbers = [Some(Number::Int(7)), None, Some(Number::Int(0))];
            let array = number_array(&data_type, &numbers).unwrap();
            assert_eq!(array.data_type(), &data_type);
            let back: Vec<_> = (0..3).map(|row| number_at(&array, row)).collect();
            assert_eq!(back, numbers);
        }
        let coded = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int64));
        let numbers = [Some(Number::Int(7)), None, Some(Number::Int(7))];
        let array = number_array(&coded, &numbers).unwrap();
        assert_eq!(array.data_type(), &coded);
        let back: Vec<_> = (0..3).map(|row| number_at(&array, row)).collect();
        assert_eq!(back, numbers);
        let floats = [Some(Number::Float32(0.5)), None];
        let array = number_array(&DataType::Float32, &floats).unwrap();
        assert_eq!(number_at(&array, 0), floats[0]);
    }
}
