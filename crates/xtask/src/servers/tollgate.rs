//! `tollgate-server` with the policy that `fleet/` ships, counting in its own memory.
//!
//! Invariant: every setting but the policy, the ports and the settings that a bench names is the
//! default, as on a first start of the program; the environment of the caller sets none.

use super::{STOP_TIMEOUT, Server, free_port, log_to};
use crate::{
    children::{self, Stop},
    problem::Result,
    workspace::Workspace,
};
use std::{env, path::Path, process::Command};

/// Names of variables that are settings of the server.
const SETTINGS: &str = "TOLLGATE_";

pub fn start(workspace: &Workspace, port: u16) -> Result<Server> {
    start_with(workspace, port, &workspace.root.join("fleet/policy.json"), &[])
}

/// The same with another policy, and settings by the names of their variables.
pub fn start_with(
    workspace: &Workspace,
    port: u16,
    policy: &Path,
    settings: &[(&str, &str)],
) -> Result<Server> {
    let operations = free_port()?;
    let mut command = Command::new(workspace.server());
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with(SETTINGS) {
            command.env_remove(name);
        }
    }
    command.envs(settings.iter().copied());
    command.arg("--policy").arg(policy);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--operations-listen", &format!("127.0.0.1:{operations}")]);
    let log = workspace.out.join("run/tollgate-server.log");
    log_to(&mut command, &log)?;
    let running = children::spawn(&mut command, Stop::Leader(STOP_TIMEOUT))?;
    let server = Server { name: "tollgate-server", port, running, log };
    server.wait_until_ready(operations, "/ready")
}
