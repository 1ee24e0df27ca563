//! From what sources say to the one schema that all batches have.
//!
//! ```text
//! Summary ─ match (ids, else names) ─ prune (what is asked for) ─ unify ─ given schema ─ order
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
//! Which field a name is (`pick`); types of one column (`unify`); what was decided, as a value
//! (`frozen`); making batches (`adapter`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::{FieldRef, Fields, Schema, SchemaRef};

use super::conflict;
use super::convert::Rules;
use super::fingerprint::fingerprint;
use super::frozen::{Decision, Frozen, Origin};
use super::pick::{Level, Lookup, PickItem, Picks};
use super::policy::{Allow, SchemaPolicy};
use super::projection::{Projection, Renaming};
use super::same::key_of;
use super::selection::Selection;
use super::summary::{Class, Summary};
use super::unify::{Absent, GIVEN, Unifier, Variant, says};
use plait_base::{Error, Kind, Result, columns_hint, type_text};

/// Metadata of a given field: the value of the column where a source lacks it.
pub(crate) const DEFAULT: &str = "plait.default";

/// What is asked of the sources.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Which kinds of drift are allowed.
    pub policy: SchemaPolicy,
    /// The columns asked for; `None` is every column.
    pub columns: Option<Vec<String>>,
    /// Whether columns may get other names.
    pub renaming: Renaming,
    /// A schema that wins over what sources say.
    pub schema: Option<SchemaRef>,
    /// Whether columns that the given schema does not name are refused.
    pub strict: bool,
    /// Whether a column that no source has is null, of the null type.
    pub unknown_null: bool,
    /// Columns that are constant within a source.
    pub statics: Vec<Static>,
    /// The columns of the table whose files the sources are, in order; others are left out, and one
    /// that no source has is null. Types are those of sources, where these have the column.
    pub table: Option<SchemaRef>,
}

/// A column whose values do not come from the rows of sources.
#[derive(Clone, Debug)]
pub struct Static {
    /// Its name and type.
    pub field: FieldRef,
    /// Whether it is there unless something else is asked for.
    pub shown: bool,
    /// What happens if a source has a column of its name.
    pub clash: NameClash,
}

/// Which column is meant where a static one and one of the sources have the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameClash {
    /// It is an error.
    #[default]
    Refuse,
    /// The static column; that of the sources is left out.
    Static,
    /// That of the sources, null where one lacks it; the static column is left out.
    Source,
}

/// One schema for `schemas`, in that order: the first names the order of columns.
///
/// ```
/// use std::sync::Arc;
/// use arrow_schema::{DataType, Field, Schema};
/// use plait_core::schema::{SchemaPolicy, reconcile};
/// let schema = |ty| Arc::new(Schema::new(vec![Field::new("a", ty, false)]));
/// let frozen = reconcile(&[schema(DataType::Int32), schema(DataType::Int64)], &SchemaPolicy::default())?;
/// assert_eq!(frozen.schema().field(0).data_type(), &DataType::Int64);
/// # Ok::<(), plait_core::Error>(())
/// ```
///
/// # Errors
/// [`Kind::SchemaConflict`] naming all conflicts; sources are called `source 0` and so on.
pub fn reconcile(schemas: &[SchemaRef], policy: &SchemaPolicy) -> Result<Frozen> {
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
    let has_given = request.schema.is_some();
    let request = &request.with_absent(&classes);
    let places = request.places();
    let policy = &request.policy;
    let names: Vec<String> = classes.iter().map(|class| class.first.clone()).collect();
    let level = Level::columns(
        classes.iter().map(|class| &class.fields).enumerate().collect(),
        request.schema.as_ref().map(|schema| schema.fields()),
    );
    let mut lookup = Lookup { policy, names: &names, conflicts: Vec::new() };
    let is_static =
        |name: &str| request.statics.iter().any(|s| policy.key(s.field.name()) == policy.key(name));
    let projection = projection(&classes, request)?;
    let picks = lookup.picks(&projection, &level, is_static)?;
    let given = given(request, &picks, &level, &mut lookup)?;
    let mut unifier = Unifier::new(policy, &names);
    unifier.conflicts = lookup.conflicts;
    let by_id = level.is_by_id();
    let mut dropped = BTreeSet::new();
    let mut columns = columns(&classes, by_id, &picks, &mut unifier)?;
    columns.retain(|(key, variants)| {
        let names = variants.iter().map(|(_, field)| field.name().as_str());
        let is_of_table =
            |name: &str| places.as_ref().is_none_or(|places| places.contains_key(&table_key(name)));
        let stays = names.into_iter().all(|name| is_of_table(name) && !request.hides(name));
        if !stays {
            dropped.insert(key.clone());
        }
        stays
    });
    let variants_of = |key: &str| {
        let found = columns.iter().find(|(known, _)| known == key);
        found.map_or_else(Vec::new, |(_, variants)| as_variants(variants))
    };
    let mut found: BTreeMap<String, FieldRef> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for (key, field) in &given {
        let field = hold(field, &variants_of(key), &classes, &mut unifier);
        order.push(key.clone());
        if found.insert(key.clone(), Arc::clone(&field)).is_some() {
            let sides = ["one", "another"].map(|says| (0, says.to_owned()));
            unifier.conflict_of(field.name(), sides, conflict::TWICE);
        }
    }
    for (key, variants) in &columns {
        if found.contains_key(key) {
            continue;
        }
        let variants = as_variants(variants);
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
        let absent = absent(&variants, &classes);
        match unifier.field(&variants, &absent, policy.missing) {
            Some(field) => {
                order.push(key.clone());
                found.insert(key.clone(), field);
            }
            None => drop(dropped.insert(key.clone())),
        }
    }
    if by_id {
        // A given column that no source has takes a name, too.
        let mut named: Vec<(String, Variant<'_>)> = given
            .iter()
            .filter(|(key, _)| variants_of(key).is_empty())
            .map(|(_, field)| (field.name().clone(), Variant { class: GIVEN, field }))
            .collect();
        for (key, variants) in columns.iter().filter(|(key, _)| !dropped.contains(key)) {
            let Some(first) = as_variants(variants).first().copied() else { continue };
            let name = found.get(key).map_or(first.field.name(), |field| field.name());
            named.push((name.clone(), first));
        }
        unifier.one_name_each(named);
    }
    if !unifier.conflicts.is_empty() {
        return Err(conflict::error(&unifier.conflicts));
    }
    if let Some(places) = &places {
        let place = |key: &String| found.get(key).and_then(|f| places.get(&table_key(f.name())));
        order.sort_by_cached_key(|key| place(key).copied());
    }
    let (fields, origins) = arrange(&picks, request, &classes, &order, &found)?;
    let fingerprint = fingerprint(&fields);
    let closed = picks.is_open() && dropped.is_empty();
    let schema = Arc::new(Schema::new(fields));
    let shown = projection.shown;
    let selection = Selection::of(shown.as_deref(), &picks, &schema, policy)?;
    Ok(Frozen {
        schema,
        policy: policy.clone(),
        decision: Decision { origins, picks, by_id, dropped, closed, fingerprint, shown },
        selection,
    })
}

impl Request {
    /// Whether a static column takes the place of the column of this name in sources.
    fn hides(&self, name: &str) -> bool {
        let key = self.policy.key(name);
        let mut statics = self.statics.iter().filter(|s| s.shown && s.clash == NameClash::Static);
        statics.any(|s| self.policy.key(s.field.name()) == key)
    }

    /// Where the table has each column, if there is a table.
    fn places(&self) -> Option<HashMap<String, usize>> {
        let fields = self.table.as_ref()?.fields().iter().enumerate();
        Some(fields.map(|(at, field)| (table_key(field.name()), at)).collect())
    }

    /// The same, where columns of the table that no source has are given ones.
    fn with_absent(&self, classes: &[&Class]) -> Self {
        let mut request = self.clone();
        let given = || self.schema.iter().flat_map(|schema| schema.fields());
        let stored = classes.iter().flat_map(|class| class.fields.iter());
        let known: BTreeSet<String> = stored.chain(given()).map(|f| table_key(f.name())).collect();
        let of_table = self.table.iter().flat_map(|table| table.fields());
        let absent = of_table.filter(|field| !known.contains(&table_key(field.name())));
        let absent: Vec<FieldRef> = absent.cloned().collect();
        if !absent.is_empty() {
            let fields: Fields = given().cloned().chain(absent).collect();
            request.schema = Some(Arc::new(Schema::new(fields)));
        }
        request
    }
}

/// Tables have no two columns whose names differ by case alone, and files may write them otherwise.
fn table_key(name: &str) -> String {
    name.to_lowercase()
}

fn projection(classes: &[&Class], request: &Request) -> Result<Projection> {
    let Some(columns) = &request.columns else { return Ok(Projection::all()) };
    let mut known: BTreeSet<String> = BTreeSet::new();
    for class in classes {
        known.extend(class.fields.iter().map(|field| request.policy.key(field.name())));
    }
    let given = request.schema.iter().flat_map(|schema| schema.fields());
    known.extend(given.map(|field| request.policy.key(field.name())));
    known.extend(request.statics.iter().map(|s| s.field.name().clone()));
    Projection::parse(columns, &request.policy, request.renaming, |name| {
        known.contains(&request.policy.key(name))
    })
}

/// Columns by key, each with what classes have of it.
type Columns = Vec<(String, Vec<(usize, FieldRef)>)>;

fn as_variants(fields: &[(usize, FieldRef)]) -> Vec<Variant<'_>> {
    fields.iter().map(|(class, field)| Variant { class: *class, field }).collect()
}

/// What is asked for of the columns of all classes, in the order first seen.
fn columns(
    classes: &[&Class],
    by_id: bool,
    picks: &Picks,
    unifier: &mut Unifier<'_>,
) -> Result<Columns> {
    let policy = unifier.policy;
    let mut columns: Columns = Vec::new();
    let mut place: HashMap<String, usize> = HashMap::new();
    for (class, of) in classes.iter().enumerate() {
        for field in &of.fields {
            let key = key_of(field, policy, by_id);
            let pruned = picks.prune(field, &key, policy);
            let pruned = pruned.map_err(|e| e.with_path(of.first.as_str()))?;
            let Some(field) = pruned else { continue };
            let at = *place.entry(key.clone()).or_insert_with(|| {
                columns.push((key, Vec::new()));
                columns.len() - 1
            });
            if let Some((_, variants)) = columns.get_mut(at) {
                if variants.last().is_some_and(|(last, _)| *last == class) {
                    let sides = ["one", "another"].map(|says| (class, says.to_owned()));
                    unifier.conflict_of(field.name(), sides, conflict::TWICE);
                    continue;
                }
                variants.push((class, field));
            }
        }
    }
    Ok(columns)
}

fn absent(variants: &[Variant<'_>], classes: &[&Class]) -> Vec<Absent> {
    let without = |class: &usize| variants.iter().all(|v| v.class != *class);
    (0..classes.len())
        .filter(without)
        .map(|class| Absent { class, has_rows: classes.get(class).is_some_and(|c| c.has_rows) })
        .collect()
}

/// Fields of the given schema that are asked for, by the keys that sources know them by.
fn given(
    request: &Request,
    picks: &Picks,
    columns: &Level<'_>,
    lookup: &mut Lookup<'_>,
) -> Result<Vec<(String, FieldRef)>> {
    let mut given = Vec::new();
    for field in request.schema.iter().flat_map(|schema| schema.fields()) {
        let key = lookup.given_key(field, columns);
        if request.hides(field.name()) {
            continue;
        }
        if let Some(field) = picks.prune(field, &key, &request.policy)? {
            given.push((key, field));
        }
    }
    Ok(given)
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
        let shown = |says: String| {
            [
                (v.class, says),
                (v.class, format!("{} in the given schema", type_text(field.data_type()))),
            ]
        };
        if let Err((path, found)) = rules.plan(v.field.data_type(), field.data_type()) {
            let column = if path.is_empty() {
                field.name().clone()
            } else {
                format!("{}.{path}", field.name())
            };
            unifier.conflict_of(&column, shown(found), conflict::TYPES);
        } else if policy.widen == Allow::Error && v.field.data_type() != field.data_type() {
            unifier.conflict_of(
                field.name(),
                shown(type_text(v.field.data_type())),
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
    picks: &Picks,
    request: &Request,
    classes: &[&Class],
    order: &[String],
    found: &BTreeMap<String, FieldRef>,
) -> Result<Arranged> {
    let policy = &request.policy;
    let fixed = |name: &str| {
        request.statics.iter().find(|s| policy.key(s.field.name()) == policy.key(name))
    };
    // Of those whose choice is the static column, the sources' column was left out before.
    let refuses = |s: &Static| s.shown && s.clash == NameClash::Refuse;
    let mut unknown = |path: &str| -> Result<()> {
        if request.unknown_null { Ok(()) } else { Err(unknown_column(path, classes)) }
    };
    let (mut fields, mut origins) = (Vec::new(), Vec::new());
    let mut push = |field: FieldRef, origin| {
        fields.push(field);
        origins.push(origin);
    };
    let is_named = |name: &str| {
        picks.items.iter().any(|item| match item {
            PickItem::Column(pick) => policy.key(&pick.name) == policy.key(name),
            PickItem::Star => false,
        })
    };
    for item in &picks.items {
        match item {
            PickItem::Star => {
                for key in order {
                    let Some(field) = found.get(key) else { continue };
                    if picks.column(key).is_some() {
                        continue;
                    }
                    if fixed(field.name()).is_some_and(refuses) {
                        return Err(taken(field.name()));
                    }
                    push(Arc::clone(field), Origin::Source(key.clone()));
                }
                for column in request.statics.iter().filter(|s| s.shown) {
                    let key = policy.key(column.field.name());
                    let has_source = found.values().any(|field| policy.key(field.name()) == key);
                    if !is_named(column.field.name()) && !has_source {
                        let name = column.field.name().clone();
                        push(Arc::clone(&column.field), Origin::Static(name));
                    }
                }
            }
            PickItem::Column(pick) => {
                let key = pick.column_key();
                match (found.get(&key), fixed(&pick.name)) {
                    (Some(_), Some(s)) if refuses(s) => return Err(taken(&pick.name)),
                    (Some(field), _) => {
                        let field = pick.complete(field, policy, &pick.name, &mut unknown)?;
                        push(Arc::new(field), Origin::Source(key));
                    }
                    (None, Some(s)) => {
                        push(Arc::clone(&s.field), Origin::Static(s.field.name().clone()));
                    }
                    (None, None) => {
                        unknown(&pick.name)?;
                        push(Arc::new(pick.nothing()), Origin::Nowhere);
                    }
                }
            }
        }
    }
    Ok((fields.into(), origins))
}

fn taken(name: &str) -> Error {
    Error::new(Kind::InvalidArgument, "static column has the name of a column of the sources")
        .with_column(name)
        .with_hint(
            "rename the static column, leave the other out of `columns`, or for a column of folders \
             give partition_clash=\"partition\" or \"file\"",
        )
}

fn unknown_column(path: &str, classes: &[&Class]) -> Error {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for class in classes {
        names.extend(class.fields.iter().map(|f| f.name().as_str()));
    }
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    Error::new(Kind::UnknownColumn, "column is in no source")
        .with_column(path)
        .with_hint(columns_hint(path, &names))
}
