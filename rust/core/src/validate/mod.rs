//! Arrays that other libraries made, checked before anything relies on them.
//!
//! ```text
//! offsets      first >= 0, in order, last <= length of what they lead into
//! views        buffer there, range inside of it            keys     below the length of the dictionary
//! list views   every range inside of the child             children as long as their parent needs
//! unions       type ids known, offsets inside of children  run ends greater than 0, increasing, up to the length
//! ```
//!
//! # Invariants
//! An array that passes leads nowhere but into its own buffers and children: no kernel of this crate or of
//! Arrow reads or writes elsewhere. What is below a null may be anything in views and keys, as nobody
//! looks at it. Values are not looked at: text that is not UTF-8 passes, unless [`Validate::Full`] is
//! asked for.
//!
//! # Cost
//! One pass over offsets, views, keys, type ids and run ends, without a branch a row. Values that many
//! batches share (a dictionary, the child of a slice) are checked once as long as the next batch has the
//! very same.
//!
//! # Not here
//! Lengths of buffers: the C data interface does not tell them. Its pointers and counts (`plait-py`).

mod column_path;
mod ranges;

use arrow_data::ArrayData;
use arrow_schema::DataType;

use column_path::{ColumnPath, broken};
use plait_base::{Result, type_text};

/// How much of foreign arrays is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validate {
    /// What memory safety relies on.
    #[default]
    Basic,
    /// Also every value, as Arrow itself does: text is UTF-8, prefixes of views are those of their
    /// values, null counts are right, what must not be null is not.
    Full,
}

/// Children so many times as long as what their parent uses are shared by batches.
const SHARED_TIMES: usize = 4;

/// Checks arrays of one source, one after the other.
#[derive(Debug, Default)]
pub struct Validator {
    level: Validate,
    /// The last array, if values of it are shared. It keeps their memory alive: the same address is the
    /// same values.
    shared: Option<ArrayData>,
}

impl Validator {
    /// A validator of `level`.
    #[must_use]
    pub fn new(level: Validate) -> Self {
        Self { level, shared: None }
    }

    /// How much is checked.
    #[must_use]
    pub fn level(&self) -> Validate {
        self.level
    }

    /// Checks `data`, which messages call `name`; an empty name is left out.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`](plait_base::Kind::CorruptSource) with the path of the column.
    pub fn check(&mut self, data: &ArrayData, name: &str) -> Result<()> {
        let root = ColumnPath::root(name);
        let mut walk = Walk { level: self.level, is_shared: false };
        let before = self.shared.take();
        walk.check(data, before.as_ref(), &root)?;
        self.shared = walk.is_shared.then(|| data.clone());
        Ok(())
    }
}

/// The way through one array.
struct Walk {
    level: Validate,
    is_shared: bool,
}

impl Walk {
    fn check(
        &mut self,
        data: &ArrayData,
        before: Option<&ArrayData>,
        at: &ColumnPath<'_>,
    ) -> Result<()> {
        let rows = data.offset().checked_add(data.len()).ok_or_else(|| {
            broken(at, "an array is too long").with_got("an offset that overflows")
        })?;
        match data.data_type() {
            DataType::Utf8 | DataType::Binary => {
                let bytes = data.buffers().get(1).map_or(0, |values| values.len());
                ranges::offsets::<i32>(data, bytes, at)?;
            }
            DataType::LargeUtf8 | DataType::LargeBinary => {
                let bytes = data.buffers().get(1).map_or(0, |values| values.len());
                ranges::offsets::<i64>(data, bytes, at)?;
            }
            DataType::Utf8View | DataType::BinaryView => ranges::views(data, at)?,
            DataType::List(_) | DataType::Map(..) => {
                let used = ranges::offsets::<i32>(data, child(data, 0, at)?.len(), at)?;
                self.child(data, before, 0, used, at)?;
            }
            DataType::LargeList(_) => {
                let used = ranges::offsets::<i64>(data, child(data, 0, at)?.len(), at)?;
                self.child(data, before, 0, used, at)?;
            }
            DataType::ListView(_) => {
                ranges::list_views::<i32>(data, child(data, 0, at)?.len(), at)?;
                self.child(data, before, 0, data.len(), at)?;
            }
            DataType::LargeListView(_) => {
                ranges::list_views::<i64>(data, child(data, 0, at)?.len(), at)?;
                self.child(data, before, 0, data.len(), at)?;
            }
            DataType::FixedSizeList(_, size) => {
                let size = usize::try_from(*size).map_err(|_| {
                    broken(at, "lists have a negative size").with_got(size.to_string())
                })?;
                let need = rows.checked_mul(size);
                long_enough(child(data, 0, at)?.len(), need, at)?;
                self.child(data, before, 0, data.len().saturating_mul(size), at)?;
            }
            DataType::Struct(fields) => {
                for place in 0..fields.len() {
                    long_enough(child(data, place, at)?.len(), Some(rows), at)?;
                    self.child(data, before, place, data.len(), at)?;
                }
            }
            DataType::Dictionary(key, _) => {
                ranges::keys(data, key, child(data, 0, at)?.len(), at)?;
                self.child(data, before, 0, data.len(), at)?;
            }
            DataType::RunEndEncoded(ends, _) => {
                let (run_ends, values) = (child(data, 0, at)?, child(data, 1, at)?);
                ranges::run_ends(run_ends, ends.data_type(), rows, at)?;
                long_enough(values.len(), Some(run_ends.len()), at)?;
                self.child(data, before, 1, data.len(), at)?;
            }
            DataType::Union(fields, mode) => {
                let mut lens = Vec::with_capacity(fields.len());
                for (place, (id, _)) in fields.iter().enumerate() {
                    lens.push((id, child(data, place, at)?.len()));
                }
                ranges::union(data, *mode, &lens, at)?;
                for place in 0..fields.len() {
                    self.child(data, before, place, data.len(), at)?;
                }
            }
            _ => {}
        }
        if self.level == Validate::Full {
            data.validate_data().map_err(|e| {
                broken(at, "an array is not valid Arrow data").with_got(e.to_string())
            })?;
        }
        Ok(())
    }

    /// Checks child `place`, of which the parent uses `used` rows.
    fn child(
        &mut self,
        data: &ArrayData,
        before: Option<&ArrayData>,
        place: usize,
        used: usize,
        at: &ColumnPath<'_>,
    ) -> Result<()> {
        let child = child(data, place, at)?;
        let before = before.and_then(|before| before.child_data().get(place));
        if child.len() / SHARED_TIMES > used {
            self.is_shared = true;
            if before.is_some_and(|before| is_same(before, child)) {
                return Ok(());
            }
        }
        let at = at.child(data.data_type(), place);
        self.check(child, before, &at)
    }
}

/// Child `place` of `data`.
fn child<'a>(data: &'a ArrayData, place: usize, at: &ColumnPath<'_>) -> Result<&'a ArrayData> {
    data.child_data().get(place).ok_or_else(|| {
        broken(at, "an array has too few children").with_got(format!(
            "{} for type `{}`",
            data.child_data().len(),
            type_text(data.data_type())
        ))
    })
}

fn long_enough(len: usize, need: Option<usize>, at: &ColumnPath<'_>) -> Result<()> {
    match need {
        Some(need) if need <= len => Ok(()),
        _ => Err(broken(at, "a child is shorter than its parent needs").with_got(format!(
            "{len} values, {} needed",
            need.map_or_else(|| "more than there can be".to_owned(), |need| need.to_string())
        ))),
    }
}

/// Whether two arrays are the same memory.
fn is_same(a: &ArrayData, b: &ArrayData) -> bool {
    // `ptr_eq` compares where buffers begin; views state their lengths.
    fn lengths(a: &ArrayData, b: &ArrayData) -> bool {
        let buffers = a.buffers().iter().zip(b.buffers()).all(|(a, b)| a.len() == b.len());
        buffers && a.child_data().iter().zip(b.child_data()).all(|(a, b)| lengths(a, b))
    }
    a.ptr_eq(b) && lengths(a, b)
}

#[cfg(test)]
mod tests;
