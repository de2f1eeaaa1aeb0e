//! The ways in which a command fails.
//!
//! Invariant: one variant per exit code of `main`; a policy with problems and a command that makes
//! no sense are different errors.

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The policy has problems, which are already reported.
    Problems,
    /// The command cannot be run with these arguments.
    Misuse(String),
    /// Writing to the standard output failed, and not because its reader closed it.
    Output(std::io::Error),
    /// A file cannot be written.
    OutputFile(std::path::PathBuf, std::io::Error),
}
