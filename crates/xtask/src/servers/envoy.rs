//! Real Envoy with a configuration, and the shipped configuration adapted to this machine.
//!
//! Invariant: the shipped files are only changed where they name a place (addresses, ports, the
//! path of the filter), and a place that is not found is an error, never silently skipped.

use super::{STOP_TIMEOUT, Server, log_to};
use crate::{
    children::{self, Stop},
    files,
    problem::{Problem, Result},
    run,
    tools::envoy::{CURRENT, Release},
    workspace::Workspace,
};
use std::{path::PathBuf, process::Command};

/// Where the shipped configuration expects the filter.
pub const SHIPPED_FILTER: &str = "/etc/envoy/tollgate-envoy.wasm";

/// One Envoy to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names its files in `target/tollgate/run/`; unique among those running.
    pub name: &'static str,
    /// The bootstrap as YAML or JSON.
    pub config: String,
    /// A port and path that respond once it is up.
    pub ready: (u16, &'static str),
    pub concurrency: u32,
}

/// Ports of the adapted shipped configuration.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    pub ingress: u16,
    pub admin: u16,
    pub origin: u16,
}

pub fn start(workspace: &Workspace, options: Options) -> Result<Server> {
    let config = write_config(workspace, options.name, &options.config)?;
    let log = config.with_extension("log");
    let mut command = Command::new(CURRENT.binary(workspace));
    command.arg("-c").arg(&config).args(["--log-level", "warn", "--use-dynamic-base-id"]);
    command.args(["--concurrency", &options.concurrency.to_string(), "--drain-time-s", "1"]);
    log_to(&mut command, &log)?;
    let running = children::spawn(&mut command, Stop::Leader(STOP_TIMEOUT))?;
    let (port, path) = options.ready;
    Server { name: options.name, port, running, log }.wait_until_ready(port, path)
}

/// Lets Envoy check a configuration; it really loads and configures the filter.
pub fn validate(workspace: &Workspace, envoy: Release, name: &str, config: &str) -> Result<()> {
    let config = write_config(workspace, name, config)?;
    let mut command = Command::new(envoy.binary(workspace));
    command.args(["--mode", "validate", "--log-level", "warn", "-c"]).arg(config);
    run::output(&mut command, "correct the configuration or the filter").map(drop)
}

fn write_config(workspace: &Workspace, name: &str, text: &str) -> Result<PathBuf> {
    let folder = workspace.out.join("run");
    let path = folder.join(format!("{name}.yaml"));
    files::write(&path, text)?;
    Ok(path)
}

/// `envoy/envoy.yaml` with this machine's filter and these ports, on loopback.
pub fn shipped_config(workspace: &Workspace, ports: Ports) -> Result<String> {
    let text = files::text(workspace.root.join("envoy/envoy.yaml"))?;
    let filter = workspace.envoy_wasm().display().to_string();
    let replacements = [
        (SHIPPED_FILTER.to_owned(), filter),
        (address("0.0.0.0", 10000), address("127.0.0.1", ports.ingress)),
        (address("127.0.0.1", 9901), address("127.0.0.1", ports.admin)),
        (address("origin", 8000), address("127.0.0.1", ports.origin)),
    ];
    replace_once(&text, &replacements, "envoy/envoy.yaml")
}

/// `envoy/origin.yaml` on this loopback port.
pub fn origin_config(workspace: &Workspace, port: u16) -> Result<String> {
    let text = files::text(workspace.root.join("envoy/origin.yaml"))?;
    let replacements = [(address("0.0.0.0", 8000), address("127.0.0.1", port))];
    replace_once(&text, &replacements, "envoy/origin.yaml")
}

fn address(host: &str, port: u16) -> String {
    format!("address: {host}, port_value: {port} }}")
}

fn replace_once(text: &str, replacements: &[(String, String)], file: &str) -> Result<String> {
    let mut text = text.to_owned();
    for (old, new) in replacements {
        if text.matches(old).count() != 1 {
            let why = format!("it must contain {old:?} exactly once");
            let fix = "change it or crates/xtask/src/servers/envoy.rs, so that both agree";
            return Err(Problem::new(format!("cannot adapt {file}"), why, fix));
        }
        text = text.replace(old, new);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_not_found_is_an_error() {
        let swap = [("a".to_owned(), "b".to_owned())];
        assert_eq!(replace_once("x a y", &swap, "f").unwrap(), "x b y");
        assert!(replace_once("x y", &swap, "f").is_err());
        assert!(replace_once("a a", &swap, "f").is_err());
    }

    #[test]
    fn the_shipped_files_can_be_adapted() {
        let workspace = Workspace::find();
        let ports = Ports { ingress: 1, admin: 2, origin: 3 };
        let config = shipped_config(&workspace, ports).unwrap();
        assert!(config.contains("address: 127.0.0.1, port_value: 3 }"));
        assert!(origin_config(&workspace, 4).unwrap().contains("port_value: 4 }"));
    }
}
