//! Dictionaries: united by value, keys renumbered; no row is expanded.
//!
//! ```text
//! values   [a b c]  [b d]      united [a b c d]
//! keys      0 2      1 0        ─▶     0 2 3 1
//! ```
//!
//! # Invariants
//! Dictionaries that are one and the same, or equal, are taken as they are. Equal values of
//! different dictionaries have one key in the output, if hashing them costs little compared with
//! copying the rows, or if there are more values than keys; else dictionaries are put behind each
//! other. Where there are more values than rows, the output has only those that rows use.
//!
//! # Cost
//! A value of every dictionary is hashed or copied once, at most one a row; a row costs one look,
//! or two.
//!
//! # Not here
//! Copying keys (`kernel`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type,
};
use arrow_array::{Array, ArrayRef, DictionaryArray, PrimitiveArray, downcast_integer};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer};
use arrow_schema::DataType;

use crate::kernel;
use crate::levels::{Levels, fixed, invalid, mixed, nulls, typed};
use crate::select::Selection;
use crate::unite::{Firsts, Places, Unite, United, unite};
use crate::unsigned::Unsigned;
use plait_base::{Error, Kind, Result, Runs, SourceId, type_text};

/// The selected rows of dictionaries, as a dictionary with keys of type `key`.
pub(crate) fn gather(
    values: &[&dyn Array],
    selection: &Selection,
    key: &DataType,
    out: &DataType,
    levels: Levels,
) -> Result<ArrayRef> {
    let DataType::Dictionary(_, value) = out else { return Err(mixed()) };
    macro_rules! keys {
        ($t:ty) => {
            gather_keys::<$t>(values, selection, value, levels)
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
    levels: Levels,
) -> Result<ArrayRef> {
    let widened: Vec<ArrayRef>;
    let arrays = match typed::<DictionaryArray<K>>(values) {
        Ok(arrays) => arrays,
        Err(_) => {
            widened = values.iter().map(|array| with_keys::<K>(*array)).collect::<Result<_>>()?;
            typed(&widened.iter().map(|array| &**array).collect::<Vec<_>>())?
        }
    };
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
    let how = if total > selection.len() {
        Unite::ByValueIfUsed(used(&arrays, selection)?)
    } else if few || total > key_max::<K>() {
        Unite::ByValue
    } else {
        Unite::Behind
    };
    let united = unite(&dictionaries, value, &how, levels)?;
    if united.values.len() > key_max::<K>() {
        return Err(Error::new(Kind::Unsupported, "united dictionaries have too many values")
            .with_got(format!(
                "{} values for keys of type `{}`",
                united.values.len(),
                type_text(&K::DATA_TYPE)
            ))
            .with_hint("cast the dictionaries to a wider key type"));
    }
    match size_of::<K::Native>() {
        1 => renumbered::<K, u8>(&arrays, united, selection, nulls),
        2 => renumbered::<K, u16>(&arrays, united, selection, nulls),
        4 => renumbered::<K, u32>(&arrays, united, selection, nulls),
        _ => renumbered::<K, u64>(&arrays, united, selection, nulls),
    }
}

/// Which values of each dictionary have a key in `selection`, at the first of the arrays that share
/// it.
fn used<K: ArrowDictionaryKeyType>(
    arrays: &[&DictionaryArray<K>],
    selection: &Selection,
) -> Result<Vec<Vec<bool>>> {
    let mut firsts = Firsts::new(arrays.len());
    let first: Vec<usize> =
        arrays.iter().enumerate().map(|(i, array)| firsts.first(array.values(), i)).collect();
    let len = |i: usize, array: &&DictionaryArray<K>| {
        if first.get(i) == Some(&i) { array.values().len() } else { 0 }
    };
    let mut used: Vec<Vec<bool>> =
        arrays.iter().enumerate().map(|(i, array)| vec![false; len(i, array)]).collect();
    selection.try_for_each(|array, start, len| {
        let (Some(keys), Some(first)) = (arrays.get(array), first.get(array)) else {
            return Err(mixed());
        };
        let used = used.get_mut(*first).ok_or_else(mixed)?;
        // Keys that lead nowhere are refused later, unless they are null.
        for key in keys.keys().values().get(start..start + len).ok_or_else(mixed)? {
            if let Some(used) = used.get_mut(key.as_usize()) {
                *used = true;
            }
        }
        Ok(())
    })?;
    Ok(used)
}

/// The united dictionary with the keys that leave, in their places there; `U` are their bits.
fn renumbered<K: ArrowDictionaryKeyType, U: Unsigned>(
    arrays: &[&DictionaryArray<K>],
    united: United,
    selection: &Selection,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let keys = arrays.iter().map(|array| array.keys().values().inner().typed_data::<U>());
    let United { values, places } = united;
    let tables: Vec<Vec<U>> = match &places {
        Places::Behind(places) => {
            let sources: Vec<_> = keys.clone().zip(places.iter().copied()).collect();
            let array = kernel::shifted::<K, U>(&sources, selection, nulls.as_ref(), &values);
            if let Some(array) = array {
                return Ok(Arc::new(array));
            }
            places.iter().map(|(base, len)| table(*base..base + len)).collect()
        }
        Places::Tables(tables) => tables.iter().map(|all| table(all.iter().copied())).collect(),
    };
    let sources: Vec<_> = keys.zip(tables.iter().map(Vec::as_slice)).collect();
    let (keys, lead_nowhere) =
        kernel::mapped(&sources, selection, false, 0_u8, |any, table, key| {
            let found = table.get(key.as_usize());
            *any |= u8::from(found.is_none());
            found.copied().unwrap_or_default()
        });
    if lead_nowhere != 0 {
        // Keys below nulls may lead anywhere, others not.
        selection_leads_somewhere(arrays, selection)?;
    }
    Ok(Arc::new(dictionary::<K>(Buffer::from_vec(keys), nulls, values)?))
}

/// The key of every place.
fn table<U: Unsigned>(places: impl Iterator<Item = usize>) -> Vec<U> {
    places.map(U::usize_as).collect()
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

/// Hashing a value costs as much as copying so many rows, at most a few percent of which are spent
/// on it. Measured by the bench `interleave`, types `dictionary`.
const ROWS_PER_HASH: usize = 1024;

/// Rows of arrays of which some are dictionaries, as an array of plain values.
pub(crate) fn expanded(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
    levels: Levels,
) -> Result<ArrayRef> {
    let plain: Vec<Option<ArrayRef>> =
        values.iter().map(|array| plain(*array, levels)).collect::<Result<_>>()?;
    let values: Vec<&dyn Array> = values
        .iter()
        .zip(&plain)
        .map(|(array, plain)| plain.as_deref().unwrap_or(*array))
        .collect();
    levels.gather(&values, selection, out)
}

/// The values of a dictionary row by row; `None` if `array` is none.
pub(crate) fn plain(array: &dyn Array, levels: Levels) -> Result<Option<ArrayRef>> {
    let Some(dictionary) = array.as_any_dictionary_opt() else { return Ok(None) };
    let values = dictionary.values();
    let out = values.data_type();
    let Some(nulls) = array.logical_nulls() else {
        let keys = dictionary.normalized_keys_or_empty();
        let selection = Selection::of_one(keys.into_iter(), values.len())?;
        return levels.gather(&[&**values], &selection, out).map(Some);
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
    levels.gather(&[&**values, &*null], &selection, out).map(Some)
}
