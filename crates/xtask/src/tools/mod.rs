//! The table of tools: name, version, reason, how to detect it, how to install it.
//!
//! Invariant: an installed tool is never downloaded again, and only requested ones are installed.

pub mod apt;
pub mod cargo_tools;
pub mod compose;
pub mod envoy;
pub mod limiters;
pub mod node;
mod npm;
pub mod page;
pub mod place;
pub mod python;
mod tool;
pub mod types;

use crate::{
    problem::{OrProblem, Problem, Result},
    progress::{Board, Job},
    versions,
    workspace::Workspace,
};
use place::State;
use std::{
    fs::{self, File},
    thread,
};
pub use tool::{Lane, Tool};

/// The common part of all packages of the distribution.
const PACKAGED: Tool = Tool {
    name: "",
    version: "distribution's",
    needed_for: "",
    by_hand: "",
    lane: Lane::Download,
    check: |_| State::Missing,
    install: |_, _| Ok(()),
};

pub static WASM_TARGET: Tool = Tool {
    name: "rust wasm target",
    version: versions::WASM_TARGET,
    needed_for: "build",
    by_hand: "rustup target add wasm32-unknown-unknown",
    lane: Lane::Compile,
    check: cargo_tools::check_target,
    install: cargo_tools::install_target,
};

pub static WASM_BINDGEN: Tool = Tool {
    name: "wasm-bindgen",
    version: versions::WASM_BINDGEN,
    needed_for: "build worker",
    by_hand: "see whether cargo reaches its registry",
    lane: Lane::Compile,
    check: cargo_tools::check_bindgen,
    install: cargo_tools::install_bindgen,
};

pub static PAGE_BINDGEN: Tool = Tool {
    name: "wasm-bindgen, page",
    version: versions::WASM_BINDGEN,
    needed_for: "playground",
    by_hand: "see whether cargo reaches its registry",
    lane: Lane::Compile,
    check: cargo_tools::check_page_bindgen,
    install: cargo_tools::install_page_bindgen,
};

pub static TEST_RUNNER: Tool = Tool {
    name: "wasm test runner",
    version: versions::WASM_BINDGEN,
    needed_for: "test wasm, test browser",
    by_hand: "see whether cargo reaches its registry",
    lane: Lane::Compile,
    check: cargo_tools::check_test_runner,
    install: cargo_tools::install_test_runner,
};

pub static NIGHTLY: Tool = Tool {
    name: "rust nightly",
    version: versions::NIGHTLY,
    needed_for: "fuzz, test fuzz",
    by_hand: "install Rust through rustup and see whether it reaches its server",
    lane: Lane::Download,
    check: cargo_tools::check_nightly,
    install: cargo_tools::install_nightly,
};

pub static CARGO_FUZZ: Tool = Tool {
    name: "cargo-fuzz",
    version: versions::CARGO_FUZZ,
    needed_for: "fuzz, test fuzz",
    by_hand: "see whether cargo reaches its registry",
    lane: Lane::Compile,
    check: cargo_tools::check_cargo_fuzz,
    install: cargo_tools::install_cargo_fuzz,
};

pub static NODE: Tool = Tool {
    name: "node packages",
    version: versions::NODE,
    needed_for: "wasm-opt, workerd, wrangler, test wasm",
    by_hand: "install npm (Node 20 or newer) and see whether it reaches its registry",
    lane: Lane::Download,
    check: node::check,
    install: node::install,
};

pub static PAGE: Tool = Tool {
    name: "page packages",
    version: "locked",
    needed_for: "playground, test browser",
    by_hand: "install npm (Node 20 or newer) and see whether it reaches its registry",
    lane: Lane::Download,
    check: page::check,
    install: page::install,
};

pub static SCHEMATHESIS: Tool = Tool {
    name: "schemathesis",
    version: "locked",
    needed_for: "test workerd",
    by_hand: "install Python 3.10 or newer with pip and see whether it reaches its index",
    lane: Lane::Download,
    check: |workspace| python::SCHEMATHESIS.check(workspace),
    install: |workspace, job| python::SCHEMATHESIS.install(workspace, job),
};

pub static MANIFESTS: Tool = Tool {
    name: "checkers of manifests",
    version: "locked",
    needed_for: "test server",
    by_hand: "install Python 3.10 or newer with pip and see whether it reaches its index",
    lane: Lane::Download,
    check: |workspace| python::MANIFESTS.check(workspace),
    install: |workspace, job| python::MANIFESTS.install(workspace, job),
};

pub static CYCLONEDX: Tool = Tool {
    name: "cyclonedx",
    version: "locked",
    needed_for: "test release",
    by_hand: "install Python 3.10 or newer with pip and see whether it reaches its index",
    lane: Lane::Download,
    check: |workspace| python::CYCLONEDX.check(workspace),
    install: |workspace, job| python::CYCLONEDX.install(workspace, job),
};

pub static ENVOY: Tool = Tool {
    name: "envoy",
    version: versions::ENVOY,
    needed_for: "up, test envoy",
    by_hand: "install Python 3 with pip and see whether it reaches its index",
    lane: Lane::Download,
    check: |workspace| envoy::CURRENT.check(workspace),
    install: |workspace, job| envoy::CURRENT.install(workspace, job),
};

pub static OLDER_ENVOYS: Tool = Tool {
    name: "older envoys",
    version: "1.36, 1.37, 1.39",
    needed_for: "test envoy",
    by_hand: "install Python 3 with pip and see whether it reaches its index",
    lane: Lane::Download,
    check: envoy::check_older,
    install: envoy::install_older,
};

pub static NGINX: Tool = Tool {
    name: "nginx",
    needed_for: "test envoy, test workerd, test server",
    by_hand: "see whether apt-get download nginx works",
    check: apt::check_nginx,
    install: apt::install_nginx,
    ..PACKAGED
};

pub static CADDY: Tool = Tool {
    name: "caddy",
    needed_for: "test server",
    by_hand: "see whether apt-get download caddy works",
    check: apt::check_caddy,
    install: apt::install_caddy,
    ..PACKAGED
};

pub static REDIS: Tool = Tool {
    name: "redis",
    needed_for: "test fleet, bench fleet",
    by_hand: "see whether apt-get download redis-tools works",
    check: apt::check_redis,
    install: apt::install_redis,
    ..PACKAGED
};

pub static PROMETHEUS: Tool = Tool {
    name: "prometheus",
    needed_for: "test envoy, test workerd",
    by_hand: "see whether apt-get download prometheus works",
    check: apt::check_prometheus,
    install: apt::install_prometheus,
    ..PACKAGED
};

pub static REGISTRY: Tool = Tool {
    name: "docker-registry",
    needed_for: "test envoy",
    by_hand: "see whether apt-get download docker-registry works",
    check: apt::check_registry,
    install: apt::install_registry,
    ..PACKAGED
};

pub static CHROMIUM: Tool = Tool {
    name: "chromium",
    needed_for: "test browser",
    by_hand: "apt-get install chromium chromium-driver",
    check: |_| apt::check_programs(&["chromium", "chromedriver"]),
    install: |_, job| apt::install(&["chromium", "chromium-driver"], job),
    ..PACKAGED
};

pub static DOCKER: Tool = Tool {
    name: "docker",
    needed_for: "test compose",
    by_hand: "apt-get install docker.io",
    check: |_| apt::check_programs(&["docker", "dockerd"]),
    install: compose::install_docker,
    ..PACKAGED
};

pub static COMPOSE: Tool = Tool {
    name: "docker compose",
    version: "2 or newer",
    needed_for: "test compose",
    by_hand: "install the docker compose plugin, version 2",
    lane: Lane::Download,
    check: compose::check,
    install: compose::install,
};

pub static STAND_IN: Tool = Tool {
    name: "envoy image (stand-in)",
    version: versions::ENVOY,
    needed_for: "test compose",
    by_hand: "apt-get install mmdebstrap",
    lane: Lane::Download,
    check: envoy::check_stand_in,
    install: envoy::install_stand_in,
};

pub static WRK: Tool = Tool {
    name: "wrk",
    needed_for: "bench",
    by_hand: "apt-get install wrk",
    check: |_| apt::check_programs(&["wrk"]),
    install: |_, job| apt::install(&["wrk"], job),
    ..PACKAGED
};

pub static H2LOAD: Tool = Tool {
    name: "h2load",
    needed_for: "load",
    by_hand: "apt-get install nghttp2-client",
    check: |_| apt::check_programs(&["h2load"]),
    install: |_, job| apt::install(&["nghttp2-client"], job),
    ..PACKAGED
};

pub static VALGRIND: Tool = Tool {
    name: "valgrind",
    needed_for: "bench",
    by_hand: "apt-get install valgrind",
    check: |_| apt::check_programs(&["valgrind"]),
    install: |_, job| apt::install(&["valgrind"], job),
    ..PACKAGED
};

pub static ALL: [&Tool; 28] = [
    &WASM_TARGET,
    &WASM_BINDGEN,
    &PAGE_BINDGEN,
    &TEST_RUNNER,
    &NIGHTLY,
    &CARGO_FUZZ,
    &NODE,
    &PAGE,
    &types::TOOL,
    &SCHEMATHESIS,
    &MANIFESTS,
    &CYCLONEDX,
    &limiters::NODE,
    &limiters::PYTHON,
    &ENVOY,
    &OLDER_ENVOYS,
    &NGINX,
    &CADDY,
    &PROMETHEUS,
    &REGISTRY,
    &REDIS,
    &CHROMIUM,
    &DOCKER,
    &COMPOSE,
    &STAND_IN,
    &WRK,
    &H2LOAD,
    &VALGRIND,
];

pub static FOR_ENVOY_BUILD: &[&Tool] = &[&WASM_TARGET, &NODE];
pub static FOR_WORKER_BUILD: &[&Tool] = &[&WASM_TARGET, &WASM_BINDGEN, &NODE];
pub static FOR_PLAYGROUND: &[&Tool] = &[&WASM_TARGET, &PAGE_BINDGEN, &NODE, &PAGE];
pub static FOR_UP: &[&Tool] = &[&WASM_BINDGEN, &NODE, &ENVOY];
pub static FOR_UP_ALL: &[&Tool] = &[&WASM_BINDGEN, &PAGE_BINDGEN, &NODE, &PAGE, &ENVOY];

/// Installs those of `wanted` that are missing, showing progress; quiet and quick otherwise.
pub fn ensure(workspace: &Workspace, wanted: &[&'static Tool]) -> Result<()> {
    match missing(workspace, wanted).is_empty() {
        true => Ok(()),
        false => {
            let board = Board::default();
            board.during(|| ensure_on(&board, workspace, wanted))
        }
    }
}

/// The same in parallel with other jobs.
pub fn ensure_on(board: &Board, workspace: &Workspace, wanted: &[&'static Tool]) -> Result<()> {
    if missing(workspace, wanted).is_empty() {
        return Ok(());
    }
    let folder = workspace.cache.join("tools");
    let fix = "set TOLLGATE_CACHE to a folder that can be written";
    fs::create_dir_all(&folder).or_problem("cannot create the tool cache", fix)?;
    let lock = File::create(folder.join(".lock")).or_problem("cannot lock the tool cache", fix)?;
    if lock.try_lock().is_err() {
        board.say("another xtask is installing tools; waiting for it");
        lock.lock().or_problem("cannot lock the tool cache", fix)?;
    }
    let missing = missing(workspace, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    board.say(&format!("installing {} tool(s) into {} (once)", missing.len(), folder.display()));
    let problems = thread::scope(|scope| {
        let lanes = [Lane::Compile, Lane::Download].map(|lane| {
            let missing = &missing;
            scope.spawn(move || install_lane(workspace, board, missing, lane))
        });
        lanes.map(|lane| lane.join().unwrap_or_else(|_| vec![crashed()]))
    });
    problems.into_iter().flatten().next().map_or(Ok(()), Err)
}

fn missing(workspace: &Workspace, wanted: &[&'static Tool]) -> Vec<&'static Tool> {
    let is_missing = |tool: &&&'static Tool| !matches!((tool.check)(workspace), State::Present(_));
    wanted.iter().filter(is_missing).copied().collect()
}

fn install_lane(ws: &Workspace, board: &Board, tools: &[&Tool], lane: Lane) -> Vec<Problem> {
    let mut problems = Vec::new();
    for tool in tools.iter().filter(|tool| tool.lane == lane) {
        let log = ws.logs().join(format!("{}.log", tool.name.replace(' ', "-")));
        let job = Job::new(format!("{} {}", tool.name, tool.version), log);
        let installed = board.job(job, ["installing", "installed"], tool.needed_for, |job| {
            install_one(ws, tool, job)
        });
        if let Err(problem) = installed {
            eprintln!("{problem}");
            problems.push(problem);
        }
    }
    problems
}

fn install_one(workspace: &Workspace, tool: &Tool, job: &Job) -> Result<()> {
    (tool.install)(workspace, job)?;
    match (tool.check)(workspace) {
        State::Present(_) => Ok(()),
        state => Err(Problem::new(
            format!("{} was installed but is not usable", tool.name),
            format!("looking again found: {state:?}"),
            tool.by_hand,
        )),
    }
}

fn crashed() -> Problem {
    Problem::new("an installation crashed", "see above", "report it with what was printed above")
}
