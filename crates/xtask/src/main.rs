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
mod files;
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
mod up;
mod versions;
mod workspace;

use arguments::Task;
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

fn dispatch(asked: Task) -> Result<()> {
    let workspace = Workspace::find();
    match asked {
        Task::Bench(options) => bench::bench(&workspace, &options),
        Task::Build(products) => {
            products.into_iter().try_for_each(|product| build::build(&workspace, product))
        }
        Task::Doctor => doctor::doctor(&workspace),
        Task::Fuzz(options) => fuzz::fuzz(&workspace, options),
        Task::Load(options) => load::load(&workspace, &options),
        Task::Notice => notice::write(&workspace),
        Task::Npm => build::npm::build(&workspace),
        Task::Playground(port) => playground(&workspace, port),
        Task::Release(extent) => release::release(&workspace, extent),
        Task::Test(wanted) => steps::test(&workspace, &wanted),
        Task::Tidy => tidy::tidy(&workspace),
        Task::Tools => tools::ensure(&workspace, &tools::ALL),
        Task::Up(options) => up::up(&workspace, &options),
    }
}

fn playground(workspace: &Workspace, port: Option<u16>) -> Result<()> {
    build::playground::build(workspace)?;
    build::admin_page::build(workspace)?;
    let Some(port) = port else { return Ok(()) };
    let _server = servers::static_files::serve(workspace, port, &workspace.playground_dir())?;
    println!("\nThe playground: http://127.0.0.1:{port}/ (Ctrl-C ends it)");
    loop {
        std::thread::park();
    }
}
