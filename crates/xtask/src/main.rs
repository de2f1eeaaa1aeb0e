//! `cargo xtask`: the one entry point for building, running and testing Tollgate.
//!
//! Invariant: the same commands run on a laptop and in CI, and every failure says what to do. No
//! shell script holds logic.

mod bench;
mod build;
mod children;
mod doctor;
mod env;
mod fuzz;
mod metadata;
mod notice;
mod problem;
mod progress;
mod run;
mod servers;
mod steps;
mod tidy;
mod tools;
mod up;
mod versions;
mod workspace;

use problem::{Problem, Result};
use std::process::ExitCode;
use workspace::Workspace;

const HELP: &str = "\
cargo xtask <command>

  up [--envoy-port N] [--worker-port N]
                      build both products, start Envoy and workerd with a demo origin
  test [step ...]     run all tests, or the named groups; `test --list` names them
  build [envoy|worker]
                      build the products into target/tollgate/
  bench [core] [policy] [sizes] [envoy] [worker] [--seconds N] [--rounds N]
                      measure decisions and requests, as tables in target/tollgate/bench.md
  fuzz [target ...] [laws] [--seconds N] [--keep]
                      look for inputs that break a law, with fresh seeds; `--keep` adds to the corpora
  tidy                check what docs/style.md says and a machine can see
  notice              write NOTICE anew, after another crate is bundled or another version of one
  doctor              say which tools are there, which are missing, and why they are needed
  tools               install every tool now (others do it when they need one)

Tools are kept in .cache/ (or TOLLGATE_CACHE); after the first run no network is needed.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match children::stop_all_on_signal().and_then(|()| dispatch(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("\nerror: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let workspace = Workspace::find();
    let (command, rest) = match arguments {
        [] => ("help", arguments),
        [command, rest @ ..] => (command.as_str(), rest),
    };
    match command {
        "bench" => bench::bench(&workspace, rest),
        "build" => build::run(&workspace, rest),
        "fuzz" => fuzz::fuzz(&workspace, rest),
        "up" => up::up(&workspace, rest),
        "doctor" => doctor::doctor(&workspace),
        "notice" => notice::write(&workspace),
        "test" => steps::test(&workspace, rest),
        "tidy" => tidy::tidy(&workspace),
        "tools" => tools::ensure(&workspace, &tools::ALL),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => {
            let why = format!("there is no command {other:?}");
            Err(Problem::new("cannot run xtask", why, "see `cargo xtask help`"))
        }
    }
}
