//! The Arrow schema that a writer left in `ARROW:schema`, for the merged file.
//!
//! ```text
//! all schemas and hints equal   the hint, byte for byte
//! otherwise, per field          a  large_utf8 ─┐
//!                               b  utf8       ─┴─ supertype ──> large_utf8, if a reader that knows
//!                                                 the output's Parquet type accepts it
//! ```
//!
//! # Invariants
//! A hint changes how values are presented, never which values they are: where hints differ and
//! their supertype would not read the stored values as they are, the Parquet type alone speaks.
//! Integers that one hint takes for one unit and another for another are a conflict: no reader
//! could tell them apart afterwards. A hint that cannot be read is ignored; a file without one
//! says what its Parquet types say. Dictionaries with keys of less than 32 bits get 32 when files
//! are merged: the union of the values may need them. Field metadata is that of the first hint
//! that has some; extension types only as long as the storage type is theirs.
//!
//! # Not here
//! Other metadata (`metadata`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, FieldRef, Fields, Metadata, Schema};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema, parquet_to_arrow_schema};
use parquet::basic::{ConvertedType, Repetition};
use parquet::file::metadata::{FileMetaData, KeyValue};
use parquet::schema::types::{SchemaDescriptor, Type};
use plait_core::schema::{supertype, supertype_of};

use super::adapt::repetition;
use super::reconcile::{Class, Line, path};
use super::tree::fields;

/// One source's view of a field.
#[derive(Clone, Copy)]
struct View<'a> {
    source: usize,
    /// With the hint, if there is one.
    field: &'a Field,
    /// By the Parquet type alone.
    bare: &'a Field,
    hinted: bool,
}

/// The hint of the output, if any source has one; `kept` is the output's file metadata.
pub(super) fn merge(
    sources: &[(&str, &FileMetaData)],
    class_of: &[usize],
    classes: &[Class<'_>],
    descr: &SchemaDescriptor,
    kept: &[KeyValue],
    conflicts: &mut Vec<Line>,
) -> Option<KeyValue> {
    let hints: Vec<Option<&str>> = sources.iter().map(|(_, footer)| hint_of(footer)).collect();
    let first = hints.iter().flatten().next().copied()?;
    // What is read is looked at once for each class and hint.
    let mut read: HashMap<(usize, Option<&str>), ()> = HashMap::new();
    let mut bare: Vec<Option<Schema>> = Vec::with_capacity(classes.len());
    for class in classes {
        bare.push(arrow(class.descr, None));
    }
    let mut schemas: Vec<(usize, usize, Option<Schema>)> = Vec::new();
    for (source, (hint, class)) in hints.iter().zip(class_of).enumerate() {
        if read.insert((*class, *hint), ()).is_none()
            && let Some(described) = classes.get(*class)
        {
            let hinted = hint.and_then(|hint| arrow(described.descr, Some(hint)));
            schemas.push((source, *class, hinted));
        }
    }
    if let [(_, _, hinted)] = schemas.as_slice() {
        let narrow = |s: &Schema| s.fields().iter().any(|f| has_narrow_keys(f.data_type()));
        if sources.len() == 1 || !hinted.as_ref().is_some_and(narrow) {
            return Some(pair(first.to_owned()));
        }
    }
    let plain = arrow(descr, None)?;
    let mut views = Vec::new();
    for (source, class, hinted) in &schemas {
        if let Some(Some(bare)) = bare.get(*class) {
            let schema = hinted.as_ref().unwrap_or(bare);
            views.push((*source, schema.fields(), bare.fields(), hinted.is_some()));
        }
    }
    let mut merger = Merger { sources, conflicts, column: Vec::new() };
    let merged = merger.structs(plain.fields(), &views);
    let metadata = schemas
        .iter()
        .filter_map(|(_, _, hinted)| hinted.as_ref())
        .map(Schema::metadata)
        .find(|m| !m.is_empty());
    accepted(descr, &plain, merged, metadata.map(|m| carried(m, sources, kept)).unwrap_or_default())
}

fn hint_of(footer: &FileMetaData) -> Option<&str> {
    let mut pairs = footer.key_value_metadata().into_iter().flatten();
    pairs.find(|pair| pair.key == ARROW_SCHEMA_META_KEY)?.value.as_deref()
}

fn pair(value: String) -> KeyValue {
    KeyValue { key: ARROW_SCHEMA_META_KEY.to_owned(), value: Some(value) }
}

/// The Arrow schema that a reader sees, or `None` when it could see none.
fn arrow(descr: &SchemaDescriptor, hint: Option<&str>) -> Option<Schema> {
    if !is_sound(descr.root_schema()) {
        return None;
    }
    let pairs = hint.map(|hint| vec![pair(hint.to_owned())]);
    parquet_to_arrow_schema(descr, pairs.as_ref()).ok()
}

/// Whether maps are made of groups: the conversion takes this for granted.
fn is_sound(node: &Type) -> bool {
    let map = matches!(
        node.get_basic_info().converted_type(),
        ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE
    );
    let entries = fields(node);
    (!map || node.is_primitive() || entries.iter().all(|e| e.is_group()))
        && entries.iter().all(|e| is_sound(e))
        && (!map || repetition(node) != Repetition::REPEATED || !node.is_primitive())
}

/// Metadata of the hint's own schema. What repeats the files' metadata stays as far as the output
/// keeps it: PyArrow shows what is in the hint and nothing else.
fn carried(metadata: &Metadata, sources: &[(&str, &FileMetaData)], kept: &[KeyValue]) -> Metadata {
    let mut carried = Metadata::new();
    for (key, value) in metadata {
        let of_a_file = sources.iter().any(|(_, footer)| {
            footer.key_value_metadata().into_iter().flatten().any(|pair| pair.key == *key)
        });
        match kept.iter().find(|pair| pair.key == *key) {
            Some(pair) => {
                carried.insert(key.clone(), pair.value.clone().unwrap_or_default());
            }
            None if !of_a_file && key != "pandas" && !key.starts_with("plait.") => {
                carried.insert(key.clone(), value.clone());
            }
            None => {} // left out by the policy, or stale
        }
    }
    carried
}

/// Encodes what a reader of `descr` makes of `merged`; fields that it refuses go without hint.
fn accepted(
    descr: &SchemaDescriptor,
    plain: &Schema,
    merged: Vec<Field>,
    metadata: Metadata,
) -> Option<KeyValue> {
    let encoded = |fields: Vec<Field>| {
        encode_arrow_schema(&Schema::new(fields).with_metadata(metadata.clone()))
    };
    let read = |fields: Vec<Field>| arrow(descr, Some(&encoded(fields)));
    let schema = read(merged.clone()).or_else(|| {
        let bare = || plain.fields().iter().map(|f| f.as_ref().clone());
        let checked = merged.into_iter().enumerate().map(|(i, field)| {
            let alone = bare().enumerate().map(|(j, f)| if i == j { field.clone() } else { f });
            if read(alone.collect()).is_some() { Some(field) } else { bare().nth(i) }
        });
        read(checked.collect::<Option<Vec<_>>>()?)
    })?;
    Some(pair(encode_arrow_schema(&schema)))
}

struct Merger<'a> {
    sources: &'a [(&'a str, &'a FileMetaData)],
    conflicts: &'a mut Vec<Line>,
    column: Vec<String>,
}

impl Merger<'_> {
    /// Fields of a struct or a schema, by name as in the Parquet tree.
    fn structs(&mut self, plain: &Fields, views: &[(usize, &Fields, &Fields, bool)]) -> Vec<Field> {
        let mut by_name: HashMap<(&str, usize), Vec<View<'_>>> = HashMap::new();
        for (source, fields, bare, hinted) in views {
            for ((key, field), bare) in numbered(fields).zip(bare.iter()) {
                let view = View { source: *source, field, bare, hinted: *hinted };
                by_name.entry(key).or_default().push(view);
            }
        }
        let empty = Vec::new();
        numbered(plain)
            .map(|(key, field)| self.field(field, by_name.get(&key).unwrap_or(&empty)))
            .collect()
    }

    /// The output's `plain` field as the views present it.
    fn field(&mut self, plain: &Field, views: &[View<'_>]) -> Field {
        self.column.push(plain.name().clone());
        let ty = self.data_type(plain, views);
        self.column.pop();
        let hinted = || views.iter().filter(|v| v.hinted);
        let like = hinted().find(|v| with_wide_keys(v.field.data_type().clone()) == ty);
        let described = hinted().find(|v| !v.field.metadata().is_empty());
        let mut metadata = plain.metadata().clone();
        for (key, value) in described.iter().flat_map(|v| v.field.metadata()) {
            let extension = [EXTENSION_TYPE_NAME_KEY, EXTENSION_TYPE_METADATA_KEY];
            let storage = described.is_some_and(|v| v.field.data_type().equals_datatype(&ty));
            // Ids of the output's own nodes are in there already.
            let id = key == parquet::arrow::PARQUET_FIELD_ID_META_KEY;
            if !id && (storage || !extension.contains(&key.as_str())) {
                metadata.insert(key.clone(), value.clone());
            }
        }
        // Taken from a field of the same type, for what only a field knows of its dictionary.
        like.map_or_else(|| plain.clone(), |v| v.field.clone())
            .with_name(plain.name())
            .with_data_type(ty)
            .with_nullable(plain.is_nullable())
            .with_metadata(metadata)
    }

    fn data_type(&mut self, plain: &Field, views: &[View<'_>]) -> DataType {
        match plain.data_type() {
            DataType::Struct(fields) => {
                let views: Vec<_> = views
                    .iter()
                    .filter_map(|v| match (v.field.data_type(), v.bare.data_type()) {
                        (DataType::Struct(f), DataType::Struct(b)) => {
                            Some((v.source, f, b, v.hinted))
                        }
                        _ => None,
                    })
                    .collect();
                DataType::Struct(self.structs(fields, &views).into())
            }
            DataType::List(item) => {
                let views: Vec<_> = views
                    .iter()
                    .filter_map(|v| Some((v, item_of(v.field)?, item_of(v.bare)?)))
                    .collect();
                let items: Vec<View<'_>> =
                    views.iter().map(|(v, field, bare)| View { field, bare, ..**v }).collect();
                let item = Arc::new(self.field(item, &items));
                // The layouts alone, around one and the same item.
                let layouts = views.iter().filter_map(|(v, ..)| layout(v.field.data_type(), &item));
                let layouts: Vec<DataType> = layouts.collect();
                match supertype_of(&layouts) {
                    Some(ty) if ty.is_nested() => ty,
                    _ => DataType::List(item),
                }
            }
            DataType::Map(entries, _) => {
                let pairs: Vec<_> = views
                    .iter()
                    .filter_map(|v| Some((v, entries_of(v.field)?, entries_of(v.bare)?)))
                    .collect();
                let DataType::Struct(fields) = entries.data_type() else {
                    return plain.data_type().clone();
                };
                let fields: Vec<Field> = fields
                    .iter()
                    .enumerate()
                    .map(|(i, field)| {
                        let views: Vec<View<'_>> = pairs
                            .iter()
                            .filter_map(|(v, fields, bare)| {
                                Some(View { field: fields.get(i)?, bare: bare.get(i)?, ..**v })
                            })
                            .collect();
                        self.field(field, &views)
                    })
                    .collect();
                let sorted = |v: &View<'_>| matches!(v.field.data_type(), DataType::Map(_, true));
                let sorted = !pairs.is_empty() && pairs.iter().all(|(v, ..)| sorted(v));
                let entries =
                    entries.as_ref().clone().with_data_type(DataType::Struct(fields.into()));
                DataType::Map(Arc::new(entries), sorted)
            }
            leaf => self.leaf(leaf, views),
        }
    }

    fn leaf(&mut self, plain: &DataType, views: &[View<'_>]) -> DataType {
        let mut views = views.iter().filter(|v| !v.field.data_type().is_null());
        let Some(first) = views.next() else { return plain.clone() };
        let mut all = first.field.data_type().clone();
        let mut equal = true;
        for view in views {
            let ty = view.field.data_type();
            equal &= *ty == all;
            // Both take the same bare integers for something else.
            let reread = |v: &View<'_>| {
                v.hinted
                    && v.bare.data_type().is_integer()
                    && !value_type(v.field.data_type()).is_integer()
            };
            if reread(first)
                && reread(view)
                && value_type(first.field.data_type()) != value_type(ty)
            {
                let side = |v: &View<'_>| {
                    (
                        format!("{} in ARROW:schema", v.field.data_type()),
                        path(self.sources, v.source),
                    )
                };
                self.conflicts.push(Line {
                    column: self.column.join("."),
                    why: "is stored as plain integers of different meaning",
                    sides: [side(first), side(view)],
                });
                return plain.clone();
            }
            match supertype(&all, ty) {
                Some(both) => all = both,
                None => return plain.clone(),
            }
        }
        let all = with_wide_keys(all);
        if equal || presents(plain, &all) { all } else { plain.clone() }
    }
}

/// Whether `ty` is another form of the same values as `plain`, which is what is stored.
fn presents(plain: &DataType, ty: &DataType) -> bool {
    use DataType as T;
    match (plain, ty) {
        (plain, T::Dictionary(_, values)) => presents(plain, values),
        (T::Utf8, T::LargeUtf8 | T::Utf8View)
        | (T::Binary, T::LargeBinary | T::BinaryView)
        | (T::Decimal128(..), T::Decimal256(..)) => true,
        (T::Timestamp(u, Some(_)), T::Timestamp(v, Some(_))) => u == v,
        (plain, ty) => plain == ty,
    }
}

/// The type of the values, in a dictionary or not.
fn value_type(ty: &DataType) -> &DataType {
    if let DataType::Dictionary(_, values) = ty { values } else { ty }
}

fn with_wide_keys(ty: DataType) -> DataType {
    match ty {
        DataType::Dictionary(key, values) if is_narrow(&key) => {
            DataType::Dictionary(Box::new(DataType::Int32), values)
        }
        other => other,
    }
}

fn is_narrow(key: &DataType) -> bool {
    use DataType as T;
    matches!(key, T::Int8 | T::UInt8 | T::Int16 | T::UInt16)
}

fn has_narrow_keys(ty: &DataType) -> bool {
    match ty {
        DataType::Dictionary(key, _) => is_narrow(key),
        DataType::Struct(fields) => fields.iter().any(|f| has_narrow_keys(f.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => has_narrow_keys(item.data_type()),
        _ => false,
    }
}

fn numbered(fields: &Fields) -> impl Iterator<Item = ((&str, usize), &FieldRef)> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    fields.iter().map(move |field| {
        let nth = seen.entry(field.name()).or_default();
        *nth += 1;
        ((field.name().as_str(), *nth), field)
    })
}

fn item_of(field: &Field) -> Option<&Field> {
    match field.data_type() {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

fn layout(ty: &DataType, item: &FieldRef) -> Option<DataType> {
    let item = Arc::clone(item);
    Some(match ty {
        DataType::List(_) => DataType::List(item),
        DataType::LargeList(_) => DataType::LargeList(item),
        DataType::ListView(_) => DataType::ListView(item),
        DataType::LargeListView(_) => DataType::LargeListView(item),
        DataType::FixedSizeList(_, n) => DataType::FixedSizeList(item, *n),
        _ => return None,
    })
}

fn entries_of(field: &Field) -> Option<&Fields> {
    match field.data_type() {
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => Some(fields),
            _ => None,
        },
        _ => None,
    }
}
