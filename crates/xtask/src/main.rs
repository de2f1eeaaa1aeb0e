//! `cargo xtask`: the one entry point for building, running and testing Tollgate.
//!
//! Invariant: the same commands run on a laptop and in CI, and every failure contains advice. No
//! shell script contains logic.

mod arguments;
mod bench;
mod build;
mod children;
mod doctor;
mod env;
mod fuzz;
mod linked;
mod load;
mod metadata;
mod notice;
mod problem;
mod progress;
mod release;
mod run;
mod servers;
mod steps;
mod tidy;
mod tools;
mod tried;
mod up;
mod versions;
mod workspace;

use arguments::Asked;
use problem::Result;
use std::process::ExitCode;
use workspace::Workspace;

fn main() -> ExitCode {
    let asked = arguments::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match children::stop_all_on_signal().and_then(|()| dispatch(asked)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("\nerror: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(asked: Asked) -> Result<()> {
    let workspace = Workspace::find();
    match asked {
        Asked::Bench(options) => bench::bench(&workspace, options),
        Asked::Build(products) => {
            products.into_iter().try_for_each(|product| build::build(&workspace, product))
        }
        Asked::Doctor => doctor::doctor(&workspace),
        Asked::Fuzz(options) => fuzz::fuzz(&workspace, options),
        Asked::Load(options) => load::load(&workspace, &options),
        Asked::Notice => notice::write(&workspace),
        Asked::Npm => build::npm::build(&workspace),
        Asked::Playground(port) => playground(&workspace, port),
        Asked::Release(extent) => release::release(&workspace, extent),
        Asked::Test(wanted) => steps::test(&workspace, &wanted),
        Asked::Tidy => tidy::tidy(&workspace),
        Asked::Tools => tools::ensure(&workspace, &tools::ALL),
        Asked::Up(options) => up::up(&workspace, &options),
    }
}

fn playground(workspace: &Workspace, port: Option<u16>) -> Result<()> {
    build::playground::build(workspace)?;
    build::admin_page::build(workspace)?;
    let Some(port) = port else { return Ok(()) };
    servers::files::serve(workspace, port, "/")?;
    println!("\nThe playground: http://127.0.0.1:{port}/ (Ctrl-C ends it)");
    loop {
        std::thread::park();
    }
}
