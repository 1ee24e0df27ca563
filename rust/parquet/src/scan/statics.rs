//! Columns that are constant within a source: where it lies, what its folders say, what users add.
//!
//! ```text
//! root/year=2024/month=06/a.parquet   hive   year 2024, month 6      _path, _folder, _filename, _size,
//! root/2024/06/a.parquet              dirs   dir0 2024, dir1 06      _modified, _file_index, _row_number
//! ```
//!
//! # Invariants
//! `dir0` is the folder below the one that was named, or below `root`: which files there are
//! changes nothing. The type of a partition column follows from all values at once: int64 if all
//! are whole numbers as one would write them (`06` is text), date32 if all are dates, else text. A
//! value that does not fit a declared type is an error.
//!
//! # Not here
//! Making the columns (`plait_core::schema`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, NullArray, StringArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow_schema::{DataType, Field, TimeUnit};
use plait_core::schema::{NameClash, Static, Value, constant};
use plait_core::{Error, Kind, Result, type_text};

use super::entries::ScanSource;
use super::footer::Footer;
use super::options::{ScanOptions, type_named};
use crate::store::table;

/// What hive writers call a null.
const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";
/// Columns that every source has without being asked.
const IMPLICIT: &[&str] =
    &["_path", "_folder", "_filename", "_size", "_modified", "_file_index", "_row_number"];

/// Static columns and, for every source, their values.
#[derive(Debug)]
pub(super) struct Statics {
    pub(super) columns: Vec<Static>,
    /// Column, its value for every source.
    constants: Vec<(String, Vec<ArrayRef>)>,
    /// Column, its text for every source.
    partitions: Vec<(Arc<Field>, Vec<Option<String>>)>,
}

impl Statics {
    /// Of these sources.
    pub(super) fn new(options: &ScanOptions, entries: &[ScanSource]) -> Result<Self> {
        let paths: Vec<Option<String>> = entries.iter().map(|entry| entry.path.clone()).collect();
        let paths = paths.as_slice();
        let mut columns = Vec::new();
        let mut partitions = match options.partitions()? {
            "hive" => hive(options, paths)?,
            "dirs" => dirs(options, entries)?,
            _ => Vec::new(),
        };
        let found = |name: &&String| partitions.iter().any(|(field, _)| field.name() == *name);
        if let Some(name) = options.partition_types.keys().find(|name| !found(name)) {
            let names: Vec<&str> = partitions.iter().map(|(f, _)| f.name().as_str()).collect();
            return Err(Error::new(
                Kind::InvalidArgument,
                "`partition_types` names no partition column",
            )
            .with_column(name)
            .with_hint(format!("the partition columns are: {}", names.join(", "))));
        }
        for given in &options.file_values {
            let text = |path: &Option<String>| given.values.get(path.as_ref()?).cloned().flatten();
            partitions.push((Arc::new(given.field()?), paths.iter().map(text).collect()));
        }
        let clash = options.partition_clash()?;
        let of_folders = partitions.len() - options.file_values.len();
        let of_log = options.file_values.iter().map(Some);
        let given = std::iter::repeat_n(None, of_folders).chain(of_log);
        for ((field, _), given) in partitions.iter().zip(given) {
            let paths = paths.iter().map(Option::as_deref);
            let clash = match given.filter(|_| options.partition_clash.is_none()) {
                Some(given) => given.clash(paths),
                None => clash,
            };
            columns.push(Static { field: Arc::clone(field), shown: true, clash });
        }
        let mut constants = Vec::new();
        for (name, value) in &options.statics {
            let given = constants_of(name, value, options.sources.len())?;
            let of = |entry: &ScanSource| match given.as_slice() {
                [all] => Arc::clone(all),
                each => {
                    each.get(entry.named).map_or_else(|| Arc::new(NullArray::new(1)), Arc::clone)
                }
            };
            let arrays: Vec<ArrayRef> = entries.iter().map(of).collect();
            let ty = arrays.first().map_or(DataType::Null, |array| array.data_type().clone());
            let nullable =
                given.iter().any(|array| array.data_type().is_null() || array.is_null(0));
            let field = Arc::new(Field::new(name, ty, nullable));
            columns.push(Static { field, shown: true, clash: NameClash::Refuse });
            constants.push((name.clone(), arrays));
        }
        for name in &options.implicit {
            if !IMPLICIT.contains(&name.as_str()) {
                return Err(Error::new(Kind::InvalidArgument, "`implicit` has no such column")
                    .with_got(format!("`{name}`"))
                    .with_hint(format!("give one of: {}", IMPLICIT.join(", "))));
            }
        }
        let mut names = IMPLICIT.to_vec();
        names.sort_by_key(|name| {
            options.implicit.iter().position(|asked| asked == name).unwrap_or(usize::MAX)
        });
        for name in names {
            let of_files = paths.iter().any(Option::is_none);
            let (ty, nullable) = match name {
                "_row_number" | "_file_index" => (DataType::Int64, false),
                "_size" => (DataType::Int64, of_files),
                // Not every storage tells.
                "_modified" => {
                    (DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true)
                }
                _ => (DataType::Utf8, of_files),
            };
            let shown = options.implicit.iter().any(|asked| asked == name);
            let field = Arc::new(Field::new(name, ty, nullable));
            columns.push(Static { field, shown, clash: NameClash::Refuse });
        }
        let mut seen = std::collections::BTreeSet::new();
        for column in &columns {
            if !seen.insert(column.field.name().clone()) {
                return Err(Error::new(Kind::InvalidArgument, "two static columns have one name")
                    .with_column(column.field.name()));
            }
        }
        Ok(Self { columns, constants, partitions })
    }

    /// The values of source `index`; `footer`: that of a file.
    pub(super) fn values(
        &self,
        index: usize,
        path: Option<&str>,
        footer: Option<&Footer>,
    ) -> Result<Vec<(String, Value)>> {
        let mut values: Vec<(String, Value)> = Vec::with_capacity(self.columns.len());
        let text = |text: Option<&str>| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
        let name = path.map(|path| path.rsplit('/').next().unwrap_or(path));
        let folder = path.map(|path| path.rsplit_once('/').map_or("", |(folder, _)| folder));
        let size = footer.and_then(|footer| i64::try_from(footer.size).ok());
        let modified = footer.and_then(|footer| footer.written_at).and_then(micros);
        let modified = TimestampMicrosecondArray::from(vec![modified]).with_timezone("UTC");
        let number = i64::try_from(index).unwrap_or(i64::MAX);
        values.push(("_path".into(), Value::Constant(text(path))));
        values.push(("_folder".into(), Value::Constant(text(folder))));
        values.push(("_filename".into(), Value::Constant(text(name))));
        values.push(("_size".into(), Value::Constant(Arc::new(Int64Array::from(vec![size])))));
        values.push(("_modified".into(), Value::Constant(Arc::new(modified))));
        values.push((
            "_file_index".into(),
            Value::Constant(Arc::new(Int64Array::from(vec![number]))),
        ));
        values.push(("_row_number".into(), Value::RowNumber));
        for (name, arrays) in &self.constants {
            let array = arrays.get(index).cloned();
            values.extend(array.map(|array| (name.clone(), Value::Constant(array))));
        }
        for (field, texts) in &self.partitions {
            let array = match texts.get(index).and_then(Option::as_deref) {
                Some(text) => {
                    let made = constant(text, field);
                    made.map_err(|e| e.with_path(path.unwrap_or_default()))?
                }
                None => new_null_array(field.data_type(), 1),
            };
            values.push((field.name().clone(), Value::Constant(array)));
        }
        Ok(values)
    }

    /// Whether values differ from source to source.
    pub(super) fn is_empty(&self) -> bool {
        self.columns.iter().all(|column| !column.shown)
    }
}

/// Microseconds since 1970 of a time.
fn micros(time: SystemTime) -> Option<i64> {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).ok(),
        Err(before) => i64::try_from(before.duration().as_micros()).ok().map(|micros| -micros),
    }
}

/// One value for all sources, or one for each that was named: arrays of one row and one type.
fn constants_of(name: &str, value: &serde_json::Value, named: usize) -> Result<Vec<ArrayRef>> {
    let serde_json::Value::Array(each) = value else { return Ok(vec![constant_of(name, value)?]) };
    let bad = |what: &str, got: String, hint: &str| {
        Err(Error::new(Kind::InvalidArgument, what).with_column(name).with_got(got).with_hint(hint))
    };
    if each.len() != named {
        let got = format!("{} values for {named} sources", each.len());
        return bad(
            "list of constants is not one for each source",
            got,
            "give as many as `sources` has",
        );
    }
    let mut arrays = Vec::with_capacity(named);
    for value in each {
        arrays.push(constant_of(name, value)?);
    }
    let types = || arrays.iter().map(|array| array.data_type()).filter(|ty| !ty.is_null());
    let Some(ty) = types().next().cloned() else { return Ok(arrays) };
    if let Some(other) = types().find(|other| **other != ty) {
        let got = format!("{} and {}", type_text(&ty), type_text(other));
        return bad("constants are of several types", got, "give values of one type, or None");
    }
    let typed = |array: ArrayRef| match array.data_type().is_null() {
        true => new_null_array(&ty, 1),
        false => array,
    };
    Ok(arrays.into_iter().map(typed).collect())
}

fn constant_of(name: &str, value: &serde_json::Value) -> Result<ArrayRef> {
    use serde_json::Value as Json;
    Ok(match value {
        Json::Null => Arc::new(NullArray::new(1)),
        Json::Bool(value) => Arc::new(BooleanArray::from(vec![*value])),
        Json::String(value) => Arc::new(StringArray::from(vec![value.as_str()])),
        Json::Number(value) => match (value.as_i64(), value.as_f64()) {
            (Some(value), _) => Arc::new(Int64Array::from(vec![value])),
            (None, Some(float)) if value.is_f64() => Arc::new(Float64Array::from(vec![float])),
            _ => {
                return Err(Error::new(Kind::InvalidArgument, "constant does not fit 64 bits")
                    .with_column(name)
                    .with_got(value.to_string()));
            }
        },
        _ => {
            return Err(Error::new(Kind::InvalidArgument, "constant is not a scalar")
                .with_column(name)
                .with_hint("give text, a number, True, False, None, or a list of them"));
        }
    })
}

type Partitions = Vec<(Arc<Field>, Vec<Option<String>>)>;

fn hive(options: &ScanOptions, paths: &[Option<String>]) -> Result<Partitions> {
    let mut order: Vec<String> = Vec::new();
    let mut found: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    let mut by_path: Vec<(usize, &String)> =
        paths.iter().enumerate().filter_map(|(i, path)| Some((i, path.as_ref()?))).collect();
    by_path.sort_by_key(|(_, path)| *path);
    for (index, path) in by_path {
        let mut parts: Vec<&str> = path.split('/').collect();
        parts.pop();
        let is_url = path.contains("://");
        for part in parts {
            // A URL escapes what the name of the folder escapes once more.
            let part = if is_url { unescaped(part) } else { part.to_owned() };
            let Some((name, value)) = part.split_once('=').filter(|(name, _)| !name.is_empty())
            else {
                continue;
            };
            let name = unescaped(name);
            let texts = found.entry(name.clone()).or_insert_with(|| {
                order.push(name);
                vec![None; paths.len()]
            });
            if let Some(text) = texts.get_mut(index) {
                *text = (value != HIVE_NULL).then(|| unescaped(value));
            }
        }
    }
    let columns = order.into_iter().filter_map(|name| {
        let texts = found.remove(&name)?;
        Some((name, texts))
    });
    columns.map(|(name, texts)| typed(options, name, texts)).collect()
}

fn dirs(options: &ScanOptions, entries: &[ScanSource]) -> Result<Partitions> {
    let mut below: Vec<Option<Vec<&str>>> = Vec::with_capacity(entries.len());
    for entry in entries {
        let Some(path) = entry.path.as_deref() else {
            below.push(None);
            continue;
        };
        let Some(folder) = options.root.as_deref().or(entry.folder.as_deref()) else {
            let what = "`partitions` \"dirs\" counts from a folder, and files are named";
            return Err(Error::new(Kind::InvalidArgument, what)
                .with_path(path)
                .with_hint("name the folder instead, or pass it as `root`"));
        };
        let mut parts = steps(path);
        parts.pop();
        let Some(rest) = parts.strip_prefix(steps(folder).as_slice()) else {
            return Err(Error::new(Kind::InvalidArgument, "file is not below `root`")
                .with_path(path)
                .with_got(format!("`{folder}`")));
        };
        below.push(Some(without_outputs(rest)));
    }
    let deepest = below.iter().flatten().map(Vec::len).max().unwrap_or(0);
    (0..deepest)
        .map(|at| {
            let text = |parts: &Option<Vec<&str>>| {
                parts.as_ref().and_then(|p| p.get(at)).map(|s| (*s).to_owned())
            };
            typed(options, format!("dir{at}"), below.iter().map(text).collect())
        })
        .collect()
}

/// The same folders without those in which compactions keep their outputs, which have the folders
/// of their sources below.
fn without_outputs<'a>(folders: &[&'a str]) -> Vec<&'a str> {
    let made = [table::FOLDER, "files"];
    match folders.windows(2).position(|pair| pair == made) {
        Some(at) => [&folders[..at], &folders[at + 2..]].concat(),
        None => folders.to_vec(),
    }
}

/// The names on a path, from the root if it begins there.
fn steps(path: &str) -> Vec<&str> {
    let root = path.starts_with('/').then_some("/");
    let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
    root.into_iter().chain(names).collect()
}

fn typed(
    options: &ScanOptions,
    name: String,
    texts: Vec<Option<String>>,
) -> Result<(Arc<Field>, Vec<Option<String>>)> {
    let positional = options.partitions()? == "dirs";
    let ty = match options.partition_types.get(&name) {
        Some(declared) => type_named(declared).map_err(|e| e.with_column(name.as_str()))?,
        None if positional => DataType::Utf8,
        None => inferred(&texts),
    };
    let nullable = texts.iter().any(Option::is_none);
    Ok((Arc::new(Field::new(name, ty, nullable)), texts))
}

fn inferred(texts: &[Option<String>]) -> DataType {
    let mut known = texts.iter().flatten().peekable();
    if known.peek().is_none() {
        return DataType::Utf8;
    }
    let number = |text: &String| text.parse::<i64>().is_ok_and(|n| n.to_string() == *text);
    if known.clone().all(number) {
        return DataType::Int64;
    }
    let date = |text: &String| {
        let shape = text.len() == 10
            && text
                .bytes()
                .enumerate()
                .all(|(i, b)| if matches!(i, 4 | 7) { b == b'-' } else { b.is_ascii_digit() });
        shape && constant(text, &Field::new("", DataType::Date32, true)).is_ok()
    };
    if known.all(date) { DataType::Date32 } else { DataType::Utf8 }
}

/// `%20` and the like decoded, as hive writers encode names and values.
fn unescaped(text: &str) -> String {
    let hex = |b: u8| (b as char).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let (bytes, mut out, mut i) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(i) {
        let pair =
            bytes.get(i + 1).copied().and_then(hex).zip(bytes.get(i + 2).copied().and_then(hex));
        match pair.filter(|_| byte == b'%') {
            Some((high, low)) => {
                out.push(high * 16 + low);
                i += 3;
            }
            None => {
                out.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[&str]) -> Vec<Option<String>> {
        all.iter().map(|t| Some((*t).to_owned())).collect()
    }

    #[test]
    fn types_of_partitions_follow_from_all_values() {
        assert_eq!(inferred(&texts(&["1", "-20"])), DataType::Int64);
        assert_eq!(inferred(&texts(&["1", "06"])), DataType::Utf8);
        assert_eq!(inferred(&texts(&["2024-02-29"])), DataType::Date32);
        assert_eq!(inferred(&texts(&["2023-02-29"])), DataType::Utf8);
        assert_eq!(inferred(&[None]), DataType::Utf8);
    }

    #[test]
    fn escapes_are_decoded_if_they_are_escapes() {
        assert_eq!(unescaped("a%20b%2Fc"), "a b/c");
        assert_eq!(unescaped("100%"), "100%");
        assert_eq!(unescaped("%zz"), "%zz");
    }
}
