//! Which kinds of drift are allowed, and what becomes of them.
//!
//! ```text
//! kind          default   may also be
//! missing       null      error, drop        a column that some sources lack
//! extra         null      error, drop        a column that the given schema does not name
//! widen         cast      error, drop        types that meet in a type that holds both
//! lossy         error     cast, null, drop   types that do not
//! nullability   null      error, cast        null in one source, never null in another
//! struct_field  null      error, drop        as `missing`, of fields inside of structs
//! zone          error     cast, drop         timestamps with and without a time zone
//! ```
//!
//! # Invariants
//! A policy never makes a wrong value: `cast` checks every value it may not be able to keep.
//!
//! # Not here
//! Deciding (`unify`), casting (`convert`).

use plait_base::{Error, Kind, Result};

/// What to do with one kind of drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allow {
    /// Refuse, together with all other conflicts.
    Error,
    /// Fill with nulls, or make nullable.
    Null,
    /// Leave the column out.
    Drop,
    /// Cast, and check every value that may not fit.
    Cast,
}

/// Whether names that differ in case alone are one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// `a` and `A` are two columns.
    #[default]
    Exact,
    /// `a` and `A` are one column; a source with both is a conflict.
    Insensitive,
}

/// What to do with every kind of drift; see the [table](crate::schema::policy).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaPolicy {
    /// A column that some sources lack.
    pub missing: Allow,
    /// A column that the given schema does not name.
    pub extra: Allow,
    /// Types that meet in a type that holds both.
    pub widen: Allow,
    /// Types that meet in none, or in one that may not hold every value.
    pub lossy: Allow,
    /// Nullable in one source and not in another.
    pub nullability: Allow,
    /// A field of a struct that some sources lack.
    pub struct_field: Allow,
    /// Timestamps with and without a time zone.
    pub zone: Allow,
    /// How names are compared.
    pub case: Case,
}

impl Default for SchemaPolicy {
    fn default() -> Self {
        Self {
            missing: Allow::Null,
            extra: Allow::Null,
            widen: Allow::Cast,
            lossy: Allow::Error,
            nullability: Allow::Null,
            struct_field: Allow::Null,
            zone: Allow::Error,
            case: Case::Exact,
        }
    }
}

/// Kinds of drift and what may become of them, the default first.
pub(crate) const KINDS: &[(&str, &[&str])] = &[
    ("missing", &["null", "error", "drop"]),
    ("extra", &["null", "error", "drop"]),
    ("widen", &["cast", "error", "drop"]),
    ("lossy", &["error", "cast", "null", "drop"]),
    ("nullability", &["null", "error", "cast"]),
    ("struct_field", &["null", "error", "drop"]),
    ("zone", &["error", "cast", "drop"]),
];

impl SchemaPolicy {
    /// Sets what becomes of one kind of drift, both by name.
    ///
    /// ```
    /// use plait_core::schema::SchemaPolicy;
    /// use plait_core::schema::policy::Allow;
    /// let policy = SchemaPolicy::default().with("lossy", "cast")?;
    /// assert_eq!(policy.lossy, Allow::Cast);
    /// assert!(SchemaPolicy::default().with("lossy", "ignore").is_err());
    /// # Ok::<(), plait_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a kind or a choice that does not exist.
    pub fn with(mut self, kind: &str, choice: &str) -> Result<Self> {
        let bad = |what: &str, got: &str, choices: Vec<&str>| {
            Error::new(Kind::InvalidArgument, what)
                .with_got(format!("`{got}`"))
                .with_hint(format!("give one of: {}", choices.join(", ")))
        };
        let Some((_, choices)) = KINDS.iter().find(|(name, _)| *name == kind) else {
            let kinds = KINDS.iter().map(|(name, _)| *name).collect();
            return Err(bad("`policy` has no such kind of drift", kind, kinds));
        };
        if !choices.contains(&choice) {
            let what = format!("`policy` has no such choice for `{kind}`");
            return Err(bad(&what, choice, choices.to_vec()));
        }
        let allow = match choice {
            "null" => Allow::Null,
            "drop" => Allow::Drop,
            "cast" => Allow::Cast,
            _ => Allow::Error,
        };
        *match kind {
            "missing" => &mut self.missing,
            "extra" => &mut self.extra,
            "widen" => &mut self.widen,
            "lossy" => &mut self.lossy,
            "nullability" => &mut self.nullability,
            "struct_field" => &mut self.struct_field,
            _ => &mut self.zone,
        } = allow;
        Ok(self)
    }

    /// The policy of sources that must not drift at all, but for the order of columns.
    #[must_use]
    pub fn strict() -> Self {
        Self {
            missing: Allow::Error,
            extra: Allow::Error,
            widen: Allow::Error,
            nullability: Allow::Error,
            struct_field: Allow::Error,
            ..Self::default()
        }
    }

    /// A name as it is compared.
    pub(crate) fn key(&self, name: &str) -> String {
        match self.case {
            Case::Exact => name.to_owned(),
            Case::Insensitive => name.to_lowercase(),
        }
    }
}
