//! Who supplies what, and what the output looks like, decided before a row is read.
//!
//! ```text
//! layers, weakest first ─▶ index columns ─▶ declared paths ─▶ tree of owners ─▶ nodes, schema
//!                          (one type)       (exist? clear?)   (resolve)
//! ```
//!
//! # Invariants
//! Layers are ordered by precedence, then by place; the last is the strongest. Every path that
//! supplies something exists in its layer. No level of names that a path reaches has a name twice.
//!
//! # Not here
//! The tree (`resolve`); rows (`stream`).

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use super::layer::{LayerPlan, LayerSpec, StructValidity, check_names, in_layer};
use super::node::{Node, Supply};
use super::path::{FieldPath, dotted};
use super::resolve;
use super::{INDEX_MARK, INDEX_NAME};
use plait_base::{Error, Kind, Result, type_text};

/// What identifies a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// By its name.
    Name(String),
    /// By entries of its metadata, all of them.
    Metadata(Vec<(String, String)>),
}

/// Options of an overlay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OverlayRules {
    /// The index column; `None` is the marked one, else `_index`.
    pub index: Option<Mark>,
    /// A column of row numbers that is compared, too.
    pub row_number: Option<Mark>,
    /// When a combined struct is there.
    pub struct_validity: StructValidity,
    /// Whether layers that supply nothing are compared row by row.
    pub check_unused: bool,
    /// Rows of every batch but the last; `None` follows the batches of the layers.
    pub batch_rows: Option<usize>,
}

impl Default for OverlayRules {
    fn default() -> Self {
        Self {
            index: None,
            row_number: None,
            struct_validity: StructValidity::Any,
            check_unused: true,
            batch_rows: None,
        }
    }
}

/// A plan: layers, weakest first, the output's schema, and where each of its columns comes from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The layers that are read, weakest first.
    pub layers: Vec<LayerPlan>,
    /// The output's schema.
    pub schema: SchemaRef,
    /// Where the columns behind the index come from.
    pub roots: Vec<Node>,
    /// Its options.
    pub options: OverlayRules,
}

/// Largest `batch_rows`.
const BATCH_ROWS_MAX: usize = 1_048_576;

impl Plan {
    /// Plans the overlay of `layers`.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`], [`Kind::IndexTypeError`], [`Kind::InvalidPath`],
    /// [`Kind::FieldNotInLayer`], [`Kind::PathThroughNonStruct`], [`Kind::SplitInsideNonStruct`],
    /// [`Kind::DuplicateField`].
    pub fn try_new(layers: &[LayerSpec], options: OverlayRules) -> Result<Self> {
        if layers.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "there are no layers"));
        }
        if options.batch_rows.is_some_and(|rows| !(1..=BATCH_ROWS_MAX).contains(&rows)) {
            return Err(Error::new(Kind::InvalidArgument, "`batch_rows` is out of range")
                .with_got(format!("{}", options.batch_rows.unwrap_or(0)))
                .with_hint("give 1 to 1048576 rows"));
        }
        let mut order: Vec<usize> = (0..layers.len()).collect();
        order.sort_by_key(|&place| layers[place].precedence);
        let mut plans = Vec::with_capacity(layers.len());
        let mut owned = Vec::with_capacity(layers.len());
        for &place in &order {
            let layer = &layers[place];
            let in_layer = |e: Error| in_layer(e, &layer.name);
            check_names(layer.schema.fields(), &[]).map_err(in_layer)?;
            let index = find(&layer.schema, options.index.as_ref(), "index").map_err(in_layer)?;
            let row_number = match &options.row_number {
                Some(mark) => {
                    Some(find(&layer.schema, Some(mark), "row number").map_err(in_layer)?)
                }
                None => None,
            };
            owned.push(paths_of(layer, index).map_err(in_layer)?);
            plans.push(LayerPlan {
                name: layer.name.clone(),
                place,
                schema: Arc::clone(&layer.schema),
                index,
                row_number,
                parts: Vec::new(),
                structs: Vec::new(),
            });
        }
        let (fields, mut roots) = resolve::resolve(&mut plans, &owned, options.struct_validity)?;
        if !options.check_unused && plans.iter().any(LayerPlan::supplies) {
            drop_unused(&mut plans, &mut roots);
        }
        check_index_types(&plans)?;
        let schema = output_schema(&plans, fields, options.index.as_ref());
        Ok(Self { layers: plans, schema, roots, options })
    }
}

/// Leaves out the layers that supply nothing.
fn drop_unused(plans: &mut Vec<LayerPlan>, roots: &mut [Node]) {
    let mut kept = 0;
    let places: Vec<usize> = plans
        .iter()
        .map(|plan| {
            kept += usize::from(plan.supplies());
            kept.saturating_sub(1)
        })
        .collect();
    roots.iter_mut().for_each(|node| node.renumber(&places));
    plans.retain(LayerPlan::supplies);
}

/// The place of the index or row-number column of a schema.
fn find(schema: &Schema, mark: Option<&Mark>, what: &str) -> Result<usize> {
    let marked = |entries: &[(String, String)]| {
        let has = |field: &FieldRef| {
            entries.iter().all(|(key, value)| field.metadata().get(key) == Some(value))
        };
        let fields = schema.fields().iter().enumerate();
        fields.filter(|(_, field)| has(field)).map(|(place, _)| place).collect::<Vec<_>>()
    };
    let named = |name: &str| schema.index_of(name).ok().into_iter().collect::<Vec<_>>();
    let found = match mark {
        Some(Mark::Name(name)) => named(name),
        Some(Mark::Metadata(entries)) => marked(entries),
        None => {
            let (key, value) = INDEX_MARK;
            let found = marked(&[(key.to_owned(), value.to_owned())]);
            if found.is_empty() { named(INDEX_NAME) } else { found }
        }
    };
    match found.as_slice() {
        [place] => Ok(*place),
        [] => Err(Error::new(Kind::FieldNotInLayer, format!("there is no {what} column"))
            .with_hint(format!(
                "name it, or mark its field with the metadata {{\"{}\": \"{}\"}}",
                INDEX_MARK.0, INDEX_MARK.1
            ))),
        _ => Err(Error::new(Kind::DuplicateField, format!("several columns are marked as {what}"))),
    }
}

/// The declared paths of a layer, without its index column.
fn paths_of(layer: &LayerSpec, index: usize) -> Result<Vec<FieldPath>> {
    let fields = layer.schema.fields();
    let index_name = fields.get(index).map(|field| field.name().clone()).unwrap_or_default();
    let Some(paths) = &layer.paths else {
        let names = fields.iter().map(|field| field.name().clone());
        return names
            .filter(|name| *name != index_name)
            .map(|name| FieldPath::try_new(vec![name]))
            .collect();
    };
    for path in paths.iter().filter(|path| path.is_split) {
        if readings(fields, path.names()) > usize::from(resolves(fields, path.names())) {
            return Err(Error::new(Kind::InvalidPath, "a path can be read in two ways")
                .with_column(path.to_string())
                .with_hint("put names with dots in double quotes, or give a tuple of names"));
        }
    }
    let is_index = |path: &&FieldPath| path.names().len() == 1 && path.names()[0] == index_name;
    Ok(paths.iter().filter(|path| !is_index(path)).cloned().collect())
}

/// In how many ways `names`, joined by dots again, lead to fields.
fn readings(fields: &Fields, names: &[String]) -> usize {
    let mut count = 0;
    for end in 1..=names.len() {
        let name = names[..end].join(".");
        for field in fields.iter().filter(|field| *field.name() == name) {
            count += match (names.get(end..), field.data_type()) {
                (Some([]), _) => 1,
                (Some(rest), DataType::Struct(fields)) => readings(fields, rest),
                _ => 0,
            };
        }
    }
    count
}

/// Whether `names`, one a level, lead to a field.
fn resolves(fields: &Fields, names: &[String]) -> bool {
    let Some((first, rest)) = names.split_first() else { return true };
    fields.iter().filter(|field| field.name() == first).any(|field| match field.data_type() {
        _ if rest.is_empty() => true,
        DataType::Struct(fields) => resolves(fields, rest),
        _ => false,
    })
}

/// Refuses index columns that are not all int64, or all the same timestamp.
fn check_index_types(plans: &[LayerPlan]) -> Result<()> {
    type Column = fn(&LayerPlan) -> Option<usize>;
    let index: Column = |plan| Some(plan.index);
    let row_number: Column = |plan| plan.row_number;
    for (what, column) in [("index", index), ("row number", row_number)] {
        let mut first: Option<(&LayerPlan, &Field)> = None;
        for plan in plans {
            let field = column(plan).and_then(|place| plan.schema.fields().get(place));
            let Some(field) = field else { continue };
            let wrong = |text: String| {
                Error::new(Kind::IndexTypeError, text)
                    .with_column(dotted(&[field.name()]))
                    .with_hint("an index is int64 or a timestamp, of one type in all layers")
            };
            if !matches!(field.data_type(), DataType::Int64 | DataType::Timestamp(..)) {
                return Err(wrong(format!("layer `{}`: the {what} has a wrong type", plan.name))
                    .with_got(format!("`{}`", type_text(field.data_type()))));
            }
            match first {
                None => first = Some((plan, field)),
                Some((_, known)) if known.data_type() == field.data_type() => {}
                Some((other, known)) => {
                    return Err(wrong(format!("the {what} has two types")).with_got(format!(
                        "`{}` in layer `{}`, `{}` in layer `{}`",
                        type_text(known.data_type()),
                        other.name,
                        type_text(field.data_type()),
                        plan.name
                    )));
                }
            }
        }
    }
    Ok(())
}

/// The index, under a name that no column has, then `fields`; metadata of the weakest layer first.
fn output_schema(plans: &[LayerPlan], fields: Vec<FieldRef>, index: Option<&Mark>) -> SchemaRef {
    let mut all = Vec::with_capacity(fields.len() + 1);
    if let Some(field) = plans.first().and_then(|plan| plan.schema.fields().get(plan.index)) {
        let mut name = field.name().clone();
        // An earlier overlay made way for a column `_index`; where there is none, the name is free.
        if !matches!(index, Some(Mark::Name(_))) && name.trim_end_matches('_') == INDEX_NAME {
            name = INDEX_NAME.to_owned();
        }
        while fields.iter().any(|field| *field.name() == name) {
            name.push('_');
        }
        all.push(Arc::new(field.as_ref().clone().with_name(name)));
    }
    all.extend(fields);
    let mut metadata = std::collections::HashMap::new();
    for plan in plans {
        // What one of several layers says of its columns as a whole holds for none of the others.
        for (key, value) in plan.schema.metadata() {
            metadata.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    Arc::new(Schema::new_with_metadata(all, metadata))
}

/// What a layer supplies for one column, for messages and tests.
impl Plan {
    /// Which layer gives each part of the output, in the order of the schema: path and layer name.
    #[must_use]
    pub fn explain(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        for (node, field) in self.roots.iter().zip(self.schema.fields().iter().skip(1)) {
            node.walk(field, &mut Vec::new(), &mut |path, node| {
                if let Node::Take(Supply { layer, .. }) = node {
                    let name = self.layers.get(*layer).map(|plan| plan.name.clone());
                    lines.push((dotted(path), name.unwrap_or_default()));
                }
            });
        }
        lines
    }
}
