//! Laws of key bytes, of curves and of ranks, and the examples of the format's page.

use super::*;

mod curve_laws;
mod examples;
mod laws;
mod ranks_laws;
