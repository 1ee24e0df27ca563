//! Which nodes of several trees are the same node?
//!
//! ```text
//! a.parquet   x   s { p q }      l (LIST) { list     { element } }
//! b.parquet       s {   q r }    l (LIST) { bag      { array_element } }   y
//! output      x?  s { p? q r? }  l (LIST) { list     { element } }         y?
//!             by name            by place, first names win
//! ```
//!
//! # Invariants
//! Fields of groups are matched by name (the n-th of a name with the n-th), in the order first seen;
//! inside lists and maps by place. A node is required only if it is in every source that has its
//! parent; repeated only with repeated. A node that agrees in all sources is carried as it is.
//! A column of only nulls (`UNKNOWN`) and a group without leaves say nothing and count as absent
//! where another source knows better.
//! Shredded variants and groups with annotations unknown here must be alike inside.
//!
//! # Cost
//! Linear in the nodes of the classes of equal schemas, not of the sources.
//!
//! # Not here
//! Types of leaves (`leaf`); levels (`adapt`).

use std::collections::HashMap;
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::schema::types::{Type, TypePtr};
use plait_core::schema::conflict;

use super::adapt::repetition;
use super::leaf::{self, LeafType};
use super::{Missing, Policy, Widen};

/// A node of the output, and what it is in every class of sources.
pub(super) struct Node {
    pub(super) ty: TypePtr,
    pub(super) children: Vec<Node>,
    parts: Vec<Option<Part>>,
}

impl Node {
    pub(super) fn part(&self, class: usize) -> Option<&Part> {
        self.parts.get(class).and_then(Option::as_ref)
    }
}

/// A node of a source.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) ty: TypePtr,
    /// The first leaf at or below the node.
    pub(super) leaf: usize,
    /// How many leaves are at or below the node.
    pub(super) leaves: usize,
}

impl Part {
    pub(super) fn new(ty: TypePtr, leaf: usize) -> Self {
        let leaves = leaf_count(&ty);
        Self { ty, leaf, leaves }
    }

    fn children(&self) -> Vec<Self> {
        let mut leaf = self.leaf;
        let mut children = Vec::new();
        for field in fields(&self.ty) {
            let child = Self::new(Arc::clone(field), leaf);
            leaf += child.leaves;
            children.push(child);
        }
        children
    }
}

/// Fields of a group; none of a leaf.
pub(super) fn fields(node: &Type) -> &[TypePtr] {
    match node {
        Type::GroupType { fields, .. } => fields,
        Type::PrimitiveType { .. } => &[],
    }
}

fn leaf_count(node: &Type) -> usize {
    if node.is_primitive() { 1 } else { fields(node).iter().map(|f| leaf_count(f)).sum() }
}

/// What a class has where a node is sought.
#[derive(Clone)]
enum Slot {
    /// It does not even have the parent.
    Void,
    /// It has the parent, but not the node.
    Absent,
    /// It has a node that says only that all is null.
    OnlyNulls,
    Here(Part),
}

impl Slot {
    fn part(&self) -> Option<&Part> {
        if let Self::Here(part) = self { Some(part) } else { None }
    }
}

/// Two sources that disagree about one column.
pub(super) struct Conflict {
    pub(super) column: String,
    /// What each of two classes says; the second may be the same as the first when a column is
    /// absent there.
    pub(super) sides: [(usize, String); 2],
    pub(super) why: &'static str,
}

/// Merges trees and collects what does not go together.
pub(super) struct Merger<'a> {
    pub(super) policy: &'a Policy,
    pub(super) conflicts: Vec<Conflict>,
    path: Vec<String>,
}

impl<'a> Merger<'a> {
    pub(super) fn new(policy: &'a Policy) -> Self {
        Self { policy, conflicts: Vec::new(), path: Vec::new() }
    }

    /// The tree that holds `roots`, one for each class.
    pub(super) fn merge(&mut self, roots: &[TypePtr]) -> parquet::errors::Result<Option<Node>> {
        let parts: Vec<_> = roots.iter().map(|r| Some(Part::new(Arc::clone(r), 0))).collect();
        let slots: Vec<_> = parts.iter().flatten().cloned().map(Slot::Here).collect();
        let Some(first) = roots.first() else { return Ok(None) };
        let children = self.by_name(&slots)?;
        let ty = regroup(first, None, id(first), &children)?;
        Ok(Some(Node { ty, children, parts }))
    }

    /// `inner`: the repeated node of a list or map, whose annotation says nothing.
    fn node(&mut self, mut slots: Vec<Slot>, inner: bool) -> parquet::errors::Result<Option<Node>> {
        drop_the_silent(&mut slots);
        self.report_absent(&slots);
        let shapes: Vec<(usize, String)> =
            here(&slots).map(|(class, part)| (class, matching(&part.ty, inner).1)).collect();
        if let Some((a, rest)) = shapes.split_first()
            && let Some(b) = rest.iter().find(|b| b.1 != a.1)
        {
            // A leaf's type says more than that it is a leaf.
            let side = |class: usize, shape: &str| {
                let leaf = slots.get(class).and_then(Slot::part).and_then(|p| LeafType::of(&p.ty));
                (
                    class,
                    leaf.map_or_else(
                        || shape.to_owned(),
                        |l| shape.replace("leaf", &l.to_string()),
                    ),
                )
            };
            self.conflict([side(a.0, &a.1), side(b.0, &b.1)], "has shapes that do not go together");
            keep_first(&mut slots);
        }
        let Some((_, first)) = here(&slots).next() else { return Ok(None) };
        let first = first.clone();
        let id = self.field_id(&slots);
        let absent = slots.iter().any(|s| matches!(s, Slot::Absent | Slot::OnlyNulls));
        let loose = here(&slots).any(|(_, part)| repetition(&part.ty) != Repetition::REQUIRED);
        let repetition = match repetition(&first.ty) {
            Repetition::REQUIRED if absent || loose => Repetition::OPTIONAL,
            own => own,
        };
        let (ty, children) = if first.ty.is_primitive() {
            (self.leaf(&mut slots, &first, repetition, id)?, Vec::new())
        } else {
            let children = match matching(&first.ty, inner).0 {
                Matching::Named => self.by_name(&slots)?,
                Matching::Wrapped => self.by_place(&slots, true)?,
                Matching::Placed => self.by_place(&slots, false)?,
                Matching::Opaque => {
                    self.demand_alike(&mut slots);
                    self.by_name(&slots)?
                }
            };
            (regroup(&first.ty, Some(repetition), id, &children)?, children)
        };
        let parts = slots.into_iter().map(|s| if let Slot::Here(p) = s { Some(p) } else { None });
        Ok(Some(Node { ty, children, parts: parts.collect() }))
    }

    fn leaf(
        &mut self,
        slots: &mut [Slot],
        first: &Part,
        repetition: Repetition,
        field_id: Option<i32>,
    ) -> parquet::errors::Result<TypePtr> {
        let (classes, types): (Vec<_>, Vec<_>) =
            here(slots).filter_map(|(class, part)| Some((class, LeafType::of(&part.ty)?))).unzip();
        let side = |i: usize| {
            let class = classes.get(i).copied().unwrap_or(0);
            (class, types.get(i).map(ToString::to_string).unwrap_or_default())
        };
        let (conflict, merged) = match leaf::unify(&types) {
            Ok(merged) => {
                let differs = |t: &&LeafType| {
                    leaf::cast(t, &merged) != Some(None) || t.meaning() != merged.meaning()
                };
                let wide = self.policy.widen == Widen::Error;
                let i = types.iter().position(|t| wide && differs(&t));
                let other = i.and_then(|i| types.iter().position(|t| *t != types[i]));
                (i.zip(other), merged)
            }
            Err(pair) => (Some(pair), types[0].clone()),
        };
        if let Some((i, j)) = conflict {
            let why = match self.policy.widen {
                Widen::Error => conflict::WIDENED,
                Widen::Lossless => conflict::TYPES,
            };
            self.conflict([side(i.min(j)), side(i.max(j))], why);
            keep_first(slots);
        }
        let same = LeafType::of(&first.ty).as_ref() == Some(&merged);
        if same && (repetition, field_id) == (self::repetition(&first.ty), id(&first.ty)) {
            return Ok(Arc::clone(&first.ty));
        }
        Ok(Arc::new(merged.node(first.ty.name(), repetition, field_id)?))
    }

    fn by_place(&mut self, slots: &[Slot], inner: bool) -> parquet::errors::Result<Vec<Node>> {
        let children: Vec<Option<Vec<Part>>> =
            slots.iter().map(|s| s.part().map(Part::children)).collect();
        let places = children.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let mut nodes = Vec::new();
        for place in 0..places {
            let child = |c: &Option<Vec<Part>>| match c {
                None => Slot::Void,
                Some(parts) => parts.get(place).cloned().map_or(Slot::Absent, Slot::Here),
            };
            let slots: Vec<_> = children.iter().map(child).collect();
            let name = here(&slots).next().map(|(_, p)| p.ty.name().to_owned());
            self.path.push(name.unwrap_or_default());
            nodes.extend(self.node(slots, inner)?);
            self.path.pop();
        }
        Ok(nodes)
    }

    fn by_name(&mut self, slots: &[Slot]) -> parquet::errors::Result<Vec<Node>> {
        let mut order: Vec<(String, Vec<Slot>)> = Vec::new();
        let mut places: HashMap<(String, usize), usize> = HashMap::new();
        let without: Vec<Slot> = slots
            .iter()
            .map(|s| if s.part().is_some() { Slot::Absent } else { Slot::Void })
            .collect();
        for (class, part) in here(slots) {
            let mut seen: HashMap<String, usize> = HashMap::new();
            for child in part.children() {
                let name = child.ty.name().to_owned();
                let nth = seen.entry(name.clone()).or_default();
                let place = *places.entry((name.clone(), *nth)).or_insert_with(|| {
                    order.push((name, without.clone()));
                    order.len() - 1
                });
                *nth += 1;
                if let Some(slot) = order.get_mut(place).and_then(|(_, s)| s.get_mut(class)) {
                    *slot = Slot::Here(child);
                }
            }
        }
        self.report_renamed(&order);
        let mut nodes = Vec::with_capacity(order.len());
        for (name, slots) in order {
            self.path.push(name);
            nodes.extend(self.node(slots, false)?);
            self.path.pop();
        }
        Ok(nodes)
    }

    /// Two names for one field id: a column that was renamed in between.
    fn report_renamed(&mut self, order: &[(String, Vec<Slot>)]) {
        let mut first: HashMap<i32, &(String, Vec<Slot>)> = HashMap::new();
        for field in order {
            let Some(field_id) = here(&field.1).find_map(|(_, p)| id(&p.ty)) else { continue };
            let Some(other) = first.get(&field_id) else {
                first.insert(field_id, field);
                continue;
            };
            let together =
                field.1.iter().zip(&other.1).any(|(a, b)| a.part().and(b.part()).is_some());
            let (a, b) = (here(&other.1).next(), here(&field.1).next());
            if let (false, Some((a, _)), Some((b, _))) = (together, a, b) {
                self.path.push(field.0.clone());
                let side =
                    |class, name: &str| (class, format!("field id {field_id} named `{name}`"));
                self.conflict([side(a, &other.0), side(b, &field.0)], "was renamed");
                self.path.pop();
            }
        }
    }

    fn report_absent(&mut self, slots: &[Slot]) {
        let absent = slots.iter().position(|s| matches!(s, Slot::Absent));
        if let (Missing::Error, Some(absent)) = (self.policy.missing, absent)
            && let Some((class, part)) = here(slots).next()
        {
            let sides = [(class, describe(&part.ty)), (absent, "absent".to_owned())];
            self.conflict(sides, conflict::MISSING);
        }
        let nulls = slots.iter().position(|s| matches!(s, Slot::OnlyNulls));
        if let (Widen::Error, Some(nulls)) = (self.policy.widen, nulls)
            && let Some((class, part)) = here(slots).next()
        {
            let sides = [(class, describe(&part.ty)), (nulls, "of the null type".to_owned())];
            self.conflict(sides, conflict::WIDENED);
        }
    }

    fn field_id(&mut self, slots: &[Slot]) -> Option<i32> {
        let ids: Vec<(usize, i32)> =
            here(slots).filter_map(|(class, p)| Some((class, id(&p.ty)?))).collect();
        let (class, first) = *ids.first()?;
        if let Some((other, differing)) = ids.iter().find(|(_, id)| *id != first) {
            let side = |class, id| (class, format!("field id {id}"));
            self.conflict(
                [side(class, first), side(*other, *differing)],
                "has different field ids",
            );
        }
        Some(first)
    }

    fn demand_alike(&mut self, slots: &mut [Slot]) {
        let Some((class, first)) = here(slots).next() else { return };
        let odd = here(slots).find(|(_, part)| !alike(&part.ty, &first.ty));
        if let Some((other, part)) = odd {
            let sides = [(class, describe(&first.ty)), (other, describe(&part.ty))];
            self.conflict(sides, "is a group of one meaning and must be alike inside");
            keep_first(slots);
        }
    }

    fn conflict(&mut self, sides: [(usize, String); 2], why: &'static str) {
        self.conflicts.push(Conflict { column: self.path.join("."), sides, why });
    }
}

fn here(slots: &[Slot]) -> impl Iterator<Item = (usize, &Part)> {
    slots.iter().enumerate().filter_map(|(class, slot)| Some((class, slot.part()?)))
}

fn keep_first(slots: &mut [Slot]) {
    let first = here(slots).next().map(|(class, _)| class);
    for (class, slot) in slots.iter_mut().enumerate() {
        if Some(class) != first {
            *slot = Slot::Void;
        }
    }
}

/// Takes away columns of only nulls and groups without leaves where another class knows more.
fn drop_the_silent(slots: &mut [Slot]) {
    // A repeated leaf has a length besides its nulls, which a missing one would not keep.
    let nulls = |part: &Part| {
        LeafType::of(&part.ty).is_some_and(|leaf| leaf.only_nulls())
            && repetition(&part.ty) != Repetition::REPEATED
    };
    if here(slots).any(|(_, part)| part.leaves > 0) {
        for slot in slots.iter_mut() {
            if slot.part().is_some_and(|part| part.leaves == 0) {
                *slot = Slot::Absent;
            }
        }
    }
    // If nobody knows better, the first of them is as good as any.
    let first = here(slots).next().map(|(_, part)| part.ty.clone());
    let keep = if here(slots).all(|(_, part)| nulls(part)) { first } else { None };
    for slot in slots.iter_mut() {
        let known = |part: &Part| {
            !nulls(part) || keep.as_ref().is_some_and(|k| LeafType::of(k) == LeafType::of(&part.ty))
        };
        if slot.part().is_some_and(|part| !known(part)) {
            *slot = Slot::OnlyNulls;
        }
    }
}

/// How fields of a group are matched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matching {
    /// By name.
    Named,
    /// By place: the repeated node of a list or map; its own fields are matched so again.
    Wrapped,
    /// By place: the entries of a list or map, or the elements of a list of two levels.
    Placed,
    /// By name, and everything inside must be alike.
    Opaque,
}

/// How the fields of `node` are matched, and in words what must be equal in all sources.
fn matching(node: &Type, inner: bool) -> (Matching, String) {
    let repeated = if repetition(node) == Repetition::REPEATED { "repeated " } else { "" };
    if node.is_primitive() {
        return (Matching::Named, format!("{repeated}leaf"));
    }
    let fields = fields(node);
    if inner {
        return (Matching::Placed, format!("{repeated}group of {} by place", fields.len()));
    }
    let entries = fields.first().filter(|f| repetition(f) == Repetition::REPEATED);
    let (matching, shape) = match (annotation(node), entries) {
        (None, _) => (Matching::Named, String::new()),
        (Some(LogicalType::List), Some(entries)) if fields.len() == 1 => {
            if entries.is_primitive() {
                (Matching::Placed, " (LIST of leaves, two levels)".to_owned())
            } else if is_element(entries, node.name()) {
                (Matching::Placed, " (LIST of groups, two levels)".to_owned())
            } else {
                (Matching::Wrapped, " (LIST)".to_owned())
            }
        }
        (Some(LogicalType::Map), Some(entries)) if fields.len() == 1 && entries.is_group() => {
            match self::fields(entries).len() {
                1 => (Matching::Wrapped, " (MAP of keys only)".to_owned()),
                2 => (Matching::Wrapped, " (MAP)".to_owned()),
                n => (Matching::Opaque, format!(" (MAP of {n} fields)")),
            }
        }
        (Some(other), _) => (Matching::Opaque, format!(" ({other:?})").to_uppercase()),
    };
    (matching, format!("{repeated}group{shape}"))
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

fn describe(node: &Type) -> String {
    LeafType::of(node).map_or_else(|| matching(node, false).1, |leaf| leaf.to_string())
}

fn id(node: &Type) -> Option<i32> {
    let info = node.get_basic_info();
    info.has_id().then(|| info.id())
}

/// Equal but for field ids.
pub(super) fn alike(a: &Type, b: &Type) -> bool {
    LeafType::of(a) == LeafType::of(b)
        && annotation(a) == annotation(b)
        && fields(a).len() == fields(b).len()
        && fields(a)
            .iter()
            .zip(fields(b))
            .all(|(a, b)| a.name() == b.name() && repetition(a) == repetition(b) && alike(a, b))
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
