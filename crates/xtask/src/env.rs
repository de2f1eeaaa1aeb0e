//! The environment that tools and tests run in; the one place that names its variables.
//!
//! | variable | what it names |
//! |---|---|
//! | `TOLLGATE_ENVOY_BIN` | the Envoy binary |
//! | `TOLLGATE_WORKERD_BIN` | the workerd binary |
//! | `TOLLGATE_NODE_BIN` | the Node 22 binary |
//! | `TOLLGATE_NODE_MODULES` | the folder with wrangler and the other node packages |
//! | `TOLLGATE_NGINX_BIN` | the nginx binary, an origin of tests |
//! | `TOLLGATE_CADDY_BIN` | the Caddy binary, a proxy that asks |
//! | `TOLLGATE_REDIS_BIN` | the redis-server binary |
//! | `TOLLGATE_PROMETHEUS_BIN` | the prometheus binary |
//! | `TOLLGATE_PROMTOOL_BIN` | Prometheus' checker of metrics |
//! | `TOLLGATE_ENVOY_WASM` | the filter as it is shipped, either module |
//! | `TOLLGATE_IMAGES` | the folder with the filter's images |
//! | `TOLLGATE_REGISTRY_BIN` | a registry of images |
//! | `TOLLGATE_CLOCK` | the library that gives a server the clock of a test (`tests/clock`) |
//! | `TOLLGATE_SERVER_BIN` | `tollgate-server` |
//! | `TOLLGATE_WORKER_DIR` | the Worker as it is shipped: `entry.mjs` and the modules it imports |
//! | `TOLLGATE_NPM_PACKAGE` | the npm package, packed |
//! | `TOLLGATE_SCHEMATHESIS` | the folder with the Python packages of schemathesis |
//! | `TOLLGATE_TYPES_MODULES` | the folder with the compiler of TypeScript |
//! | `TOLLGATE_ENVOY_CONFIG` | the shipped `envoy/envoy.yaml` |
//! | `TOLLGATE_DATA` | the folder with the real day of traffic; unset where it is absent |
//!
//! Invariant: a test gets every variable or none, so it can say "run me through `cargo xtask
//! test`".

use crate::{
    tools::{apt, cargo_tools, envoy::Release, npm, python},
    workspace::Workspace,
};
use std::{env, ffi::OsString, path::PathBuf, process::Command};

/// Gives a test the locations of the real servers and the products.
pub fn for_tests<'a>(
    workspace: &Workspace,
    envoy: Release,
    command: &'a mut Command,
) -> &'a mut Command {
    let prometheus = apt::PROMETHEUS.program(workspace);
    command
        .env("TOLLGATE_ENVOY_BIN", envoy.binary(workspace))
        .env("TOLLGATE_WORKERD_BIN", npm::workerd(workspace))
        .env("TOLLGATE_NODE_BIN", npm::node(workspace))
        .env("TOLLGATE_NODE_MODULES", npm::NODE.modules(workspace))
        .env("TOLLGATE_NGINX_BIN", apt::NGINX.program(workspace))
        .env("TOLLGATE_CADDY_BIN", apt::CADDY.program(workspace))
        .env("TOLLGATE_REDIS_BIN", apt::REDIS.program(workspace))
        .env("TOLLGATE_PROMETHEUS_BIN", &prometheus)
        .env("TOLLGATE_PROMTOOL_BIN", prometheus.with_file_name("promtool"))
        .env("TOLLGATE_ENVOY_WASM", workspace.envoy_wasm())
        .env("TOLLGATE_IMAGES", workspace.images_dir())
        .env("TOLLGATE_REGISTRY_BIN", apt::REGISTRY.program(workspace))
        .env("TOLLGATE_CLOCK", workspace.clock_library())
        .env("TOLLGATE_SERVER_BIN", workspace.server())
        .env("TOLLGATE_WORKER_DIR", workspace.worker_dir())
        .env("TOLLGATE_NPM_PACKAGE", workspace.npm_package())
        .env("TOLLGATE_SCHEMATHESIS", python::SCHEMATHESIS.path(workspace))
        .env("TOLLGATE_TYPES_MODULES", npm::TYPES.modules(workspace))
        .env("TOLLGATE_ENVOY_CONFIG", workspace.root.join("envoy/envoy.yaml"));
    if let Ok(data) = workspace.root.join("../shared/data").canonicalize() {
        command.env("TOLLGATE_DATA", data);
    }
    with_tools(workspace, command)
}

/// Puts our node and test runner first in PATH and keeps every tool away from the network.
pub fn with_tools<'a>(workspace: &Workspace, command: &'a mut Command) -> &'a mut Command {
    command
        .env("PATH", path(workspace))
        .env("WRANGLER_SEND_METRICS", "false")
        .env("CLOUDFLARE_CF_FETCH_ENABLED", "false")
        // Seconds in the browser; a busy machine is not a failure.
        .env("WASM_BINDGEN_TEST_TIMEOUT", "120")
        .env("CI", "true") // wrangler asks no questions
}

fn path(workspace: &Workspace) -> OsString {
    let ours = [npm::bin(workspace), cargo_tools::TEST_RUNNER.bin(workspace)];
    let inherited = env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = ours.into_iter().chain(env::split_paths(&inherited)).collect();
    env::join_paths(all).unwrap_or(inherited)
}
