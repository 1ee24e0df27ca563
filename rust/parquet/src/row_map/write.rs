//! Writes a row map while a merge runs.
//!
//! ```text
//! push(source, fate, rows) ─▶ pages of ids ─ so many rows ─▶ row group ─▶ temp file
//! ```
//!
//! # Invariants
//! Row groups end after a number of rows, so that a map depends on the merge alone.
//!
//! # Cost
//! Two pages under construction, and the packed pages of a row group.
//!
//! # Not here
//! Which rows (`merge`); the name of the file (`map_file`).

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Repetition, Type as Physical, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type, TypePtr};
use plait_core::Result;

use super::Fate;
use super::map_file::MapHeader;
use crate::block::{Dictionary, Layout};
use crate::encode::chunk::{ChunkWriter, PackedPage, PageRules, pack};
use crate::encode::floats::FloatOrder;
use crate::encode::id_runs::IdRuns;
use crate::encode::ids::Ids;
use crate::encode::pack::Packers;
use crate::encode::statistics::Cut;
use crate::output::TempFile;
use crate::page::unwrap_error;
use crate::runtime::{Charge, Context};
use crate::sink::{Finished, Output, append};
use crate::spill::{ScratchFiles, SpillBuffer, Waiting};

/// Rows of a page, and of a row group: 256 kB of ids of sixteen sources.
const PAGE_ROWS: usize = 128 << 10;
const GROUP_ROWS: usize = 4 * PAGE_ROWS;

/// The names of the columns.
pub(super) const COLUMNS: [&str; 2] = ["source", "fate"];

/// Ids hardly shrink where sources alternate at random, and to nothing where they do in turn.
const LEVEL: i32 = 1;

/// A map that is written and waits for its name.
pub(crate) struct FinishedMap {
    /// The file.
    pub(crate) temp: TempFile,
}

/// One of the two columns.
struct MapColumn {
    descr: ColumnDescPtr,
    ids: Arc<Ids>,
    page: IdRuns,
    pages: Vec<PackedPage>,
}

impl MapColumn {
    /// A column of numbers below `len`.
    fn new(descr: ColumnDescPtr, len: usize) -> Result<Self> {
        let numbers: Vec<u8> = (0..len as u32).flat_map(u32::to_le_bytes).collect();
        let dictionary = Dictionary::new(Layout::Fixed(size_of::<u32>()), numbers.into(), len)?;
        let ids = Arc::new(Ids::new(Arc::new(dictionary), None));
        Ok(Self { descr, ids, page: IdRuns::new(len), pages: Vec::new() })
    }
}

/// A map while it is written.
pub(crate) struct RowMapWriter {
    header: MapHeader,
    output: Output,
    columns: [MapColumn; 2],
    rules: PageRules<'static>,
    packers: Packers,
    waiting: Arc<Waiting>,
    group_rows: usize,
    kept: u64,
    charge: Charge,
}

impl RowMapWriter {
    /// Makes `temp` the map that `header` tells of; `scratch` is a folder for what waits.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    pub(crate) fn create(
        header: MapHeader,
        temp: TempFile,
        scratch: &Path,
        context: &Context,
    ) -> Result<Self> {
        let schema = schema()?;
        let descrs = SchemaDescriptor::new(Arc::clone(&schema));
        let codec = Compression::ZSTD(ZstdLevel::try_new(LEVEL).map_err(unwrap_error)?);
        let properties = WriterProperties::builder()
            .set_created_by(format!("plait version {}", env!("CARGO_PKG_VERSION")))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_compression(codec)
            .build();
        let rules = PageRules {
            rows_max: PAGE_ROWS,
            bytes_max: usize::MAX,
            is_v2: false,
            codec,
            zstd: None,
            encoding: None,
            cut: Cut::of(&properties),
            statistics: EnabledStatistics::Chunk,
            floats: FloatOrder::Total,
        };
        let columns = [
            MapColumn::new(descrs.column(0), header.sources.len().max(1))?,
            MapColumn::new(descrs.column(1), Fate::COUNT)?,
        ];
        let waiting =
            Arc::new(Waiting::new(&ScratchFiles::new(scratch, context), usize::MAX, usize::MAX));
        Ok(Self {
            header,
            output: Output::create(temp, &schema, &Arc::new(properties))?,
            columns,
            rules,
            packers: Packers::default(),
            waiting,
            group_rows: 0,
            kept: 0,
            charge: context.charge(0),
        })
    }

    /// What became of the next `rows` rows of `source`.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    #[inline]
    pub(crate) fn push(&mut self, source: u32, fate: Fate, rows: u64) -> Result<()> {
        if fate == Fate::Kept {
            self.kept += rows;
        }
        let mut left = rows;
        while left > 0 {
            let room = PAGE_ROWS - self.columns[0].page.rows();
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(room);
            self.columns[0].page.push(source, now);
            self.columns[1].page.push(fate as u32, now);
            left -= now as u64;
            if now == room {
                self.end_page()?;
            }
        }
        Ok(())
    }

    #[cold]
    fn end_page(&mut self) -> Result<()> {
        self.group_rows += self.columns[0].page.rows();
        let codec = self.rules.codec.into();
        for column in &mut self.columns {
            if let Some(raw) = column.page.take(&column.descr)? {
                column.pages.push(pack(raw, codec, self.rules.is_v2, &self.packers)?);
            }
        }
        let held = |column: &MapColumn| {
            let pages = column.pages.iter().map(PackedPage::memory_size).sum::<usize>();
            pages + column.page.memory_size()
        };
        self.charge.set(self.columns.iter().map(held).sum());
        match self.group_rows >= GROUP_ROWS {
            true => self.end_group(),
            false => Ok(()),
        }
    }

    fn end_group(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.group_rows) as u64;
        if rows == 0 {
            return Ok(());
        }
        let Self { output, columns, rules, packers, waiting, .. } = self;
        output.write_group(rows, |group| {
            for column in columns {
                let (ids, sink) = (Arc::clone(&column.ids), SpillBuffer::new(waiting));
                let mut chunk = ChunkWriter::new(&column.descr, *rules, packers, Some(ids), sink);
                column.pages.drain(..).try_for_each(|page| chunk.write(page))?;
                append(group, chunk.close()?, FloatOrder::Total)?;
            }
            Ok(())
        })?;
        self.charge.set(0);
        Ok(())
    }

    /// Ends the map.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    pub(crate) fn finish(mut self) -> Result<FinishedMap> {
        self.end_page()?;
        self.end_group()?;
        let header = MapHeader { rows: self.kept, ..self.header };
        let Finished { temp, .. } = self.output.finish(&[header.entry()?])?;
        Ok(FinishedMap { temp })
    }
}

/// Two columns of numbers.
fn schema() -> Result<TypePtr> {
    let column = |name: &str| {
        Type::primitive_type_builder(name, Physical::INT32)
            .with_repetition(Repetition::REQUIRED)
            .build()
            .map(Arc::new)
            .map_err(unwrap_error)
    };
    let fields = COLUMNS.iter().map(|name| column(name)).collect::<Result<Vec<_>>>()?;
    let root = Type::group_type_builder("row_map").with_fields(fields).build();
    root.map(Arc::new).map_err(unwrap_error)
}
