//! Dictionaries: united by value, keys renumbered; no row is expanded.
//!
//! ```text
//! values   [a b c]  [b d]      united [a b c d]
//! keys      0 2      1 0        ─▶     0 2 3 1
//! ```
//!
//! # Invariants
//! Dictionaries that are one and the same, or equal, are taken as they are. Equal values of different
//! dictionaries have one key in the output, if hashing them costs little beside copying the rows, or if
//! there are more values than rows or than keys; else dictionaries are put behind each other.
//!
//! # Cost
//! A value of every dictionary is hashed or copied once; a row costs one look.
//!
//! # Not here
//! Copying keys (`kernel`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, BinaryType, BinaryViewType, ByteArrayType, ByteViewType,
    LargeBinaryType, LargeUtf8Type, StringViewType, Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, DictionaryArray, GenericByteArray, GenericByteViewArray,
    PrimitiveArray, downcast_integer, downcast_primitive,
};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use arrow_schema::DataType;

use super::gather::{self, Limits, fixed, invalid, mixed, nulls, typed};
use super::kernel;
use super::lower::Unsigned;
use super::select::Selection;
use crate::run::{Runs, SourceId};
use crate::{Error, Kind, Result};

/// The selected rows of dictionaries, as a dictionary with keys of type `key`.
pub(super) fn gather(
    values: &[&dyn Array],
    selection: &Selection,
    key: &DataType,
    out: &DataType,
    limits: Limits,
) -> Result<ArrayRef> {
    let DataType::Dictionary(_, value) = out else { return Err(mixed()) };
    macro_rules! keys {
        ($t:ty) => {
            gather_keys::<$t>(values, selection, value, limits)
        };
    }
    downcast_integer! {
        key => (keys),
        _ => Err(mixed())
    }
}

fn gather_keys<K: ArrowDictionaryKeyType>(
    values: &[&dyn Array],
    selection: &Selection,
    value: &DataType,
    limits: Limits,
) -> Result<ArrayRef> {
    let is_wide = |array: &&dyn Array| array.as_dictionary_opt::<K>().is_some();
    let widened: Vec<ArrayRef> = if values.iter().all(is_wide) {
        Vec::new()
    } else {
        values.iter().map(|array| with_keys::<K>(*array)).collect::<Result<_>>()?
    };
    let widened: Vec<&dyn Array> = widened.iter().map(|array| &**array).collect();
    let arrays = typed::<DictionaryArray<K>>(if widened.is_empty() { values } else { &widened })?;
    let nulls = nulls(arrays.iter().map(|array| array.keys().nulls()), selection);
    let dictionaries: Vec<&ArrayRef> = arrays.iter().map(|array| array.values()).collect();

    let first = dictionaries.first().ok_or_else(mixed)?;
    let same = |other: &&ArrayRef| Arc::ptr_eq(first, other) || equal(first, other);
    if first.data_type() == value && dictionaries.iter().all(same) {
        let keys: Vec<_> = arrays.iter().map(|array| array.keys()).collect();
        let keys = fixed::<K>(&keys, selection);
        return Ok(Arc::new(dictionary::<K>(keys, nulls, Arc::clone(first))?));
    }
    let total: usize = dictionaries.iter().map(|values| values.len()).sum();
    let few = total <= HASHED_MIN.max(selection.len() / ROWS_PER_HASH);
    let hashed = few || total > selection.len() || total > key_max::<K>();
    let united = unite(&dictionaries, value, hashed, limits)?;
    if united.values.len() > key_max::<K>() {
        return Err(Error::new(Kind::Unsupported, "united dictionaries have too many values")
            .with_got(format!("{} values for keys of type `{}`", united.values.len(), K::DATA_TYPE))
            .with_hint("cast the dictionaries to a wider key type"));
    }
    let (keys, lead_nowhere) = match size_of::<K::Native>() {
        1 => renumbered::<K, u8>(&arrays, &united.maps, selection),
        2 => renumbered::<K, u16>(&arrays, &united.maps, selection),
        4 => renumbered::<K, u32>(&arrays, &united.maps, selection),
        _ => renumbered::<K, u64>(&arrays, &united.maps, selection),
    };
    if lead_nowhere {
        // Keys below nulls may lead anywhere, others not.
        selection_leads_somewhere(&arrays, selection)?;
    }
    Ok(Arc::new(dictionary::<K>(keys, nulls, united.values)?))
}

/// The keys that leave, in their places in the united dictionary; and whether one led nowhere.
fn renumbered<K: ArrowDictionaryKeyType, U: Unsigned>(
    arrays: &[&DictionaryArray<K>],
    maps: &[Map],
    selection: &Selection,
) -> (Buffer, bool) {
    let keys = arrays.iter().map(|array| array.keys().values().inner().typed_data::<U>());
    let shifts: Option<Vec<(U, U)>> = maps.iter().map(Map::shift::<U>).collect();
    let (keys, any) = if let Some(shifts) = shifts {
        let sources: Vec<_> = keys.zip(shifts).collect();
        let (keys, bits) = kernel::mapped(&sources, selection, |(base, last): (U, U), key| {
            // The highest bit is set in the key or in the difference if the key is above the last; and
            // for some keys of large dictionaries, which are looked at again.
            (key.wrapping_add(base), last.wrapping_sub(key) | key)
        });
        (keys, bits.is_high())
    } else {
        let tables: Vec<Vec<U>> = maps.iter().map(Map::table::<U>).collect();
        let sources: Vec<_> = keys.zip(tables.iter().map(Vec::as_slice)).collect();
        let (keys, bits) = kernel::mapped(&sources, selection, |table: &[U], key| {
            match table.get(key.as_usize()) {
                Some(key) => (*key, 0_u8),
                None => (U::default(), 1),
            }
        });
        (keys, bits != 0)
    };
    (Buffer::from_vec(keys), any)
}

/// Checks that every key that leaves, and is not null, has a value.
#[cold]
fn selection_leads_somewhere<K: ArrowDictionaryKeyType>(
    arrays: &[&DictionaryArray<K>],
    selection: &Selection,
) -> Result<()> {
    let mut at = 0_u64;
    selection.try_for_each(|array, start, len| {
        let from = arrays.get(array).ok_or_else(mixed)?;
        for row in start..start + len {
            let key = from.keys().value(row).to_usize();
            if from.keys().is_valid(row) && key.is_none_or(|key| key >= from.values().len()) {
                return Err(nowhere(at));
            }
            at += 1;
        }
        Ok(())
    })
}

/// A key that no value belongs to.
fn nowhere(at: u64) -> Error {
    Error::new(Kind::InvalidArgument, "a key of a dictionary has no value").with_row(at)
}

fn dictionary<K: ArrowDictionaryKeyType>(
    keys: Buffer,
    nulls: Option<NullBuffer>,
    values: ArrayRef,
) -> Result<DictionaryArray<K>> {
    if let Some(array) = kernel::dictionary::<K>(&keys, nulls.as_ref(), &values) {
        return Ok(array);
    }
    // Keys below nulls may lead anywhere.
    let mut keys = keys.typed_data::<K::Native>().to_vec();
    for (i, key) in keys.iter_mut().enumerate() {
        if key.to_usize().is_none_or(|key| key >= values.len()) {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i)) {
                return Err(nowhere(i as u64));
            }
            *key = K::Native::default();
        }
    }
    let keys = PrimitiveArray::<K>::try_new(keys.into(), nulls).map_err(invalid)?;
    DictionaryArray::try_new(keys, values).map_err(invalid)
}

/// Number of values that keys of type `K` can number.
fn key_max<K: ArrowDictionaryKeyType>() -> usize {
    let bits = 8 * size_of::<K::Native>() - usize::from(K::DATA_TYPE.is_signed_integer());
    1_usize.checked_shl(u32::try_from(bits).unwrap_or(u32::MAX)).unwrap_or(usize::MAX)
}

/// `array` with keys of type `K`, which are as wide as its own or wider.
fn with_keys<K: ArrowDictionaryKeyType>(array: &dyn Array) -> Result<ArrayRef> {
    if let Some(array) = array.as_dictionary_opt::<K>() {
        return Ok(Arc::new(array.clone()));
    }
    let dictionary = array.as_any_dictionary_opt().ok_or_else(mixed)?;
    let keys = dictionary.normalized_keys_or_empty();
    let keys: Vec<K::Native> = keys.into_iter().map(K::Native::usize_as).collect();
    let keys = PrimitiveArray::<K>::try_new(keys.into(), dictionary.keys().nulls().cloned());
    let values = Arc::clone(dictionary.values());
    Ok(Arc::new(DictionaryArray::try_new(keys.map_err(invalid)?, values).map_err(invalid)?))
}

trait NormalizedKeys {
    fn normalized_keys_or_empty(&self) -> Vec<usize>;
}

impl NormalizedKeys for dyn arrow_array::array::AnyDictionaryArray + '_ {
    /// Keys; 0 for nulls.
    fn normalized_keys_or_empty(&self) -> Vec<usize> {
        if self.values().is_empty() { vec![0; self.len()] } else { self.normalized_keys() }
    }
}

/// Values of all dictionaries, and where the values of each went.
struct United {
    values: ArrayRef,
    maps: Vec<Map>,
}

/// Where the values of a dictionary went.
#[derive(Clone)]
enum Map {
    /// So many of them, one behind the other from here on.
    Shift { base: usize, len: usize },
    /// One by one.
    Table(Vec<usize>),
}

impl Map {
    /// What is added to a key, and the last key.
    fn shift<U: Unsigned>(&self) -> Option<(U, U)> {
        match self {
            Self::Shift { base, len } => {
                Some((U::usize_as(*base), U::usize_as(len.checked_sub(1)?)))
            }
            Self::Table(_) => None,
        }
    }

    fn table<U: Unsigned>(&self) -> Vec<U> {
        match self {
            Self::Shift { base, len } => (*base..base + len).map(U::usize_as).collect(),
            Self::Table(table) => table.iter().copied().map(U::usize_as).collect(),
        }
    }
}

/// Whether two dictionaries are one, or have the same bytes; others may be equal too.
fn equal(a: &ArrayRef, b: &ArrayRef) -> bool {
    fn texts<T: ByteArrayType>(a: &ArrayRef, b: &ArrayRef) -> bool {
        let (Some(a), Some(b)) = (a.as_bytes_opt::<T>(), b.as_bytes_opt::<T>()) else {
            return false;
        };
        let same = a.value_offsets() == b.value_offsets() && a.value_data() == b.value_data();
        same && a.null_count() == 0 && b.null_count() == 0
    }
    if a.data_type() != b.data_type() || a.len() != b.len() {
        return false;
    }
    match a.data_type() {
        DataType::Utf8 => texts::<Utf8Type>(a, b),
        DataType::Binary => texts::<BinaryType>(a, b),
        DataType::LargeUtf8 => texts::<LargeUtf8Type>(a, b),
        DataType::LargeBinary => texts::<LargeBinaryType>(a, b),
        _ => a.as_ref() == b.as_ref(),
    }
}

/// As many values are always united by value.
const HASHED_MIN: usize = 64;

/// Hashing a value costs as much as copying so many rows, at most a few percent of which are spent on
/// it. Measured by the bench `interleave`, types `dictionary`.
const ROWS_PER_HASH: usize = 1024;

fn unite(
    dictionaries: &[&ArrayRef],
    value: &DataType,
    hashed: bool,
    limits: Limits,
) -> Result<United> {
    let mut known = Known::default();
    let mut maps = Vec::with_capacity(dictionaries.len());
    let mut firsts: HashMap<u64, usize, Hashing> =
        HashMap::with_capacity_and_hasher(dictionaries.len(), Hashing::default());
    for (i, values) in dictionaries.iter().enumerate() {
        let first = *firsts.entry(Arc::as_ptr(values).addr() as u64).or_insert(i);
        let map = match maps.get(first) {
            Some(map) => Map::clone(map),
            None if !hashed => {
                let base = usize::try_from(known.runs.rows()).unwrap_or(usize::MAX);
                let source = SourceId(u32::try_from(i).unwrap_or(u32::MAX));
                known.runs.push(source, 0, values.len() as u64);
                Map::Shift { base, len: values.len() }
            }
            None => Map::Table(known.add(i, values)?),
        };
        maps.push(map);
    }
    let lens = dictionaries.iter().map(|values| values.len()).collect();
    let selection = Selection::from_runs(known.runs.as_slice(), lens)?;
    let sources: Vec<&dyn Array> = dictionaries.iter().map(|values| &***values).collect();
    let values = gather::gather(&sources, &selection, value, limits)?;
    Ok(United { values, maps })
}

/// The different values so far.
#[derive(Default)]
struct Known<'a> {
    texts: HashMap<&'a [u8], usize, Hashing>,
    numbers: HashMap<u128, usize, Hashing>,
    null: Option<usize>,
    runs: Runs,
}

impl<'a> Known<'a> {
    /// The places of all values of one dictionary.
    fn add(&mut self, source: usize, values: &'a ArrayRef) -> Result<Vec<usize>> {
        macro_rules! texts {
            ($t:ty) => {
                self.add_texts(source, values.as_bytes_opt::<$t>().ok_or_else(mixed)?)
            };
        }
        macro_rules! views {
            ($t:ty) => {
                self.add_views(source, values.as_byte_view_opt::<$t>().ok_or_else(mixed)?)
            };
        }
        macro_rules! numbers {
            ($t:ty) => {
                self.add_numbers::<$t>(source, values)
            };
        }
        downcast_primitive! {
            values.data_type() => (numbers),
            DataType::Utf8 => texts!(Utf8Type),
            DataType::Binary => texts!(BinaryType),
            DataType::LargeUtf8 => texts!(LargeUtf8Type),
            DataType::LargeBinary => texts!(LargeBinaryType),
            DataType::Utf8View => views!(StringViewType),
            DataType::BinaryView => views!(BinaryViewType),
            // Values that cannot be hashed as bytes are put behind each other.
            _ => Ok((0..values.len()).map(|i| self.append(source, i)).collect()),
        }
    }

    fn append(&mut self, source: usize, row: usize) -> usize {
        let place = usize::try_from(self.runs.rows()).unwrap_or(usize::MAX);
        let source = SourceId(u32::try_from(source).unwrap_or(u32::MAX));
        self.runs.push(source, row as u64, 1);
        place
    }

    fn null(&mut self, source: usize, row: usize) -> usize {
        if let Some(place) = self.null {
            return place;
        }
        let place = self.append(source, row);
        self.null = Some(place);
        place
    }

    fn text(&mut self, source: usize, row: usize, text: Option<&'a [u8]>) -> usize {
        let Some(text) = text else { return self.null(source, row) };
        if let Some(place) = self.texts.get(text) {
            return *place;
        }
        let place = self.append(source, row);
        self.texts.insert(text, place);
        place
    }

    fn add_texts<T: ByteArrayType>(
        &mut self,
        source: usize,
        values: &'a GenericByteArray<T>,
    ) -> Result<Vec<usize>> {
        let texts = values.iter().enumerate();
        let place = |(row, text): (usize, Option<&'a T::Native>)| {
            self.text(source, row, text.map(|text| text.as_ref()))
        };
        Ok(texts.map(place).collect())
    }

    fn add_views<T: ByteViewType>(
        &mut self,
        source: usize,
        values: &'a GenericByteViewArray<T>,
    ) -> Result<Vec<usize>> {
        let texts = values.iter().enumerate();
        let place = |(row, text): (usize, Option<&'a T::Native>)| {
            self.text(source, row, text.map(|text| text.as_ref()))
        };
        Ok(texts.map(place).collect())
    }

    fn add_numbers<T: ArrowPrimitiveType>(
        &mut self,
        source: usize,
        values: &'a ArrayRef,
    ) -> Result<Vec<usize>> {
        let array = values.as_primitive_opt::<T>().ok_or_else(mixed)?;
        let raw = kernel::raw(array).chunks_exact(size_of::<T::Native>().max(1));
        let places = raw.enumerate().map(|(row, raw)| {
            if array.is_null(row) {
                return self.null(source, row);
            }
            if raw.len() > size_of::<u128>() {
                return self.text(source, row, Some(raw));
            }
            let mut wide = [0; 16];
            for (to, from) in wide.iter_mut().zip(raw) {
                *to = *from;
            }
            let number = u128::from_le_bytes(wide);
            if let Some(place) = self.numbers.get(&number) {
                return *place;
            }
            let place = self.append(source, row);
            self.numbers.insert(number, place);
            place
        });
        Ok(places.collect())
    }
}

/// A quick hash of short texts; who can choose the values of dictionaries can make it slow, not wrong.
pub(super) type Hashing = std::hash::BuildHasherDefault<Fold>;

/// Multiplies and folds eight bytes at a time.
#[derive(Default)]
pub(super) struct Fold(u64);

impl Fold {
    #[inline]
    fn add(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        #[expect(clippy::cast_possible_truncation, reason = "both halves")]
        {
            self.0 = (wide as u64) ^ (wide >> 64) as u64;
        }
    }
}

impl std::hash::Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.add(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Rows of arrays of which some are dictionaries, as an array of plain values.
pub(super) fn expanded(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
    limits: Limits,
) -> Result<ArrayRef> {
    let plain: Vec<Option<ArrayRef>> =
        values.iter().map(|array| plain(*array, limits)).collect::<Result<_>>()?;
    let values: Vec<&dyn Array> = values
        .iter()
        .zip(&plain)
        .map(|(array, plain)| plain.as_deref().unwrap_or(*array))
        .collect();
    gather::gather(&values, selection, out, limits)
}

/// The values of a dictionary row by row; `None` if `array` is none.
pub(super) fn plain(array: &dyn Array, limits: Limits) -> Result<Option<ArrayRef>> {
    let Some(dictionary) = array.as_any_dictionary_opt() else { return Ok(None) };
    let values = dictionary.values();
    let out = values.data_type();
    let Some(nulls) = array.logical_nulls() else {
        let keys = dictionary.normalized_keys_or_empty();
        let selection = Selection::of_one(keys.into_iter(), values.len())?;
        return gather::gather(&[&**values], &selection, out, limits).map(Some);
    };
    // Null rows are taken from an array of one null.
    let null = arrow_array::new_null_array(values.data_type(), 1);
    let keys = dictionary.normalized_keys_or_empty();
    let mut runs = Runs::default();
    for (key, valid) in keys.into_iter().zip(&nulls) {
        if valid {
            runs.push(SourceId(0), key as u64, 1);
        } else {
            runs.push(SourceId(1), 0, 1);
        }
    }
    let selection = Selection::from_runs(runs.as_slice(), vec![values.len(), 1])?;
    gather::gather(&[&**values, &*null], &selection, out, limits).map(Some)
}
