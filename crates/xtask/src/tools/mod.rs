//! The table of tools: name, version, reason, how to detect it, how to install it.
//!
//! Invariant: an installed tool is never downloaded again, and only requested ones are installed.

pub mod apt;
pub mod cargo_tools;
pub mod compose;
pub mod cross;
pub mod envoy;
pub mod npm;
pub mod place;
pub mod python;
mod tool;

use crate::{
    files,
    problem::{OrProblem, Problem, Result},
    progress::{Board, Job},
    versions,
    workspace::Workspace,
};
use std::{fs::File, thread};
pub use tool::Tool;
use tool::{
    Lane, Other,
    Source::{self, Compiled, Installed, Npm, Pip, Unpacked},
};

pub static WASM_TARGET: Tool = Tool::new(
    "rust wasm target",
    "build",
    Source::Other(Other {
        version: versions::WASM_TARGET,
        by_hand: "rustup target add wasm32-unknown-unknown",
        lane: Lane::Compile,
        check: |workspace| cargo_tools::check_target(workspace, versions::WASM_TARGET),
        install: |workspace, job| {
            cargo_tools::install_target(workspace, versions::WASM_TARGET, job)
        },
    }),
);
pub static AARCH64_TARGET: Tool = Tool::new(
    "rust aarch64 target",
    "build module-aarch64",
    Source::Other(Other {
        version: versions::AARCH64_TARGET,
        by_hand: "rustup target add aarch64-unknown-linux-gnu",
        lane: Lane::Compile,
        check: |workspace| cargo_tools::check_target(workspace, versions::AARCH64_TARGET),
        install: |workspace, job| {
            cargo_tools::install_target(workspace, versions::AARCH64_TARGET, job)
        },
    }),
);
pub static AARCH64_LINKER: Tool = Tool::new(
    "gcc for aarch64",
    "build module-aarch64",
    Installed(&["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"], &[cross::LINKER]),
);
pub static QEMU: Tool =
    Tool::new("qemu-user", "test deep", Installed(&["qemu-user"], &[cross::EMULATOR]));

pub static WASM_BINDGEN: Tool =
    Tool::new("wasm-bindgen", "build worker", Compiled(&cargo_tools::WORKER_BINDGEN));
pub static PAGE_BINDGEN: Tool =
    Tool::new("wasm-bindgen, page", "playground", Compiled(&cargo_tools::PAGE_BINDGEN));
pub static TEST_RUNNER: Tool =
    Tool::new("wasm test runner", "test wasm, test browser", Compiled(&cargo_tools::TEST_RUNNER));

pub static NIGHTLY: Tool = Tool::new(
    "rust nightly",
    "fuzz, test fuzz",
    Source::Other(Other {
        version: versions::NIGHTLY,
        by_hand: "install Rust through rustup and see whether it reaches its server",
        lane: Lane::Download,
        check: cargo_tools::check_nightly,
        install: cargo_tools::install_nightly,
    }),
);
pub static NIGHTLY_SOURCES: Tool = Tool::new(
    "rust nightly's sources",
    "test deep",
    Source::Other(Other {
        version: versions::NIGHTLY,
        by_hand: "install Rust through rustup and see whether it reaches its server",
        lane: Lane::Download,
        check: cargo_tools::check_nightly_sources,
        install: cargo_tools::install_nightly_sources,
    }),
);
pub static CARGO_FUZZ: Tool = Tool::new(
    "cargo-fuzz",
    "fuzz, test fuzz",
    Source::Other(Other {
        version: versions::CARGO_FUZZ,
        by_hand: "see whether cargo reaches its registry",
        lane: Lane::Compile,
        check: cargo_tools::check_cargo_fuzz,
        install: cargo_tools::install_cargo_fuzz,
    }),
);

pub static NODE: Tool =
    Tool::new("node packages", "wasm-opt, workerd, wrangler, test wasm", Npm(&npm::NODE));
pub static PAGE: Tool = Tool::new("page packages", "playground, test browser", Npm(&npm::PAGE));
pub static TYPES: Tool = Tool::new("types packages", "test workerd", Npm(&npm::TYPES));
pub static NODE_LIMITERS: Tool = Tool::new("limiters of Node", "bench peers", Npm(&npm::PEERS));

pub static SCHEMATHESIS: Tool =
    Tool::new("schemathesis", "test workerd", Pip(&python::SCHEMATHESIS));
pub static MANIFESTS: Tool =
    Tool::new("checkers of manifests", "test server", Pip(&python::MANIFESTS));
pub static CYCLONEDX: Tool = Tool::new("cyclonedx", "test release", Pip(&python::CYCLONEDX));
pub static PYTHON_LIMITERS: Tool =
    Tool::new("limiters of Python", "bench peers", Pip(&python::LIMITS));

const PIP: &str = "install Python 3 with pip and see whether it reaches its index";
pub static ENVOY: Tool = Tool::new(
    "envoy",
    "up, test envoy",
    Source::Other(Other {
        version: versions::ENVOY,
        by_hand: PIP,
        lane: Lane::Download,
        check: |workspace| envoy::CURRENT.check(workspace),
        install: |workspace, job| envoy::CURRENT.install(workspace, job),
    }),
);
pub static ENVOY_FOR_AARCH64: Tool = Tool::new(
    "envoy for aarch64",
    "test deep",
    Source::Other(Other {
        version: versions::ENVOY,
        by_hand: PIP,
        lane: Lane::Download,
        check: |workspace| envoy::FOR_AARCH64.check(workspace),
        install: |workspace, job| envoy::FOR_AARCH64.install(workspace, job),
    }),
);
pub static OLDER_ENVOYS: Tool = Tool::new(
    "older envoys",
    "test envoy",
    Source::Other(Other {
        version: "1.36, 1.37, 1.39",
        by_hand: PIP,
        lane: Lane::Download,
        check: envoy::check_older,
        install: envoy::install_older,
    }),
);

pub static NGINX: Tool =
    Tool::new("nginx", "test envoy, test workerd, test server", Unpacked(&apt::NGINX));
pub static CADDY: Tool = Tool::new("caddy", "test server", Unpacked(&apt::CADDY));
pub static REDIS: Tool = Tool::new("redis", "test fleet, bench fleet", Unpacked(&apt::REDIS));
pub static PROMETHEUS: Tool =
    Tool::new("prometheus", "test envoy, test workerd", Unpacked(&apt::PROMETHEUS));
pub static REGISTRY: Tool = Tool::new("docker-registry", "test envoy", Unpacked(&apt::REGISTRY));

pub static CHROMIUM: Tool = Tool::new(
    "chromium",
    "test browser",
    Installed(&["chromium", "chromium-driver"], &["chromium", "chromedriver"]),
);
pub static WRK: Tool = Tool::new("wrk", "bench", Installed(&["wrk"], &["wrk"]));
pub static H2LOAD: Tool = Tool::new("h2load", "load", Installed(&["nghttp2-client"], &["h2load"]));
pub static VALGRIND: Tool = Tool::new("valgrind", "bench", Installed(&["valgrind"], &["valgrind"]));
pub static DOCKER: Tool = Tool::new(
    "docker",
    "test compose",
    Source::Other(Other {
        version: "distribution's",
        by_hand: "apt-get install docker.io",
        lane: Lane::Download,
        check: |_| apt::check_programs(&["docker", "dockerd"]),
        install: compose::install_docker,
    }),
);
pub static COMPOSE: Tool = Tool::new(
    "docker compose",
    "test compose",
    Source::Other(Other {
        version: "2 or newer",
        by_hand: "install the docker compose plugin, version 2",
        lane: Lane::Download,
        check: compose::check,
        install: compose::install,
    }),
);
pub static STAND_IN: Tool = Tool::new(
    "envoy image (stand-in)",
    "test compose",
    Source::Other(Other {
        version: versions::ENVOY,
        by_hand: "apt-get install mmdebstrap",
        lane: Lane::Download,
        check: envoy::check_stand_in,
        install: envoy::install_stand_in,
    }),
);

pub static ALL: [&Tool; 33] = [
    &WASM_TARGET,
    &AARCH64_TARGET,
    &AARCH64_LINKER,
    &QEMU,
    &WASM_BINDGEN,
    &PAGE_BINDGEN,
    &TEST_RUNNER,
    &NIGHTLY,
    &NIGHTLY_SOURCES,
    &CARGO_FUZZ,
    &NODE,
    &PAGE,
    &TYPES,
    &SCHEMATHESIS,
    &MANIFESTS,
    &CYCLONEDX,
    &NODE_LIMITERS,
    &PYTHON_LIMITERS,
    &ENVOY,
    &ENVOY_FOR_AARCH64,
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
pub static FOR_AARCH64_BUILD: &[&Tool] = &[&AARCH64_TARGET, &AARCH64_LINKER];
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
    files::make_folder(&folder)?;
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
    wanted.iter().filter(|tool| tool.check(workspace).is_none()).copied().collect()
}

fn install_lane(ws: &Workspace, board: &Board, tools: &[&Tool], lane: Lane) -> Vec<Problem> {
    let mut problems = Vec::new();
    for tool in tools.iter().filter(|tool| tool.lane() == lane) {
        let log = ws.logs().join(format!("{}.log", tool.name.replace(' ', "-")));
        let job = Job::new(format!("{} {}", tool.name, tool.version()), log);
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
    tool.install(workspace, job)?;
    if tool.check(workspace).is_some() {
        return Ok(());
    }
    let what = format!("{} was installed but is not usable", tool.name);
    Err(Problem::new(what, "it is not found in the wanted version", tool.by_hand()))
}

fn crashed() -> Problem {
    Problem::new("an installation crashed", "see above", "report it with what was printed above")
}
