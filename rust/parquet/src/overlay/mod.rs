//! Layers that are files.

pub mod options;
