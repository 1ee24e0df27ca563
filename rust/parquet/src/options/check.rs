//! What is wrong with options, whatever the sources.
//!
//! # Invariants
//! Options that exclude each other are refused; none is ignored.
//!
//! # Not here
//! Whether columns are there (`plan`).

use plait_core::{Error, Kind, Result};

use super::choices::{UnsortedOption, VerifyOrder, VerifyPages};
use super::merge::{BloomFilter, MergeOptions};

/// Values of a column that a footer lists at most.
const VALUES_MAX: u64 = 1 << 16;

impl MergeOptions {
    /// Checks what can be checked without files.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming the option.
    pub(crate) fn check(&self) -> Result<()> {
        if self.sources.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "there is nothing to merge")
                .with_hint("name at least one file, folder, glob or URL"));
        }
        self.check_values()
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming the option.
    pub(crate) fn check_values(&self) -> Result<()> {
        let bad = |what: String| Err(Error::new(Kind::InvalidArgument, what));
        let sizes = [
            ("outputs", self.outputs),
            ("target_file_size", self.target_file_size),
            ("target_rows", self.target_rows),
        ];
        let asked: Vec<&str> =
            sizes.iter().filter(|(_, size)| size.is_some()).map(|(name, _)| *name).collect();
        if asked.len() > 1 {
            return bad(format!("`{}` and `{}` exclude each other", asked[0], asked[1]));
        }
        let positive = [
            ("row_group_size", Some(self.row_group_size)),
            ("row_group_rows", Some(self.row_group_rows)),
            ("page_size", Some(self.page_size)),
            ("page_rows", Some(self.page_rows)),
        ];
        for (name, size) in sizes.iter().chain(&positive) {
            if *size == Some(0) {
                return bad(format!("`{name}` must be at least 1"));
            }
        }
        check_threads(self.threads)?;
        check_memory_limit(self.memory_limit)?;
        self.check_drops()?;
        for (column, BloomFilter { fpp, ndv }) in &self.bloom_filters {
            if !(1e-6..=0.5).contains(fpp) || *ndv == Some(0) {
                return Err(Error::new(Kind::InvalidArgument, "`bloom_filters` is invalid")
                    .with_column(column)
                    .with_got(format!("fpp {fpp}, ndv {ndv:?}"))
                    .with_hint("give an fpp from 0.000001 to 0.5, and an ndv of at least 1"));
            }
        }
        for (column, most) in &self.value_sets {
            if most.is_some_and(|most| !(1..=VALUES_MAX).contains(&most)) {
                return Err(Error::new(Kind::InvalidArgument, "`value_sets` is invalid")
                    .with_column(column)
                    .with_got(format!("max {}", most.unwrap_or_default()))
                    .with_hint(format!("give a max from 1 to {VALUES_MAX}")));
            }
        }
        if self.assume_sorted && self.unsorted != UnsortedOption::Error {
            return bad("`unsorted` and `assume_sorted` exclude each other".into());
        }
        if self.data_page_version.is_some_and(|v| v != 1 && v != 2) {
            return bad("`data_page_version` must be 1 or 2".into());
        }
        self.check_server_side_copy()?;
        self.check_partitions()
    }

    /// What needs the bytes of outputs, or of their pages.
    fn check_server_side_copy(&self) -> Result<()> {
        let needs_bytes = [
            ("verify_pages=\"unpack\"", self.verify_pages == VerifyPages::Unpack),
            ("verify=\"content\"", self.verify.is_some()),
            ("sha256", self.sha256),
        ];
        match needs_bytes.into_iter().find(|(_, is_asked)| *is_asked && self.server_side_copy) {
            None => Ok(()),
            Some((name, _)) => {
                let what = format!("`server_side_copy` and `{name}` exclude each other");
                Err(Error::new(Kind::InvalidArgument, what)
                    .with_hint("bytes that the store copies itself are not seen"))
            }
        }
    }

    /// Rows of different partitions must not get into one file.
    fn check_partitions(&self) -> Result<()> {
        if self.partition_by.is_empty() {
            return Ok(());
        }
        let excluded = [
            ("outputs", self.outputs.is_some(), "give target_rows or target_file_size"),
            ("assume_sorted", self.assume_sorted, "the order of all rows has to be checked"),
            (
                "verify_order=\"bounds\"",
                self.verify_order == VerifyOrder::Bounds,
                "the order of all rows has to be checked",
            ),
        ];
        match excluded.into_iter().find(|(_, is_asked, _)| *is_asked) {
            None => Ok(()),
            Some((name, _, hint)) => {
                let what = format!("`partition_by` and `{name}` exclude each other");
                Err(Error::new(Kind::InvalidArgument, what).with_hint(hint))
            }
        }
    }

    fn check_drops(&self) -> Result<()> {
        self.asked_drops().check()?;
        if self.verify.is_some() && !self.keeps_all() {
            return Err(Error::new(
                Kind::InvalidArgument,
                "`verify` compares all rows, but other options drop some",
            )
            .with_hint("leave it out: rows that were dropped are counted by reason"));
        }
        Ok(())
    }
}

/// Below this the engine cannot hold a page of each of a few sources.
const MEMORY_LIMIT_MIN: u64 = 16_000_000;

/// Checks an option `threads`.
///
/// # Errors
/// [`Kind::InvalidArgument`] for none, and for more than are of use.
pub(crate) fn check_threads(threads: Option<usize>) -> Result<()> {
    let what = match threads {
        Some(0) => "`threads` must be at least 1",
        Some(1025..) => "`threads` must be at most 1024",
        _ => return Ok(()),
    };
    Err(Error::new(Kind::InvalidArgument, what))
}

/// Refuses a limit within which no call works.
pub(crate) fn check_memory_limit(bytes: u64) -> Result<()> {
    if bytes >= MEMORY_LIMIT_MIN {
        return Ok(());
    }
    Err(Error::new(Kind::InvalidArgument, "`memory_limit` is too small")
        .with_got(format!("{bytes} bytes"))
        .with_hint(format!("give at least {} MB", MEMORY_LIMIT_MIN / 1_000_000)))
}
