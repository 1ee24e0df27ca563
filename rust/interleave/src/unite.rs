//! One dictionary out of many, and where the values of each went.
//!
//! ```text
//! by value   [a b c] [b d]  ─▶  [a b c d]      tables [0 1 2] [1 3]
//! behind     [a b c] [b d]  ─▶  [a b c b d]    shifts  +0      +3
//! ```
//!
//! # Invariants
//! Every value of every dictionary that is used has a place. A dictionary that several arrays share
//! is there once.
//!
//! # Cost
//! A value is hashed and copied, or copied; a dictionary that was seen before costs a look.
//!
//! # Not here
//! Which of the two it is, and the keys (`dictionary`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, LargeBinaryType, LargeUtf8Type, StringViewType,
    Utf8Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, OffsetSizeTrait, downcast_primitive};
use arrow_schema::DataType;

use crate::kernel;
use crate::levels::{Levels, mixed};
use crate::select::Selection;
use plait_base::{Result, Runs, SourceId};

/// Values of all dictionaries, and where the values of each went.
pub(crate) struct United {
    pub(crate) values: ArrayRef,
    pub(crate) places: Places,
}

/// Where the values of every dictionary went.
pub(crate) enum Places {
    /// One behind the other: the place of the first of each, and how many they are.
    Behind(Vec<(usize, usize)>),
    /// One by one.
    Tables(Vec<Vec<usize>>),
}

/// How dictionaries become one.
pub(crate) enum Unite {
    /// Each behind the one before.
    Behind,
    /// Equal values once.
    ByValue,
    /// The same of the values that are marked, at the first of the arrays that share a dictionary.
    /// The others get the place 0.
    ByValueIfUsed(Vec<Vec<bool>>),
}

/// One dictionary of all.
pub(crate) fn unite(
    dictionaries: &[&ArrayRef],
    value: &DataType,
    how: &Unite,
    levels: Levels,
) -> Result<United> {
    match how {
        Unite::Behind => behind(dictionaries, value, levels),
        Unite::ByValue => by_value(dictionaries, None, value, levels),
        Unite::ByValueIfUsed(used) => by_value(dictionaries, Some(used), value, levels),
    }
}

fn by_value(
    dictionaries: &[&ArrayRef],
    used: Option<&Vec<Vec<bool>>>,
    value: &DataType,
    levels: Levels,
) -> Result<United> {
    let mut known = Known::default();
    let count = used.map_or(0, |used| used.iter().flatten().filter(|used| **used).count());
    known.reserve(value, count);
    let mut tables = Vec::with_capacity(dictionaries.len());
    let mut firsts = Firsts::new(dictionaries.len());
    for (i, values) in dictionaries.iter().enumerate() {
        let table = match tables.get(firsts.first(values, i)) {
            Some(table) => Vec::clone(table),
            None => known.add(i, values, used.and_then(|used| used.get(i)).map(Vec::as_slice))?,
        };
        tables.push(table);
    }
    let values = selected(dictionaries, &known.runs, value, levels)?;
    Ok(United { values, places: Places::Tables(tables) })
}

fn behind(dictionaries: &[&ArrayRef], value: &DataType, levels: Levels) -> Result<United> {
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(dictionaries.len());
    let mut different = Vec::with_capacity(dictionaries.len());
    let mut firsts = Firsts::new(dictionaries.len());
    let mut base = 0;
    for (i, values) in dictionaries.iter().enumerate() {
        let place = places.get(firsts.first(values, i)).copied().unwrap_or_else(|| {
            different.push(*values);
            let len = values.len();
            base += len;
            (base - len, len)
        });
        places.push(place);
    }
    let joined = match value {
        DataType::Utf8 => joined::<Utf8Type>(&different, levels),
        DataType::Binary => joined::<BinaryType>(&different, levels),
        DataType::LargeUtf8 => joined::<LargeUtf8Type>(&different, levels),
        DataType::LargeBinary => joined::<LargeBinaryType>(&different, levels),
        _ => None,
    };
    let values = match joined {
        Some(values) => values,
        None => {
            let mut runs = Runs::with_capacity(different.len());
            for (source, values) in (0..).map(SourceId).zip(&different) {
                runs.push(source, 0, values.len() as u64);
            }
            selected(&different, &runs, value, levels)?
        }
    };
    Ok(United { values, places: Places::Behind(places) })
}

fn selected(
    dictionaries: &[&ArrayRef],
    runs: &Runs,
    value: &DataType,
    levels: Levels,
) -> Result<ArrayRef> {
    let lens = dictionaries.iter().map(|values| values.len()).collect();
    let selection = Selection::from_runs(runs.as_slice(), lens)?;
    let sources: Vec<&dyn Array> = dictionaries.iter().map(|values| &***values).collect();
    levels.gather(&sources, &selection, value)
}

/// Whole arrays behind each other: many short ones cost half of what they cost as runs. `None`
/// where some are of another type, have nulls, or do not fit.
fn joined<T: ByteArrayType>(arrays: &[&ArrayRef], levels: Levels) -> Option<ArrayRef> {
    let arrays: Vec<_> = arrays.iter().map(|a| a.as_bytes_opt::<T>()).collect::<Option<_>>()?;
    let joined = kernel::joined(&arrays, levels.offset_max(T::Offset::IS_LARGE))?;
    Some(Arc::new(joined))
}

/// Where each pointer was seen first; half of the slots stay free.
pub(crate) struct Firsts {
    slots: Vec<(u64, usize)>,
    shift: u32,
}

impl Firsts {
    pub(crate) fn new(pointers: usize) -> Self {
        let slots = (2 * pointers.max(1)).next_power_of_two();
        Self { slots: vec![(0, 0); slots], shift: u64::BITS - slots.trailing_zeros() }
    }

    /// The place where `array` was seen first: `at` if never.
    pub(crate) fn first(&mut self, array: &ArrayRef, at: usize) -> usize {
        let pointer = Arc::as_ptr(array).addr() as u64;
        // Pointers are multiples of some power of two: the golden ratio spreads them over the high
        // bits.
        let begin = pointer.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        let begin = usize::try_from(begin).unwrap_or(0);
        let (before, behind) = self.slots.split_at_mut(begin);
        for (seen, first) in behind.iter_mut().chain(before) {
            if *seen == 0 {
                (*seen, *first) = (pointer, at);
            }
            if *seen == pointer {
                return *first;
            }
        }
        at
    }
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
    /// Makes room for `count` different values, or for fewer where many are equal.
    fn reserve(&mut self, value: &DataType, count: usize) {
        if value.is_primitive() {
            self.numbers.reserve(count);
        } else {
            self.texts.reserve(count);
        }
    }

    /// The places of all values of one dictionary, or of those that are `used`.
    fn add(
        &mut self,
        source: usize,
        values: &'a ArrayRef,
        used: Option<&[bool]>,
    ) -> Result<Vec<usize>> {
        let used = |row: usize| used.is_none_or(|used| used.get(row) == Some(&true));
        macro_rules! texts {
            ($t:ty) => {{
                let texts = values.as_bytes_opt::<$t>().ok_or_else(mixed)?.iter();
                Ok(self.add_texts(source, texts, used))
            }};
        }
        macro_rules! views {
            ($t:ty) => {{
                let texts = values.as_byte_view_opt::<$t>().ok_or_else(mixed)?.iter();
                Ok(self.add_texts(source, texts, used))
            }};
        }
        macro_rules! numbers {
            ($t:ty) => {
                self.add_numbers::<$t>(source, values, used)
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
            _ => {
                let place = |i| if used(i) { append(&mut self.runs, source, i) } else { 0 };
                Ok((0..values.len()).map(place).collect())
            }
        }
    }

    fn null(&mut self, source: usize, row: usize) -> usize {
        if let Some(place) = self.null {
            return place;
        }
        let place = append(&mut self.runs, source, row);
        self.null = Some(place);
        place
    }

    fn text(&mut self, source: usize, row: usize, text: Option<&'a [u8]>) -> usize {
        let Some(text) = text else { return self.null(source, row) };
        match self.texts.entry(text) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => *free.insert(append(&mut self.runs, source, row)),
        }
    }

    fn add_texts<T: AsRef<[u8]> + ?Sized + 'a>(
        &mut self,
        source: usize,
        texts: impl Iterator<Item = Option<&'a T>>,
        used: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let place = |(row, text): (usize, Option<&'a T>)| {
            if used(row) { self.text(source, row, text.map(AsRef::as_ref)) } else { 0 }
        };
        texts.enumerate().map(place).collect()
    }

    fn add_numbers<T: ArrowPrimitiveType>(
        &mut self,
        source: usize,
        values: &'a ArrayRef,
        used: impl Fn(usize) -> bool,
    ) -> Result<Vec<usize>> {
        let array = values.as_primitive_opt::<T>().ok_or_else(mixed)?;
        let raw = kernel::raw(array).chunks_exact(size_of::<T::Native>().max(1));
        let places = raw.enumerate().map(|(row, raw)| {
            if !used(row) {
                return 0;
            }
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
            match self.numbers.entry(number) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(free) => *free.insert(append(&mut self.runs, source, row)),
            }
        });
        Ok(places.collect())
    }
}

/// Puts a value behind those that `runs` select; its place there.
fn append(runs: &mut Runs, source: usize, row: usize) -> usize {
    let place = usize::try_from(runs.rows()).unwrap_or(usize::MAX);
    let source = SourceId(u32::try_from(source).unwrap_or(u32::MAX));
    runs.push(source, row as u64, 1);
    place
}

/// A quick hash of short texts; who can choose the values of dictionaries can make it slow, not
/// wrong.
pub(crate) type Hashing = std::hash::BuildHasherDefault<Fold>;

/// Multiplies and folds eight bytes at a time.
#[derive(Default)]
pub(crate) struct Fold(u64);

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
