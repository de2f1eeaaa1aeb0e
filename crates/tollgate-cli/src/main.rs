//! `tollgate`: check a policy, explain its decision on one request, simulate traffic against it,
//! replay an access log through it, compile it to bytes, embed it into an Envoy configuration,
//! convert another service's configuration into one, print its schema.
//!
//! Invariant: decisions come from the policy layer; this crate only calls it and phrases the
//! results. Exit codes: 0 good, 1 problems found in a policy or a replay that fails, 2 misuse (also
//! an unreadable file), 3 output that could not be written. The completions for a shell and the
//! manual are generated from the declaration of the command line (`args`). Deliberately not here: a
//! clock that decides anything (one measures how fast a log is read), the network, and anything
//! that changes a running limiter.

mod args;
mod check;
mod client_certificates;
mod command;
mod compile;
mod configuration;
mod convert;
mod curl;
mod embed;
mod error;
mod envoy;
mod explain;
mod filter_modules;
mod input;
mod into;
mod output;
mod output_file;
mod outputs;
mod pk;
mod ratelimit;
mod progress_line;
mod manager;
mod replay;
mod simulate;
mod source;
mod tenants;
mod values;
mod words;
#[cfg(test)]
mod corpora;

use std::process::ExitCode;

use anstream::ColorChoice;
use clap::{CommandFactory as _, Parser as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Arguments, Color, Command};
use crate::error::CommandError;
use crate::output::Page;

/// The exit code when problems were found.
const PROBLEMS: u8 = 1;
/// The exit code for misuse; clap uses the same.
const MISUSE: u8 = 2;
/// The exit code when the output could not be written.
const UNWRITTEN: u8 = 3;

fn main() -> ExitCode {
    let message = match run() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(CommandError::Problems) => return ExitCode::from(PROBLEMS),
        Err(CommandError::Misuse(message)) => message,
        Err(CommandError::Output(error)) => {
            print_error(&format!("cannot write to the standard output: {error}"));
            return ExitCode::from(UNWRITTEN);
        }
        Err(CommandError::OutputFile(path, error)) => {
            print_error(&format!("cannot write {}: {error}", path.display()));
            return ExitCode::from(UNWRITTEN);
        }
    };
    print_error(&message);
    ExitCode::from(MISUSE)
}

fn print_error(message: &str) {
    let mut page = Page::default();
    page.push_styled(output::BAD, "error:");
    page.push_str(&format!(" {message}\n"));
    page.err();
}

fn run() -> Result<(), CommandError> {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => return output::ansi(&help.render().ansi().to_string()),
    };
    match arguments.color {
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    }
    .write_global();
    match arguments.command {
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Compile(args) => compile::run(&args),
        Command::Embed(args) => embed::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Pk(args) => pk::run(&args),
        Command::Schema => output::raw(&tollgate_language::schema()),
        Command::Completions { shell } => completions(shell),
        Command::Man { command } => man(command.as_deref()),
    }
}

/// Prints the completions for a shell.
fn completions(shell: Shell) -> Result<(), CommandError> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "tollgate", &mut text);
    output::raw(&String::from_utf8_lossy(&text))
}

/// Prints a manual page: of the whole command, or of one subcommand.
fn man(command: Option<&str>) -> Result<(), CommandError> {
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
