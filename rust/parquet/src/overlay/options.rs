//! Options of an overlay, as they come over the border: JSON members are Python's keywords.
//!
//! # Invariants
//! Unknown members are errors.

use std::collections::BTreeMap;

use plait_core::overlay::{FieldPath, Mark, OverlayRules, StructValidity};
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::options::Tier;

/// A path of fields: text, or names.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum PathOption {
    /// Text, as `a.b`.
    Text(String),
    /// Names from the root.
    Names(Vec<String>),
}

impl PathOption {
    fn path(&self) -> Result<FieldPath> {
        match self {
            Self::Text(text) => FieldPath::try_parse(text),
            Self::Names(names) => FieldPath::try_new(names.clone()),
        }
    }
}

/// What identifies a column: its name, or by metadata.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum MarkOption {
    /// Its name.
    Name(String),
    /// Entries of its metadata.
    Metadata(BTreeMap<String, String>),
}

impl From<MarkOption> for Mark {
    fn from(option: MarkOption) -> Self {
        match option {
            MarkOption::Name(name) => Self::Name(name),
            MarkOption::Metadata(entries) => Self::Metadata(entries.into_iter().collect()),
        }
    }
}

/// One layer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LayerOptions {
    /// Its name in messages.
    pub name: String,
    /// What it owns; `None` is every column but its index.
    pub paths: Option<Vec<PathOption>>,
    /// The greater, the stronger.
    pub precedence: i64,
    /// Its files, for `overlay_files`.
    #[serde(default)]
    pub files: Vec<String>,
}

impl LayerOptions {
    /// The paths, read.
    ///
    /// # Errors
    /// [`Kind::InvalidPath`].
    pub(crate) fn paths(&self) -> Result<Option<Vec<FieldPath>>> {
        let read = |paths: &Vec<PathOption>| paths.iter().map(PathOption::path).collect();
        let paths: Option<Result<_>> = self.paths.as_ref().map(read);
        paths.transpose().map_err(|e| e.with_prefix(&format!("layer `{}`", self.name)))
    }
}

/// Options of an overlay.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverlayOptions {
    /// The layers.
    pub layers: Vec<LayerOptions>,
    /// The index column.
    pub index: Option<MarkOption>,
    /// A column of row numbers that is compared, too.
    pub row_number: Option<MarkOption>,
    /// `any` or `all_children`.
    pub struct_validity: String,
    /// Whether layers that supply nothing are compared.
    pub check_unused: bool,
    /// Rows of a batch.
    #[serde(default)]
    pub batch_rows: Option<usize>,
}

impl OverlayOptions {
    /// The same for the core.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`].
    pub(crate) fn options(&self) -> Result<OverlayRules> {
        let mut options = OverlayRules::default();
        options.index = self.index.clone().map(Mark::from);
        options.row_number = self.row_number.clone().map(Mark::from);
        options.check_unused = self.check_unused;
        options.batch_rows = self.batch_rows;
        options.struct_validity = match self.struct_validity.as_str() {
            "any" => StructValidity::Any,
            "all_children" => StructValidity::AllChildren,
            other => {
                return Err(Error::new(Kind::InvalidArgument, "`struct_validity` is unknown")
                    .with_got(format!("`{other}`"))
                    .with_hint("choose `any` or `all_children`"));
            }
        };
        Ok(options)
    }
}

/// How the index columns of files are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Check {
    /// Before the first byte is written.
    #[default]
    Upfront,
    /// After the last byte, before the output gets its name.
    After,
}

/// Options of an overlay of files.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OverlayFilesOptions {
    /// Layers, index and the rest.
    pub overlay: OverlayOptions,
    /// The output: one path that ends in `.parquet`.
    pub out: String,
    /// When index columns are compared.
    pub check: Check,
    /// Copy tiers that may be used.
    pub copy_tiers: Vec<Tier>,
    /// Bytes of memory to stay within.
    pub memory_limit: u64,
    /// Settings of object stores.
    #[serde(default)]
    pub storage_options: BTreeMap<String, String>,
}
