//! The tree of owners: for every path the strongest layer that owns it or something above it.
//!
//! ```text
//! declared   base: a, b      override: a.y
//! tree       a (base) ── y (override)       b (base)
//! nodes      a: struct ─┬─ x  take base     b: take base
//!                       └─ y  take override
//! ```
//!
//! # Invariants
//! A node is a struct of nodes only where its fields come from several layers, where a layer owns
//! parts of it only, where their order is not the stored one, or where the validity of structs is made
//! anew. Structs without fields, structs of extension types and everything else are taken whole.
//! Fields have the order in which paths first name them, weakest layer first, whoever supplies them:
//! another layer on top does not move them. A path to a struct, or to one above it, names all fields
//! that its layer stores; of one layer, what is above comes first.
//! A field stays non-nullable if it is so in its layer and its struct is never there without that
//! layer, or if nothing above it is nullable in its layer.
//!
//! # Cost
//! Linear in declared paths and in fields below them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields};

use super::declared::{Declared, Named, owners_of};
use super::layer::{LayerPlan, StructValidity, check_names, in_layer};
use super::node::{Node, Supply};
use super::path::{FieldPath, dotted};
use plait_base::{Error, Kind, Result, type_text};

/// A field that was made: how, from which layers.
struct ResolvedField {
    field: FieldRef,
    node: Node,
    layers: Vec<usize>,
}

/// The columns of the output behind the index, and where they come from.
pub(super) fn resolve(
    plans: &mut [LayerPlan],
    owned: &[Vec<FieldPath>],
    validity: StructValidity,
) -> Result<(Vec<FieldRef>, Vec<Node>)> {
    let root = Declared::tree(owned);
    for (layer, (plan, paths)) in plans.iter().zip(owned).enumerate() {
        for path in paths {
            let owners = path.names().iter().scan(&root, |at, name| {
                *at = at.get(name)?;
                Some(at.owner)
            });
            if owners.max().flatten() == Some(layer) {
                check_exists(plan.schema.fields(), path).map_err(|e| in_layer(e, &plan.name))?;
            }
        }
    }
    let mut maker = Maker { plans, by_fields: validity == StructValidity::AllChildren };
    let (mut fields, mut nodes) = (Vec::new(), Vec::new());
    for declared in &root.below {
        let made = maker.make(std::slice::from_ref(&declared.name), Some(declared), &[], None)?;
        fields.push(made.field);
        nodes.push(made.node);
    }
    Ok((fields, nodes))
}

/// Whether the fields of `field` can come from several layers.
fn parts_of(field: &Field) -> Option<&Fields> {
    match field.data_type() {
        DataType::Struct(fields) if !fields.is_empty() && field.extension_type_name().is_none() => {
            Some(fields)
        }
        _ => None,
    }
}

/// Refuses a path that leads nowhere. Inside of a list or the like it must name what is there,
/// although that is taken whole.
fn check_exists(fields: &Fields, path: &FieldPath) -> Result<()> {
    let here = |e: Error| e.with_column(path.to_string());
    let mut level = fields.clone();
    let mut left = path.names().iter().peekable();
    let mut above = Vec::new();
    while let Some(name) = left.next() {
        check_names(&level, &above)?;
        above.push(name.clone());
        let Some(field) = level.iter().find(|field| field.name() == name).cloned() else {
            let names: Vec<String> =
                level.iter().take(8).map(|f| format!("`{}`", f.name())).collect();
            return Err(here(Error::new(Kind::FieldNotInLayer, "there is no field at this path"))
                .with_hint(format!("`{name}` is not among {}", names.join(", "))));
        };
        if left.peek().is_some() {
            level = inside(field.data_type()).ok_or_else(|| {
                here(Error::new(
                    Kind::PathThroughNonStruct,
                    "a path leads through a value without fields",
                ))
                .with_got(format!(
                    "`{}` of type `{}`",
                    dotted(&above),
                    type_text(field.data_type())
                ))
            })?;
        }
    }
    Ok(())
}

/// Fields that a path may name below a value of `data_type`; items of lists have no name.
fn inside(data_type: &DataType) -> Option<Fields> {
    match data_type {
        DataType::Struct(fields) => Some(fields.clone()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => inside(item.data_type()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => fields.get(1).and_then(|value| inside(value.data_type())),
            _ => None,
        },
        DataType::Union(fields, _) => {
            Some(fields.iter().map(|(_, field)| Arc::clone(field)).collect())
        }
        DataType::RunEndEncoded(_, values) => inside(values.data_type()),
        DataType::Dictionary(_, value) => inside(value),
        _ => None,
    }
}

/// What is above a node that is made.
struct Above<'a> {
    /// Layers that supply something below the struct above.
    layers: &'a [usize],
    /// Whether fields are masked by their layer's struct: each layer's struct.
    masks: Option<&'a [(usize, usize)]>,
}

struct Maker<'a> {
    plans: &'a mut [LayerPlan],
    by_fields: bool,
}

impl Maker<'_> {
    /// The field at `path` of a layer, with its places; whether nothing from the root on is nullable.
    fn locate(&self, layer: usize, path: &[String]) -> Option<(Vec<usize>, FieldRef, bool)> {
        let mut fields = self.plans.get(layer)?.schema.fields().clone();
        let mut places = Vec::with_capacity(path.len());
        let mut never_null = true;
        let mut names = path.iter().peekable();
        while let Some(name) = names.next() {
            let (place, field) = fields.find(name)?;
            let field = Arc::clone(field);
            places.push(place);
            never_null &= !field.is_nullable();
            if names.peek().is_none() {
                return Some((places, field, never_null));
            }
            fields = parts_of(&field)?.clone();
        }
        None
    }

    fn make(
        &mut self,
        path: &[String],
        declared: Option<&Declared>,
        inherited: &[usize],
        above: Option<&Above<'_>>,
    ) -> Result<ResolvedField> {
        let owners = owners_of(inherited, declared);
        let owner = owners.last().copied();
        let mut layers: Vec<usize> = owner.into_iter().collect();
        if let Some(declared) = declared {
            declared.suppliers(inherited.last().copied(), &mut layers);
        }
        let mut found = Vec::with_capacity(layers.len());
        for &layer in &layers {
            match self.locate(layer, path) {
                Some((_, field, _)) => found.push((layer, field)),
                // It owns something above and has nothing here; somebody else adds what is below.
                None if Some(layer) == owner && layers.len() > 1 => {}
                None => return Err(self.not_there(layer, path)),
            }
        }
        let are_structs = found.iter().all(|(_, field)| parts_of(field).is_some());
        match (found.as_slice(), owner) {
            ([(layer, field)], Some(owner))
                if owner == *layer
                    && !(self.by_fields && are_structs)
                    && self.is_in_order(path, declared, inherited, field) =>
            {
                check_whole(field, path).map_err(|e| in_layer(e, &self.plans[*layer].name))?;
                Ok(self.take(*layer, path, field, above))
            }
            ([(layer, field)], _) if !are_structs => Ok(self.take(*layer, path, field, above)),
            _ if are_structs => self.combine(path, declared, inherited, &found, above),
            _ => {
                let whole = found.iter().find(|(_, field)| parts_of(field).is_none());
                let got = whole.map(|(layer, field)| {
                    format!(
                        "`{}` in layer `{}`",
                        type_text(field.data_type()),
                        self.plans[*layer].name
                    )
                });
                let names: Vec<String> = found
                    .iter()
                    .map(|(layer, _)| format!("`{}`", self.plans[*layer].name))
                    .collect();
                Err(Error::new(
                    Kind::SplitInsideNonStruct,
                    "layers own parts of a value that is taken whole",
                )
                .with_column(dotted(path))
                .with_got(got.unwrap_or_default())
                .with_hint(format!("let one of the layers {} own all of it", names.join(", "))))
            }
        }
    }

    /// `names` of fields of the struct at `path`, in the order in which paths first name them.
    fn in_order(
        &self,
        path: &[String],
        declared: Option<&Declared>,
        inherited: &[usize],
        names: Vec<String>,
    ) -> Vec<String> {
        let mut first: HashMap<String, usize> = HashMap::new();
        let mut see = |name: &str| {
            let next = first.len();
            first.entry(name.to_owned()).or_insert(next);
        };
        let mut named =
            declared.map_or(&[][..], |declared| declared.named.as_slice()).iter().peekable();
        for layer in 0..self.plans.len() {
            let Some((_, field, _)) = self.locate(layer, path) else { continue };
            let Some(fields) = parts_of(&field) else { continue };
            if inherited.contains(&layer) {
                fields.iter().for_each(|field| see(field.name()));
            }
            while named.next_if(|(of, _)| *of < layer).is_some() {}
            while let Some((_, what)) = named.next_if(|(of, _)| *of == layer) {
                match what {
                    Named::Whole => fields.iter().for_each(|field| see(field.name())),
                    Named::Field(place) => {
                        let below = declared.and_then(|declared| declared.below.get(*place));
                        if let Some(below) = below.filter(|b| fields.find(&b.name).is_some()) {
                            see(&below.name);
                        }
                    }
                }
            }
        }
        let mut names = names;
        names.sort_by_key(|name| first.get(name).copied().unwrap_or(usize::MAX));
        names
    }

    /// Whether `field`, which one layer supplies whole, is stored in the order in which paths name its
    /// fields, and all structs in it are.
    fn is_in_order(
        &self,
        path: &[String],
        declared: Option<&Declared>,
        inherited: &[usize],
        field: &Field,
    ) -> bool {
        let Some(fields) = parts_of(field) else { return true };
        let owners = owners_of(inherited, declared);
        // Nobody else names anything here.
        if owners.len() == 1 && declared.is_none_or(|declared| declared.below.is_empty()) {
            return true;
        }
        let stored: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        self.in_order(path, declared, inherited, stored.clone()) == stored
            && fields.iter().all(|field| {
                let below = declared.and_then(|declared| declared.get(field.name()));
                let mut path = path.to_vec();
                path.push(field.name().clone());
                self.is_in_order(&path, below, &owners, field)
            })
    }

    fn not_there(&self, layer: usize, path: &[String]) -> Error {
        let error = Error::new(Kind::FieldNotInLayer, "there is no field at this path")
            .with_column(dotted(path));
        in_layer(error, &self.plans[layer].name)
    }

    /// Whether the field at `path`, supplied by `layers`, is there wherever its struct is.
    fn is_never_null(&self, path: &[String], layers: &[usize], above: Option<&Above<'_>>) -> bool {
        let at = |layer: usize| self.locate(layer, path);
        if layers.iter().any(|&layer| at(layer).is_some_and(|(_, _, never_null)| never_null)) {
            return true;
        }
        above.is_some_and(|above| {
            above.layers.iter().all(|layer| {
                layers.contains(layer)
                    && at(*layer).is_some_and(|(_, field, _)| !field.is_nullable())
            })
        })
    }

    fn take(
        &mut self,
        layer: usize,
        path: &[String],
        field: &FieldRef,
        above: Option<&Above<'_>>,
    ) -> ResolvedField {
        let is_nullable = !self.is_never_null(path, &[layer], above);
        let places = self.locate(layer, path).map(|(places, ..)| places).unwrap_or_default();
        let mask = above
            .and_then(|above| above.masks)
            .and_then(|masks| masks.iter().find(|(of, _)| *of == layer).map(|(_, place)| *place));
        let plan = &mut self.plans[layer];
        plan.parts.push(places);
        let part = plan.parts.len() - 1;
        let field = match field.is_nullable() == is_nullable {
            true => Arc::clone(field),
            false => Arc::new(field.as_ref().clone().with_nullable(is_nullable)),
        };
        ResolvedField { field, node: Node::Take(Supply { layer, part, mask }), layers: vec![layer] }
    }

    fn combine(
        &mut self,
        path: &[String],
        declared: Option<&Declared>,
        inherited: &[usize],
        found: &[(usize, FieldRef)],
        above: Option<&Above<'_>>,
    ) -> Result<ResolvedField> {
        let owners = owners_of(inherited, declared);
        let owner = owners.last().copied();
        for (layer, field) in found {
            if let Some(fields) = parts_of(field) {
                check_names(fields, path).map_err(|e| in_layer(e, &self.plans[*layer].name))?;
            }
        }
        let names = field_names(declared, owner, found);
        let names = self.in_order(path, declared, inherited, names);
        // Who supplies something below is needed by the fields below, so it is found first.
        let mut layers = Vec::new();
        for name in &names {
            let below = declared.and_then(|declared| declared.get(name));
            layers_below(below, owner, found, &mut layers);
        }
        layers.sort_unstable();
        let mut structs = Vec::with_capacity(layers.len());
        for &layer in &layers {
            let places = self.locate(layer, path).map(|(places, ..)| places).unwrap_or_default();
            let plan = &mut self.plans[layer];
            plan.structs.push(places);
            structs.push((layer, plan.structs.len() - 1));
        }
        let masks = (layers.len() > 1 || self.by_fields).then_some(structs.as_slice());
        let here = Above { layers: &layers, masks };
        let (mut fields, mut nodes) = (Vec::new(), Vec::new());
        for name in names {
            let below = declared.and_then(|declared| declared.get(&name));
            let mut path = path.to_vec();
            path.push(name);
            let made = self.make(&path, below, &owners, Some(&here))?;
            fields.push(made.field);
            nodes.push(made.node);
            debug_assert!(
                made.layers.iter().all(|layer| layers.contains(layer)),
                "a layer came late"
            );
        }
        let never_null = self.is_never_null(path, &layers, above)
            && (!self.by_fields || fields.iter().any(|field| !field.is_nullable()));
        let fields = Fields::from(fields);
        // What is said of the struct itself is its owner's word, else that of the strongest layer.
        let of = |wanted: Option<usize>| found.iter().find(|(layer, _)| Some(*layer) == wanted);
        let said = of(owner).or_else(|| of(layers.last().copied())).map(|(_, field)| field);
        let name = path.last().cloned().unwrap_or_default();
        let metadata = said.map(|field| field.metadata().clone()).unwrap_or_default();
        let field =
            Field::new(name, DataType::Struct(fields.clone()), !never_null).with_metadata(metadata);
        let node = Node::Struct { fields, nodes, above: structs, by_fields: self.by_fields };
        Ok(ResolvedField { field: Arc::new(field), node, layers })
    }
}

/// Layers that supply the field `below`, or something in it.
fn layers_below(
    below: Option<&Declared>,
    owner: Option<usize>,
    found: &[(usize, FieldRef)],
    layers: &mut Vec<usize>,
) {
    let add = |layer: usize| {
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    };
    let Some(below) = below else {
        return owner.into_iter().for_each(add);
    };
    let owner = owner.max(below.owner);
    let mut suppliers = Vec::new();
    below.suppliers(owner, &mut suppliers);
    let is_split = suppliers.len() > 1 || owner.is_none();
    // The owner of a struct that others take apart supplies something only if a field is left to it.
    let field_of = |layer: usize| {
        let field = found.iter().find(|(of, _)| *of == layer).map(|(_, field)| field)?;
        parts_of(field)?.find(&below.name).map(|(_, field)| Arc::clone(field))
    };
    if !is_split {
        return suppliers.into_iter().for_each(add);
    }
    let fields: Vec<(usize, FieldRef)> =
        suppliers.iter().filter_map(|&layer| Some((layer, field_of(layer)?))).collect();
    let names = field_names(Some(below), owner, &fields);
    if names.is_empty() {
        return fields.into_iter().map(|(layer, _)| layer).for_each(add);
    }
    for name in names {
        layers_below(below.get(&name), owner, &fields, layers);
    }
}

/// Names of the fields of a combined struct.
fn field_names(
    declared: Option<&Declared>,
    owner: Option<usize>,
    found: &[(usize, FieldRef)],
) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut add = |name: &String| {
        if seen.insert(name.clone()) {
            names.push(name.clone());
        }
    };
    let of =
        |layer: usize| found.iter().find(|(of, _)| *of == layer).and_then(|(_, f)| parts_of(f));
    if let Some(fields) = owner.and_then(of) {
        fields.iter().for_each(|field| add(field.name()));
    }
    let Some(declared) = declared else { return names };
    let mut others: Vec<usize> = found.iter().map(|(layer, _)| *layer).collect();
    others.sort_unstable();
    for layer in others {
        for field in of(layer).into_iter().flatten() {
            let Some(below) = declared.get(field.name()) else { continue };
            let mut suppliers = Vec::new();
            below.suppliers(owner, &mut suppliers);
            if suppliers.contains(&layer) && Some(layer) != owner {
                add(field.name());
            }
        }
    }
    names
}

/// Refuses a name twice in what is taken whole.
fn check_whole(field: &Field, path: &[String]) -> Result<()> {
    let Some(fields) = parts_of(field) else { return Ok(()) };
    check_names(fields, path)?;
    fields.iter().try_for_each(|field| {
        let mut path = path.to_vec();
        path.push(field.name().clone());
        check_whole(field, &path)
    })
}
