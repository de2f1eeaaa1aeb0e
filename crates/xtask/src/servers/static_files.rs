//! A server of static files on loopback: the playground as any host of static files would serve it.
//!
//! Invariant: it responds with the files that were in its folder when it started, each by its whole
//! name; no path of a request ever reaches the file system, so none can leave the folder. GET and
//! HEAD only, one response per connection. Deliberately absent: features that a page on this
//! machine does not need, such as ranges, compression and TLS.

use crate::{
    build::playground,
    files,
    problem::{OrProblem, Result},
    workspace::Workspace,
};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

/// The longest request that is read, in bytes.
const LONGEST_REQUEST: u64 = 16 * 1024;
/// How long a client may take to send its request, and to read the response.
const PATIENCE: Duration = Duration::from_secs(10);
/// Beyond these a connection is closed without a response.
const MOST_CONNECTIONS: usize = 64;

/// One file and its type.
struct Content {
    bytes: Vec<u8>,
    kind: &'static str,
    is_named_by_content: bool,
}

/// The served files: by paths, `/` and `/index.html` for the page.
struct Site {
    prefix: String,
    /// The permissions of the files.
    policy: String,
    files: BTreeMap<String, Content>,
}

/// Serves the playground below `prefix` (`/`, or `/some/where/`) until the program ends.
pub fn serve(workspace: &Workspace, port: u16, prefix: &str) -> Result<()> {
    let policy = playground::content_security_policy(workspace)?;
    let files = read(&workspace.playground_dir())?;
    listen(Site { prefix: prefix.to_owned(), policy, files }, port)
}

fn listen(site: Site, port: u16) -> Result<()> {
    let site = Arc::new(site);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = listener.or_problem(format!("port {port} cannot be used"), "choose another")?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Each response holds one more; the site itself is one.
            if Arc::strong_count(&site) <= MOST_CONNECTIONS {
                let site = Arc::clone(&site);
                thread::spawn(move || answer(&site, stream).ok());
            }
        }
    });
    Ok(())
}

fn read(folder: &Path) -> Result<BTreeMap<String, Content>> {
    let mut files = BTreeMap::new();
    for path in files::sorted(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = files::bytes(path)?;
        let kind = kind_of(&name);
        let is_named_by_content = !matches!(kind, "text/html; charset=utf-8" | TEXT);
        files.insert(name, Content { bytes, kind, is_named_by_content });
    }
    Ok(files)
}

const TEXT: &str = "text/plain; charset=utf-8";

fn kind_of(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => TEXT,
    }
}

fn answer(site: &Site, stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = BufReader::new(stream.try_clone()?.take(LONGEST_REQUEST));
    let mut first = String::new();
    request.read_line(&mut first)?;
    // The fields are read, or closing the connection would reset it before the response arrives.
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let (head, body) = response(site, first.trim_end());
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

/// Head and body of the response to a request line.
fn response<'s>(site: &'s Site, line: &str) -> (String, &'s [u8]) {
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let head = |status: &str, kind: &str, length: usize, extra: &str| {
        head(&site.policy, status, kind, length, extra)
    };
    if !matches!(method, "GET" | "HEAD") {
        return (head("405 Method Not Allowed", TEXT, 0, "Allow: GET, HEAD\r\n"), b"");
    }
    let path = target.split('?').next().unwrap_or_default();
    let name = path.strip_prefix(&site.prefix).map(|name| match name {
        "" => "index.html",
        name => name,
    });
    let Some(file) = name.and_then(|name| site.files.get(name)) else {
        return (head("404 Not Found", TEXT, 0, ""), b"");
    };
    let age =
        if file.is_named_by_content { "public, max-age=31536000, immutable" } else { "no-cache" };
    let extra = format!("Cache-Control: {age}\r\n");
    let head = head("200 OK", file.kind, file.bytes.len(), &extra);
    (head, if method == "GET" { &file.bytes } else { b"" })
}

fn head(policy: &str, status: &str, kind: &str, length: usize, extra: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Content-Security-Policy: {policy}; frame-ancestors 'none'\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Opener-Policy: same-origin\r\n{extra}Connection: close\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(prefix: &str) -> Site {
        let file = |name: &str, bytes: &[u8]| {
            let kind = kind_of(name);
            let is_named_by_content = kind == "application/wasm";
            (name.to_owned(), Content { bytes: bytes.to_vec(), kind, is_named_by_content })
        };
        let files = BTreeMap::from([file("index.html", b"<p>"), file("a-1.wasm", b"\0asm")]);
        Site { prefix: prefix.to_owned(), policy: "default-src 'none'".to_owned(), files }
    }

    fn asked(site: &Site, line: &str) -> (String, Vec<u8>) {
        let (head, body) = response(site, line);
        (head, body.to_vec())
    }

    #[test]
    fn files_are_served_by_their_names_and_types() {
        for prefix in ["/", "/some/where/"] {
            let site = site(prefix);
            let (head, body) = asked(&site, &format!("GET {prefix}?x=1 HTTP/1.1"));
            assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/html"), "{head}");
            assert!(head.contains("no-cache") && body == b"<p>");
            assert!(head.contains("Content-Security-Policy: default-src 'none'; frame-"), "{head}");
            let (head, body) = asked(&site, &format!("GET {prefix}a-1.wasm HTTP/1.1"));
            assert!(head.contains("application/wasm") && head.contains("immutable"), "{head}");
            assert_eq!(body, b"\0asm");
            let (head, body) = asked(&site, &format!("HEAD {prefix}a-1.wasm HTTP/1.1"));
            assert!(head.contains("Content-Length: 4") && body.is_empty());
        }
    }

    #[test]
    fn nothing_else_is_served() {
        let site = site("/some/where/");
        for (line, status) in [
            ("GET / HTTP/1.1", "404"),
            ("GET /index.html HTTP/1.1", "404"),
            ("GET /some/where/../where/index.html HTTP/1.1", "404"),
            ("GET /some/where/%2e%2e/index.html HTTP/1.1", "404"),
            ("GET /some/where//etc/passwd HTTP/1.1", "404"),
            ("GET http://other/some/where/ HTTP/1.1", "404"),
            ("POST /some/where/ HTTP/1.1", "405"),
            ("", "405"),
        ] {
            let (head, body) = asked(&site, line);
            assert!(head.starts_with(&format!("HTTP/1.1 {status}")) && body.is_empty(), "{line}");
        }
    }

    #[test]
    fn it_answers_on_its_port() {
        let port = crate::servers::free_port().unwrap();
        listen(site("/"), port).unwrap();
        let status = |path: &str| crate::servers::http::Request::new(port, path).send().unwrap();
        assert_eq!((status("/"), status("/secret")), (200, 404));
    }
}
