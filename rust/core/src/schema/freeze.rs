//! From what sources say to the one schema that all batches have.
//!
//! ```text
//! Summary ─ prune (what is asked for) ─ match (ids, else names) ─ unify ─ given schema ─ order
//!                                                                              │
//! Frozen: schema, where every column comes from, fingerprint ◀─────────────────┘
//! ```
//!
//! # Invariants
//! A pure function of the set of sources, their names, and the request: permutations and groupings of
//! sources cannot change a byte of it. Either every source adapts or one error names all conflicts.
//!
//! # Cost
//! Linear in the distinct schemas.
//!
//! # Not here
//! Types of one column (`unify`); making batches (`adapter`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use super::conflict;
use super::convert::Rules;
use super::policy::{Allow, Policy};
use super::projection::{Item, Projection, Want, complete};
use super::same::{by_id, key_of, members};
use super::summary::{Class, Summary};
use super::unify::{Absent, Unifier, Variant, says};
use crate::error::{Error, Kind, Result};

/// Metadata of a given field: the value of the column where a source lacks it.
pub const DEFAULT: &str = "plait.default";

/// What is asked of the sources.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Which kinds of drift are allowed.
    pub policy: Policy,
    /// The columns asked for; `None` is every column.
    pub columns: Option<Vec<String>>,
    /// A schema that wins over what sources say.
    pub schema: Option<SchemaRef>,
    /// Whether columns that the given schema does not name are refused.
    pub strict: bool,
    /// Whether a column that no source has is null, of the null type.
    pub unknown_null: bool,
    /// Columns that are constant within a source.
    pub statics: Vec<Static>,
}

/// A column whose values do not come from the rows of sources.
#[derive(Clone, Debug)]
pub struct Static {
    /// Its name and type.
    pub field: FieldRef,
    /// Whether it is there unless something else is asked for.
    pub shown: bool,
}

/// Where a column of the output comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A column of the sources, by the name (or field id) that it is looked for under.
    Source(String),
    /// The static column of this name.
    Static(String),
    /// No source has it.
    Nowhere,
}

/// One schema, decided once; see [`freeze`].
#[derive(Clone, Debug)]
pub struct Frozen {
    pub(super) schema: SchemaRef,
    pub(super) origins: Vec<Origin>,
    pub(super) policy: Policy,
    pub(super) projection: Projection,
    pub(super) by_id: bool,
    /// Columns that the policy leaves out.
    pub(super) dropped: BTreeSet<String>,
    /// Whether a column that this schema does not have is left out, or refused.
    pub(super) closed: bool,
    pub(super) fingerprint: String,
}

impl Frozen {
    /// The schema of every batch: always this very object.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// 32 hexadecimal digits that name the schema, with nullability and metadata.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Leaves of a source, depth first, that its adapter needs.
    #[must_use]
    pub fn leaves(&self, source: &Schema) -> Vec<usize> {
        self.projection.leaves(source)
    }

    /// For every column the place of the one in `source` that it is taken from.
    #[must_use]
    pub fn places(&self, source: &Fields) -> Vec<Option<usize>> {
        let mut places = HashMap::with_capacity(source.len());
        for (place, field) in source.iter().enumerate() {
            places.entry(self.key(field)).or_insert(place);
        }
        let place = |origin: &Origin| match origin {
            Origin::Source(key) => places.get(key).copied(),
            Origin::Static(_) | Origin::Nowhere => None,
        };
        self.origins.iter().map(place).collect()
    }

    /// The same for the fields of a struct, from a source's struct `from` to the schema's struct `to`.
    #[must_use]
    pub fn members(&self, from: &Fields, to: &Fields) -> Vec<Option<usize>> {
        members(from, to, &self.policy)
    }

    pub(super) fn key(&self, field: &Field) -> String {
        key_of(field, &self.policy, self.by_id)
    }
}

/// One schema for `schemas`, in that order: the first names the order of columns.
///
/// ```
/// use std::sync::Arc;
/// use arrow_schema::{DataType, Field, Schema};
/// use plait_core::schema::{Policy, reconcile};
/// let schema = |ty| Arc::new(Schema::new(vec![Field::new("a", ty, false)]));
/// let frozen = reconcile(&[schema(DataType::Int32), schema(DataType::Int64)], &Policy::default())?;
/// assert_eq!(frozen.schema().field(0).data_type(), &DataType::Int64);
/// # Ok::<(), plait_core::Error>(())
/// ```
///
/// # Errors
/// [`Kind::SchemaConflict`] naming all conflicts; sources are called `source 0` and so on.
pub fn reconcile(schemas: &[SchemaRef], policy: &Policy) -> Result<Frozen> {
    let digits = schemas.len().saturating_sub(1).to_string().len();
    let mut summary = Summary::default();
    for (i, schema) in schemas.iter().enumerate() {
        summary = summary.merge(Summary::of(schema, &format!("source {i:0digits$}"), true));
    }
    freeze(&summary, &Request { policy: policy.clone(), ..Request::default() })
}

/// Decides the schema for all sources of `summary`.
///
/// # Errors
/// [`Kind::SchemaConflict`] naming all conflicts, [`Kind::UnknownColumn`], [`Kind::ProjectionError`],
/// [`Kind::InvalidPath`], and [`Kind::InvalidArgument`] without sources or when a static column has
/// the name of another.
pub fn freeze(summary: &Summary, request: &Request) -> Result<Frozen> {
    let classes = summary.classes();
    if classes.is_empty() {
        return Err(Error::new(
            Kind::InvalidArgument,
            "there are no sources to take a schema from",
        ));
    }
    let policy = &request.policy;
    let projection = projection(&classes, request)?;
    let names: Vec<String> = classes.iter().map(|class| class.first.clone()).collect();
    let mut pruned = Vec::with_capacity(classes.len());
    for (class, name) in classes.iter().zip(&names) {
        let kept = projection.prune(&class.fields, policy);
        pruned.push(kept.map_err(|e| e.with_path(name.as_str()))?);
    }
    let by_id = by_id(classes.iter().map(|class| &class.fields));
    let mut unifier = Unifier::new(policy, &names);
    let columns = columns(&pruned, by_id, &mut unifier);
    let given = given(request, &projection)?;
    let mut dropped = BTreeSet::new();
    let mut found: BTreeMap<String, FieldRef> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for field in &given {
        let key = given_key(field, &columns, policy, by_id);
        let variants = columns.iter().find(|(k, _)| *k == key).map(|(_, v)| v.as_slice());
        let field = hold(field, variants.unwrap_or_default(), &classes, &mut unifier);
        order.push(key.clone());
        found.insert(key, field);
    }
    let has_given = request.schema.is_some();
    for (key, variants) in &columns {
        if found.contains_key(key) {
            continue;
        }
        if has_given && (request.strict || policy.extra == Allow::Error) {
            if let Some(v) = variants.first() {
                let sides = [
                    (v.class, says(v.field)),
                    (v.class, "a schema that does not name it".to_owned()),
                ];
                unifier.conflict_of(v.field.name(), sides, "is not in the given schema");
            }
            continue;
        }
        if has_given && policy.extra == Allow::Drop {
            dropped.insert(key.clone());
            continue;
        }
        let absent = absent(variants, &classes);
        match unifier.field(variants, &absent, policy.missing) {
            Some(field) => {
                order.push(key.clone());
                found.insert(key.clone(), field);
            }
            None => drop(dropped.insert(key.clone())),
        }
    }
    if !unifier.conflicts.is_empty() {
        return Err(conflict::error(&unifier.conflicts));
    }
    let (fields, origins) = arrange(&projection, request, &classes, &order, &found)?;
    let fingerprint = fingerprint(&fields);
    Ok(Frozen {
        schema: Arc::new(Schema::new(fields)),
        origins,
        policy: policy.clone(),
        closed: projection.is_open() && dropped.is_empty(),
        projection,
        by_id,
        dropped,
        fingerprint,
    })
}

fn projection(classes: &[&Class], request: &Request) -> Result<Projection> {
    let Some(columns) = &request.columns else { return Ok(Projection::all(&request.policy)) };
    let mut known: BTreeSet<String> = BTreeSet::new();
    for class in classes {
        known.extend(class.fields.iter().map(|field| request.policy.key(field.name())));
    }
    known.extend(request.statics.iter().map(|s| s.field.name().clone()));
    Projection::parse(columns, &request.policy, |name| known.contains(&request.policy.key(name)))
}

type Columns<'a> = Vec<(String, Vec<Variant<'a>>)>;

/// The columns of all classes in the order first seen, each with what the classes have of it.
fn columns<'a>(pruned: &'a [Vec<FieldRef>], by_id: bool, unifier: &mut Unifier<'_>) -> Columns<'a> {
    let mut columns: Columns<'a> = Vec::new();
    let mut place: HashMap<String, usize> = HashMap::new();
    for (class, fields) in pruned.iter().enumerate() {
        for field in fields {
            let key = key_of(field, unifier.policy, by_id);
            let at = *place.entry(key.clone()).or_insert_with(|| {
                columns.push((key, Vec::new()));
                columns.len() - 1
            });
            if let Some((_, variants)) = columns.get_mut(at) {
                if variants.last().is_some_and(|last| last.class == class) {
                    let sides = ["one", "another"].map(|says| (class, says.to_owned()));
                    unifier.conflict_of(field.name(), sides, conflict::TWICE);
                    continue;
                }
                variants.push(Variant { class, field });
            }
        }
    }
    if by_id {
        unifier.one_name_each(columns.iter().map(|(_, variants)| variants.as_slice()));
    }
    columns
}

fn absent(variants: &[Variant<'_>], classes: &[&Class]) -> Vec<Absent> {
    let without = |class: &usize| variants.iter().all(|v| v.class != *class);
    (0..classes.len())
        .filter(without)
        .map(|class| Absent { class, has_rows: classes.get(class).is_some_and(|c| c.has_rows) })
        .collect()
}

/// Fields of the given schema that are asked for.
fn given(request: &Request, projection: &Projection) -> Result<Vec<FieldRef>> {
    match &request.schema {
        Some(schema) => projection.prune(schema.fields(), &request.policy),
        None => Ok(Vec::new()),
    }
}

/// The key that sources know a given field by.
fn given_key(field: &Field, columns: &Columns<'_>, policy: &Policy, by_id: bool) -> String {
    let own = key_of(field, policy, by_id);
    if !by_id || own.starts_with('#') {
        return own;
    }
    let named = |v: &&Variant<'_>| policy.key(v.field.name()) == own;
    columns.iter().find(|(_, v)| v.iter().any(|v| named(&v))).map_or(own, |(key, _)| key.clone())
}

/// The given field, if all sources can be brought to it.
fn hold(
    field: &FieldRef,
    variants: &[Variant<'_>],
    classes: &[&Class],
    unifier: &mut Unifier<'_>,
) -> FieldRef {
    let policy = unifier.policy;
    let rules = Rules { policy, refuse_extra: policy.struct_field != Allow::Drop };
    let mut nullable = field.is_nullable();
    for v in variants {
        let told = |says: String| {
            [(v.class, says), (v.class, format!("{} in the given schema", field.data_type()))]
        };
        if let Err((path, found)) = rules.plan(v.field.data_type(), field.data_type()) {
            let column = if path.is_empty() {
                field.name().clone()
            } else {
                format!("{}.{path}", field.name())
            };
            unifier.conflict_of(&column, told(found), conflict::TYPES);
        } else if policy.widen == Allow::Error && v.field.data_type() != field.data_type() {
            unifier.conflict_of(
                field.name(),
                told(v.field.data_type().to_string()),
                conflict::WIDENED,
            );
        } else if rules.nullable(v.field, field).is_err() {
            let sides = [
                (v.class, "nullable".to_owned()),
                (v.class, "not null in the given schema".to_owned()),
            ];
            unifier.conflict_of(field.name(), sides, "may be null");
        }
        nullable |= policy.lossy == Allow::Null && v.field.data_type() != field.data_type();
    }
    if field.metadata().contains_key(DEFAULT) {
        return Arc::clone(field);
    }
    if let Some(absent) = absent(variants, classes).first()
        && (policy.missing == Allow::Error || (!field.is_nullable() && absent.has_rows))
    {
        let sides = [
            (absent.class, "absent".to_owned()),
            (absent.class, "not null and without a default in the given schema".to_owned()),
        ];
        unifier.conflict_of(field.name(), sides, conflict::MISSING);
    }
    if nullable == field.is_nullable() {
        Arc::clone(field)
    } else {
        Arc::new(field.as_ref().clone().with_nullable(nullable))
    }
}

type Arranged = (Fields, Vec<Origin>);

/// All columns in the order asked for.
fn arrange(
    projection: &Projection,
    request: &Request,
    classes: &[&Class],
    order: &[String],
    found: &BTreeMap<String, FieldRef>,
) -> Result<Arranged> {
    let policy = &request.policy;
    let name_of = |key: &str| found.get(key).map(|f| policy.key(f.name()));
    let fixed = |name: &str| {
        request.statics.iter().find(|s| policy.key(s.field.name()) == policy.key(name))
    };
    let mut unknown = |path: &str| -> Result<()> {
        if request.unknown_null { Ok(()) } else { Err(unknown_column(path, classes)) }
    };
    let (mut fields, mut origins) = (Vec::new(), Vec::new());
    let mut push = |field: FieldRef, origin| {
        fields.push(field);
        origins.push(origin);
    };
    for item in &projection.items {
        match item {
            Item::Star => {
                for key in order {
                    let Some(field) = found.get(key) else { continue };
                    if projection.want(field.name()).is_some() {
                        continue;
                    }
                    if fixed(field.name()).is_some_and(|s| s.shown) {
                        return Err(taken(field.name()));
                    }
                    push(Arc::clone(field), Origin::Source(key.clone()));
                }
                for column in request.statics.iter().filter(|s| s.shown) {
                    if projection.want(column.field.name()).is_none() {
                        let name = column.field.name().clone();
                        push(Arc::clone(&column.field), Origin::Static(name));
                    }
                }
            }
            Item::Column(want) => {
                let key = order.iter().find(|key| name_of(key) == Some(policy.key(&want.name)));
                match (key.and_then(|key| Some((key, found.get(key)?))), fixed(&want.name)) {
                    (Some(_), Some(s)) if s.shown => return Err(taken(&want.name)),
                    (Some((key, field)), _) => {
                        let field = complete(field, want, policy, &want.name, &mut unknown)?;
                        push(Arc::new(field), Origin::Source(key.clone()));
                    }
                    (None, Some(s)) => {
                        push(Arc::clone(&s.field), Origin::Static(s.field.name().clone()));
                    }
                    (None, None) => {
                        unknown(&want.name)?;
                        push(Arc::new(nothing(want)), Origin::Nowhere);
                    }
                }
            }
        }
    }
    Ok((fields.into(), origins))
}

fn nothing(want: &Want) -> Field {
    let ty = if want.members.is_empty() {
        DataType::Null
    } else {
        DataType::Struct(want.members.iter().map(nothing).collect())
    };
    Field::new(&want.name, ty, true)
}

fn taken(name: &str) -> Error {
    Error::new(Kind::InvalidArgument, "static column has the name of a column of the sources")
        .with_column(name)
        .with_hint("rename the static column, or leave the other out of `columns`")
}

fn unknown_column(path: &str, classes: &[&Class]) -> Error {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for class in classes {
        names.extend(class.fields.iter().map(|f| f.name().as_str()));
    }
    let shown: Vec<String> = names.iter().take(20).map(|name| format!("`{name}`")).collect();
    Error::new(Kind::UnknownColumn, "column is in no source").with_column(path).with_hint(format!(
        "the columns are {}{}; missing=\"null\" takes what is unknown as null",
        shown.join(", "),
        if names.len() > shown.len() { ", …" } else { "" }
    ))
}

/// Names a schema: FNV-1a of 128 bits over its canonical text.
fn fingerprint(fields: &Fields) -> String {
    let mut text = String::new();
    describe(fields, &mut text);
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in text.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    format!("{hash:032x}")
}

fn describe(fields: &Fields, text: &mut String) {
    for field in fields {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:?}{}", field.name(), if field.is_nullable() { "?" } else { "!" });
        match field.data_type() {
            DataType::Struct(inner) => inside("struct", inner, text),
            DataType::Map(entries, sorted) => {
                inside(
                    if *sorted { "sorted map" } else { "map" },
                    &vec![Arc::clone(entries)].into(),
                    text,
                );
            }
            ty => match super::unify::list_item(ty) {
                Some(item) => {
                    let hollow = Arc::new(Field::new("", DataType::Null, true));
                    let layout = format!("{:?}", super::unify::with_item(ty, hollow));
                    inside(&layout, &vec![Arc::clone(item)].into(), text);
                }
                None => drop(write!(text, "{ty:?}")),
            },
        }
        for (key, value) in field.metadata() {
            let _ = write!(text, "{key:?}={value:?}");
        }
        text.push(';');
    }
}

fn inside(name: &str, fields: &Fields, text: &mut String) {
    text.push_str(name);
    text.push('(');
    describe(fields, text);
    text.push(')');
}
