//! The names of the published packages and files.

/// The packages to publish, in the order of their dependencies.
pub const CRATES: [&str; 6] = [
    "tollgate-core",
    "tollgate-http-syntax",
    "tollgate-storage",
    "tollgate-policy",
    "tollgate-language",
    "tollgate",
];
/// Sums of all other files.
pub const SUMS: &str = "SHA256SUMS";
