//! What a file's tree says, in the core's words: fields with Arrow types.
//!
//! ```text
//! optional int64 d (hint: duration[s])              d: duration[s]?
//! required binary j (JSON)                          j: utf8             meaning: Json
//! repeated int32 r                                  r: list<int32>      meaning: repeated
//! optional group l (LIST) { repeated int32 e; }     l: list<int32>?     meaning: LIST, two levels
//! optional group v (VARIANT) { … }                  v: binary?          meaning: its whole text
//! optional group nothing { }                        nothing: null
//! ```
//!
//! # Invariants
//! A pure function of one tree and one hint; nothing is compared with another file's. What Arrow
//! types cannot say is in the field's meaning, so that the core keeps apart what Parquet keeps
//! apart. The n-th field of a name is a field of its own. The hint speaks where it tells another
//! type for the same bytes, never against an annotation.
//!
//! # Not here
//! Deciding (`plait_core::schema`); nodes of the output (`tree`).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Metadata};
use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::schema::types::{Type, TypePtr};
use plait_core::schema::{FIELD_ID, MEANING, SAYS};

use super::leaf::{LeafType, StoredType, Tag};

/// A node of a source, and what the core knows of it.
#[derive(Clone)]
pub(super) struct SchemaNode {
    pub(super) place: NodePlace,
    pub(super) inside: Inside,
    /// The repeated node between a list or map and its `children`.
    pub(super) wrapper: Option<NodePlace>,
    pub(super) children: Vec<SchemaNode>,
    /// Whether the node repeats and is no part of a list or map.
    pub(super) repeated: bool,
    pub(super) field: FieldRef,
    /// As a reader shows it, if the file has a hint.
    pub(super) hinted: Option<FieldRef>,
}

/// Where a node is in its source.
#[derive(Clone)]
pub(super) struct NodePlace {
    pub(super) ty: TypePtr,
    /// The first leaf at or below the node.
    pub(super) leaf: usize,
    /// How many leaves are at or below the node.
    pub(super) leaves: usize,
    /// What a leaf stores.
    pub(super) stored: Option<StoredType>,
}

/// What a node is, apart from how often it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    Leaf,
    /// Fields by name.
    Struct,
    /// One child below the wrapper: elements, or the keys of a map without values.
    List,
    /// One child, which is the repeated node itself: a list of two levels.
    Elements,
    /// A key and a value below the wrapper.
    Map,
    /// Must be alike inside.
    Opaque,
}

/// The fields of a file's root; `hinted` as a reader shows them, if the file has a hint.
pub(super) fn columns(root: &Type, hinted: Option<&Fields>) -> Vec<SchemaNode> {
    members(root, 0, hinted)
}

/// Fields of a group; none of a leaf.
pub(super) fn fields(node: &Type) -> &[TypePtr] {
    match node {
        Type::GroupType { fields, .. } => fields,
        Type::PrimitiveType { .. } => &[],
    }
}

pub(super) fn repetition(node: &Type) -> Repetition {
    let info = node.get_basic_info();
    if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED }
}

pub(super) fn id(node: &Type) -> Option<i32> {
    let info = node.get_basic_info();
    info.has_id().then(|| info.id())
}

/// Fields with the number of their name so far, from 1.
pub(super) fn numbered<'a>(
    names: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = (&'a str, usize)> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    names.map(move |name| {
        let nth = seen.entry(name).or_default();
        *nth += 1;
        (name, *nth)
    })
}

impl NodePlace {
    pub(super) fn new(ty: &TypePtr, leaf: usize) -> Self {
        Self { ty: Arc::clone(ty), leaf, leaves: leaf_count(ty), stored: None }
    }
}

fn leaf_count(node: &Type) -> usize {
    if node.is_primitive() { 1 } else { fields(node).iter().map(|f| leaf_count(f)).sum() }
}

fn members(group: &Type, mut leaf: usize, hinted: Option<&Fields>) -> Vec<SchemaNode> {
    let names = hinted.into_iter().flatten().map(|f| f.name().as_str());
    let known: HashMap<_, _> = numbered(names).zip(hinted.into_iter().flatten()).collect();
    let own = fields(group);
    let mut parts = Vec::with_capacity(own.len());
    for (key, node) in numbered(own.iter().map(|f| f.name())).zip(own) {
        let name = match key {
            (name, 1) => name.to_owned(),
            (name, nth) => format!("{name}\0{nth}"),
        };
        let part = part(node, leaf, &name, known.get(&key).copied(), false);
        leaf += part.place.leaves;
        parts.push(part);
    }
    parts
}

/// `element`: the repeated node of a list of two levels, which is one element.
fn part(
    node: &TypePtr,
    leaf: usize,
    name: &str,
    hinted: Option<&FieldRef>,
    element: bool,
) -> SchemaNode {
    let repeated = repetition(node) == Repetition::REPEATED && !element;
    let view = if repeated { hinted.and_then(|f| item_of(f)) } else { hinted };
    let mut place = NodePlace::new(node, leaf);
    let (inside, shape) = shape(node);
    let entries = fields(node).first();
    let (mut wrapper, mut children) = (None, Vec::new());
    let mut meaning = None;
    let ty = match inside {
        _ if place.leaves == 0 => DataType::Null,
        Inside::Leaf => {
            let (ty, stored, says) = scalar(node, view);
            meaning = says;
            place.stored = stored;
            ty
        }
        Inside::Struct => {
            children = members(node, leaf, view.and_then(|f| fields_of(f)));
            DataType::Struct(children.iter().map(|c| Arc::clone(&c.field)).collect())
        }
        Inside::Elements => {
            meaning = Some(shape.clone());
            let item = view.and_then(|f| item_of(f));
            children.extend(entries.map(|e| part(e, leaf, e.name(), item, true)));
            list(&children, view)
        }
        Inside::List | Inside::Map => {
            wrapper = entries.map(|e| NodePlace::new(e, leaf));
            let below = entries.map(|e| fields(e)).unwrap_or_default();
            let mut leaf = leaf;
            for (at, node) in below.iter().enumerate() {
                let view = view.and_then(|f| match inside {
                    Inside::Map => pair_of(f)?.get(at),
                    _ => item_of(f),
                });
                let child = part(node, leaf, node.name(), view, false);
                leaf += child.place.leaves;
                children.push(child);
            }
            if inside == Inside::Map {
                map(entries, &children, view)
            } else {
                // Keys alone are stored as a list is, and are none.
                meaning =
                    annotation(node).filter(|a| *a != LogicalType::List).map(|_| shape.clone());
                list(&children, view)
            }
        }
        Inside::Opaque => {
            meaning = Some(text(node));
            DataType::Binary
        }
    };
    let says = place.stored.as_ref().map_or_else(|| shape.clone(), ToString::to_string);
    let mut metadata = Metadata::new();
    if let Some(meaning) = meaning {
        metadata.insert(MEANING, meaning);
    }
    let (ty, nullable) = if repeated && place.leaves > 0 {
        let item = Field::new(Field::LIST_FIELD_DEFAULT_NAME, ty, false).with_metadata(metadata);
        metadata = Metadata::from_iter([(MEANING, "repeated")]);
        (DataType::List(Arc::new(item)), false)
    } else {
        let nullable = repetition(node) == Repetition::OPTIONAL || ty.is_null();
        (ty, nullable)
    };
    metadata.insert(SAYS, if repeated { format!("repeated {says}") } else { says });
    if let Some(id) = id(node) {
        metadata.insert(FIELD_ID, id.to_string());
    }
    let field = Arc::new(Field::new(name, ty, nullable).with_metadata(metadata));
    SchemaNode { place, inside, wrapper, children, repeated, field, hinted: hinted.cloned() }
}

/// Type and meaning of a leaf, and what it stores.
fn scalar(
    node: &Type,
    hinted: Option<&FieldRef>,
) -> (DataType, Option<StoredType>, Option<String>) {
    let Some(leaf) = LeafType::of(node) else { return (DataType::Null, None, None) };
    let Some(own) = leaf.meaning() else {
        // Known to nobody: the same leaf will do, and nothing else.
        let text = format!("{leaf:?}");
        return (DataType::Binary, Some(StoredType { leaf, reread: None }), Some(text));
    };
    let plain = own.tag == Tag::Plain;
    // Of JSON, INT96 and so on a hint says at most how they are held in memory.
    let free = plain || matches!(own.tag, Tag::Time { .. });
    let hint = hinted.map(|f| f.data_type()).filter(|hint| {
        let strange = hint.is_nested() || value_type(hint).is_null() || own.ty.is_null();
        !strange && (free || presents(&own.ty, hint))
    });
    let reread = hint.filter(|hint| is_reread(&own.ty, hint)).cloned();
    let ty = hint.cloned().unwrap_or(own.ty);
    let meaning = if plain { None } else { Some(format!("{:?}", own.tag)) };
    (ty, Some(StoredType { leaf, reread }), meaning)
}

fn list(children: &[SchemaNode], hinted: Option<&FieldRef>) -> DataType {
    let Some(item) = children.first().map(|c| Arc::clone(&c.field)) else { return DataType::Null };
    hinted.and_then(|f| layout(f.data_type(), &item)).unwrap_or(DataType::List(item))
}

fn map(entries: Option<&TypePtr>, children: &[SchemaNode], hinted: Option<&FieldRef>) -> DataType {
    let sorted = hinted.is_some_and(|f| matches!(f.data_type(), DataType::Map(_, true)));
    let pair: Fields = children.iter().map(|c| Arc::clone(&c.field)).collect();
    let name = entries.map_or("entries", |e| e.name());
    DataType::Map(Arc::new(Field::new(name, DataType::Struct(pair), false)), sorted)
}

/// Whether `ty` is another form of the same values as `plain`, which is what is stored.
pub(super) fn presents(plain: &DataType, ty: &DataType) -> bool {
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

/// Whether bare integers are taken for something else.
pub(super) fn is_reread(plain: &DataType, ty: &DataType) -> bool {
    plain.is_integer() && !value_type(ty).is_integer()
}

/// The type of the values, in a dictionary or not.
fn value_type(ty: &DataType) -> &DataType {
    if let DataType::Dictionary(_, values) = ty { values } else { ty }
}

pub(super) fn item_of(field: &Field) -> Option<&FieldRef> {
    match field.data_type() {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => Some(item),
        _ => None,
    }
}

/// The layout of the list `ty` around `item`.
pub(super) fn layout(ty: &DataType, item: &FieldRef) -> Option<DataType> {
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

pub(super) fn fields_of(field: &Field) -> Option<&Fields> {
    if let DataType::Struct(fields) = field.data_type() { Some(fields) } else { None }
}

/// Key and value of a map.
pub(super) fn pair_of(field: &Field) -> Option<&Fields> {
    match field.data_type() {
        DataType::Map(entries, _) => fields_of(entries),
        _ => None,
    }
}

/// What a node is, and the same in words.
fn shape(node: &Type) -> (Inside, String) {
    if node.is_primitive() {
        return (Inside::Leaf, "leaf".to_owned());
    }
    let fields = fields(node);
    let entries = fields.first().filter(|f| repetition(f) == Repetition::REPEATED);
    let (inside, shape) = match (annotation(node), entries) {
        (None, _) => (Inside::Struct, String::new()),
        (Some(LogicalType::List), Some(entries)) if fields.len() == 1 => {
            if entries.is_primitive() {
                (Inside::Elements, " (LIST of leaves, two levels)".to_owned())
            } else if is_element(entries, node.name()) {
                (Inside::Elements, " (LIST of groups, two levels)".to_owned())
            } else {
                (Inside::List, " (LIST)".to_owned())
            }
        }
        (Some(LogicalType::Map), Some(entries)) if fields.len() == 1 && entries.is_group() => {
            match self::fields(entries).len() {
                1 => (Inside::List, " (MAP of keys only)".to_owned()),
                2 => (Inside::Map, " (MAP)".to_owned()),
                n => (Inside::Opaque, format!(" (MAP of {n} fields)")),
            }
        }
        (Some(other), _) => (Inside::Opaque, format!(" ({other:?})").to_uppercase()),
    };
    (inside, format!("group{shape}"))
}

/// Whether the repeated group of a list is its element (two levels) and not a wrapper of it
/// (three): the format's rules for old writers.
fn is_element(entries: &Type, list: &str) -> bool {
    let [only] = fields(entries) else { return true };
    let wraps = matches!(annotation(entries), Some(LogicalType::List))
        || repetition(only) == Repetition::REPEATED;
    !wraps && (entries.name() == "array" || entries.name().strip_suffix("_tuple") == Some(list))
}

/// The annotation of a group, from the new form or the old.
fn annotation(node: &Type) -> Option<LogicalType> {
    let info = node.get_basic_info();
    info.logical_type_ref().cloned().or(match info.converted_type() {
        ConvertedType::LIST => Some(LogicalType::List),
        // Old writers annotate the entries as well.
        ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE
            if repetition(node) != Repetition::REPEATED =>
        {
            Some(LogicalType::Map)
        }
        _ => None,
    })
}

/// A group's annotation and all that is inside, but for field ids and its own name and repetition.
fn text(node: &Type) -> String {
    let mut all = format!("{:?}", annotation(node));
    for field in fields(node) {
        let of = LeafType::of(field).map_or_else(|| text(field), |leaf| format!("{leaf:?}"));
        // Writing to a string cannot fail.
        let _ = write!(all, " {:?} {} ({of})", field.name(), repetition(field));
    }
    all
}
