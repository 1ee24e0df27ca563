//! The schemas that the files of a read have, each once.
//!
//! # Invariants
//! Files of one class have the same leaves, and the same Arrow types.
//!
//! # Cost
//! One Arrow schema a class.
//!
//! # Not here
//! One schema for all of them (`plait_core::schema`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parquet::arrow::ARROW_SCHEMA_META_KEY;
use plait_core::Result;
use plait_core::schema::{Class, Summary};

use super::known::KnownFile;
use crate::arrow_file::FileSchema;
use crate::plan::CarriedSchema;
use crate::source::Source;

/// The schemas of the files that were opened so far.
#[derive(Default)]
pub(super) struct FileClasses(Mutex<FoundClasses>);

#[derive(Default)]
struct FoundClasses {
    /// By the address of the schema, which is kept in the pool, and the Arrow schema next to it.
    known: HashMap<(usize, Option<String>), usize>,
    schemas: Vec<FileSchema>,
}

impl FileClasses {
    /// The class of a file with a footer in the pool of all.
    ///
    /// # Errors
    /// As [`FileSchema::of`].
    pub(super) fn of(&self, source: &Source) -> Result<usize> {
        let file = source.file();
        let entries = file.key_value_metadata().into_iter().flatten();
        let arrow = entries.into_iter().find(|entry| entry.key == ARROW_SCHEMA_META_KEY);
        let key = (
            Arc::as_ptr(&file.schema_descr_ptr()).addr(),
            arrow.and_then(|entry| entry.value.clone()),
        );
        if let Some(known) = self.lock().known.get(&key) {
            return Ok(*known);
        }
        let schema = FileSchema::of(source)?;
        let mut found = self.lock();
        let next = found.schemas.len();
        let class = *found.known.entry(key).or_insert(next);
        if class == next {
            found.schemas.push(schema);
        }
        Ok(class)
    }

    pub(super) fn into_schemas(self) -> Vec<FileSchema> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).schemas
    }

    fn lock(&self) -> MutexGuard<'_, FoundClasses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all files say of their columns, and before them the plan.
pub(super) fn summary(
    files: &[KnownFile],
    classes: &[FileSchema],
    of_plan: Option<&FileSchema>,
) -> Summary {
    let mut summary = Summary::default();
    if let Some(planned) = of_plan {
        summary.add(Class {
            fields: planned.schema().fields().clone(),
            first: CarriedSchema::NAME.to_owned(),
            sources: 1,
            // A file without rows would not keep a column nullable.
            has_rows: true,
        });
    }
    let mut found: Vec<Option<Class>> = classes.iter().map(|_| None).collect();
    let mut order = Vec::with_capacity(classes.len());
    for file in files {
        let (Some(class), Some(schema)) = (found.get_mut(file.class), classes.get(file.class))
        else {
            continue;
        };
        let class = class.get_or_insert_with(|| {
            order.push(file.class);
            Class {
                fields: schema.schema().fields().clone(),
                first: file.path().to_owned(),
                sources: 0,
                has_rows: false,
            }
        });
        class.sources += 1;
        class.has_rows |= file.source.rows() > 0;
        if file.path() < class.first.as_str() {
            file.path().clone_into(&mut class.first);
        }
    }
    order.into_iter().filter_map(|class| found.get_mut(class)?.take()).for_each(|c| summary.add(c));
    summary
}
