//! A file that may have rows, and how files of one schema become rows of the read.
//!
//! # Not here
//! Its windows (`window`); which of its rows may be requested (`prune`).

use std::sync::{Arc, OnceLock};

use arrow_schema::{Fields, Schema};
use plait_core::schema::{Adapter, Frozen};
use plait_core::{Error, Result};

use super::coded::CodedColumns;
use super::fixed::FixedValues;
use super::known::KnownFile;
use super::part::FilePart;
use super::prune::{LocatedCondition, PrunedFile, RowsLeft};
use super::shared::{Conditions, ReadShared};
use crate::arrow_file::FileSchema;
use crate::selection::intersection;

/// A file that may have rows.
pub(super) struct ReadFile {
    pub(super) known: Arc<KnownFile>,
    pub(super) part: Arc<FilePart>,
    pub(super) class: Arc<ReadClass>,
    /// Row groups that may have rows, by the footer.
    pub(super) groups: Box<[usize]>,
    /// What its first key begins with, once that was needed.
    pub(super) first_key: OnceLock<Vec<u8>>,
}

/// What the read makes of files of one class.
pub(super) struct ReadClass {
    pub(super) schema: FileSchema,
    pub(super) located: Vec<LocatedCondition>,
    pub(super) adapted: Adapted,
    /// What it has in columns that files do not have.
    pub(super) fixed: FixedValues,
}

/// The columns of conditions in one file.
#[derive(Clone)]
pub(super) struct Tested {
    pub(super) leaves: Vec<usize>,
    pub(super) adapter: Arc<Adapter>,
    /// How they are read without copying texts, if they can be.
    pub(super) coded: Option<CodedColumns>,
}

impl ReadFile {
    /// What may be asked for, by the file's own word.
    pub(super) fn left(&self, shared: &ReadShared) -> Result<RowsLeft> {
        let find = || {
            let source = &self.known.source;
            let (kept, cache, context) = (&shared.kept, &shared.cache, &shared.context);
            let mut left = self.pruned(shared).rows(source, kept, cache, context)?;
            if !left.rows.is_empty()
                && let Some(part) = self.part.rows(source, cache, context)?
            {
                left.rows = intersection(&left.rows, part);
            }
            Ok(left)
        };
        find().map_err(|e: Error| e.with_path(self.known.path()))
    }

    /// Whether what earlier reads kept says that it has no rows.
    pub(super) fn is_ruled_out(&self, shared: &ReadShared) -> bool {
        self.pruned(shared).is_ruled_out(&shared.kept)
    }

    /// Whether its bloom filters leave it open that it has rows; without any, they do.
    ///
    /// # Errors
    /// What is wrong with the file, with its path.
    pub(super) fn passes_filters(&self, shared: &ReadShared) -> Result<bool> {
        if !self.class.located.iter().any(LocatedCondition::is_filtered) {
            return Ok(true);
        }
        let passes = || {
            shared.context.check_cancelled()?;
            self.known.check_unchanged()?;
            self.pruned(shared).passes(&self.known.source, &shared.kept)
        };
        let passes = passes().map_err(|e: Error| e.with_path(self.known.path()))?;
        if !passes {
            shared.counts.open();
        }
        Ok(passes)
    }

    fn pruned<'a>(&'a self, shared: &'a ReadShared) -> PrunedFile<'a> {
        let conditions = shared.conditions.as_ref().map_or(&[][..], |c| c.filter.conditions());
        let (located, groups) = (&self.class.located, &self.groups);
        PrunedFile { file: &self.known, conditions, located, groups }
    }
}

/// How files of one schema become rows of the read.
#[derive(Clone)]
pub(super) struct Adapted {
    /// The leaves of the columns that are given out or needed.
    pub(super) leaves: Vec<usize>,
    pub(super) adapter: Arc<Adapter>,
    pub(super) tested: Option<Tested>,
}

impl Adapted {
    pub(super) fn of(
        all: &Frozen,
        conditions: Option<&Conditions>,
        schema: &FileSchema,
    ) -> Result<Self> {
        let of = |frozen: &Frozen| -> Result<_> {
            let own = schema.schema();
            let leaves = frozen.leaves(own);
            let fields = read_fields(own.fields(), &leaves);
            Ok((leaves, Arc::new(frozen.adapter_template(&Schema::new(fields))?)))
        };
        let (leaves, adapter) = of(all)?;
        let tested = conditions.map(|conditions| -> Result<_> {
            let (own, adapter) = of(&conditions.frozen)?;
            // Columns that are given out are read once, as they are given out.
            let coded =
                (own != leaves).then(|| CodedColumns::of(conditions, schema, &own)).flatten();
            Ok(Tested { leaves: own, adapter, coded })
        });
        let tested = tested.transpose()?;
        Ok(Self { leaves, adapter, tested })
    }

    /// The same for files that have these values.
    pub(super) fn bound(mut self, fixed: &FixedValues) -> Result<Self> {
        if fixed.all().is_empty() {
            return Ok(self);
        }
        let bind = |adapter: &Adapter| adapter.bind(fixed.all()).map(Arc::new);
        self.adapter = bind(&self.adapter)?;
        if let Some(tested) = &mut self.tested {
            tested.adapter = bind(&tested.adapter)?;
        }
        Ok(self)
    }
}

/// The fields of batches of some leaves: others are left out, structs that lose all of theirs too.
fn read_fields(fields: &Fields, leaves: &[usize]) -> Fields {
    fields.filter_leaves(|leaf, _| leaves.contains(&leaf))
}
