//! Sources one after the other, whose future cannot be seen: which schema is published now?
//!
//! ```text
//! source 0  (a int64!, b utf8)   publish (a int64!, b utf8)
//! source 1  (a int64!)           the same object: b is null, of the type remembered
//! source 2  (a, c)               a change, reported once: `b` is gone, `c` is new
//! ```
//!
//! # Invariants
//! While there is no change, every schema is the very same object. A change is reported, or refused, and
//! never silent: a published schema is only kept where it carries all data of the source.
//!
//! # Not here
//! Reading (`plait_parquet::scan`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::adapter::{Adapter, Value, can_be_empty};
use super::freeze::{DEFAULT, Request, freeze};
use super::frozen::{Decision, Frozen, Origin};
use super::selection::Selection;
use super::summary::Summary;
use plait_base::{Error, Kind, Result, type_text};

/// The published schema changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The source that brought it.
    pub source: String,
    /// What was published before.
    pub before: SchemaRef,
    /// What is published from now on.
    pub after: SchemaRef,
    /// What changed, a sentence each.
    pub what: Vec<String>,
}

/// How a source is read.
#[derive(Clone, Debug)]
pub struct Turn {
    /// From its schema to the published one.
    pub adapter: Adapter,
    /// The change that it brings, if any.
    pub change: Option<Change>,
}

/// The published schema, and what is remembered of columns.
#[derive(Clone, Debug)]
pub struct Follow {
    request: Request,
    /// Keep what is published while it carries the data.
    smooth: bool,
    /// Refuse changes.
    refuse: bool,
    /// The type of columns that nobody has a type for.
    null_type: Option<DataType>,
    published: Option<SchemaRef>,
    /// The columns of the output of what is published, if they have other names.
    selection: Option<Arc<Selection>>,
    memory: BTreeMap<String, FieldRef>,
}

impl Follow {
    /// Nothing is published yet. A named column that no source has had yet is null: a later source
    /// may have it.
    #[must_use]
    pub fn new(request: Request, smooth: bool, refuse: bool, null_type: Option<DataType>) -> Self {
        let request = Request { unknown_null: true, ..request };
        Self {
            request,
            smooth,
            refuse,
            null_type,
            published: None,
            selection: None,
            memory: BTreeMap::new(),
        }
    }

    /// The leaves of a source that its turn needs.
    ///
    /// # Errors
    /// As [`freeze`].
    pub fn leaves(&self, source: &Schema, name: &str) -> Result<Vec<usize>> {
        Ok(freeze(&Summary::of(source, name, true), &self.request)?.leaves(source))
    }

    /// What is published: the schema of batches.
    #[must_use]
    pub fn schema(&self) -> Option<&SchemaRef> {
        let selected = self.selection.as_ref().map(|selection| selection.schema());
        selected.or(self.published.as_ref())
    }

    /// The turn of the source `name`.
    ///
    /// # Errors
    /// [`Kind::SchemaChanged`] when changes are refused; as [`freeze`].
    pub fn turn(
        &mut self,
        source: &Schema,
        name: &str,
        values: &[(String, Value)],
    ) -> Result<Turn> {
        let alone = freeze(&Summary::of(source, name, true), &self.request)?;
        let fields: Vec<FieldRef> = alone
            .schema
            .fields()
            .iter()
            .zip(&alone.decision.origins)
            .map(|(field, origin)| match origin {
                Origin::Nowhere => self.remembered(field),
                _ => Arc::clone(field),
            })
            .collect();
        let kept =
            self.published.clone().filter(|published| self.carries(published, &fields, &alone));
        let mut change = None;
        let schema = match kept {
            Some(published) => published,
            None => {
                let after: SchemaRef = Arc::new(Schema::new(fields));
                if let Some(before) = self.published.take() {
                    let what = differences(&before, &after);
                    let found =
                        Change { source: name.to_owned(), before, after: Arc::clone(&after), what };
                    if self.refuse {
                        self.published = Some(found.before);
                        return Err(Error::new(Kind::SchemaChanged, "schema changed")
                            .with_path(name)
                            .with_got(found.what.join("; "))
                            .with_hint("name the columns, give a schema, or allow changes"));
                    }
                    change = Some(found);
                }
                after
            }
        };
        for (field, origin) in alone.schema.fields().iter().zip(&alone.decision.origins) {
            if matches!(origin, Origin::Source(_)) {
                self.memory.insert(self.request.policy.key(field.name()), Arc::clone(field));
            }
        }
        self.published = Some(Arc::clone(&schema));
        let mut frozen = self.frozen(alone, source, schema);
        let is_selected = self.selection.as_ref().is_some_and(|known| known.is_of(&frozen.schema));
        if !is_selected {
            let Decision { shown, picks, .. } = &frozen.decision;
            let policy = &self.request.policy;
            self.selection = Selection::of(shown.as_deref(), picks, &frozen.schema, policy)?;
        }
        frozen.selection.clone_from(&self.selection);
        let adapter = frozen.template(source, true)?.bind(values)?;
        Ok(Turn { adapter, change })
    }

    /// A missing column: as it was in an earlier source, else of the null type.
    fn remembered(&self, field: &Field) -> FieldRef {
        let key = self.request.policy.key(field.name());
        let loose = |known: &FieldRef| {
            let stays = known.is_nullable() || can_be_empty(known.data_type());
            if stays {
                Arc::clone(known)
            } else {
                Arc::new(known.as_ref().clone().with_nullable(true))
            }
        };
        match self.memory.get(&key) {
            Some(known) => loose(known),
            None => match &self.null_type {
                Some(ty) if field.data_type().is_null() => {
                    Arc::new(field.clone().with_data_type(ty.clone()))
                }
                _ => Arc::new(field.clone()),
            },
        }
    }

    /// Whether the published schema carries what a source has, whose fields alone would be `fields`.
    fn carries(&self, published: &Schema, fields: &[FieldRef], alone: &Frozen) -> bool {
        if !self.smooth {
            return published.fields().len() == fields.len()
                && published.fields().iter().zip(fields).all(|(a, b)| a == b);
        }
        let key = |field: &Field| self.request.policy.key(field.name());
        let known = |name: &str| published.fields().iter().any(|f| key(f) == name);
        let find = |name: &str| {
            let at = fields.iter().position(|f| key(f) == name)?;
            Some((fields.get(at)?, alone.decision.origins.get(at)?))
        };
        published.fields().iter().all(|old| match find(&key(old)) {
            Some((new, Origin::Source(_) | Origin::Static(_))) => {
                old.data_type() == new.data_type() && (old.is_nullable() || !new.is_nullable())
            }
            _ => old.is_nullable() || can_be_empty(old.data_type()),
        }) && fields.iter().all(|new| known(&key(new)))
    }

    /// The decision of one source, with the published schema.
    fn frozen(&self, alone: Frozen, source: &Schema, schema: SchemaRef) -> Frozen {
        let held = |key: &str| source.fields().iter().any(|field| alone.key(field) == key);
        let origins = schema
            .fields()
            .iter()
            .map(|field| {
                let name = self.request.policy.key(field.name());
                let same = |f: &FieldRef| self.request.policy.key(f.name()) == name;
                match alone
                    .schema
                    .fields()
                    .iter()
                    .position(same)
                    .and_then(|at| alone.decision.origins.get(at))
                {
                    Some(Origin::Source(key))
                        if !held(key) && !field.metadata().contains_key(DEFAULT) =>
                    {
                        Origin::Nowhere
                    }
                    Some(origin) => origin.clone(),
                    None => Origin::Nowhere,
                }
            })
            .collect();
        let decision = Decision { origins, ..alone.decision };
        Frozen { schema, decision, ..alone }
    }
}

fn differences(before: &Schema, after: &Schema) -> Vec<String> {
    let says = |field: &Field| {
        format!(
            "{}{}",
            type_text(field.data_type()),
            if field.is_nullable() { "" } else { " not null" }
        )
    };
    let mut what = Vec::new();
    for old in before.fields() {
        match after.field_with_name(old.name()) {
            Err(_) => what.push(format!("`{}` is gone", old.name())),
            Ok(new) if new != old.as_ref() => {
                what.push(format!("`{}` was {}, is {}", old.name(), says(old), says(new)));
            }
            Ok(_) => {}
        }
    }
    for new in after.fields() {
        if before.field_with_name(new.name()).is_err() {
            what.push(format!("`{}` is new: {}", new.name(), says(new)));
        }
    }
    if what.is_empty() {
        what.push("columns are in another order".to_owned());
    }
    what
}
