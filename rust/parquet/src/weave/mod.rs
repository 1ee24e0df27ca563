//! Copies rows, leaf by leaf: *steps* (packed runs of a window) in, one encoded column chunk out.
//!
//! ```text
//! steps      (0, 4) (1, 1) (0, 6) …
//! source 0   … ▓▓ ▓ …            cursors: blocks of pages
//! source 1   ░ …
//! chunk      ▓▓ ░ ▓ ──▶ pages    as ids of one dictionary, as plain values, or as they are stored
//! ```
//!
//! # Invariants
//! No other module of a merge copies rows. Rows of one source are taken in order, so every source is
//! read once and forward. The chunk has exactly as many rows as the steps. It depends on the sources
//! and the options, never on threads.
//!
//! # Cost
//! One page of every source that has rows in the window; the packed chunk. Pages that windows share
//! stay open between them as far as a share of the memory limit allows.
//!
//! # Not here
//! Deciding the order (`plait_core::plan`); splicing whole row groups (`chunk`).

mod carried;
mod context;
mod cursor;
mod cursors;
mod dictionaries;
mod footers;
mod gather;
mod lanes;
mod output;
mod rows;
mod share;
mod sorted;
mod tiers;
mod unions;

use std::sync::Arc;

use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::file::properties::WriterVersion;
use plait_core::packed_runs::PackedRuns;
use plait_core::{Error, Kind, Result};

use crate::block::Layout;
use crate::block::reader::United;
use crate::encode::Chunk;
use crate::encode::chunk::PageRules;
use crate::encode::statistics::Cut;
use crate::encode::values::ValueEncoding;
use crate::leaf::OutputLeaf;
use crate::spill::{SpillBuffer, Waiting};

use context::LeafContext;
use cursors::SourceCursors;
use output::{OwnPages, RowOrder};
use sorted::{Collecting, collect};
use unions::UnionOutcome;

pub(crate) use context::{TriedEncodings, WeaveContext};
pub(crate) use footers::LeafFooters;
pub(crate) use rows::{LeafRows, MadeRows};
pub(crate) use share::{PageTask, SharedWork};
pub(crate) use tiers::Tiers;

/// Rows that are fewer than this share of those among which they lie get a dictionary of their own
/// values: uniting those of the sources, which have the values of all rows, costs more.
const FEW_ROWS_SHARE: u64 = 8;

/// How the pages of a chunk are made.
enum Make {
    /// Here; ids are those of the united dictionary.
    Own(Option<Arc<United>>, OwnPages),
    /// By the parquet crate.
    Foreign,
}

/// Weaves one leaf of some output row groups that follow each other: a chunk for each of `windows`.
/// With `share`, other threads help to pack and unpack pages.
///
/// # Errors
/// Whatever is wrong with a source or with the storage for waiting chunks.
pub(crate) fn weave(
    weaving: &WeaveContext,
    output: &OutputLeaf,
    windows: &mut [LeafRows<'_>],
    waiting: &Arc<Waiting>,
    share: Option<&dyn SharedWork>,
) -> Result<Vec<Chunk>> {
    let codec = weaving.properties.compression(output.descr.path());
    let mut leaf = LeafContext {
        weaving,
        output,
        layout: Layout::of(&output.descr),
        united: None,
        batch_rows: weaving.footers.batch_rows(output.index),
        splices: weaving.footers.splices(output.index),
        is_ours: true,
        share,
    };
    let mut cursors = SourceCursors::new(
        weaving.sources.len(),
        windows.iter().map(|rows| &**rows),
        weaving.carried.take(output.index),
        &weaving.context,
    );
    let mut chunks = Vec::with_capacity(windows.len());
    for rows in windows {
        let (steps, made) = rows.parts();
        let make = how(weaving, output, steps, 1, leaf.splices, &mut cursors)?;
        let spill = SpillBuffer::new(waiting);
        leaf.is_ours = !matches!(make, Make::Foreign);
        let rules = rules(weaving, output, codec);
        let chunk = match make {
            Make::Foreign => {
                leaf.united = None;
                output::foreign(&leaf, RowOrder::Woven(&mut cursors, steps, made), spill)?
            }
            Make::Own(united, pages) => {
                leaf.united = united;
                let rows = RowOrder::Woven(&mut cursors, steps, made);
                output::ours(&leaf, rows, rules, pages, spill)?
            }
        };
        chunks.push(counted(chunk, output, steps.rows())?);
    }
    weaving.carried.keep(output.index, cursors, &weaving.context);
    Ok(chunks)
}

/// Sorts one leaf: a chunk for each run of the rows of `steps`, which are numbered as they come there.
/// `None` if the rows take more than `bytes_max` bytes of memory.
///
/// # Errors
/// As [`weave`].
pub(crate) fn weave_sorted(
    weaving: &WeaveContext,
    output: &OutputLeaf,
    rows: RowsToSort<'_>,
    waiting: &Arc<Waiting>,
    share: Option<&dyn SharedWork>,
) -> Result<Option<Vec<Chunk>>> {
    let RowsToSort { steps, order, runs, bytes_max } = rows;
    let codec = weaving.properties.compression(output.descr.path());
    let splices: &[bool] = &[]; // rows of a page do not stay together
    let mut cursors =
        SourceCursors::new(weaving.sources.len(), [steps].into_iter(), None, &weaving.context);
    let lie_in: u64 = steps.taken().map(|taken| taken.end - taken.start).sum();
    let wants_dictionary = weaving.properties.dictionary_enabled(output.descr.path());
    let make = match steps.rows().saturating_mul(FEW_ROWS_SHARE) < lie_in {
        true if wants_dictionary || !can_be_ours(output) => Make::Foreign,
        true => Make::Own(None, OwnPages::Plain),
        false => how(weaving, output, steps, runs.len(), splices, &mut cursors)?,
    };
    let is_ours = !matches!(make, Make::Foreign);
    let (united, pages) = match make {
        Make::Foreign => (None, OwnPages::Plain),
        Make::Own(united, pages) => (united, pages),
    };
    let leaf = LeafContext {
        weaving,
        output,
        layout: Layout::of(&output.descr),
        united,
        batch_rows: weaving.footers.batch_rows(output.index),
        splices,
        is_ours,
        share,
    };
    let (held, _charge) = match collect(&leaf, &mut cursors, steps, bytes_max)? {
        Collecting::Held(held, charge) => (held, charge),
        Collecting::TooLarge => return Ok(None),
    };
    drop(cursors);
    held.check(order)?;
    // Some page may have had values that are not in the dictionary.
    let pages = if held.has_ids() { pages } else { OwnPages::Plain };
    let mut chunks = Vec::with_capacity(runs.len());
    let mut rest = order;
    for rows in runs {
        let len = usize::try_from(*rows).unwrap_or(usize::MAX);
        let Some((order, behind)) = rest.split_at_checked(len) else { break };
        rest = behind;
        let (spill, rows_sorted) = (SpillBuffer::new(waiting), RowOrder::Sorted(&held, order));
        let chunk = match is_ours {
            false => output::foreign(&leaf, rows_sorted, spill)?,
            true => {
                let rules = rules(weaving, output, codec);
                output::ours(&leaf, rows_sorted, rules, pages.clone(), spill)?
            }
        };
        chunks.push(counted(chunk, output, *rows)?);
    }
    match rest.is_empty() && chunks.len() == runs.len() {
        true => Ok(Some(chunks)),
        false => Err(Error::new(Kind::Internal, "runs have other rows than their order")),
    }
}

/// Rows that are to be sorted.
#[derive(Clone, Copy)]
pub(crate) struct RowsToSort<'a> {
    /// The rows as they lie.
    pub(crate) steps: &'a PackedRuns,
    /// Their numbers, in order, run by run.
    pub(crate) order: &'a [u32],
    /// How many rows each run has.
    pub(crate) runs: &'a [u64],
    /// Most bytes that the rows of one leaf may take.
    pub(crate) bytes_max: usize,
}

/// `chunk`, if it has so many rows.
fn counted(chunk: Chunk, output: &OutputLeaf, rows: u64) -> Result<Chunk> {
    if chunk.close.rows_written == rows {
        return Ok(chunk);
    }
    Err(Error::new(Kind::Internal, "a woven chunk has another number of rows than its runs")
        .with_column(output.descr.path().string())
        .with_got(format!("{} rows instead of {rows}", chunk.close.rows_written)))
}

/// How the pages of so many chunks of the rows of `steps` are made; `splices` says whose pages may be
/// kept as they are.
fn how(
    weaving: &WeaveContext,
    output: &OutputLeaf,
    steps: &PackedRuns,
    chunks: usize,
    splices: &[bool],
    cursors: &mut SourceCursors,
) -> Result<Make> {
    let plain = || Make::Own(None, OwnPages::Plain);
    let path = output.descr.path();
    let is_boolean = output.descr.physical_type() == Physical::BOOLEAN;
    let is_special = !matches!(weaving.properties.encoding(path), None | Some(Encoding::PLAIN));
    let is_foreign = is_special && !is_boolean && weaving.encodings.is_none();
    if is_foreign || !can_be_ours(output) {
        return Ok(Make::Foreign);
    }
    let wants_dictionary = weaving.properties.dictionary_enabled(path);
    if is_boolean || (!wants_dictionary && weaving.asked_dictionary.is_some()) {
        return Ok(plain());
    }
    let otherwise = match wants_dictionary {
        true if !weaving.tiers.dict => Make::Foreign,
        true => match dictionaries::unite(weaving, output, steps, chunks)? {
            UnionOutcome::Pays(united, ids) => {
                return Ok(Make::Own(Some(united), OwnPages::Ids(ids)));
            }
            UnionOutcome::IsTooLarge => plain(),
            UnionOutcome::IsIncomplete => Make::Foreign,
        },
        false => plain(),
    };
    Ok(match dictionaries::of_owner(weaving, output, steps, splices, cursors)? {
        // The dictionary of the source with most rows.
        Some((united, ids)) => Make::Own(Some(united), OwnPages::PlainWithDictionary(ids)),
        None => otherwise,
    })
}

/// Whether pages of a leaf can be made here: its levels fit a byte.
fn can_be_ours(output: &OutputLeaf) -> bool {
    output.descr.max_def_level() <= i16::from(u8::MAX)
}

fn rules<'a>(weaving: &'a WeaveContext, output: &OutputLeaf, codec: Compression) -> PageRules<'a> {
    let properties = &weaving.properties;
    let zstd = weaving.zstd.as_ref().and_then(|leaves| leaves.get(output.index));
    PageRules {
        rows_max: properties.data_page_row_count_limit().max(1),
        bytes_max: properties.column_data_page_size_limit(output.descr.path()).max(1),
        is_v2: properties.writer_version() == WriterVersion::PARQUET_2_0,
        codec,
        zstd,
        encoding: value_encoding(weaving, output),
        cut: Cut::of(properties),
        statistics: properties.statistics_enabled(output.descr.path()),
        floats: weaving.float_order(output.index),
    }
}

fn value_encoding<'a>(weaving: &'a WeaveContext, output: &OutputLeaf) -> Option<ValueEncoding<'a>> {
    let tried = weaving.encodings.as_ref()?;
    let chosen = tried.chosen.get(output.index)?;
    Some(ValueEncoding { asked: tried.asked, chosen })
}
