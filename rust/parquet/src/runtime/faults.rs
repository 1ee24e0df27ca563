//! Operations on storage that a test makes fail.

use std::io;

/// Called before every operation on storage with its name; an error makes the operation fail.
pub(crate) type Fault = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// The faults of one call; none outside of tests.
#[derive(Default)]
pub(crate) struct Faults(pub(super) Option<Fault>);

impl Faults {
    /// Fails if a test wants this operation (`read`, `create`, `write`, `spill`, `sync`, `rename`,
    /// `mkdir`) to fail.
    ///
    /// # Errors
    /// What the test chose.
    pub(crate) fn check(&self, operation: &str) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |fault| fault(operation))
    }
}
