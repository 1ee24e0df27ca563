//! From footers to one schema, or to one error that names every conflict.
//!
//! ```text
//! sources have 2 schema conflicts: column `a`, got these differences:
//!   `a` has incompatible types: INT64 in `x.parquet`, DOUBLE in `y.parquet`
//!   `b` has different field ids: field id 3 in `x.parquet`, field id 4 in `y.parquet`
//! ```
//!
//! # Not here
//! The rules and the words (`plait_core::schema`), what nodes say (`summary`) and become (`tree`,
//! `leaf`, `hints`), `metadata`.
//!
//! # Cost
//! A tree comparison per source; the rest per class of equal schemas, decided once.

use std::collections::HashMap;
use std::sync::Arc;

use parquet::file::metadata::{FileMetaData, KeyValue};
use parquet::schema::types::{SchemaDescriptor, TypePtr};
use plait_core::schema::conflict::{self, Conflict};
use plait_core::schema::{self as core, Request, Summary, freeze};
use plait_core::stream::Unite;
use plait_core::{Error, Kind, Result};

use super::adapt::{LeafAdapter, adapters};
use super::class::{Class, Seen};
use super::metadata::MetadataConflict;
use super::renamed::Renamed;
use super::summary::{columns, fields};
use super::tree::{Builder, without_unknown};
use super::{hints, metadata, renamed};

/// One schema for all sources.
#[derive(Clone, Debug)]
pub(crate) struct Reconciled {
    /// Root of the output schema.
    pub schema: TypePtr,
    /// The same, with its leaves.
    pub descr: Arc<SchemaDescriptor>,
    /// How output leaf `leaf` is made from source `source`: `leaves[source][leaf]`. Sources of
    /// equal schemas share their adapters.
    pub leaves: Arc<Vec<Arc<[LeafAdapter]>>>,
    /// What sources call leaves that the output calls otherwise.
    pub renamed: Vec<Renamed>,
    /// File metadata for the output: what the sources agree on, and the Arrow hint. No key starts
    /// with `plait.`.
    pub metadata: Vec<KeyValue>,
    /// Keys of file metadata that were not simply carried.
    pub metadata_conflicts: Vec<MetadataConflict>,
}

impl Reconciled {
    /// The path in the output of what any source calls `path`; `path` itself if none does.
    ///
    /// # Errors
    /// [`Kind::UnsupportedKey`] for what sources call several leaves.
    pub(crate) fn path(&self, path: &[String]) -> Result<Vec<String>> {
        let mut found = self.renamed.iter().filter(|renamed| renamed.from == path);
        match (found.next(), found.next()) {
            (None, _) => Ok(path.to_vec()),
            (Some(one), None) => Ok(one.to.clone()),
            (Some(one), Some(other)) => {
                let what = "column has a name that several columns have";
                Err(Error::new(Kind::UnsupportedKey, what)
                    .with_column(path.join("."))
                    .with_got(format!("`{}` and `{}`", one.to.join("."), other.to.join(".")))
                    .with_hint("name it as the output does"))
            }
        }
    }
}

impl Reconciled {
    /// As [`path`](Self::path), where `path` may be that of a column of several leaves.
    ///
    /// # Errors
    /// As [`path`](Self::path).
    pub(crate) fn column_path(&self, path: &[String]) -> Result<Vec<String>> {
        let found = self.path(path)?;
        let has = |name: &String| self.schema.get_fields().iter().any(|field| field.name() == name);
        let [name] = found.as_slice() else { return Ok(found) };
        let renamed = self.renamed.iter().find(|renamed| renamed.from.first() == Some(name));
        Ok(match renamed.and_then(|renamed| renamed.to.first()) {
            Some(to) if !has(name) => vec![to.clone()],
            _ => found,
        })
    }
}

/// Reconciles the schemas of `sources`, given as path and footer.
///
/// # Errors
/// [`Kind::SchemaConflict`] naming all conflicts; [`Kind::InvalidArgument`] without sources.
pub(crate) fn reconcile(sources: &[(&str, &FileMetaData)], how: &Unite) -> Result<Reconciled> {
    let (classes, class_of, seen) = classify(sources);
    let mut summary = Summary::default();
    for class in &classes {
        summary.add(core::Class {
            fields: class.fields.clone(),
            first: class.first.to_owned(),
            sources: class.sources,
            has_rows: class.has_rows,
        });
    }
    let frozen = freeze(&summary, &Request { policy: how.policy(), ..Request::default() })?;
    let unsaid =
        |e| Error::new(Kind::Unsupported, "merged schema cannot be expressed").with_cause(e);
    let mut builder = Builder::new(&classes, &frozen);
    let root = builder.root().map_err(unsaid)?;
    let mut conflicts: Vec<Conflict> = builder.conflicts;
    let Some(root) = root.filter(|_| conflicts.is_empty()) else {
        return Err(conflict::error(&conflicts));
    };
    let schema = without_unknown(&root.ty).map_err(unsaid)?;
    let descr = Arc::new(SchemaDescriptor::new(Arc::clone(&schema)));
    let adapted: Vec<Arc<[LeafAdapter]>> = classes
        .iter()
        .enumerate()
        .map(|(i, class)| Ok(adapters(&root, i, class.descr)?.into()))
        .collect::<Result<_>>()?;
    let renamed = renamed::find(classes.iter().map(|class| class.descr).zip(&adapted), &descr);
    let unchanged: Vec<bool> = classes.iter().map(|c| equal(c.descr, &descr)).collect();
    let unchanged: Vec<bool> =
        class_of.iter().map(|c| unchanged.get(*c).copied().unwrap_or(false)).collect();
    let (mut metadata, metadata_conflicts) =
        metadata::merge(sources, &unchanged, how.metadata, &mut conflicts);
    if !conflicts.is_empty() {
        return Err(conflict::error(&conflicts));
    }
    let hint = hints::merge(sources, &seen, &root, &descr, &metadata);
    metadata.extend(hint);
    let share = |class: &usize| adapted.get(*class).cloned().unwrap_or_else(|| Arc::new([]));
    Ok(Reconciled {
        schema,
        descr,
        leaves: Arc::new(class_of.iter().map(share).collect()),
        renamed,
        metadata,
        metadata_conflicts,
    })
}

/// The classes by the least path of each, the class of every source, and the hints.
fn classify<'a>(sources: &[(&'a str, &'a FileMetaData)]) -> (Vec<Class<'a>>, Vec<usize>, Seen) {
    let mut trees: Vec<&SchemaDescriptor> = Vec::new();
    let mut read: HashMap<(usize, Option<&str>), usize> = HashMap::new();
    let mut classes: Vec<(usize, Class<'a>)> = Vec::new();
    let mut class_of = Vec::with_capacity(sources.len());
    let mut seen = Vec::new();
    for (path, footer) in sources {
        let descr = footer.schema_descr();
        let tree = trees.iter().position(|t| equal(t, descr)).unwrap_or_else(|| {
            trees.push(descr);
            trees.len() - 1
        });
        let hint = hints::hint_of(footer);
        let at = *read.entry((tree, hint)).or_insert_with(|| {
            let schema = hint.and_then(|hint| hints::arrow(descr, Some(hint)));
            let hinted = schema.as_ref().map(|s| s.fields().clone());
            seen.push(schema);
            let known = classes.iter().position(|(t, c)| *t == tree && c.hinted == hinted);
            known.unwrap_or_else(|| {
                let parts = columns(descr.root_schema(), hinted.as_ref());
                let fields = parts.iter().map(|part| Arc::clone(&part.field)).collect();
                let (has_rows, sources) = (false, 0);
                let first = *path;
                let class = Class { first, descr, hinted, parts, fields, has_rows, sources };
                classes.push((tree, class));
                classes.len() - 1
            })
        });
        if let Some((_, class)) = classes.get_mut(at) {
            class.first = class.first.min(path);
            class.has_rows |= footer.num_rows() > 0;
            class.sources += 1;
        }
        class_of.push(at);
    }
    let mut sorted: Vec<usize> = (0..classes.len()).collect();
    sorted.sort_by_key(|at| classes.get(*at).map(|(_, class)| class.first));
    let mut rank = vec![0; classes.len()];
    for (place, at) in sorted.iter().enumerate() {
        if let Some(rank) = rank.get_mut(*at) {
            *rank = place;
        }
    }
    let mut ranked: Vec<_> = rank.iter().copied().zip(classes).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let classes = ranked.into_iter().map(|(_, (_, class))| class).collect();
    let of = |at: usize| rank.get(at).copied().unwrap_or(0);
    (classes, class_of.into_iter().map(of).collect(), seen)
}

/// Equal but for the name of the root, which says who wrote a file.
fn equal(a: &SchemaDescriptor, b: &SchemaDescriptor) -> bool {
    let (a, b) = (a.root_schema_ptr(), b.root_schema_ptr());
    Arc::ptr_eq(&a, &b) || fields(&a) == fields(&b)
}
