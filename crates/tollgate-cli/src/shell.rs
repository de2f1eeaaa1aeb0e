//! Data about this command for shells and `man`.
//!
//! Invariant: everything is generated from the declaration of the command line (`args`), so nothing
//! is written twice.

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Arguments;
use crate::error::CommandError;
use crate::output;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), CommandError> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "tollgate", &mut text);
    output::raw(&String::from_utf8_lossy(&text))
}

/// Prints a manual page: of the whole command, or of one subcommand.
pub(crate) fn man(command: Option<&str>) -> Result<(), CommandError> {
    let mut whole = Arguments::command();
    whole.build();
    let page = match command {
        None => whole,
        Some(name) => whole.find_subcommand(name).cloned().ok_or_else(|| {
            CommandError::Misuse(format!("{name} is not a command; tollgate --help lists them"))
        })?,
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text).map_err(CommandError::Output)?;
    output::raw(&String::from_utf8_lossy(&text))
}
