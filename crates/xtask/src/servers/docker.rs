//! A Docker engine for the compose test: the running one, or our own with its data in the cache.
//!
//! Invariant: our own engine is stopped when this is dropped. An engine that already runs is used
//! and left alone. The stand-in image is imported only where the official one is absent.

use super::{STOP_TIMEOUT, Server, log_to};
use crate::{
    children::{self, Stop},
    problem::{Problem, Result},
    run,
    tools::{compose, envoy},
    versions::ENVOY_IMAGE,
    workspace::Workspace,
};
use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A usable engine.
#[derive(Debug)]
pub struct Engine {
    workspace: Workspace,
    /// The address of our own engine; `None` when one was running.
    host: Option<String>,
    _own: Option<Server>,
}

impl Engine {
    pub fn start(workspace: &Workspace) -> Result<Self> {
        let workspace = workspace.clone();
        if run::succeeds(compose::docker(&workspace).arg("info").env("DOCKER_API_TIMEOUT", "5")) {
            return Ok(Self { workspace, host: None, _own: None });
        }
        if !rustix::process::geteuid().is_root() {
            let fix = "start Docker, or run this as root";
            return Err(Problem::new("no Docker engine runs", "starting one needs root", fix));
        }
        let folder = workspace.cache.join("docker");
        let host = format!("unix://{}", folder.join("docker.sock").display());
        let log = workspace.logs().join("dockerd.log");
        let mut command = Command::new("dockerd");
        command.arg("--data-root").arg(folder.join("data"));
        command.arg("--exec-root").arg(folder.join("exec"));
        command.arg("--pidfile").arg(folder.join("dockerd.pid")).args(["-H", &host]);
        log_to(&mut command, &log)?;
        let running = children::spawn(&mut command, Stop::Leader(STOP_TIMEOUT * 6))?;
        let own = Server { name: "dockerd", port: 0, running, log };
        let mut engine = Self { workspace, host: Some(host), _own: None };
        engine._own = Some(engine.wait(own)?);
        Ok(engine)
    }

    /// Any command, told to use this engine and our compose plugin.
    pub fn with<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for (name, value) in compose::docker(&self.workspace).get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        if let Some(host) = &self.host {
            command.env("DOCKER_HOST", host);
        }
        command
    }

    pub fn docker(&self) -> Command {
        let mut command = Command::new("docker");
        self.with(&mut command);
        command
    }

    /// Imports the stand-in unless the image is there.
    pub fn provide_image(&self) -> Result<()> {
        if run::succeeds(self.docker().args(["image", "inspect", ENVOY_IMAGE])) {
            return Ok(());
        }
        println!("  importing a stand-in for {ENVOY_IMAGE}");
        let mut import = self.docker();
        import.args(["import", "--change", "EXPOSE 10000"]);
        import.args(["--change", "ENTRYPOINT [\"/docker-entrypoint.sh\"]"]);
        import.args(["--change", "CMD [\"envoy\",\"-c\",\"/etc/envoy/envoy.yaml\"]"]);
        import.arg(envoy::stand_in(&self.workspace)).arg(ENVOY_IMAGE);
        run::output(&mut import, "free disk space").map(drop)
    }

    fn wait(&self, mut own: Server) -> Result<Server> {
        let deadline = Instant::now() + PATIENCE;
        while !run::succeeds(self.docker().arg("info")) {
            own.check_alive()?;
            if Instant::now() > deadline {
                return Err(own.complaint("it did not answer in time"));
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(own)
    }
}
