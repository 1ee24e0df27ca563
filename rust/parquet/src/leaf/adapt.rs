//! Opens a leaf of a source in the shape of the output: as it is, cast, or made from levels.
//!
//! ```text
//! Same      pages ─▶ map levels
//! Cast      pages ─▶ map levels ─▶ cast values
//! Missing   levels of a sibling ─▶ drop deeper entries ─▶ cap ─▶ map        no values
//! ```
//!
//! # Not here
//! Which adapter a leaf takes (`schema`).

use std::sync::Arc;

use parquet::basic::Type as Physical;
use parquet::data_type::{ByteArrayType, FixedLenByteArrayType, Int32Type};
use parquet::data_type::{DataType, DoubleType, FloatType, Int64Type};
use parquet::schema::types::ColumnDescPtr;
use plait_core::SourceId;
use plait_core::{Error, Kind, Result};

use super::cast;
use super::paged::PagedLeaf;
use super::{Leaf, LocationCache, Span, with_physical};
use crate::runtime::Context;
use crate::schema::{LeafAdapter, LevelMap, Reconciled};
use crate::source::Source;

/// A leaf of the output and how each source gives it.
#[derive(Clone)]
pub(crate) struct OutputLeaf {
    /// The output's descriptor.
    pub descr: ColumnDescPtr,
    /// Its index among the output's leaves.
    pub index: usize,
    /// Adapters of all leaves: `adapters[source][leaf]`.
    pub adapters: Arc<Vec<Arc<[LeafAdapter]>>>,
}

impl OutputLeaf {
    /// How `source` gives this leaf.
    ///
    /// # Errors
    /// [`Kind::Internal`] for a source that was not reconciled.
    pub(crate) fn adapter(&self, source: SourceId) -> Result<&LeafAdapter> {
        let adapters = self.adapters.get(source.index());
        adapters.and_then(|leaves| leaves.get(self.index)).ok_or_else(|| {
            Error::new(Kind::Internal, "source has no adapter for an output leaf")
                .with_column(self.descr.path().string())
        })
    }
}

/// The output's leaves with the adapters of all sources.
pub(crate) fn output_leaves(reconciled: &Reconciled) -> Vec<OutputLeaf> {
    let adapters = Arc::clone(&reconciled.leaves);
    let leaf = |(index, descr): (usize, &Arc<_>)| OutputLeaf {
        descr: Arc::clone(descr),
        index,
        adapters: Arc::clone(&adapters),
    };
    reconciled.descr.columns().iter().enumerate().map(leaf).collect()
}

/// Opens the leaf of `source` at `row`; `T` is the physical type of the output leaf.
///
/// # Errors
/// [`Kind::Internal`] when the adapter does not make values of `T`.
pub(crate) fn open<T: DataType>(
    source: &Arc<Source>,
    output: &OutputLeaf,
    row: u64,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<Box<dyn Leaf<T>>> {
    match output.adapter(source.id)? {
        LeafAdapter::Same { leaf, levels } => {
            Ok(Box::new(PagedLeaf::<T>::new(source, *leaf, levels.clone(), row, cache, context)))
        }
        LeafAdapter::Cast { leaf, levels, cast } => {
            let physical = source.leaf(*leaf).physical_type();
            let name = output.descr.path().string();
            macro_rules! cast_from {
                ($s:ty) => {{
                    let inner =
                        PagedLeaf::<$s>::new(source, *leaf, levels.clone(), row, cache, context);
                    let function = cast::function::<$s, T>(*cast, &output.descr)?;
                    Ok(Box::new(CastLeaf::<$s, T> {
                        inner,
                        function,
                        span: Span::default(),
                        path: source.path().to_owned(),
                        name,
                    }))
                }};
            }
            match physical {
                Physical::INT32 => cast_from!(Int32Type),
                Physical::INT64 => cast_from!(Int64Type),
                Physical::FLOAT => cast_from!(FloatType),
                Physical::DOUBLE => cast_from!(DoubleType),
                Physical::BYTE_ARRAY => cast_from!(ByteArrayType),
                Physical::FIXED_LEN_BYTE_ARRAY => cast_from!(FixedLenByteArrayType),
                other => Err(Error::new(Kind::Internal, "no cast from this physical type")
                    .with_got(other.to_string())),
            }
        }
        LeafAdapter::Missing { sibling, rep_keep, def_cap, levels } => {
            let sibling: Option<Box<dyn ReadLevels>> = match sibling {
                None => None,
                Some(leaf) => {
                    let physical = source.leaf(*leaf).physical_type();
                    with_physical!(physical, S => {
                        let inner = PagedLeaf::<S>::new(
                            source, *leaf, LevelMap::Identity, row, cache, context);
                        Some(Box::new(LevelsOf::<S> { inner, span: Span::default() }) as Box<_>)
                    })
                }
            };
            Ok(Box::new(MissingLeaf {
                sibling,
                rep_keep: *rep_keep,
                def_cap: *def_cap,
                levels: levels.clone(),
                has_rep: output.descr.max_rep_level() > 0,
                rows_left: source.rows().saturating_sub(row),
            }))
        }
    }
}

struct CastLeaf<S: DataType, T: DataType> {
    inner: PagedLeaf<S>,
    function: cast::Function<S, T>,
    span: Span<S::T>,
    path: String,
    name: String,
}

impl<S: DataType, T: DataType> Leaf<T> for CastLeaf<S, T> {
    fn read(&mut self, rows: usize, span: &mut Span<T::T>) -> Result<usize> {
        self.span.clear();
        let read = self.inner.read(rows, &mut self.span)?;
        span.rep.extend_from_slice(&self.span.rep);
        span.def.extend_from_slice(&self.span.def);
        for value in &self.span.values {
            let cast = (self.function)(value)
                .map_err(|e| e.with_path(&self.path).with_column(&self.name))?;
            span.values.push(cast);
        }
        Ok(read)
    }
}

/// Levels of a leaf whatever its type.
trait ReadLevels: Send {
    /// Reads up to `rows` rows of levels; both slices have one entry per level.
    fn read(&mut self, rows: usize) -> Result<(usize, &[i16], &[i16])>;
}

struct LevelsOf<S: DataType> {
    inner: PagedLeaf<S>,
    span: Span<S::T>,
}

impl<S: DataType> ReadLevels for LevelsOf<S> {
    fn read(&mut self, rows: usize) -> Result<(usize, &[i16], &[i16])> {
        self.span.clear();
        let read = self.inner.read(rows, &mut self.span)?;
        // A leaf that cannot repeat or cannot be null has no levels: they are all 0.
        let entries = self.span.rep.len().max(self.span.def.len()).max(self.span.values.len());
        self.span.rep.resize(entries, 0);
        self.span.def.resize(entries, 0);
        Ok((read, &self.span.rep, &self.span.def))
    }
}

struct MissingLeaf {
    sibling: Option<Box<dyn ReadLevels>>,
    rep_keep: i16,
    def_cap: i16,
    levels: LevelMap,
    has_rep: bool,
    rows_left: u64,
}

impl<T: DataType> Leaf<T> for MissingLeaf {
    fn read(&mut self, rows: usize, span: &mut Span<T::T>) -> Result<usize> {
        let rows = rows.min(usize::try_from(self.rows_left).unwrap_or(usize::MAX));
        let read = match &mut self.sibling {
            None => {
                span.def.resize(span.def.len() + rows, self.levels.apply(0));
                if self.has_rep {
                    span.rep.resize(span.rep.len() + rows, 0);
                }
                rows
            }
            Some(sibling) => {
                let (read, rep, def) = sibling.read(rows)?;
                for (&rep, &def) in rep.iter().zip(def) {
                    if rep <= self.rep_keep {
                        span.def.push(self.levels.apply(def.min(self.def_cap)));
                        if self.has_rep {
                            span.rep.push(rep);
                        }
                    }
                }
                read
            }
        };
        self.rows_left -= read as u64;
        Ok(read)
    }
}
