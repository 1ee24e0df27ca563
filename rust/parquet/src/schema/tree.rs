//! The frozen schema as a tree of Parquet nodes.
//!
//! ```text
//! a.parquet   x   s { p q }      l (LIST) { list     { element } }
//! b.parquet       s {   q r }    l (LIST) { bag      { array_element } }   y
//! frozen      x?  s { p? q r? }  l: list<…>                                y?
//! output      x?  s { p? q r? }  l (LIST) { list     { element } }         y?
//!                                the first file's nodes and names
//! ```
//!
//! # Invariants
//! Which columns there are, which nodes are the same, and what may be null is in the frozen schema;
//! here nodes are only made for it. A node that agrees in all sources is carried as it is. A
//! repeated node outside of lists and maps stays one: the format cannot make it null, so where it
//! is absent it has no entries. Nodes that say only that all is null are absent where another
//! source knows better. A field id is kept where no source contradicts it.
//!
//! # Cost
//! Linear in the nodes of the classes of equal schemas, not of the sources.
//!
//! # Not here
//! Deciding (`plait_core::schema`); what leaves store (`leaf`); levels (`adapt`).

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields};
use parquet::basic::{LogicalType, Repetition};
use parquet::schema::types::{Type, TypePtr};
use plait_core::schema::conflict::{self, Conflict};
use plait_core::schema::{Frozen, SAYS};

use super::cast::storage;
use super::class::Class;
use super::leaf::{LeafType, StoredType};
use super::summary::{
    Inside, NodePlace, SchemaNode, fields, fields_of, id, item_of, pair_of, repetition,
};

/// A node of the output, and what it is in every class of sources.
pub(super) struct Node {
    pub(super) ty: TypePtr,
    pub(super) children: Vec<Node>,
    /// What a leaf stores.
    pub(super) stored: Option<StoredType>,
    /// The frozen type, of one entry if the node repeats; none for the root and between lists and
    /// their items.
    pub(super) field: Option<FieldRef>,
    /// The node in each class as a reader shows it.
    pub(super) views: Vec<View>,
    places: Vec<Option<NodePlace>>,
}

/// How a reader shows a node of one class.
pub(super) struct View {
    pub(super) hinted: FieldRef,
    /// Whether the class has the frozen type.
    pub(super) agrees: bool,
}

impl Node {
    pub(super) fn place(&self, class: usize) -> Option<&NodePlace> {
        self.places.get(class).and_then(Option::as_ref)
    }
}

type Built<T> = parquet::errors::Result<T>;

/// Makes nodes and collects what cannot be stored.
pub(super) struct Builder<'a> {
    classes: &'a [Class<'a>],
    frozen: &'a Frozen,
    pub(super) conflicts: Vec<Conflict>,
    path: Vec<String>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(classes: &'a [Class<'a>], frozen: &'a Frozen) -> Self {
        Self { classes, frozen, conflicts: Vec::new(), path: Vec::new() }
    }

    /// The root of the output.
    pub(super) fn root(&mut self) -> Built<Option<Node>> {
        let roots: Vec<TypePtr> = self.classes.iter().map(|c| c.descr.root_schema_ptr()).collect();
        let Some(first) = roots.first() else { return Ok(None) };
        let places: Vec<_> = self.classes.iter().map(|c| self.frozen.places(&c.fields)).collect();
        let mut children = Vec::new();
        for (at, field) in self.frozen.schema().fields().iter().enumerate() {
            let parts: Vec<_> = self
                .classes
                .iter()
                .zip(&places)
                .map(|(class, places)| class.parts.get((*places.get(at)?)?))
                .collect();
            children.push(self.node(field, &parts)?);
        }
        let ty = regroup(first, None, id(first), &children)?;
        let places = roots.iter().map(|r| Some(NodePlace::new(r, 0))).collect();
        Ok(Some(Node { ty, children, stored: None, field: None, views: Vec::new(), places }))
    }

    fn node(&mut self, field: &FieldRef, parts: &[Option<&SchemaNode>]) -> Built<Node> {
        self.path.push(field.name().split('\0').next().unwrap_or_default().to_owned());
        let node = self.inside(field, parts);
        self.path.pop();
        node
    }

    fn inside(&mut self, field: &FieldRef, parts: &[Option<&SchemaNode>]) -> Built<Node> {
        let parts = telling(field, parts);
        let here: Vec<(usize, &SchemaNode)> =
            parts.iter().enumerate().filter_map(|(class, p)| Some((class, (*p)?))).collect();
        let Some((_, first)) = here.first().copied() else {
            return Err(parquet::errors::ParquetError::General("a column of no source".to_owned()));
        };
        let field_id = same_id(here.iter().map(|(_, part)| &*part.place.ty));
        let content = if first.repeated { item_of(field).unwrap_or(field) } else { field };
        let repetition = match repetition(&first.place.ty) {
            Repetition::REPEATED => Repetition::REPEATED,
            _ if content.is_nullable() => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        if repetition == Repetition::REPEATED && content.is_nullable() && first.place.leaves > 0 {
            self.conflict(&here, conflict::SHAPES);
        }
        let (mut ty, mut children, mut stored) = (None, Vec::new(), None);
        match first.inside {
            _ if content.data_type().is_null() && first.place.leaves == 0 => {
                ty = Some(repeat(&first.place.ty, repetition, field_id)?);
            }
            Inside::Leaf => {
                let all: Vec<&StoredType> =
                    here.iter().filter_map(|(_, p)| p.place.stored.as_ref()).collect();
                stored = storage(&all);
                if stored.is_none() {
                    self.conflict(&here, conflict::TYPES);
                    stored = first.place.stored.clone();
                }
                ty = Some(primitive(&first.place.ty, stored.as_ref(), repetition, field_id)?);
            }
            Inside::Opaque => children = verbatim(&parts)?,
            Inside::Struct => children = self.members(content, &parts)?,
            Inside::Elements => {
                if let Some(item) = item_of(content) {
                    children.push(self.node(item, &children_at(&parts, 0))?);
                }
            }
            Inside::List => {
                if let Some(item) = item_of(content) {
                    let items = vec![self.node(item, &children_at(&parts, 0))?];
                    children.extend(wrap(&parts, items)?);
                }
            }
            Inside::Map => {
                let mut pair = Vec::with_capacity(2);
                for (at, field) in pair_of(content).into_iter().flatten().enumerate() {
                    pair.push(self.node(field, &children_at(&parts, at))?);
                }
                children.extend(wrap(&parts, pair)?);
            }
        }
        let ty = match ty {
            Some(ty) => ty,
            None => regroup(&first.place.ty, Some(repetition), field_id, &children)?,
        };
        let views = here.iter().filter_map(|(_, part)| {
            let agrees = part.field.data_type() == field.data_type();
            Some(View { hinted: Arc::clone(part.hinted.as_ref()?), agrees })
        });
        Ok(Node {
            ty,
            children,
            stored,
            field: Some(Arc::clone(field)),
            views: views.collect(),
            places: parts.iter().map(|p| p.map(|p| p.place.clone())).collect(),
        })
    }

    fn members(&mut self, content: &Field, parts: &[Option<&SchemaNode>]) -> Built<Vec<Node>> {
        let none = Fields::empty();
        let own = |part: &SchemaNode| -> Fields {
            part.children.iter().map(|child| Arc::clone(&child.field)).collect()
        };
        let to = fields_of(content).unwrap_or(&none);
        let places: Vec<Vec<Option<usize>>> = parts
            .iter()
            .map(|p| p.map(|p| self.frozen.members(&own(p), to)).unwrap_or_default())
            .collect();
        let mut nodes = Vec::with_capacity(to.len());
        for (at, field) in to.iter().enumerate() {
            let children: Vec<_> = parts
                .iter()
                .zip(&places)
                .map(|(part, places)| part.as_ref()?.children.get((*places.get(at)?)?))
                .collect();
            nodes.push(self.node(field, &children)?);
        }
        Ok(nodes)
    }

    /// Parts that the core brings together and the format does not.
    fn conflict(&mut self, here: &[(usize, &SchemaNode)], why: &'static str) {
        let says = |part: &SchemaNode| part.field.metadata().get(SAYS).cloned().unwrap_or_default();
        let side = |(class, part): &(usize, &SchemaNode)| {
            (says(part), self.classes.get(*class).map_or_else(String::new, |c| c.first.to_owned()))
        };
        let Some((first, rest)) = here.split_first() else { return };
        let other = rest.iter().find(|(_, part)| says(part) != says(first.1)).unwrap_or(first);
        let sides = [side(first), side(other)];
        self.conflicts.push(Conflict { column: self.path.join("."), why, sides });
    }
}

/// The parts that say what the values are; of parts that say only that all is null, those that are
/// stored as the first.
fn telling<'p>(field: &Field, parts: &[Option<&'p SchemaNode>]) -> Vec<Option<&'p SchemaNode>> {
    let is_silent = |part: &SchemaNode| part.field.data_type().is_null();
    let first = parts.iter().flatten().next().and_then(|p| p.place.stored.clone());
    parts
        .iter()
        .map(|part| {
            part.filter(|p| match field.data_type() {
                DataType::Null => p.place.stored == first,
                _ => !is_silent(p),
            })
        })
        .collect()
}

fn children_at<'p>(parts: &[Option<&'p SchemaNode>], at: usize) -> Vec<Option<&'p SchemaNode>> {
    parts.iter().map(|part| part.and_then(|p| p.children.get(at))).collect()
}

/// The repeated node of a list or map around `children`.
fn wrap(parts: &[Option<&SchemaNode>], children: Vec<Node>) -> Built<Option<Node>> {
    let places: Vec<Option<NodePlace>> =
        parts.iter().map(|p| p.as_ref()?.wrapper.clone()).collect();
    let Some(first) = places.iter().flatten().next() else { return Ok(None) };
    let field_id = same_id(places.iter().flatten().map(|place| &*place.ty));
    let ty = regroup(&first.ty, Some(Repetition::REPEATED), field_id, &children)?;
    Ok(Some(Node { ty, children, stored: None, field: None, views: Vec::new(), places }))
}

/// The nodes inside of groups that are alike.
fn verbatim(parts: &[Option<&SchemaNode>]) -> Built<Vec<Node>> {
    let places: Vec<Option<NodePlace>> =
        parts.iter().map(|p| Some(p.as_ref()?.place.clone())).collect();
    alike(&places)
}

fn alike(places: &[Option<NodePlace>]) -> Built<Vec<Node>> {
    let Some(first) = places.iter().flatten().next() else { return Ok(Vec::new()) };
    let mut nodes = Vec::new();
    let mut before = 0;
    for (at, like) in fields(&first.ty).iter().enumerate() {
        let below: Vec<Option<NodePlace>> = places
            .iter()
            .map(|p| {
                let p = p.as_ref()?;
                let mut place = NodePlace::new(fields(&p.ty).get(at)?, p.leaf + before);
                place.stored = StoredType::of(&place.ty);
                Some(place)
            })
            .collect();
        before += below.iter().flatten().next().map_or(0, |place| place.leaves);
        let field_id = same_id(below.iter().flatten().map(|place| &*place.ty));
        let stored = StoredType::of(like);
        let children = alike(&below)?;
        let ty = match &stored {
            Some(_) => primitive(like, stored.as_ref(), repetition(like), field_id)?,
            None => regroup(like, Some(repetition(like)), field_id, &children)?,
        };
        nodes.push(Node { ty, children, stored, field: None, views: Vec::new(), places: below });
    }
    Ok(nodes)
}

/// The id of all nodes that have one, if it is the same.
fn same_id<'t>(nodes: impl Iterator<Item = &'t Type>) -> Option<i32> {
    let mut ids = nodes.filter_map(id);
    let first = ids.next()?;
    ids.all(|id| id == first).then_some(first)
}

fn primitive(
    like: &TypePtr,
    stored: Option<&StoredType>,
    repetition: Repetition,
    field_id: Option<i32>,
) -> Built<TypePtr> {
    let Some(StoredType { leaf, .. }) = stored else { return Ok(Arc::clone(like)) };
    let same = LeafType::of(like).as_ref() == Some(leaf);
    if same && (repetition, field_id) == (self::repetition(like), id(like)) {
        return Ok(Arc::clone(like));
    }
    Ok(Arc::new(leaf.node(like.name(), repetition, field_id)?))
}

/// A group without leaves, as it is but for repetition and id.
fn repeat(like: &TypePtr, repetition: Repetition, field_id: Option<i32>) -> Built<TypePtr> {
    let info = like.get_basic_info();
    if (repetition, field_id) == (self::repetition(like), id(like)) {
        return Ok(Arc::clone(like));
    }
    let builder = Type::group_type_builder(like.name())
        .with_logical_type(info.logical_type_ref().cloned())
        .with_converted_type(info.converted_type())
        .with_id(field_id)
        .with_fields(fields(like).to_vec())
        .with_repetition(repetition);
    Ok(Arc::new(builder.build()?))
}

/// The same tree without annotations that are newer than the format this version knows: their
/// content was not kept when the footer was decoded, so they cannot be written. Values, converted
/// types and Arrow hints stay.
pub(super) fn without_unknown(node: &TypePtr) -> parquet::errors::Result<TypePtr> {
    let info = node.get_basic_info();
    let is_unknown = matches!(info.logical_type_ref(), Some(LogicalType::_Unknown { .. }));
    if let Type::PrimitiveType { physical_type, type_length, scale, precision, .. } = &**node {
        if !is_unknown {
            return Ok(Arc::clone(node));
        }
        return Type::primitive_type_builder(node.name(), *physical_type)
            .with_repetition(info.repetition())
            .with_converted_type(info.converted_type())
            .with_length(*type_length)
            .with_precision(*precision)
            .with_scale(*scale)
            .with_id(id(node))
            .build()
            .map(Arc::new);
    }
    let own = fields(node);
    let known: Vec<TypePtr> = own.iter().map(without_unknown).collect::<Result<_, _>>()?;
    if !is_unknown && own.iter().zip(&known).all(|(a, b)| Arc::ptr_eq(a, b)) {
        return Ok(Arc::clone(node));
    }
    let logical = info.logical_type_ref().filter(|_| !is_unknown).cloned();
    let builder = Type::group_type_builder(node.name())
        .with_logical_type(logical)
        .with_converted_type(info.converted_type())
        .with_id(id(node))
        .with_fields(known);
    let built = match info.has_repetition() {
        true => builder.with_repetition(info.repetition()).build()?,
        false => builder.build()?,
    };
    Ok(Arc::new(built))
}

/// `like` with other repetition, id and fields; itself if they are its own.
fn regroup(
    like: &TypePtr,
    repetition: Option<Repetition>,
    field_id: Option<i32>,
    children: &[Node],
) -> parquet::errors::Result<TypePtr> {
    let info = like.get_basic_info();
    let own = fields(like);
    if repetition.is_none_or(|r| r == self::repetition(like))
        && field_id == id(like)
        && own.len() == children.len()
        && own.iter().zip(children).all(|(a, b)| Arc::ptr_eq(a, &b.ty))
    {
        return Ok(Arc::clone(like));
    }
    let builder = Type::group_type_builder(like.name())
        .with_logical_type(info.logical_type_ref().cloned())
        .with_converted_type(info.converted_type())
        .with_id(field_id)
        .with_fields(children.iter().map(|c| Arc::clone(&c.ty)).collect());
    Ok(Arc::new(match repetition {
        Some(repetition) => builder.with_repetition(repetition).build()?,
        None => builder.build()?,
    }))
}
