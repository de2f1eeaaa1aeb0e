//! Real proxies that send a check to a server before they forward: nginx, Caddy and Envoy, each
//! with its configuration in `fleet/`, which `docs/forward-auth.md` shows.
//!
//! Invariant: the shipped file is the shown file and the one that runs; only addresses, the token
//! and the paths that keep a proxy within its folder are changed. Behind each is an origin that
//! repeats the forwarded request.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::http::Client;
use crate::process::{self, Server, TempDir};

const DOCUMENT: &str = include_str!("../../docs/forward-auth.md");
const RUN: &str = "cargo xtask test server";
/// The document's text in place of the token.
const SHOWN_TOKEN: &str = "the check_token, or leave this line out";

/// A proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// `auth_request`.
    Nginx,
    /// `forward_auth`.
    Caddy,
    /// `ext_authz` over HTTP.
    Envoy,
    /// The same, with HTTP/2 to the server.
    EnvoyHttp2,
}

/// A running proxy with its origin.
pub struct Running {
    /// The port for clients.
    pub port: u16,
    pub server: Server,
    _dir: TempDir,
}

impl Running {
    /// A client of it.
    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }
}

impl Proxy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Nginx, Self::Caddy, Self::Envoy, Self::EnvoyHttp2];

    /// The server's name of its protocol.
    pub const fn protocol(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Caddy => "forward_auth",
            Self::Envoy | Self::EnvoyHttp2 => "ext_authz_http",
        }
    }

    /// Its file in `fleet/`, which the document shows.
    fn shipped(self) -> &'static str {
        let (language, name, text) = match self {
            Self::Nginx => ("nginx", "nginx.conf", include_str!("../../fleet/nginx.conf")),
            Self::Caddy => ("caddyfile", "Caddyfile", include_str!("../../fleet/Caddyfile")),
            Self::Envoy | Self::EnvoyHttp2 => {
                let name = "envoy-forward-auth.yaml";
                ("yaml", name, include_str!("../../fleet/envoy-forward-auth.yaml"))
            }
        };
        let shown = format!("<!-- file: fleet/{name} -->\n```{language}\n{text}```\n");
        assert!(DOCUMENT.contains(&shown), "docs/forward-auth.md shows another {name}");
        text
    }

    /// Starts it in front of an origin; it sends its checks to the server on port `asked`, with
    /// `token`.
    pub fn start(self, asked: u16, token: &str) -> Running {
        self.start_with(self.shipped().to_owned(), asked, token)
    }

    /// Starts Envoy with checks to either of two servers, on the ports `asked`.
    pub fn start_envoy_before_two(asked: [u16; 2], token: &str) -> Running {
        let one = "{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8080 } } } }";
        let other = one.replace("8080", &asked[1].to_string());
        let shipped = Self::Envoy.shipped();
        assert!(shipped.contains(one), "the endpoint has changed");
        let text = shipped.replace(one, &format!("{one}, {other}"));
        Self::Envoy.start_with(text, asked[0], token)
    }

    fn start_with(self, shown: String, asked: u16, token: &str) -> Running {
        let (dir, port, origin) = (TempDir::new("proxy"), process::free_port(), origin());
        let shown = shown.replace(SHOWN_TOKEN, token);
        let ports = [("8000", port), ("3000", origin), ("8080", asked)];
        let shown = ports.iter().fold(shown, |text, (shown, port)| {
            let port = port.to_string();
            text.replace(&format!(":{shown}"), &format!(":{port}"))
                .replace(&format!("port_value: {shown}"), &format!("port_value: {port}"))
        });
        let command = self.command(&shown, dir.path());
        let mut server = Server::start(command, dir.path().join("proxy.log"));
        server.wait_for_port(port);
        Running { port, server, _dir: dir }
    }

    fn command(self, shown: &str, dir: &Path) -> Command {
        let write = |name: &str, text: String| {
            let path = dir.join(name);
            fs::write(&path, text).expect("a file");
            path
        };
        match self {
            Self::Nginx => {
                let path = write("nginx.conf", nginx_config(dir, shown));
                let mut nginx = Command::new(process::required_path("TOLLGATE_NGINX_BIN", RUN));
                nginx.arg("-p").arg(dir).arg("-c").arg(path).arg("-e").arg(dir.join("error.log"));
                nginx
            }
            Self::Caddy => {
                let text = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{shown}");
                let path = write("Caddyfile", text);
                let mut caddy = Command::new(process::required_path("TOLLGATE_CADDY_BIN", RUN));
                caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(path);
                caddy.env("HOME", dir).env("XDG_DATA_HOME", dir).env("XDG_CONFIG_HOME", dir);
                caddy
            }
            Self::Envoy | Self::EnvoyHttp2 => {
                let http2 = "    typed_extension_protocol_options:\n      \
                    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n        \
                    \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n        \
                    explicit_http_config: { http2_protocol_options: {} }\n";
                let cluster = "  - name: tollgate\n    type: STRICT_DNS\n";
                assert!(shown.contains(cluster), "the cluster is another one now");
                let text = match self {
                    Self::EnvoyHttp2 => shown.replace(cluster, &format!("{cluster}{http2}")),
                    Self::Envoy | Self::Nginx | Self::Caddy => shown.to_owned(),
                };
                let path = write("envoy.yaml", text);
                let mut envoy = Command::new(process::required_path("TOLLGATE_ENVOY_BIN", RUN));
                envoy.arg("-c").arg(path).args(["--concurrency", "1", "--use-dynamic-base-id"]);
                envoy.args(["--log-level", "warning"]);
                envoy
            }
        }
    }
}

fn nginx_config(dir: &Path, shown: &str) -> String {
    let dir = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("  {what}_temp_path {dir}/{what};\n"))
        .concat();
    format!(
        "daemon off;\nworker_processes 1;\npid {dir}/nginx.pid;\n\
         events {{ worker_connections 1024; }}\nhttp {{\n  access_log off;\n{temporary}{shown}}}\n"
    )
}

/// An origin: it responds to every request with the request's head, so that a test sees the
/// forwarded request.
fn origin() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || repeat(stream));
        }
    });
    port
}

fn repeat(stream: TcpStream) -> Option<()> {
    let mut read = BufReader::new(stream.try_clone().ok()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = Vec::new();
        if read.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    read.read_exact(&mut body).ok()?;
    let answer = format!(
        "HTTP/1.1 200 OK\r\nx-origin: reached\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{head}",
        head.len()
    );
    (&stream).write_all(answer.as_bytes()).ok()
}
