//! The filter as an image: pushed to a registry, pulled from it as a mesh's agent does, and fetched
//! by Envoy over HTTP with its checksum.
//!
//! Envoy knows no registries: `code.remote` is a URL and a SHA-256. Istio's agent or Envoy Gateway
//! turns an image into one; this test follows their steps through a registry by its HTTP API.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::process::{self, Server, TempDir};

use crate::envoy_server::{As, Envoy, Listener, Setup, envoy_bin, filter_wasm, tollgate};

const RUN: &str = "cargo xtask test envoy";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

/// A registry of this test's own, initially empty.
struct Registry {
    port: u16,
    _server: Server,
    _dir: TempDir,
}

impl Registry {
    fn start() -> Self {
        let dir = TempDir::new("registry");
        let port = process::free_port();
        let config = json!({
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": dir.path().join("data")}},
            "http": {"addr": format!("127.0.0.1:{port}")},
        });
        let file = dir.path().join("registry.yml");
        fs::write(&file, config.to_string()).expect("no configuration"); // JSON is YAML
        let mut command = Command::new(process::required_path("TOLLGATE_REGISTRY_BIN", RUN));
        command.arg("serve").arg(file).env("OTEL_TRACES_EXPORTER", "none");
        let mut server = Server::start(command, dir.path().join("registry.log"));
        server.wait_for_port(port);
        Self { port, _server: server, _dir: dir }
    }

    fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Pushes the only image of the layout in `folder` as `name`, with the layout's tag; returns
    /// its tag.
    fn push(&self, name: &str, folder: &Path) -> String {
        let read = |file: PathBuf| fs::read(&file).unwrap_or_else(|e| panic!("{file:?}: {e}"));
        let blob = |value: &Value| {
            let digest = value["digest"].as_str().expect("a digest");
            read(folder.join("blobs").join(digest.replace(':', "/")))
        };
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
        let index = parse(&read(folder.join("index.json")));
        let described = &index["manifests"][0];
        let tag = &described["annotations"]["org.opencontainers.image.ref.name"];
        let tag = tag.as_str().expect("a tag").to_owned();
        let manifest = blob(described);
        let parts = parse(&manifest);
        for part in [&parts["config"], &parts["layers"][0]] {
            self.upload(name, &blob(part));
        }
        let put = Request::new("PUT", &format!("/v2/{name}/manifests/{tag}"));
        let answer = self.client().send(&put.header("content-type", MANIFEST).body(manifest));
        assert_eq!(answer.status, 201, "{}", answer.text());
        tag
    }

    fn upload(&self, name: &str, blob: &[u8]) {
        let begun = self.client().send(&Request::post(&format!("/v2/{name}/blobs/uploads/"), ""));
        assert_eq!(begun.status, 202, "{}", begun.text());
        let location = begun.header("location").expect("where to put it");
        let at = location.find("/v2/").expect("a path");
        let and = if location.contains('?') { '&' } else { '?' };
        let put = Request::new("PUT", &format!("{}{and}digest={}", &location[at..], digest(blob)));
        let octets = put.header("content-type", "application/octet-stream");
        let answer = self.client().send(&octets.body(blob));
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// By tag, as Istio's agent does: manifest, last layer of the one known kind, `plugin.wasm` in
    /// it. Every stated digest is compared.
    fn pull(&self, name: &str, tag: &str) -> Vec<u8> {
        let get = |what: &str| {
            let request = Request::get(&format!("/v2/{name}/{what}")).header("accept", MANIFEST);
            let answer = self.client().send(&request);
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            answer
        };
        let is = |answer: &Response, name| answer.header(name).expect("a field");
        let manifest = get(&format!("manifests/{tag}"));
        assert_eq!(is(&manifest, "content-type"), MANIFEST);
        assert_eq!(is(&manifest, "docker-content-digest"), digest(&manifest.body));
        let manifest: Value = serde_json::from_slice(&manifest.body).expect("a manifest");
        assert_eq!(manifest["annotations"]["module.wasm.image/variant"], "compat");
        let layers = manifest["layers"].as_array().expect("layers");
        assert_eq!(layers.len(), 1, "exactly one");
        assert_eq!(layers[0]["mediaType"], LAYER);
        let wanted = layers[0]["digest"].as_str().expect("a digest");
        let layer = get(&format!("blobs/{wanted}")).body;
        assert_eq!(digest(&layer), wanted);
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(layer.as_slice()));
        let mut entries = archive.entries().expect("a tar");
        let mut plugin = entries.next().expect("a file").expect("whole");
        assert_eq!(plugin.path().expect("a name"), Path::new("plugin.wasm"));
        let mut module = vec![];
        plugin.read_to_end(&mut module).expect("whole");
        assert!(entries.next().is_none(), "only the module");
        module
    }
}

/// Serves `file` at every path, like an agent or any file server; returns the port.
fn serve(file: Vec<u8>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("a port").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let file = file.clone();
            thread::spawn(move || answer(stream, &file));
        }
    });
    port
}

fn answer(mut stream: TcpStream, file: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/wasm\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n", file.len())?;
    stream.write_all(file)
}

/// Two requests per day, by a module that Envoy fetches from the cluster `origin`.
fn fetching(sha256: &str) -> Value {
    let quota = json!({"limit": 2, "window": "1d"});
    let rule = json!({"name": "a", "key": [{"header": "x-a"}], "quotas": [quota]});
    let mut filter = tollgate(&json!({"version": 1, "rules": [rule]}), "vm", As::Text);
    filter["typed_config"]["config"]["vm_config"]["code"] = json!({"remote": {
        "http_uri": {"uri": "http://modules/plugin.wasm", "cluster": "origin", "timeout": "20s"},
        "sha256": sha256,
        "retry_policy": {"num_retries": 0},
    }});
    filter
}

fn start(module: Vec<u8>, sha256: &str) -> Envoy {
    let mut setup = Setup::new(1, vec![Listener::new("main", vec![fetching(sha256)])]);
    setup.origin = serve(module);
    setup.start()
}

fn statuses(envoy: &Envoy) -> Vec<u16> {
    let mut client = envoy.client();
    (0..3).map(|_| client.send(&Request::get("/").header("x-a", "k")).status).collect()
}

// Guards: an image that registries reject or agents cannot read, a module in it that is not the
// built one, and an Envoy that runs a module whose checksum differs from the configured one.
#[test]
fn a_module_from_a_registry_runs_where_its_sum_is_right() {
    let built = filter_wasm();
    let name = built.file_stem().expect("a name").to_string_lossy().into_owned();
    let images = process::required_path("TOLLGATE_IMAGES", RUN);
    let registry = Registry::start();
    let tag = registry.push(&name, &images.join(&name));
    let module = registry.pull(&name, &tag);
    assert!(module == fs::read(&built).expect("the filter"), "another module");

    let sum = digest(&module).replace("sha256:", "");
    let envoy = start(module.clone(), &sum);
    assert_eq!(statuses(&envoy), [200, 200, 429]);
    drop(envoy);

    // One byte of the module changes, then one of the checksum.
    let mut changed = module.clone();
    *changed.last_mut().expect("bytes") ^= 1;
    let other = format!("{}{}", if sum.starts_with('0') { '1' } else { '0' }, &sum[1..]);
    for (module, sum) in [(changed, &sum), (module, &other)] {
        let envoy = start(module, sum);
        assert_eq!(statuses(&envoy), [503; 3], "fails closed");
        assert!(envoy.server.log().contains("Plugin tollgate failed to load"));
    }
}

// Guards: the statements of this file and envoy/README.md about Envoy: when Envoy learns to read
// images, this fails and they change.
#[test]
fn envoy_itself_reads_no_images() {
    let program = fs::read(envoy_bin()).expect("Envoy");
    let has = |text: &[u8]| program.windows(text.len()).any(|part| part == text);
    assert!(has(b"Retry limit exceeded for fetching data from remote data source"));
    assert!(!has(b"application/vnd.oci.image") && !has(b"oci://"));
}
