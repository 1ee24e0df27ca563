//! The smallest and the greatest value of a page, in the order that the column's type defines.
//!
//! ```text
//! plain    one pass over the values
//! ids      the dictionary is ranked once; a page is a minimum and a maximum of ranks
//! ```
//!
//! # Invariants
//! Floats are ordered as the output's footer declares: IEEE 754 total order, NaN left out and
//! counted, unless there is nothing else. Types without an order have no bounds.
//!
//! # Source
//! Parquet format, `ColumnOrder`, `Statistics`.

use std::cmp::Ordering;

use parquet::basic::{ConvertedType, LogicalType, SortOrder, Type as Physical};
use parquet::schema::types::ColumnDescriptor;

use crate::block::{Dictionary, Layout};

/// How values of a column compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueOrder {
    /// One byte, 0 or 1.
    Boolean,
    /// Signed, 32 bits.
    Int32,
    /// Unsigned, 32 bits.
    UInt32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 64 bits.
    UInt64,
    /// IEEE 754 total order, 16 bits.
    Float16,
    /// IEEE 754 total order, 32 bits.
    Float,
    /// IEEE 754 total order, 64 bits.
    Double,
    /// Unsigned bytes.
    Bytes,
    /// Big-endian two's complement of any length.
    Decimal,
    /// None.
    None,
}

/// Smallest and greatest of some values, and the NaN among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The smallest value, without prefix.
    pub min: Vec<u8>,
    /// The greatest value, without prefix.
    pub max: Vec<u8>,
}

impl ValueOrder {
    /// The order of a column's values.
    #[must_use]
    pub(crate) fn of(descr: &ColumnDescriptor) -> Self {
        let logical = descr.logical_type_ref();
        let converted = descr.converted_type();
        let has_no_order = converted == ConvertedType::INTERVAL
            || matches!(logical, Some(LogicalType::Geometry(_) | LogicalType::Geography(_)));
        if has_no_order {
            return Self::None;
        }
        let is_decimal =
            converted == ConvertedType::DECIMAL || matches!(logical, Some(LogicalType::Decimal(_)));
        let unsigned = descr.sort_order() == SortOrder::UNSIGNED;
        match descr.physical_type() {
            // The format leaves its order open, and readers of its bounds differ.
            Physical::INT96 => Self::None,
            Physical::BOOLEAN => Self::Boolean,
            Physical::INT32 if unsigned => Self::UInt32,
            Physical::INT32 => Self::Int32,
            Physical::INT64 if unsigned => Self::UInt64,
            Physical::INT64 => Self::Int64,
            Physical::FLOAT => Self::Float,
            Physical::DOUBLE => Self::Double,
            Physical::FIXED_LEN_BYTE_ARRAY if matches!(logical, Some(LogicalType::Float16)) => {
                Self::Float16
            }
            Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY if is_decimal => Self::Decimal,
            Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => Self::Bytes,
        }
    }

    /// Whether NaN are counted.
    #[must_use]
    pub(crate) fn has_nan(self) -> bool {
        matches!(self, Self::Float16 | Self::Float | Self::Double)
    }

    /// Whether `value` is NaN.
    #[must_use]
    pub(crate) fn is_nan(self, value: &[u8]) -> bool {
        match self {
            Self::Float16 => word::<2>(value) & 0x7FFF > 0x7C00,
            Self::Float => f32::from_bits(word::<4>(value) as u32).is_nan(),
            Self::Double => f64::from_bits(word::<8>(value)).is_nan(),
            _ => false,
        }
    }

    /// Compares two values without prefix.
    #[must_use]
    pub(crate) fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Bytes | Self::Boolean => a.cmp(b),
            Self::Decimal => compare_decimals(a, b),
            Self::None => Ordering::Equal,
            Self::Int32
            | Self::UInt32
            | Self::Float
            | Self::Float16
            | Self::Int64
            | Self::UInt64
            | Self::Double => self.number(a).cmp(&self.number(b)),
        }
    }

    /// Bounds that a source's index holds, for an index of ours: zeros of floats get the sign that
    /// lets them bound both. `None` if they are none.
    #[must_use]
    pub(crate) fn admit(self, mut min: Vec<u8>, mut max: Vec<u8>) -> Option<Bounds> {
        if self.has_nan() {
            if self.is_nan(&min) || self.is_nan(&max) {
                return None;
            }
            let is_zero = |value: &[u8]| {
                value.split_last().is_some_and(|(last, rest)| {
                    last & 0x7F == 0 && rest.iter().all(|byte| *byte == 0)
                })
            };
            if is_zero(&min)
                && let Some(last) = min.last_mut()
            {
                *last = 0x80;
            }
            if is_zero(&max)
                && let Some(last) = max.last_mut()
            {
                *last = 0;
            }
        }
        self.compare(&min, &max).is_le().then_some(Bounds { min, max })
    }

    /// A number that is smaller only if the value is.
    fn lead(self, value: &[u8]) -> i64 {
        match self {
            Self::Bytes => (lead(value) ^ 1 << 63).cast_signed(),
            Self::Boolean | Self::Decimal | Self::None => 0,
            _ => self.number(value),
        }
    }

    /// A number that orders as the value does.
    fn number(self, value: &[u8]) -> i64 {
        match self {
            Self::Int32 => i64::from(word::<4>(value) as i32),
            Self::UInt32 => word::<4>(value) as i64,
            Self::Int64 => word::<8>(value).cast_signed(),
            Self::UInt64 => (word::<8>(value) ^ 1 << 63).cast_signed(),
            Self::Float => total_order(i64::from(word::<4>(value) as i32)),
            Self::Float16 => total_order(i64::from(word::<2>(value) as i16)),
            Self::Double => total_order(word::<8>(value).cast_signed()),
            _ => 0,
        }
    }
}

/// Orders the bits of floats, sign-extended, as the IEEE 754 total order: negative ones in reverse.
#[inline]
fn total_order(bits: i64) -> i64 {
    bits ^ (bits >> 63).cast_unsigned().wrapping_shr(1).cast_signed()
}

#[inline]
fn word<const N: usize>(value: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let n = N.min(value.len());
    bytes[..n].copy_from_slice(&value[..n]);
    u64::from_le_bytes(bytes)
}

/// Compares big-endian two's complement numbers of any length; nothing is less than something.
fn compare_decimals(a: &[u8], b: &[u8]) -> Ordering {
    let (Some(&first_a), Some(&first_b)) = (a.first(), b.first()) else {
        return a.len().cmp(&b.len());
    };
    let (negative_a, negative_b) = (first_a & 0x80 != 0, first_b & 0x80 != 0);
    if negative_a != negative_b {
        return negative_b.cmp(&negative_a);
    }
    // Of one sign: extended to one length, their bytes compare as unsigned ones.
    let fill = if negative_a { 0xFF } else { 0 };
    let len = a.len().max(b.len());
    let extended = |n: &[u8], i: usize| {
        let lead = len - n.len();
        if i < lead { fill } else { n[i - lead] }
    };
    (0..len)
        .map(|i| extended(a, i).cmp(&extended(b, i)))
        .find(|o| o.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Bounds and NaN of plain values; no bounds when there are none or no order.
#[must_use]
pub(crate) fn of_plain(order: ValueOrder, layout: Layout, bytes: &[u8]) -> (Option<Bounds>, u64) {
    let own = |(min, max): (&[u8], &[u8])| Bounds { min: min.to_vec(), max: max.to_vec() };
    if bytes.is_empty() && layout != Layout::Prefixed {
        return (None, 0);
    }
    match order {
        ValueOrder::None => (None, 0),
        ValueOrder::Int32 => (numbers::<4, i32>(bytes, |b| i32::from_le_bytes(*b)), 0),
        ValueOrder::UInt32 => (numbers::<4, u32>(bytes, |b| u32::from_le_bytes(*b)), 0),
        ValueOrder::Int64 => (numbers::<8, i64>(bytes, |b| i64::from_le_bytes(*b)), 0),
        ValueOrder::UInt64 => (numbers::<8, u64>(bytes, |b| u64::from_le_bytes(*b)), 0),
        ValueOrder::Double => doubles(bytes, order),
        ValueOrder::Float => singles(bytes, order),
        ValueOrder::Float16 => floats_with_nan(bytes.as_chunks::<2>().0, order),
        ValueOrder::Bytes => (byte_bounds(values(layout, bytes), 0).map(own), 0),
        // Of one length, numbers compare as bytes do once the sign is turned round.
        ValueOrder::Decimal if layout != Layout::Prefixed => {
            (byte_bounds(values(layout, bytes), 1 << 63).map(own), 0)
        }
        ValueOrder::Boolean | ValueOrder::Decimal => {
            let mut bounds: Option<(&[u8], &[u8])> = None;
            for value in values(layout, bytes) {
                let (min, max) = bounds.unwrap_or((value, value));
                bounds = Some((
                    if order.compare(value, min).is_lt() { value } else { min },
                    if order.compare(value, max).is_gt() { value } else { max },
                ));
            }
            (bounds.map(own), 0)
        }
    }
}

/// Values without prefixes.
fn values(layout: Layout, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let len = layout.len_at(bytes, at).filter(|len| *len > 0)?;
        let start = if layout == Layout::Prefixed { at + 4 } else { at };
        at += len;
        bytes.get(start..at)
    })
}

/// Smallest and greatest, each as a number that decides most comparisons, and the value.
type Pair<K, V> = ((K, V), (K, V));

/// The first eight bytes, zeros behind a shorter value.
#[inline]
fn lead(value: &[u8]) -> u64 {
    match value.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => value.iter().enumerate().fold(0, |n, (i, b)| n | u64::from(*b) << (56 - 8 * i)),
    }
}

/// Bounds by unsigned bytes, with the bits of `turned` turned round in the first eight, which
/// decide nearly always.
fn byte_bounds<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    turned: u64,
) -> Option<(&'a [u8], &'a [u8])> {
    let mut bounds: Option<Pair<u64, &[u8]>> = None;
    for value in values {
        let key = (lead(value) ^ turned, value);
        match &mut bounds {
            None => bounds = Some((key, key)),
            Some((min, max)) => {
                if key.0 <= min.0 && key < *min {
                    *min = key;
                }
                if key.0 >= max.0 && key > *max {
                    *max = key;
                }
            }
        }
    }
    bounds.map(|(min, max)| (min.1, max.1))
}

fn numbers<const N: usize, T: Copy + Ord + Bits<N>>(
    bytes: &[u8],
    read: impl Fn(&[u8; N]) -> T,
) -> Option<Bounds> {
    let (values, _) = bytes.as_chunks::<N>();
    let first = read(values.first()?);
    let (mut min, mut max) = (first, first);
    for value in values {
        let value = read(value);
        min = min.min(value);
        max = max.max(value);
    }
    Some(Bounds { min: min.bits().to_vec(), max: max.bits().to_vec() })
}

/// A number as little-endian bytes.
trait Bits<const N: usize> {
    fn bits(self) -> [u8; N];
}

macro_rules! bits {
    ($($t:ty, $n:literal);*) => {
        $(impl Bits<$n> for $t {
            fn bits(self) -> [u8; $n] {
                self.to_le_bytes()
            }
        })*
    };
}
bits!(i32, 4; u32, 4; i64, 8; u64, 8);

/// Bounds and NaN of floats, by the bits that order as they do.
macro_rules! floats {
    ($name:ident, $float:ty, $bits:ty, $n:literal) => {
        fn $name(bytes: &[u8], order: ValueOrder) -> (Option<Bounds>, u64) {
            /// Orders bits as [`total_order`] does, and is its own inverse.
            fn ordered(bits: $bits) -> $bits {
                bits ^ ((bits >> (<$bits>::BITS - 1)).cast_unsigned() >> 1).cast_signed()
            }
            let infinity = <$float>::INFINITY.to_bits().cast_signed();
            let (values, _) = bytes.as_chunks::<$n>();
            let (mut min, mut max) = (<$bits>::MAX, <$bits>::MIN);
            for value in values {
                let value = ordered(<$bits>::from_le_bytes(*value));
                min = min.min(value);
                max = max.max(value);
            }
            // NaN lie beyond the infinities.
            if min < ordered(<$float>::NEG_INFINITY.to_bits().cast_signed()) || max > infinity {
                return floats_with_nan::<$n>(values, order);
            }
            let bounds = Bounds {
                min: ordered(min).to_le_bytes().to_vec(),
                max: ordered(max).to_le_bytes().to_vec(),
            };
            ((!values.is_empty()).then_some(bounds), 0)
        }
    };
}
floats!(doubles, f64, i64, 8);
floats!(singles, f32, i32, 4);

fn floats_with_nan<const N: usize>(values: &[[u8; N]], order: ValueOrder) -> (Option<Bounds>, u64) {
    let mut nans = 0;
    let mut bounds: Option<Pair<i64, &[u8; N]>> = None;
    for value in values {
        if order.is_nan(value) {
            nans += 1;
            continue;
        }
        let key = (order.number(value), value);
        match &mut bounds {
            None => bounds = Some((key, key)),
            Some((min, max)) => {
                if key.0 < min.0 {
                    *min = key;
                }
                if key.0 > max.0 {
                    *max = key;
                }
            }
        }
    }
    if bounds.is_none() {
        // Nothing but NaN: their own smallest and greatest.
        let all = || values.iter().map(|value| (order.number(value), value));
        bounds = all().min().zip(all().max());
    }
    let own =
        |((_, min), (_, max)): Pair<i64, &[u8; N]>| Bounds { min: min.to_vec(), max: max.to_vec() };
    (bounds.map(own), nans)
}

/// The order of a dictionary's values.
#[derive(Debug)]
pub(crate) struct Ranks {
    order: ValueOrder,
    /// Place of each id among the values, smallest first, NaN last.
    rank: Vec<u32>,
    by_rank: Vec<u32>,
    nans: usize,
}

impl Ranks {
    /// Ranks the values of `dictionary`.
    #[must_use]
    pub(crate) fn new(order: ValueOrder, dictionary: &Dictionary) -> Self {
        if order == ValueOrder::None {
            return Self { order, rank: Vec::new(), by_rank: Vec::new(), nans: 0 };
        }
        // One number decides nearly always; NaN come last.
        let mut keys: Vec<(bool, i64, u32)> = (0..dictionary.len() as u32)
            .map(|id| {
                let value = dictionary.value(id as usize);
                (order.is_nan(value), order.lead(value), id)
            })
            .collect();
        let value = |id: u32| dictionary.value(id as usize);
        keys.sort_unstable_by(|a, b| {
            (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| order.compare(value(a.2), value(b.2)))
        });
        let nans = keys.iter().filter(|key| key.0).count();
        let by_rank: Vec<u32> = keys.into_iter().map(|key| key.2).collect();
        let mut rank = vec![0; by_rank.len()];
        for (place, id) in by_rank.iter().enumerate() {
            rank[*id as usize] = place as u32;
        }
        Self { order, rank, by_rank, nans }
    }

    /// Bounds and NaN of the values that `ids` stand for.
    #[must_use]
    pub(crate) fn bounds(
        &self,
        dictionary: &Dictionary,
        ids: impl Iterator<Item = u32> + Clone,
    ) -> (Option<Bounds>, u64) {
        if self.order == ValueOrder::None {
            return (None, 0);
        }
        let nan_from = (self.rank.len() - self.nans) as u32;
        let rank = |id: u32| self.rank[id as usize];
        let ranks = ids.map(rank);
        let both = |ranks: &mut dyn Iterator<Item = u32>| {
            ranks.fold(None, |both, rank| {
                let (min, max) = both.unwrap_or((rank, rank));
                Some((rank.min(min), rank.max(max)))
            })
        };
        let (found, nans) = if self.nans == 0 {
            let (mut min, mut max) = (u32::MAX, 0);
            for rank in ranks {
                min = min.min(rank);
                max = max.max(rank);
            }
            ((min <= max).then_some((min, max)), 0)
        } else {
            let nans = ranks.clone().filter(|rank| *rank >= nan_from).count() as u64;
            let numbers = both(&mut ranks.clone().filter(|rank| *rank < nan_from));
            (numbers.or_else(|| both(&mut ranks.clone())), nans)
        };
        let value = |rank: u32| dictionary.value(self.by_rank[rank as usize] as usize).to_vec();
        (found.map(|(min, max)| Bounds { min: value(min), max: value(max) }), nans)
    }

    /// Bytes that the ranks of `dictionary` hold on the heap.
    #[must_use]
    pub(crate) fn memory_size_of(dictionary: &Dictionary) -> usize {
        2 * size_of::<u32>() * dictionary.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain<const N: usize>(values: &[[u8; N]]) -> Vec<u8> {
        values.concat()
    }

    proptest! {
        #[test]
        fn bounds_are_those_of_a_sort(values in prop::collection::vec(any::<u64>(), 1..60)) {
            let raw: Vec<[u8; 8]> = values.iter().map(|v| v.to_le_bytes()).collect();
            for order in [ValueOrder::Int64, ValueOrder::UInt64, ValueOrder::Double, ValueOrder::Bytes] {
                let (bounds, nans) = of_plain(order, Layout::Fixed(8), &plain(&raw));
                let mut numbers: Vec<&[u8; 8]> = raw.iter().filter(|v| !order.is_nan(*v)).collect();
                prop_assert_eq!(nans as usize, raw.len() - numbers.len());
                if numbers.is_empty() {
                    numbers = raw.iter().collect();
                }
                numbers.sort_by(|a, b| order.compare(*a, *b));
                let bounds = bounds.unwrap();
                prop_assert_eq!(&bounds.min[..], &numbers[0][..]);
                prop_assert_eq!(&bounds.max[..], &numbers[numbers.len() - 1][..]);
                let dictionary =
                    Dictionary::new(Layout::Fixed(8), plain(&raw).into(), raw.len()).unwrap();
                let ranks = Ranks::new(order, &dictionary);
                let (ranked, ranked_nans) = ranks.bounds(&dictionary, 0..raw.len() as u32);
                prop_assert_eq!((ranked.unwrap(), ranked_nans), (bounds, nans));
            }
        }

        #[test]
        fn bounds_of_floats_are_those_of_a_sort(
            picks in prop::collection::vec(0..9_usize, 1..20), more in prop::collection::vec(any::<f64>(), 0..5),
        ) {
            let special = [
                0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, f64::MIN_POSITIVE,
            ];
            let all: Vec<f64> = picks.iter().map(|i| special[*i]).chain(more).collect();
            let mut numbers: Vec<f64> = all.iter().copied().filter(|f| !f.is_nan()).collect();
            let nans = (all.len() - numbers.len()) as u64;
            if numbers.is_empty() {
                numbers.clone_from(&all);
            }
            numbers.sort_by(f64::total_cmp);
            let raw: Vec<[u8; 8]> = all.iter().map(|f| f.to_le_bytes()).collect();
            let (bounds, got) = of_plain(ValueOrder::Double, Layout::Fixed(8), &plain(&raw));
            let bounds = bounds.unwrap();
            prop_assert_eq!(&bounds.min[..], &numbers[0].to_le_bytes()[..]);
            prop_assert_eq!(&bounds.max[..], &numbers[numbers.len() - 1].to_le_bytes()[..]);
            prop_assert_eq!(got, nans);
            let mut singles: Vec<f32> = all.iter().map(|f| *f as f32).collect();
            let raw: Vec<[u8; 4]> = singles.iter().map(|f| f.to_le_bytes()).collect();
            let (bounds, _) = of_plain(ValueOrder::Float, Layout::Fixed(4), &plain(&raw));
            if nans == 0 {
                singles.sort_by(f32::total_cmp);
                let bounds = bounds.unwrap();
                prop_assert_eq!(&bounds.min[..], &singles[0].to_le_bytes()[..]);
                prop_assert_eq!(&bounds.max[..], &singles[singles.len() - 1].to_le_bytes()[..]);
            }
        }

        #[test]
        fn text_bounds_are_those_of_a_sort(values in prop::collection::vec("[ab\0]{0,12}", 1..40)) {
            let mut bytes = Vec::new();
            for value in &values {
                bytes.extend((value.len() as u32).to_le_bytes());
                bytes.extend(value.as_bytes());
            }
            let (bounds, _) = of_plain(ValueOrder::Bytes, Layout::Prefixed, &bytes);
            let bounds = bounds.unwrap();
            prop_assert_eq!(&bounds.min[..], values.iter().min().unwrap().as_bytes());
            prop_assert_eq!(&bounds.max[..], values.iter().max().unwrap().as_bytes());
        }

        #[test]
        fn floats_order_as_the_standard_says(a: f64, b: f64, c: f32, d: f32) {
            let double = ValueOrder::Double.compare(&a.to_le_bytes(), &b.to_le_bytes());
            prop_assert_eq!(double, a.total_cmp(&b));
            let float = ValueOrder::Float.compare(&c.to_le_bytes(), &d.to_le_bytes());
            prop_assert_eq!(float, c.total_cmp(&d));
        }

        #[test]
        fn bounds_of_decimals_are_those_of_a_sort(
            numbers in prop::collection::vec(any::<i128>(), 1..20), width in 1..17_usize, small: bool,
        ) {
            let shift = if small { 128 - 8 * width as u32 + 3 } else { 128 - 8 * width as u32 };
            let mut numbers: Vec<i128> = numbers.iter().map(|n| n >> shift.min(127)).collect();
            let raw = |n: i128| n.to_be_bytes()[16 - width..].to_vec();
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| raw(*n)).collect();
            let (bounds, _) = of_plain(ValueOrder::Decimal, Layout::Fixed(width), &bytes);
            numbers.sort_unstable();
            let bounds = bounds.unwrap();
            prop_assert_eq!(bounds.min, raw(numbers[0]));
            prop_assert_eq!(bounds.max, raw(numbers[numbers.len() - 1]));
        }

        #[test]
        fn decimals_order_by_value(a: i64, b: i64, cut_a in 0..8_usize, cut_b in 0..8_usize) {
            let (a, b) = (a >> (8 * cut_a), b >> (8 * cut_b));
            let (long_a, long_b) = (a.to_be_bytes(), b.to_be_bytes());
            let got = compare_decimals(&long_a[cut_a..], &long_b[cut_b..]);
            prop_assert_eq!(got, a.cmp(&b));
        }
    }

    #[test]
    fn zero_and_minus_zero_differ_and_nothing_has_no_bounds() {
        let zeros = [0.0_f64.to_le_bytes(), (-0.0_f64).to_le_bytes()];
        let (bounds, _) = of_plain(ValueOrder::Double, Layout::Fixed(8), &plain(&zeros));
        let bounds = bounds.unwrap();
        assert_eq!((&bounds.min[..], &bounds.max[..]), (&zeros[1][..], &zeros[0][..]));
        assert_eq!(of_plain(ValueOrder::Bytes, Layout::Prefixed, &[]), (None, 0));
        assert_eq!(of_plain(ValueOrder::None, Layout::Fixed(4), &[1; 4]), (None, 0));
    }
}
