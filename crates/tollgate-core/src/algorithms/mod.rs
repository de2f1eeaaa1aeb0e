//! One file per algorithm: its formula, its bound and its source.

pub(crate) mod gcra;
