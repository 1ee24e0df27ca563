//! The Arrow schema that a writer left in `ARROW:schema`, for the merged file.
//!
//! ```text
//! all schemas and hints equal   the hint, byte for byte
//! otherwise, per field          a  large_utf8 ─┐
//!                               b  utf8       ─┴─ frozen ──> large_utf8, if a reader that knows
//!                                              the output's Parquet type accepts it
//! ```
//!
//! # Invariants
//! A hint changes how values are presented, never which values they are: where hints differ and
//! the frozen type would not read the stored values as they are, the Parquet type alone speaks.
//! A hint that cannot be read is ignored; a file without one
//! says what its Parquet types say. Dictionaries with keys of less than 32 bits get 32 when files
//! are merged: the union of the values may need them. Field metadata is that of the first hint
//! that has some; extension types only as long as the storage type is theirs.
//!
//! # Not here
//! Which types go together (`plait_core::schema`), other metadata (`metadata`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, Fields, Metadata, Schema};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema, parquet_to_arrow_schema};
use parquet::basic::{ConvertedType, Repetition};
use parquet::file::metadata::{FileMetaData, KeyValue};
use parquet::schema::types::{SchemaDescriptor, Type};

use super::class::Seen;
use super::metadata::lists_columns;
use super::summary::{fields, is_reread, item_of, layout, numbered, pair_of, presents, repetition};
use super::tree::Node;

/// The hint of the output, if any source has one; `seen` are theirs, `kept` is the output's file
/// metadata.
pub(super) fn merge(
    sources: &[(&str, &FileMetaData)],
    seen: &Seen,
    root: &Node,
    descr: &SchemaDescriptor,
    kept: &[KeyValue],
) -> Option<KeyValue> {
    let first = sources.iter().find_map(|(_, footer)| hint_of(footer).filter(is_read(footer)))?;
    if let [hinted] = seen.as_slice() {
        let narrow = |s: &Schema| s.fields().iter().any(|f| has_narrow_keys(f.data_type()));
        if sources.len() == 1 || !hinted.as_ref().is_some_and(narrow) {
            return Some(pair(first.to_owned()));
        }
    }
    let plain = arrow(descr, None)?;
    let merged = members(plain.fields(), &root.children);
    let metadata = seen.iter().flatten().map(Schema::metadata).find(|m| !m.is_empty());
    accepted(descr, &plain, merged, metadata.map(|m| carried(m, sources, kept)).unwrap_or_default())
}

/// The hint of a schema whose top-level fields are some of those of another, which has `hint`.
pub(super) fn without(
    descr: &SchemaDescriptor,
    hint: &str,
    left: &SchemaDescriptor,
    stays: impl Fn(usize) -> bool,
) -> Option<KeyValue> {
    let schema = arrow(descr, Some(hint))?;
    let fields = schema.fields().iter().enumerate().filter(|(at, _)| stays(*at));
    let fields = fields.map(|(_, field)| field.as_ref().clone()).collect();
    let mut metadata = schema.metadata().clone();
    metadata.retain(|key, _| !lists_columns(key));
    accepted(left, &arrow(left, None)?, fields, metadata)
}

/// Whether a hint of `footer` can be read, as far as its schema can be read without.
fn is_read(footer: &FileMetaData) -> impl Fn(&&str) -> bool {
    let descr = footer.schema_descr();
    move |hint| arrow(descr, Some(hint)).is_some() || arrow(descr, None).is_none()
}

pub(super) fn hint_of(footer: &FileMetaData) -> Option<&str> {
    let mut pairs = footer.key_value_metadata().into_iter().flatten();
    pairs.find(|pair| pair.key == ARROW_SCHEMA_META_KEY)?.value.as_deref()
}

fn pair(value: String) -> KeyValue {
    KeyValue { key: ARROW_SCHEMA_META_KEY.to_owned(), value: Some(value) }
}

/// The Arrow schema that a reader sees, or `None` when it could see none.
pub(super) fn arrow(descr: &SchemaDescriptor, hint: Option<&str>) -> Option<Schema> {
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

/// The fields of the output's `plain` struct as its nodes' frozen fields present them.
fn members(plain: &Fields, nodes: &[Node]) -> Vec<Field> {
    let names = numbered(nodes.iter().map(|node| node.ty.name()));
    let nodes: HashMap<_, _> = names.zip(nodes).collect();
    numbered(plain.iter().map(|f| f.name().as_str()))
        .zip(plain)
        .map(|(key, field)| match nodes.get(&key) {
            Some(node) => presented(field, node),
            None => field.as_ref().clone(),
        })
        .collect()
}

/// The output's `plain` field as its node's frozen field presents it.
fn presented(plain: &Field, node: &Node) -> Field {
    let Some(frozen) = node.field.as_ref().filter(|_| !node.views.is_empty()) else {
        return plain.clone();
    };
    let repeats = repetition(&node.ty) == Repetition::REPEATED;
    let ty = match item_of(plain).filter(|_| repeats) {
        // A list that only the repeated node makes.
        Some(item) => {
            let content = item_of(frozen).unwrap_or(frozen);
            let item = item.as_ref().clone().with_data_type(inside(item, content, node));
            DataType::List(Arc::new(item))
        }
        None => inside(plain, frozen, node),
    };
    let like = node.views.iter().find(|v| with_wide_keys(v.hinted.data_type().clone()) == ty);
    let described = node.views.iter().find(|v| !v.hinted.metadata().is_empty());
    let mut metadata = plain.metadata().clone();
    for (key, value) in described.iter().flat_map(|v| v.hinted.metadata()) {
        let extension = [EXTENSION_TYPE_NAME_KEY, EXTENSION_TYPE_METADATA_KEY];
        let storage = described.is_some_and(|v| v.hinted.data_type().equals_datatype(&ty));
        // Ids of the output's own nodes are in there already.
        let id = key == parquet::arrow::PARQUET_FIELD_ID_META_KEY;
        if !id && (storage || !extension.contains(&key.as_str())) {
            metadata.insert(key.clone(), value.clone());
        }
    }
    // Taken from a field of the same type, for what only a field knows of its dictionary.
    like.map_or_else(|| plain.clone(), |v| v.hinted.as_ref().clone())
        .with_name(plain.name())
        .with_data_type(ty)
        .with_nullable(plain.is_nullable())
        .with_metadata(metadata)
}

fn inside(plain: &Field, frozen: &Field, node: &Node) -> DataType {
    // Lists and maps of three levels have a node between them and what is inside.
    let below = match node.children.as_slice() {
        [wrapper] if wrapper.field.is_none() => wrapper.children.as_slice(),
        children => children,
    };
    match plain.data_type() {
        DataType::Struct(fields) => DataType::Struct(members(fields, below).into()),
        DataType::List(item) => {
            let Some(child) = below.first() else { return plain.data_type().clone() };
            let item = Arc::new(presented(item, child));
            layout(frozen.data_type(), &item).unwrap_or(DataType::List(item))
        }
        DataType::Map(entries, _) => {
            let Some(pair) = pair_of(plain) else { return plain.data_type().clone() };
            let pair: Vec<Field> = pair.iter().zip(below).map(|(f, n)| presented(f, n)).collect();
            let sorted = matches!(frozen.data_type(), DataType::Map(_, true));
            let pair = DataType::Struct(pair.into());
            DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(pair)), sorted)
        }
        leaf => {
            let ty = with_wide_keys(frozen.data_type().clone());
            let agreed = node.views.iter().all(|v| v.agrees);
            if agreed || presents(leaf, &ty) || is_reread(leaf, &ty) { ty } else { leaf.clone() }
        }
    }
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
