//! How a command ends when it does not succeed.
//!
//! Invariant: one way to end for each exit code of `main`; a policy with problems and a command
//! that makes no sense are not the same.

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum End {
    /// The policy has problems, which are told already.
    Problems,
    /// The command cannot be carried out as it was given.
    Misuse(String),
    /// The standard output takes no more, and not because its reader left.
    Unwritten(std::io::Error),
    /// A file cannot be written.
    UnwrittenFile(std::path::PathBuf, std::io::Error),
}
