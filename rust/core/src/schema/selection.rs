//! The columns of the output, where some have other names than the columns they come from.
//!
//! ```text
//! frozen   m { x, y }   p map<utf8, int64>
//! asked    m.x          m.y as b      p['k'] as k
//! output   m { x }      b             k
//! ```
//!
//! # Invariants
//! A pure function of the frozen schema and what is asked for. What is below a null is null. Every
//! name of the output is there once.
//!
//! # Cost
//! Nothing for a column with another name. A member copies validity, a key compares all keys.
//!
//! # Not here
//! Reading the text (`projection`); what is read of sources (`pick`).

use std::sync::Arc;

use arrow_array::builder::UInt32Builder;
use arrow_array::{Array, ArrayRef, BooleanArray, MapArray, Scalar, StructArray, UInt32Array};
use arrow_array::{make_array, new_null_array};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema, SchemaRef};
use arrow_select::{nullif::nullif, take::take};

use super::constant::constant;
use super::convert::{Convert, Rules};
use super::fingerprint::fingerprint;
use super::pick::{PickItem, Picks};
use super::policy::SchemaPolicy;
use super::projection::{OutputColumn, Reach, Want};
use super::unify::{list_item, only_nulls, with_item};
use plait_base::{Error, Kind, Result, type_text};

/// From columns of the frozen schema to those of the output.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    of: SchemaRef,
    schema: SchemaRef,
    fingerprint: String,
    columns: Vec<Selected>,
}

/// One column of the output.
#[derive(Clone, Debug)]
struct Selected {
    /// The column of the frozen schema.
    from: usize,
    how: Derived,
}

#[derive(Clone, Debug)]
enum Derived {
    /// Members of it, or all.
    Converted(Convert),
    /// What is at the end of a path below it.
    Reached(Vec<ResolvedStep>),
}

/// A step of a path, resolved.
#[derive(Clone, Debug)]
enum ResolvedStep {
    Member(usize),
    /// The key, as an array of one.
    Key(ArrayRef),
    /// All below is null.
    Nothing,
}

impl Selection {
    /// The selection of `shown` from batches of `schema`, which has a column for each of the `picks`;
    /// none if the output is the schema.
    ///
    /// # Errors
    /// [`Kind::ProjectionError`] when a path demands another form than the column has,
    /// [`Kind::InvalidArgument`] when two columns have one name.
    pub(super) fn of(
        shown: Option<&[OutputColumn]>,
        picks: &Picks,
        schema: &SchemaRef,
        policy: &SchemaPolicy,
    ) -> Result<Option<Arc<Self>>> {
        let Some(shown) = shown else { return Ok(None) };
        let all = schema.fields();
        let star = picks.items.iter().position(|item| *item == PickItem::Star);
        let of_star = (all.len() + 1).saturating_sub(picks.items.len());
        let place = |item: usize| match star {
            Some(star) if item > star => (item + of_star).saturating_sub(1),
            _ => item,
        };
        let (mut fields, mut columns): (Vec<FieldRef>, Vec<Selected>) = (Vec::new(), Vec::new());
        let field = |from: usize| {
            all.get(from).ok_or_else(|| {
                Error::new(Kind::Internal, "schema lacks a column that was asked for")
            })
        };
        for column in shown {
            match column {
                OutputColumn::Star => {
                    for from in star.into_iter().flat_map(|star| star..star + of_star) {
                        fields.push(Arc::clone(field(from)?));
                        columns.push(Selected { from, how: Derived::Converted(Convert::Same) });
                    }
                }
                OutputColumn::Same(item, want) => {
                    let from = place(*item);
                    let of = field(from)?;
                    let made = wanted(of, want, policy);
                    let rules = Rules { policy, refuse_extra: false };
                    let convert = rules.plan(of.data_type(), made.data_type()).map_err(|_| {
                        Error::new(Kind::Internal, "members of a column cannot be taken")
                            .with_column(of.name())
                    })?;
                    fields.push(made);
                    columns.push(Selected { from, how: Derived::Converted(convert) });
                }
                OutputColumn::Other { item, path, name } => {
                    let from = place(*item);
                    let of = field(from)?;
                    let (made, steps) = reached(of, path, policy)?;
                    fields.push(Arc::new(made.as_ref().clone().with_name(name)));
                    columns.push(Selected { from, how: Derived::Reached(steps) });
                }
            }
        }
        one_of_each(&fields, policy)?;
        let fields: Fields = fields.into();
        let fingerprint = fingerprint(&fields);
        let (of, schema) = (Arc::clone(schema), Arc::new(Schema::new(fields)));
        Ok(Some(Arc::new(Self { of, schema, fingerprint, columns })))
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn fingerprint(&self) -> &String {
        &self.fingerprint
    }

    /// Whether it selects from this schema, the very object.
    pub(super) fn is_of(&self, schema: &SchemaRef) -> bool {
        Arc::ptr_eq(&self.of, schema)
    }

    /// The columns of the output, from those of the frozen schema.
    pub(super) fn apply(&self, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let mut made = Vec::with_capacity(self.columns.len());
        for (selected, field) in self.columns.iter().zip(self.schema.fields()) {
            let failed = |e: ArrowError| {
                Error::new(Kind::SourceFailed, "values below a column cannot be taken")
                    .with_column(field.name())
                    .with_cause(e)
            };
            let Some(column) = columns.get(selected.from) else {
                return Err(Error::new(Kind::Internal, "batch lacks a column that was asked for"));
            };
            made.push(match &selected.how {
                Derived::Converted(Convert::Same) => Arc::clone(column),
                Derived::Converted(convert) => {
                    convert.run(column, &mut Vec::new()).map_err(failed)?
                }
                Derived::Reached(steps) => {
                    reach(column, steps, field.data_type()).map_err(failed)?
                }
            });
        }
        Ok(made)
    }

    /// What happens to every column, given what happens to those of the frozen schema.
    pub(super) fn describe(&self, told: &[(String, String)]) -> Vec<(String, String)> {
        let words = |(selected, field): (&Selected, &FieldRef)| {
            let (name, what) = told.get(selected.from).cloned().unwrap_or_default();
            let what = match &selected.how {
                Derived::Converted(Convert::Same) => what,
                Derived::Converted(_) => format!("{what}, members"),
                Derived::Reached(steps) if steps.is_empty() => format!("{what} of `{name}`"),
                Derived::Reached(_) => format!("{what}, below `{name}`"),
            };
            (field.name().clone(), what)
        };
        self.columns.iter().zip(self.schema.fields()).map(words).collect()
    }
}

/// Refuses two columns of one name.
fn one_of_each(fields: &[FieldRef], policy: &SchemaPolicy) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    match fields.iter().find(|field| !seen.insert(policy.key(field.name()))) {
        None => Ok(()),
        Some(field) => Err(Error::new(Kind::InvalidArgument, "two columns get one name")
            .with_column(field.name())
            .with_hint("give one of them another name: `a as b`")),
    }
}

/// Of `field` what is wanted, in the order of the members.
fn wanted(field: &FieldRef, want: &Want, policy: &SchemaPolicy) -> FieldRef {
    let ty = field.data_type();
    if want.whole || want.members.is_empty() || only_nulls(ty) {
        return Arc::clone(field);
    }
    let made = match (ty, list_item(ty)) {
        (_, Some(item)) => with_item(ty, wanted(item, want, policy)),
        (DataType::Struct(fields), _) => {
            let member =
                |want: &Want| Some(wanted(named(fields, &want.name, policy)?.1, want, policy));
            DataType::Struct(want.members.iter().filter_map(member).collect())
        }
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(made))
}

fn named<'a>(
    fields: &'a Fields,
    name: &str,
    policy: &SchemaPolicy,
) -> Option<(usize, &'a FieldRef)> {
    let key = policy.key(name);
    fields.iter().enumerate().find(|(_, field)| policy.key(field.name()) == key)
}

/// The field at the end of `path`, and its steps.
fn reached(
    of: &FieldRef,
    path: &[Reach],
    policy: &SchemaPolicy,
) -> Result<(FieldRef, Vec<ResolvedStep>)> {
    let ty = of.data_type();
    let form = |demands: &str| {
        Error::new(Kind::ProjectionError, format!("path demands {demands}"))
            .with_column(of.name())
            .with_got(format!("type `{}`", type_text(ty)))
            .with_hint("ask for the column itself")
    };
    let Some((first, rest)) = path.split_first() else { return Ok((Arc::clone(of), Vec::new())) };
    if only_nulls(ty) {
        return Ok((Arc::clone(of), vec![ResolvedStep::Nothing]));
    }
    if let Some(item) = list_item(ty) {
        let (below, steps) = reached(item, path, policy)?;
        let item = Arc::new(below.as_ref().clone().with_name(item.name()));
        let field = of.as_ref().clone().with_data_type(with_item(ty, item));
        return Ok((Arc::new(field), steps));
    }
    let (step, below, may_be_null) = match (first, ty) {
        (Reach::Member(name), DataType::Struct(fields)) => {
            let (at, member) = named(fields, name, policy).ok_or_else(|| {
                Error::new(Kind::UnknownColumn, "column is in no source")
                    .with_column(format!("{}.{name}", of.name()))
            })?;
            (ResolvedStep::Member(at), Arc::clone(member), of.is_nullable())
        }
        (Reach::Key(text), DataType::Map(entries, _)) => {
            let DataType::Struct(pair) = entries.data_type() else { return Err(form("a map")) };
            let [key, value] = &pair[..] else { return Err(form("a map")) };
            (ResolvedStep::Key(constant(text, key)?), Arc::clone(value), true)
        }
        (Reach::Member(_), _) => return Err(form("a struct")),
        (Reach::Key(_), _) => return Err(form("a map")),
    };
    let (field, steps) = reached(&below, rest, policy)?;
    let nullable = field.is_nullable() || may_be_null;
    let field = Arc::new(field.as_ref().clone().with_nullable(nullable));
    Ok((field, std::iter::once(step).chain(steps).collect()))
}

/// The values at the end of `steps`, of type `ty`.
fn reach(column: &ArrayRef, steps: &[ResolvedStep], ty: &DataType) -> Result<ArrayRef, ArrowError> {
    let Some((first, rest)) = steps.split_first() else { return Ok(Arc::clone(column)) };
    if matches!(first, ResolvedStep::Nothing) {
        return Ok(new_null_array(ty, column.len()));
    }
    if let (Some(_), Some(item)) = (list_item(column.data_type()), list_item(ty)) {
        let data = column.to_data();
        let items = make_array(data.child_data().first().ok_or_else(misplanned)?.clone());
        let child = vec![reach(&items, steps, item.data_type())?.to_data()];
        return Ok(make_array(
            data.into_builder().data_type(ty.clone()).child_data(child).build()?,
        ));
    }
    let any = column.as_any();
    match (first, any.downcast_ref::<StructArray>(), any.downcast_ref::<MapArray>()) {
        (ResolvedStep::Member(at), Some(structs), _) => {
            let member = structs.columns().get(*at).ok_or_else(misplanned)?;
            let member = match structs.nulls().filter(|nulls| nulls.null_count() > 0) {
                Some(nulls) => nullif(member, &BooleanArray::new(!nulls.inner(), None))?,
                None => Arc::clone(member),
            };
            reach(&member, rest, ty)
        }
        (ResolvedStep::Key(key), _, Some(maps)) => reach(&values_of(maps, key)?, rest, ty),
        _ => Err(misplanned()),
    }
}

/// Of every map the value of the first entry with the key; null without one.
fn values_of(maps: &MapArray, key: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let found = arrow_ord::cmp::eq(maps.keys(), &Scalar::new(Arc::clone(key)))?;
    let mut rows = UInt32Builder::with_capacity(maps.len());
    for row in 0..maps.len() {
        let range = maps.value_offsets().get(row).zip(maps.value_offsets().get(row + 1));
        let entries = range.filter(|_| maps.is_valid(row)).map(|(start, end)| *start..*end);
        let hit = entries.into_iter().flatten().filter_map(|at| usize::try_from(at).ok());
        let hit = hit.into_iter().find(|at| found.is_valid(*at) && found.value(*at));
        rows.append_option(hit.and_then(|at| u32::try_from(at).ok()));
    }
    let rows: UInt32Array = rows.finish();
    take(maps.values(), &rows, None)
}

fn misplanned() -> ArrowError {
    ArrowError::InvalidArgumentError("column is not of the planned type".to_owned())
}
