//! `tollgate`: check a policy, explain what it does to one request, print its schema.
//!
//! Invariant: the answer is the policy layer's; this crate only asks and phrases. Exit codes: 0 good, 1
//! problems found in a policy, 2 misuse (also an unreadable file). Deliberately absent: a clock, the
//! network, and anything that changes a running limiter.

mod args;
mod check;
mod explain;
mod output;
mod source;
mod words;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Arguments, Command};

/// Problems found.
const PROBLEMS: u8 = 1;
/// Misuse; clap's own code, too.
const MISUSE: u8 = 2;

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Schema => {
            output::out(&tollgate_policy::schema());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(End::Problems) => ExitCode::from(PROBLEMS),
        Err(End::Misuse(message)) => {
            output::err(&format!("error: {message}\n"));
            ExitCode::from(MISUSE)
        }
    }
}

/// Why a command did not succeed.
#[derive(Debug)]
enum End {
    /// The policy has problems, which are told already.
    Problems,
    /// The command cannot be carried out as it was given.
    Misuse(String),
}
