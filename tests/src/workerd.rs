//! A real workerd with the shipped Worker: its modules, a policy, bindings, objects on disk.
//!
//! Invariant: the shipped modules are never changed. A test that needs a fault puts a module of its
//! own in front of `entry.mjs` ([`Setup::front`]); only the policy and the bindings differ from a
//! deployment.
//!
//! ```no_run
//! use tollgate_e2e::http::Request;
//! use tollgate_e2e::workerd::Setup;
//! let policy = r#"{"version":1,"rules":[]}"#;
//! let worker = Setup::new(policy).binding("ORIGIN", "http://127.0.0.1:9000").start();
//! assert_eq!(worker.client().send(&Request::get("/")).status, 200);
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::statvfs;
use serde_json::{Value, json};
use tollgate_policy::{Surface, compiled_text};

use crate::http::{Client, Request, Response};
use crate::process::{self, Server, TempDir};

const RUN: &str = "cargo xtask test workerd";

/// The file with the compatibility date, so that tests and deployments use the same.
const WRANGLER: &str = include_str!("../../wrangler.toml");

/// The open files that many objects need: three for each object in memory.
const OPEN_FILES: u64 = 16_384;

/// The folder with `entry.mjs` and its imports.
pub fn worker_dir() -> PathBuf {
    process::required_path("TOLLGATE_WORKER_DIR", RUN)
}

/// The Node binary, for the Worker's wasm without workerd.
pub fn node_bin() -> PathBuf {
    process::required_path("TOLLGATE_NODE_BIN", RUN)
}

/// The header in which a test sends, as JSON, the facts of Cloudflare's edge about a request:
/// `request.cf`.
pub const EDGE_FACTS: &str = "x-test-cf";

/// The setup of a workerd.
pub struct Setup {
    /// One Worker for each.
    policies: Vec<String>,
    /// Replaces the compiled policies.
    compiled: Option<String>,
    /// The number of Workers, the last ones, that use the objects of the first; the others have
    /// their own.
    beside: usize,
    is_operated: bool,
    /// Names and Cap'n Proto values.
    bindings: Vec<(String, String)>,
    front: Option<String>,
    assets: Option<String>,
    files: Files,
}

/// The location of the objects' databases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Files {
    OnDisk,
    InMemory,
}

/// The folder in memory, and the space that thousands of small databases need, with room to spare.
const MEMORY: &str = "/dev/shm";
const MEMORY_BYTES: u64 = 1 << 30;

impl Setup {
    /// The Worker with `policy` and no variables or secrets, except a long time-out for its
    /// objects: on a busy machine they are slow.
    pub fn new(policy: impl ToString) -> Self {
        let policies = vec![policy.to_string()];
        let (bindings, files) = (vec![], Files::OnDisk);
        let (front, assets, compiled) = (None, None, None);
        let setup = Self {
            policies,
            compiled,
            beside: 0,
            is_operated: false,
            bindings,
            front,
            assets,
            files,
        };
        setup.binding("OBJECT_TIMEOUT_MS", 30_000)
    }

    /// Deploys `compiled`, in base64, in place of the compiled policy.
    pub fn compiled(mut self, compiled: &str) -> Self {
        self.compiled = Some(compiled.to_owned());
        self
    }

    /// One more Worker in the same process, like the others but with `policy` and objects of its
    /// own.
    pub fn also(mut self, policy: impl ToString) -> Self {
        self.policies.push(policy.to_string());
        self
    }

    /// One more Worker in the same process that uses the objects of the first: like another isolate
    /// of the same deployment, or of one that is a version behind. Comes after every
    /// [`also`](Self::also).
    pub fn beside(mut self, policy: impl ToString) -> Self {
        self.policies.push(policy.to_string());
        self.beside += 1;
        self
    }

    /// Binds the classes for run-time changes and counters, too, as wrangler.toml does. A
    /// [`front`](Self::front) must then export them.
    pub fn operated(mut self) -> Self {
        self.is_operated = true;
        self
    }

    /// Sets a variable or secret.
    pub fn binding(self, name: &str, value: impl ToString) -> Self {
        self.bound(name, format!("text = {}", text(&value.to_string())))
    }

    /// Binds `name` to the Worker itself, as another Worker's service binding would be.
    pub fn service_binding(self, name: &str) -> Self {
        self.bound(name, "service = (name = \"main0\", entrypoint = \"Tollgate\")".to_owned())
    }

    /// Sets a variable that is not a text.
    pub fn json_binding(self, name: &str, value: Value) -> Self {
        self.bound(name, format!("json = {}", text(&value.to_string())))
    }

    fn bound(mut self, name: &str, value: String) -> Self {
        self.bindings.retain(|(earlier, _)| earlier != name);
        self.bindings.push((name.into(), value));
        self
    }

    /// Puts a module in front: it imports `./entry.mjs` and exports a default and `Limiter`.
    pub fn front(mut self, module: &str) -> Self {
        self.front = Some(module.into());
        self
    }

    /// Binds `ASSETS` to a module that replaces the platform's assets.
    pub fn assets(mut self, module: &str) -> Self {
        self.assets = Some(module.into());
        self.bound("ASSETS", "service = \"assets\"".to_owned())
    }

    /// Keeps the database files in memory, where the machine has room for them: for tests of many
    /// objects, in which every write would wait for the disk.
    pub fn files_in_memory(mut self) -> Self {
        self.files = Files::InMemory;
        self
    }

    /// Starts it and waits until it listens.
    pub fn start(self) -> Workerd {
        process::allow_open_files(OPEN_FILES);
        let has_room = || {
            statvfs(MEMORY).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) > MEMORY_BYTES)
        };
        let dir = match self.files {
            Files::InMemory if has_room() => TempDir::new_in(MEMORY, "workerd"),
            _ => TempDir::new("workerd"),
        };
        fs::create_dir_all(dir.path().join("build")).expect("a folder for the modules");
        fs::create_dir_all(dir.path().join("objects")).expect("a folder for the objects");
        for module in ["entry.mjs", "build/index.js", "build/index_bg.wasm"] {
            let from = worker_dir().join(module);
            // Not `fs::copy`, which fails when the machine was suspended meanwhile (EINTR).
            let bytes = fs::read(&from)
                .unwrap_or_else(|e| panic!("cannot read {}: {e}; run `{RUN}`", from.display()));
            fs::write(dir.path().join(module), bytes).expect("the module is written");
        }
        for (i, policy) in self.policies.iter().enumerate() {
            let compiled = self.compiled.clone().unwrap_or_else(|| compiled(policy));
            write_policy(dir.path(), i, policy, &compiled);
        }
        if let Some(front) = &self.front {
            fs::write(dir.path().join("front.mjs"), front).expect("the module is written");
        }
        if let Some(assets) = &self.assets {
            fs::write(dir.path().join("assets.mjs"), assets).expect("the module is written");
        }
        let ports: Vec<u16> = self.policies.iter().map(|_| process::free_port()).collect();
        let config = self.config(dir.path(), &ports);
        fs::write(dir.path().join("config.capnp"), config).expect("the configuration is written");
        let server = run(dir.path(), &ports);
        Workerd { server, dir, port: ports[0], ports }
    }

    fn config(&self, dir: &Path, ports: &[u16]) -> String {
        let each = |part: fn(usize, u16) -> String| -> String {
            ports.iter().enumerate().map(|(i, port)| part(i, *port)).collect()
        };
        let services = each(|i, _| format!("(name = \"main{i}\", worker = .worker{i}), "));
        let sockets = each(|i, port| {
            let http = format!("(cfBlobHeader = \"{EDGE_FACTS}\")");
            format!(
                "(name = \"http{i}\", address = \"127.0.0.1:{port}\", http = {http}, service = \"main{i}\"), "
            )
        });
        let objects = text(&dir.join("objects").to_string_lossy());
        let mut workers: String = (0..ports.len()).map(|i| self.worker(i)).collect();
        let mut assets = "";
        if self.assets.is_some() {
            assets = "(name = \"assets\", worker = .assets),";
            workers.push_str(ASSETS_WORKER);
        }
        format!(
            r#"using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    {services}
    {assets}
    (name = "objects", disk = (path = {objects}, writable = true)),
    (name = "internet", network = (allow = ["private", "local"])),
  ],
  sockets = [{sockets}],
);
{workers}"#
        )
    }

    fn worker(&self, i: usize) -> String {
        let front = match self.front {
            Some(_) => r#"(name = "front.mjs", esModule = embed "front.mjs"),"#,
            None => "",
        };
        let bindings: String = (self.bindings.iter())
            .map(|(name, value)| format!(", (name = {}, {value})", text(name)))
            .collect();
        let date = WRANGLER.lines().find(|line| line.starts_with("compatibility_date"));
        let date = date.and_then(|line| line.split('"').nth(1)).expect("a compatibility date");
        let (policy, compiled) = (policy_file(i), compiled_file(i));
        let (namespaces, objects) = self.objects(i);
        format!(
            r#"const worker{i} :Workerd.Worker = (
  modules = [
    {front}
    (name = "entry.mjs", esModule = embed "entry.mjs"),
    (name = "policy.json", text = embed "{policy}"),
    (name = "build/policy.mjs", esModule = embed "{compiled}"),
    (name = "build/index.js", esModule = embed "build/index.js"),
    (name = "build/index_bg.wasm", wasm = embed "build/index_bg.wasm"),
  ],
  compatibilityDate = "{date}",
  durableObjectNamespaces = [{namespaces}],
  durableObjectStorage = (localDisk = "objects"),
  bindings = [{objects}{bindings}],
);
"#
        )
    }

    /// The namespaces of Durable Objects of Worker `i`, and its bindings.
    fn objects(&self, i: usize) -> (String, String) {
        let shares = i >= self.policies.len() - self.beside;
        let number = if i == 0 { String::new() } else { i.to_string() };
        let classes = if self.is_operated { &CLASSES[..] } else { &CLASSES[..1] };
        let namespace = |(class, _, key): &(&str, &str, &str)| {
            format!("(className = \"{class}\", uniqueKey = \"{key}{number}\", enableSql = true), ")
        };
        let service = if shares { ", serviceName = \"main0\"" } else { "" };
        let bound = |(class, binding, _): &(&str, &str, &str)| {
            format!(
                "(name = \"{binding}\", durableObjectNamespace = (className = \"{class}\"{service}))"
            )
        };
        let own = if shares { &[] } else { classes };
        let bindings: Vec<String> = classes.iter().map(bound).collect();
        (own.iter().map(namespace).collect(), bindings.join(", "))
    }
}

/// The Worker that replaces the platform's assets.
const ASSETS_WORKER: &str = r#"const assets :Workerd.Worker = (
  modules = [(name = "assets.mjs", esModule = embed "assets.mjs")],
  compatibilityDate = "2026-01-01",
);
"#;

/// The classes of objects: each with its binding, and the unique key of the first Worker's class,
/// which names their folder.
const CLASSES: [(&str, &str, &str); 4] = [
    ("Limiter", "LIMITER", "limiter"),
    ("Policies", "POLICIES", "policies"),
    ("Tenants", "TENANTS", "tenants"),
    ("Metrics", "METRICS", "metrics"),
];

fn policy_file(i: usize) -> String {
    format!("policy{i}.json")
}

fn compiled_file(i: usize) -> String {
    format!("policy{i}.mjs")
}

fn write_policy(dir: &Path, i: usize, policy: &str, compiled: &str) {
    let compiled = format!("export default \"{compiled}\";\n");
    fs::write(dir.join(policy_file(i)), policy).expect("the policy is written");
    fs::write(dir.join(compiled_file(i)), compiled).expect("what is compiled is written");
}

/// The deployed form of a policy: compiled, or empty where it has problems.
fn compiled(policy: &str) -> String {
    let compiled = tollgate_language::compile(policy, Surface::Worker);
    compiled.map(|policy| compiled_text(|out| policy.write_compiled(out))).unwrap_or_default()
}

/// A Cap'n Proto string is escaped like JSON's.
fn text(value: &str) -> String {
    json!(value).to_string()
}

/// A running workerd, killed when dropped.
pub struct Workerd {
    server: Server,
    dir: TempDir,
    /// The port on which it listens.
    pub port: u16,
    /// The ports of all Workers in it.
    pub ports: Vec<u16>,
}

impl Workerd {
    /// A new connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// `kill -9`, at once.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again after [`kill`](Self::kill), on the same port and the same objects.
    pub fn restart(&mut self) {
        self.server = run(self.dir.path(), &self.ports);
    }

    /// Deploys `policy` to all its Workers. It is in force after [`restart`](Self::restart), like a
    /// new version of the code after the platform has started it.
    pub fn deploy(&self, policy: impl ToString) {
        for i in 0..self.ports.len() {
            let policy = policy.to_string();
            write_policy(self.dir.path(), i, &policy, &compiled(&policy));
        }
    }

    /// Removes the stored data of the objects in this folder; workerd must not run meanwhile.
    pub fn forget(&self, folder: &str) {
        fs::remove_dir_all(self.dir.path().join("objects").join(folder)).expect("the folder");
    }

    /// The database files of its objects.
    pub fn databases(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.path().join("objects/limiter"));
        let files = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let is_object = |path: &PathBuf| {
            path.extension().is_some_and(|extension| extension == "sqlite")
                && path.file_stem().is_some_and(|name| name != "metadata")
        };
        files.filter(is_object).collect()
    }

    /// The contents of everything that the platform stores for the counting objects, names and
    /// alarms included.
    pub fn stored_bytes(&self) -> Vec<Vec<u8>> {
        self.stored_bytes_of("limiter")
    }

    /// The same for the objects in this folder.
    pub fn stored_bytes_of(&self, folder: &str) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(self.dir.path().join("objects").join(folder));
        let files = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        files.filter_map(|path| fs::read(path).ok()).collect()
    }

    /// The number of objects in its memory: those whose database it holds open.
    pub fn objects_in_memory(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.server.pid()));
        let open = open.into_iter().flatten().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        let mut open: Vec<PathBuf> = open.collect();
        open.sort();
        open.dedup();
        self.databases().iter().filter(|database| open.contains(database)).count()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.server.resident_bytes()
    }

    /// All its output.
    pub fn log(&self) -> String {
        self.server.log()
    }
}

fn run(dir: &Path, ports: &[u16]) -> Server {
    let bin = process::required_path("TOLLGATE_WORKERD_BIN", RUN);
    let mut command = Command::new(bin);
    command.current_dir(dir).args(["serve", "config.capnp"]);
    let mut server = Server::start(command, dir.join("workerd.log"));
    ports.iter().for_each(|port| server.wait_for_port(*port));
    server
}

/// `POST /check` for a client's request.
pub fn check_request(method: &str, path: &str, client_ip: &str) -> Request {
    let body = json!({"method": method, "path": path, "headers": {}, "client_ip": client_ip});
    Request::post("/check", body.to_string())
}

/// The response of `/check`; a failed test when it is an error.
pub fn answer(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    serde_json::from_slice(&response.body).expect("an answer is JSON")
}
