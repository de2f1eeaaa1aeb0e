//! The names of the published packages and files.

/// The packages on crates.io.
pub const CRATES: [&str; 2] = ["tollgate-core", "tollgate-policy"];
/// One version for all packages of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Sums of all other files.
pub const SUMS: &str = "SHA256SUMS";
