//! Arrays as the C data interface has them: counts and pointers, looked at before buffers are made
//! of them.
//!
//! ```text
//! length, offset, null count   not negative, their sum is a number      buffers    as many as the type has
//! children, dictionary         there, as many as the type has           offsets    there, the last >= 0
//! ```
//!
//! # Invariants
//! After [`import`] every buffer has the length that its array needs, as far as the producer said
//! the truth: the interface has no lengths of buffers but those of views. What leads from one
//! buffer into another was checked by `plait_core::validate`.
//!
//! Source: the [Arrow C data interface](https://arrow.apache.org/docs/format/CDataInterface.html).

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::ffi::{FFI_ArrowArray, from_ffi_and_data_type};
use arrow_array::{ArrayRef, make_array};
use arrow_schema::{DataType, UnionMode};
use plait_core::validate::{Validate, Validator};
use plait_core::{Error, Kind, Result, type_text};

/// The structure of the interface, whose members [`FFI_ArrowArray`] keeps to itself.
#[repr(C)]
struct Raw {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *const *mut Self,
    dictionary: *mut Self,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

/// The array of type `data_type` that `array` has, checked; messages call it `name`.
///
/// # Errors
/// [`Kind::CorruptSource`] for one that contradicts itself, with the column.
///
/// # Safety
/// `array` is one that a producer filled in and that nobody released; its pointers are null or lead
/// to memory that lives until it is released.
pub(super) unsafe fn import(
    mut array: FFI_ArrowArray,
    data_type: DataType,
    validator: &mut Validator,
    name: &str,
) -> Result<ArrayRef> {
    let raw = (&raw mut array).cast::<Raw>();
    // SAFETY: the two structures have one layout, that of the interface; the caller promises the
    // rest.
    unsafe { check(raw, &data_type, validator.level(), name)? };
    let imported = catch_unwind(AssertUnwindSafe(|| -> Result<ArrayRef> {
        // SAFETY: the caller promises that the array follows the interface; its counts, and the
        // pointers that are read on the way, were checked above.
        let data = unsafe { from_ffi_and_data_type(array, data_type) }.map_err(|e| {
            Error::new(Kind::CorruptSource, "an array is not valid Arrow data").with_cause(e)
        })?;
        validator.check(&data, name)?;
        Ok(make_array(data))
    }));
    imported.unwrap_or_else(|payload| Err(crate::panics::error(payload.as_ref())))
}

/// Checks the counts and pointers of `raw`, an array of type `data_type`, and of all below it. Null
/// counts are forgotten, so that they are counted anew, unless all is validated anyway.
///
/// # Safety
/// As for [`import`].
unsafe fn check(raw: *mut Raw, data_type: &DataType, level: Validate, at: &str) -> Result<()> {
    // SAFETY: the caller promises a structure that was filled in; nobody else uses it meanwhile.
    let array = unsafe { &mut *raw };
    let node = Node { array, data_type, at };
    let rows = node.counts()?;
    // SAFETY: the caller promises that pointers which are not null lead to what they are for.
    unsafe {
        node.validity()?;
        node.offsets(rows)?;
        node.views()?;
    }
    let below = |name: &str| match (at.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (_, true) => at.to_owned(),
        _ => format!("{at}.{name}"),
    };
    for (place, (name, child_type)) in children(data_type).into_iter().enumerate() {
        // SAFETY: the caller promises as many pointers as the array has children.
        let child = unsafe { *node.array.children.add(place) };
        if child.is_null() {
            let got = format!("child {place}");
            return Err(node.broken("a child of an array is not there", got));
        }
        // SAFETY: as above; a child lives as long as its parent.
        unsafe { check(child, child_type, level, &below(name))? };
    }
    if let DataType::Dictionary(_, values) = data_type {
        // SAFETY: as for children; that it is there was checked with the counts.
        unsafe { check(node.array.dictionary, values, level, at)? };
    }
    if level == Validate::Basic && has_validity(data_type) {
        node.array.null_count = -1;
    }
    Ok(())
}

/// An array whose counts and pointers are looked at.
struct Node<'a> {
    array: &'a mut Raw,
    data_type: &'a DataType,
    at: &'a str,
}

impl Node<'_> {
    fn broken(&self, what: &str, got: String) -> Error {
        let error = Error::new(Kind::CorruptSource, what)
            .with_got(got)
            .with_hint("the library that made this Arrow data violated the format");
        if self.at.is_empty() { error } else { error.with_column(self.at) }
    }

    /// Offset and length together, if all counts can be.
    fn counts(&self) -> Result<usize> {
        let Self { array, data_type, .. } = self;
        let of_type = |count: i64| format!("{count} for type `{}`", type_text(data_type));
        if array.release.is_none() {
            return Err(self.broken("an array was released before it was read", of_type(0)));
        }
        let rows = array.length.checked_add(array.offset);
        let bits = rows.and_then(|rows| rows.checked_add(1)?.checked_mul(row_bits(data_type)));
        let counted = rows.filter(|_| array.length >= 0 && array.offset >= 0 && bits.is_some());
        let Some(rows) = counted.and_then(|rows| usize::try_from(rows).ok()) else {
            let got = format!("length {}, offset {}", array.length, array.offset);
            return Err(self.broken("an array has no such length", got));
        };
        if array.null_count < -1 || array.null_count > array.length {
            let got = format!("{} of {} rows", array.null_count, array.length);
            return Err(self.broken("an array has no such number of nulls", got));
        }
        let buffers = buffers(data_type);
        if array.n_buffers < buffers || (array.n_buffers > buffers && !is_view(data_type)) {
            let got = of_type(array.n_buffers);
            return Err(self.broken("an array has another number of buffers", got));
        }
        if buffers > 0 && array.buffers.is_null() {
            return Err(self.broken("an array has no buffers", of_type(array.n_buffers)));
        }
        let children = children(data_type).len();
        if usize::try_from(array.n_children) != Ok(children)
            || (children > 0 && array.children.is_null())
        {
            let got = of_type(array.n_children);
            return Err(self.broken("an array has another number of children", got));
        }
        if array.dictionary.is_null() == matches!(data_type, DataType::Dictionary(..)) {
            return Err(self.broken("a dictionary is missing, or too many", of_type(1)));
        }
        Ok(rows)
    }

    /// A buffer, null if it is not there.
    ///
    /// # Safety
    /// As for [`import`]; counts were checked.
    unsafe fn buffer(&self, place: i64) -> *const c_void {
        match usize::try_from(place) {
            // SAFETY: there are as many pointers as the array has buffers.
            Ok(at) if place < self.array.n_buffers => unsafe { *self.array.buffers.add(at) },
            _ => std::ptr::null(),
        }
    }

    /// Refuses nulls that no validity tells.
    ///
    /// # Safety
    /// As for [`buffer`](Self::buffer).
    unsafe fn validity(&self) -> Result<()> {
        // SAFETY: the caller's promise.
        let validity = unsafe { self.buffer(0) };
        if has_validity(self.data_type) && self.array.null_count > 0 && validity.is_null() {
            let got = format!("{} nulls", self.array.null_count);
            return Err(self.broken("an array has nulls and no validity", got));
        }
        Ok(())
    }

    /// Refuses offsets that are not there, and a last one from which no length can be made.
    ///
    /// # Safety
    /// As for [`buffer`](Self::buffer).
    unsafe fn offsets(&self, rows: usize) -> Result<()> {
        let Some(width) = offset_width(self.data_type).filter(|_| rows > 0) else { return Ok(()) };
        // SAFETY: the caller's promise.
        let offsets = unsafe { self.buffer(1) };
        if offsets.is_null() {
            return Err(self.broken("an array has no offsets", format!("{rows} rows")));
        }
        // SAFETY: the buffer is there, and an array of so many rows has one offset more.
        let last = unsafe {
            if width == size_of::<i32>() {
                i64::from(offsets.cast::<i32>().add(rows).read_unaligned())
            } else {
                offsets.cast::<i64>().add(rows).read_unaligned()
            }
        };
        if last < 0 {
            return Err(self.broken("offsets lead outside of the values", last.to_string()));
        }
        Ok(())
    }

    /// Refuses buffers of views that are not there.
    ///
    /// # Safety
    /// As for [`buffer`](Self::buffer).
    unsafe fn views(&self) -> Result<()> {
        if !is_view(self.data_type) {
            return Ok(());
        }
        let last = self.array.n_buffers - 1;
        // SAFETY: the caller's promise.
        let lengths = unsafe { self.buffer(last) };
        if last > 2 && lengths.is_null() {
            let got = format!("{} buffers", last - 2);
            return Err(self.broken("an array does not tell the lengths of its buffers", got));
        }
        for (at, place) in (2..last).enumerate() {
            // SAFETY: the last buffer of views has a length for each one between the views and
            // itself.
            let (buffer, len) =
                unsafe { (self.buffer(place), lengths.cast::<i64>().add(at).read_unaligned()) };
            if len < 0 || (len > 0 && buffer.is_null()) {
                let got = format!("buffer {at} of {len} bytes");
                return Err(self.broken("a buffer of views is not there", got));
            }
        }
        Ok(())
    }
}

fn is_view(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// Number of buffers in the interface; views have one more for each of their own.
fn buffers(data_type: &DataType) -> i64 {
    use DataType as T;
    match data_type {
        T::Null | T::RunEndEncoded(..) => 0,
        T::Struct(_) | T::FixedSizeList(..) | T::Union(_, UnionMode::Sparse) => 1,
        T::Utf8 | T::LargeUtf8 | T::Binary | T::LargeBinary => 3,
        T::Utf8View | T::BinaryView | T::ListView(_) | T::LargeListView(_) => 3,
        _ => 2,
    }
}

fn has_validity(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Null | DataType::Union(..) | DataType::RunEndEncoded(..))
}

/// Bytes of an offset of a type that has one more than rows.
fn offset_width(data_type: &DataType) -> Option<usize> {
    use DataType as T;
    match data_type {
        T::Utf8 | T::Binary | T::List(_) | T::Map(..) => Some(size_of::<i32>()),
        T::LargeUtf8 | T::LargeBinary | T::LargeList(_) => Some(size_of::<i64>()),
        _ => None,
    }
}

/// Most bits of a row in one buffer: of these, all rows must be a number.
fn row_bits(data_type: &DataType) -> i64 {
    let bytes = match data_type {
        DataType::FixedSizeBinary(width) | DataType::FixedSizeList(_, width) => {
            i64::from(*width).max(1)
        }
        _ => 1,
    };
    bytes * 8 * 32
}

/// Names and types of the children.
fn children(data_type: &DataType) -> Vec<(&str, &DataType)> {
    use DataType as T;
    match data_type {
        T::List(field)
        | T::LargeList(field)
        | T::ListView(field)
        | T::LargeListView(field)
        | T::FixedSizeList(field, _)
        | T::Map(field, _) => vec![(field.name().as_str(), field.data_type())],
        T::Struct(fields) => {
            fields.iter().map(|field| (field.name().as_str(), field.data_type())).collect()
        }
        T::Union(fields, _) => {
            fields.iter().map(|(_, field)| (field.name().as_str(), field.data_type())).collect()
        }
        T::RunEndEncoded(ends, values) => vec![
            (ends.name().as_str(), ends.data_type()),
            (values.name().as_str(), values.data_type()),
        ],
        _ => Vec::new(),
    }
}
