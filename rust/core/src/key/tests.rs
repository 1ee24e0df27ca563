//! Laws of key bytes and of ranks, and the examples of the format's page.

use super::*;

mod examples;
mod laws;
mod ranks_laws;
