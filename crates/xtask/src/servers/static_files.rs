//! Python's server of static files on loopback: the playground as any such server would serve it.
//!
//! Invariant: every response has the permissions of the page, as the Worker sends them. A web
//! worker has those of its own file.

use super::{STOP_TIMEOUT, Server, log_to};
use crate::{
    build::playground,
    children::{self, Stop},
    problem::Result,
    workspace::Workspace,
};
use std::{path::Path, process::Command};

const SERVE: &str = include_str!("static-files.py");

/// Serves `folder` until the server is dropped.
pub fn serve(workspace: &Workspace, port: u16, folder: &Path) -> Result<Server> {
    let policy = playground::content_security_policy(workspace)?;
    let mut command = Command::new("python3");
    command.args(["-c", SERVE]).arg(folder).args([&port.to_string(), &policy]);
    let log = workspace.out.join(format!("run/static-files-{port}.log"));
    log_to(&mut command, &log)?;
    let running = children::spawn(&mut command, Stop::Leader(STOP_TIMEOUT))?;
    Server { name: "static files", port, running, log }.wait_until_ready(port, "/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        files,
        servers::{free_port, http::Request},
    };

    #[test]
    fn files_are_served_with_the_permissions_and_nothing_else_is() {
        let workspace = Workspace::find();
        let folder = std::env::temp_dir().join(format!("xtask-static-{}", std::process::id()));
        files::write(folder.join("site/index.html"), "<p>").unwrap();
        files::write(folder.join("site/a-1.wasm"), b"\0asm").unwrap();
        files::write(folder.join("secret"), "x").unwrap();
        let port = free_port().unwrap();
        let server = serve(&workspace, port, &folder.join("site")).unwrap();
        let request = |path: &str| Request::new(port, path);
        assert_eq!(request("/?x=1").text().unwrap(), "<p>");
        assert_eq!(request("/a-1.wasm").send().unwrap(), 200);
        for outside in ["/secret", "/../secret", "/%2e%2e/secret", "//secret"] {
            assert_eq!(request(outside).send().unwrap(), 404, "{outside}");
        }
        drop(server);
        assert!(request("/").send().is_err());
        files::remove_all(&folder).unwrap();
    }
}
