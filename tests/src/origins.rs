//! Origins that are real servers: nginx, Node's and Python's own. Each reports how it read a
//! request.
//!
//! Invariant: they read requests with their own code and defaults; this project's code only repeats
//! the result. A response without `x-origin` did not come from one of them.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::http::Response;
use crate::process::{self, Server, TempDir};

const RUN: &str = "cargo xtask test envoy workerd";
const NODE: &str = include_str!("../origins/origin.mjs");
const PYTHON: &str = include_str!("../origins/origin.py");

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Decodes, then resolves dots; a backslash is an ordinary character.
    Nginx,
    /// Node's `http`, with its URL library and as frameworks decode paths.
    Node,
    /// Python's `http.server`, and the path that it passes to `wsgiref`.
    Python,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nginx, Self::Node, Self::Python];
}

/// A running origin.
pub struct Origin {
    /// The port on which it listens, on the loopback interface.
    pub port: u16,
    _server: Server,
    _dir: TempDir,
}

impl Origin {
    /// Starts one and waits until it listens.
    pub fn start(kind: Kind) -> Self {
        let dir = TempDir::new("origin");
        let port = process::free_port();
        let path = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).expect("a file");
        let command = match kind {
            Kind::Nginx => {
                write("nginx.conf", &nginx_config(&dir.path().to_string_lossy(), port));
                let mut nginx = Command::new(process::required_path("TOLLGATE_NGINX_BIN", RUN));
                nginx.arg("-p").arg(dir.path()).arg("-c").arg(path("nginx.conf"));
                nginx.arg("-e").arg(path("error.log"));
                nginx
            }
            Kind::Node => {
                write("origin.mjs", NODE);
                let mut node = Command::new(process::required_path("TOLLGATE_NODE_BIN", RUN));
                node.arg(path("origin.mjs")).arg(port.to_string());
                node
            }
            Kind::Python => {
                write("origin.py", PYTHON);
                let mut python = Command::new("python3");
                python.arg(path("origin.py")).arg(port.to_string());
                python
            }
        };
        let mut server = Server::start(command, path("origin.log"));
        server.wait_for_port(port);
        Self { port, _server: server, _dir: dir }
    }
}

/// `/login` and `/admin/` are locations of their own; every other location reports how nginx read
/// the request.
fn nginx_config(dir: &str, port: u16) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("  {what}_temp_path {dir}/{what};\n"))
        .concat();
    let echo = r"$uri\n$http_x_api_key\n$arg_k\n$cookie_sid\n$host\n";
    format!(
        r#"daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
events {{ worker_connections 512; }}
http {{
  access_log off;
{temporary}  keepalive_requests 1000000;
  server {{
    listen 127.0.0.1:{port};
    add_header x-origin nginx;
    location = /login {{ add_header x-location login; add_header x-origin nginx; return 200 "{echo}"; }}
    location /admin/ {{ add_header x-location admin; add_header x-origin nginx; return 200 "{echo}"; }}
    location / {{ return 200 "{echo}"; }}
  }}
}}
"#
    )
}

/// How an origin read a request.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// The resource, in each of the ways in which such a server resolves it.
    pub resources: Vec<String>,
    /// The header `x-api-key`.
    pub credential: Option<String>,
    /// The query parameter `k`.
    pub query: Option<String>,
    /// The cookie `sid`.
    pub cookie: Option<String>,
    /// The host it would serve.
    pub host: Option<String>,
}

impl Read {
    /// The origin's report in this response; `None` when the request did not reach it or it
    /// rejected the request itself.
    pub fn from(response: &Response) -> Option<Self> {
        let origin = response.header("x-origin")?;
        if response.status != 200 {
            return None;
        }
        if origin == "nginx" {
            let text = response.text();
            let mut lines = text.split('\n').map(str::to_owned);
            let resources = vec![lines.next()?];
            let mut next = || lines.next().filter(|line| !line.is_empty());
            return Some(Self {
                resources,
                credential: next(),
                query: next(),
                cookie: next(),
                host: next(),
            });
        }
        let told: Value = serde_json::from_slice(&response.body).expect("an origin's JSON");
        let text = |name: &str| told[name].as_str().map(str::to_owned);
        let resources = told["resources"].as_array().expect("a list").iter();
        Some(Self {
            resources: resources.map(ToString::to_string).collect(),
            credential: text("credential"),
            query: text("query"),
            cookie: text("cookie"),
            host: text("host"),
        })
    }
}
