//! First and last keys of small objects, read as these are opened: what opening one brought is gone
//! by the time that a million others are open.
//!
//! ```text
//! open ─ by the schema of the file alone ─▶ first and last key ─┐
//! all files ─▶ one schema, one order ─ the same leaves, as they are, of the same shape? ─ yes ─▶ used
//!                                                                                       └ no ─▶ read
//! ```
//!
//! # Invariants
//! Nothing is an error here. Whoever asks for the keys reads them again, and raises it.
//!
//! # Cost
//! Memory of two keys a file until they are asked for. A schema that the file before had, too, is
//! worked out once.
//!
//! # Not here
//! Keys of other files, and whether keys are believed (`plan::bounds`).

use std::sync::{Arc, Mutex, PoisonError};

use parquet::schema::types::SchemaDescPtr;
use plait_core::key::SortOrder;
use plait_core::{Result, SourceId};

use crate::keys::{KeyLeaves, keys_at};
use crate::leaf::{LocationCache, output_leaves};
use crate::order::{claimed, key_leaves};
use crate::runtime::{Context, MemoryStage};
use crate::schema::{LeafAdapter, Unite, reconcile};
use crate::source::{FileEnds, KeyLayout, Source};
use crate::store::TAIL_BYTES;

/// Reads first and last keys of files that are opened for one merge.
pub(crate) struct EndsReader<'a> {
    order: Option<SortOrder>,
    unite: Unite,
    context: &'a Context,
    last: Mutex<Option<Arc<OwnKeys>>>,
}

/// The key columns of files of one schema.
struct OwnKeys {
    schema: SchemaDescPtr,
    order: SortOrder,
    keys: KeyLeaves,
    layout: Option<Arc<KeyLayout>>,
}

impl<'a> EndsReader<'a> {
    /// In the order `sort_by`, or in that which each file declares; of a merge that unites schemas
    /// by `unite`.
    pub(crate) fn new(sort_by: Option<&str>, unite: Unite, context: &'a Context) -> Self {
        let order = sort_by.map(SortOrder::try_parse).transpose().ok().flatten();
        Self { order, unite, context, last: Mutex::default() }
    }

    /// `source` with its ends, if it is an object of which opening it brought all bytes.
    pub(crate) fn with_ends(&self, source: Source) -> Source {
        if source.store.is_local() || source.store.len() > TAIL_BYTES || source.rows() == 0 {
            return source;
        }
        match self.ends(&source) {
            Ok(Some(ends)) => source.with_ends(ends),
            Ok(None) | Err(_) => source,
        }
    }

    fn ends(&self, source: &Source) -> Result<Option<FileEnds>> {
        let claimed = if self.order.is_none() { claimed(source)? } else { None };
        let Some(order) = self.order.as_ref().or(claimed.as_ref()) else { return Ok(None) };
        let source = Arc::new(source.with_id(SourceId(0)));
        let own = self.own_keys(&source, order)?;
        let Some(layout) = own.layout.clone() else { return Ok(None) };
        let room = self.context.budget().bytes(MemoryStage::PageLocations);
        let cache = Arc::new(LocationCache::new(self.context, room));
        let (first, last) = keys_at(&source, &own.keys, source.span(), &cache, self.context)?;
        Ok(Some(FileEnds { layout, first, last }))
    }

    fn own_keys(&self, source: &Source, order: &SortOrder) -> Result<Arc<OwnKeys>> {
        let schema = source.file().schema_descr_ptr();
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |own: &&Arc<OwnKeys>| Arc::ptr_eq(&own.schema, &schema) && own.order == *order;
        if let Some(own) = last().as_ref().filter(is_same) {
            return Ok(Arc::clone(own));
        }
        let keys = keys_of_one(source, order, &self.unite)?;
        let layout = key_layout(&keys, source.id)?.map(Arc::new);
        let own = Arc::new(OwnKeys { schema, order: order.clone(), keys, layout });
        *last() = Some(Arc::clone(&own));
        Ok(own)
    }
}

/// The key columns of one file, which is the first source, by its own schema.
///
/// # Errors
/// A schema that cannot be merged, or does not have the columns of `order`.
pub(crate) fn keys_of_one(source: &Source, order: &SortOrder, how: &Unite) -> Result<KeyLeaves> {
    let reconciled = reconcile(&[(source.path(), source.file())], how)?;
    key_leaves(order, &reconciled, &output_leaves(&reconciled))
}

/// The first and the last key of `source`, if they were read when it was opened and are the same keys
/// by the schema of all.
pub(crate) fn take_ends(source: &Source, keys: &KeyLeaves) -> Option<(Vec<u8>, Vec<u8>)> {
    let ends = source.take_ends()?;
    let layout = key_layout(keys, source.id).ok()??;
    (*ends.layout == layout).then_some((ends.first, ends.last))
}

/// The leaves of a source that keys are made of; none if values of one are cast or missing.
fn key_layout(keys: &KeyLeaves, source: SourceId) -> Result<Option<KeyLayout>> {
    let mut leaves = Vec::with_capacity(keys.leaves.len());
    for leaf in &keys.leaves {
        let LeafAdapter::Same { leaf, .. } = leaf.adapter(source)? else { return Ok(None) };
        leaves.push(*leaf);
    }
    Ok(Some(KeyLayout { shape: keys.shape.clone(), leaves }))
}
