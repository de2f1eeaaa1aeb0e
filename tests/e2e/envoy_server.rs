//! A real Envoy with the filter in it, configured by a test.
//!
//! Every listener has exact connection balancing, so that all workers get connections, and responds
//! with `hello` itself unless the test has other routes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::{self, Server, TempDir};
use tollgate_policy::explain::{Ability, FILTER_MODULES, FilterModule};
use tollgate_policy::{Plugin, Surface};

const RUN: &str = "cargo xtask test envoy";

pub fn envoy_bin() -> PathBuf {
    process::required_path("TOLLGATE_ENVOY_BIN", RUN)
}

pub fn filter_wasm() -> PathBuf {
    process::required_path("TOLLGATE_ENVOY_WASM", RUN)
}

/// True when the module under test is the dynamic module, a shared library.
pub fn is_dynamic_module() -> bool {
    filter_wasm().extension().is_some_and(|extension| extension == "so")
}

/// Gives the filter another name, by which its counts are found.
pub fn set_name(filter: &mut Value, name: &str) {
    let part = if is_dynamic_module() { "filter_name" } else { "name" };
    let config = &mut filter["typed_config"];
    let config = if is_dynamic_module() { config } else { &mut config["config"] };
    config[part] = json!(name);
}

/// The filter as a dynamic module, under the names of the wasm module's metrics.
fn in_module(configuration: &Value, module: &Path) -> Value {
    json!({
        "name": "tollgate",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
            "dynamic_module_config": {
                "module": {"local": {"filename": module}},
                "do_not_close": true,
                "metrics_namespace": "wasmcustom",
            },
            "filter_name": "tollgate",
            "filter_config": configuration,
        },
    })
}

/// The declaration of the module under test; `None` for one that is not among the shipped modules
/// of wasm.
pub fn declared() -> Option<&'static FilterModule> {
    let path = filter_wasm();
    FILTER_MODULES.iter().find(|module| path.file_name().is_some_and(|name| name == module.file))
}

/// True unless the module under test accepts only compiled policies.
pub fn reads_documents() -> bool {
    declared().is_none_or(|module| module.has(Ability::Documents))
}

/// The compiled form of a plugin's configuration; `None` when the configuration is invalid or
/// follows a server.
pub fn compiled(policy: &Value) -> Option<Plugin> {
    let plugin = tollgate_language::compile_plugin(&policy.to_string(), Surface::Envoy).ok()?;
    plugin.policy_from.is_none().then_some(plugin)
}

/// The form in which a policy is written into the plugin's configuration.
#[derive(Clone, Copy, Debug)]
pub enum As {
    Text,
    Struct,
    #[allow(dead_code, reason = "the tests of a fleet use one form")]
    Bytes,
}

impl As {
    /// A document, unchanged.
    fn document(self, policy: &Value) -> Value {
        match self {
            Self::Text => value_of("StringValue", &json!(policy.to_string())),
            Self::Struct => value_of("Struct", policy),
            Self::Bytes => {
                value_of("BytesValue", &json!(Base64::encode_string(policy.to_string().as_bytes())))
            }
        }
    }

    /// A compiled policy.
    pub fn compiled(self, plugin: &Plugin) -> Value {
        let text = plugin.to_compiled_text();
        match self {
            Self::Text => value_of("StringValue", &json!(text)),
            Self::Struct => value_of("Struct", &json!({"compiled": text})),
            // In JSON the bytes are also base64.
            Self::Bytes => value_of("BytesValue", &json!(text)),
        }
    }
}

fn value_of(message: &str, value: &Value) -> Value {
    json!({"@type": format!("type.googleapis.com/google.protobuf.{message}"), "value": value})
}

/// The filter with a policy, compiled where the module under test reads no documents.
pub fn tollgate(policy: &Value, vm_id: &str, form: As) -> Value {
    let plugin = if reads_documents() { None } else { compiled(policy) };
    let configuration = match plugin {
        Some(plugin) => form.compiled(&plugin),
        None => form.document(policy),
    };
    configured(&configuration, vm_id)
}

/// The filter with a configuration of any form.
pub fn configured(configuration: &Value, vm_id: &str) -> Value {
    if is_dynamic_module() {
        return in_module(configuration, &filter_wasm());
    }
    json!({
        "name": "tollgate",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": "tollgate",
                "vm_config": {
                    "vm_id": vm_id,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": filter_wasm()}},
                },
                "configuration": configuration,
            },
        },
    })
}

/// One listener: its filters, routes, and further settings of the connection manager.
pub struct Listener {
    pub name: &'static str,
    pub port: u16,
    pub filters: Vec<Value>,
    pub routes: Value,
    pub manager: Value,
    pub listener_filters: Value,
    /// TLS; null without.
    pub transport_socket: Value,
}

impl Listener {
    /// Responds with `hello` after `filters`.
    pub fn new(name: &'static str, filters: Vec<Value>) -> Self {
        let routes = json!([{
            "name": "hello",
            "match": {"prefix": "/"},
            "direct_response": {"status": 200, "body": {"inline_string": "hello\n"}},
        }]);
        Self {
            name,
            port: process::free_port(),
            filters,
            routes,
            manager: json!({}),
            listener_filters: json!([]),
            transport_socket: Value::Null,
        }
    }

    /// Takes the client's address from the PROXY protocol, as behind a TCP load balancer:
    /// [`Client::connect_as`].
    pub fn behind_proxy_protocol(mut self) -> Self {
        self.listener_filters = json!([{
            "name": "envoy.filters.listener.proxy_protocol",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
            },
        }]);
        self
    }

    /// Forwards every request to the listener on `port`.
    pub fn behind_origin(mut self) -> Self {
        self.routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]);
        self
    }

    pub fn config(&self) -> Value {
        let mut filters = self.filters.clone();
        filters.push(json!({
            "name": "envoy.filters.http.router",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                "suppress_envoy_headers": true,
            },
        }));
        let mut manager = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": self.name,
            "http_filters": filters,
            "route_config": {
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": self.routes}],
            },
        });
        let more = self.manager.as_object().expect("settings of the connection manager");
        manager.as_object_mut().expect("an object").extend(more.clone());
        json!({
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
            "name": self.name,
            "address": address(self.port),
            "connection_balance_config": {"exact_balance": {}},
            "listener_filters": self.listener_filters,
            "filter_chains": [{"transport_socket": self.transport_socket, "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": manager,
            }]}],
        })
    }
}

fn address(port: u16) -> Value {
    json!({"socket_address": {"address": "127.0.0.1", "port_value": port}})
}

/// The setup of an Envoy.
pub struct Setup {
    pub workers: u32,
    pub listeners: Vec<Listener>,
    /// Listeners come from a file that the test can replace, as a control plane would.
    pub dynamic: bool,
    /// The seconds for which connections to a replaced listener may stay.
    pub drain_s: u32,
    /// The seconds after a hot restart after which the earlier process ends.
    pub parent_s: u32,
    /// The port of the cluster `origin`.
    pub origin: u16,
    /// More endpoints of it.
    pub origins: Vec<u16>,
    /// The capacity of that cluster: thresholds of its circuit breaker.
    pub breaker: Value,
    /// Further settings of it.
    pub cluster: Value,
    /// The time of its monotonic clock, in nanoseconds, until the test sets it.
    pub clock_ns: Option<u64>,
    /// How far its wall clock is ahead of that one.
    pub wall_ns: u64,
    /// Further settings of its bootstrap.
    pub bootstrap: Value,
}

impl Setup {
    pub fn new(workers: u32, listeners: Vec<Listener>) -> Self {
        Self {
            workers,
            listeners,
            dynamic: false,
            drain_s: 1,
            parent_s: 900,
            origin: 0,
            origins: vec![],
            breaker: json!({}),
            cluster: json!({}),
            clock_ns: None,
            wall_ns: 0,
            bootstrap: json!({}),
        }
    }

    /// One listener with one policy.
    pub fn policy(workers: u32, policy: &Value) -> Self {
        Self::new(workers, vec![Listener::new("main", vec![tollgate(policy, "vm", As::Text)])])
    }

    fn write(&self, dir: &TempDir, admin: u16) -> PathBuf {
        let listeners = self.listeners.iter().map(Listener::config);
        let listeners: Vec<Value> = if self.dynamic { vec![] } else { listeners.collect() };
        let listeners: Vec<Value> = listeners.into_iter().map(without_type).collect();
        let origins = self.origins.iter().copied().chain([self.origin.max(1)]);
        let endpoints: Vec<Value> =
            origins.map(|port| json!({"endpoint": {"address": address(port)}})).collect();
        let mut config = json!({
            "node": {"id": "test", "cluster": "test"},
            "admin": {"address": address(admin)},
            "static_resources": {
                "listeners": listeners,
                "clusters": [{
                    "name": "origin",
                    "type": "STATIC",
                    "circuit_breakers": {"thresholds": [self.breaker]},
                    "load_assignment": {"cluster_name": "origin", "endpoints": [
                        {"lb_endpoints": endpoints},
                    ]},
                }],
            },
        });
        let cluster = self.cluster.as_object().expect("settings of the cluster").clone();
        let clusters = &mut config["static_resources"]["clusters"];
        clusters[0].as_object_mut().expect("an object").extend(cluster);
        if self.dynamic {
            config["dynamic_resources"] = json!({"lds_config": {
                "path_config_source": {"path": dir.path().join("lds.json")},
                "resource_api_version": "V3",
            }});
            write_lds(dir, &self.listeners, 1);
        }
        let more = self.bootstrap.as_object().expect("parts of a bootstrap").clone();
        config.as_object_mut().expect("an object").extend(more);
        let path = dir.path().join("envoy.json");
        fs::write(&path, config.to_string()).expect("no configuration file");
        path
    }

    /// Starts it and waits until it accepts requests.
    pub fn start(self) -> Envoy {
        let dir = TempDir::new("envoy");
        let admin = process::free_port();
        let path = self.write(&dir, admin);
        if let Some(clock_ns) = self.clock_ns {
            set_clock(&dir, clock_ns);
            fs::write(dir.path().join("wall"), self.wall_ns.to_le_bytes()).expect("written");
        }
        let server = self.spawn(&dir, &path);
        let ports: Vec<u16> = self.listeners.iter().map(|listener| listener.port).collect();
        let mut envoy = Envoy { server, ports, admin, setup: self, path, dir, version: 1 };
        envoy.wait();
        envoy
    }

    fn spawn(&self, dir: &TempDir, path: &Path) -> Server {
        let mut command = self.command(dir, path);
        command.arg("--use-dynamic-base-id").arg("--base-id-path").arg(base_id(dir));
        Server::start(command, dir.path().join("envoy.log"))
    }

    fn command(&self, dir: &TempDir, path: &Path) -> Command {
        let mut command = Command::new(envoy_bin());
        command.arg("-c").arg(path).args(["--concurrency", &self.workers.to_string()]);
        command.args(["--drain-time-s", &self.drain_s.to_string(), "--log-level", "warning"]);
        command.args(["--parent-shutdown-time-s", &self.parent_s.to_string()]);
        if self.clock_ns.is_some() {
            let library = process::required_path("TOLLGATE_CLOCK", RUN);
            command.env("LD_PRELOAD", library).current_dir(dir.path());
        }
        command
    }

    /// Envoy's report on the configuration, without serving it.
    pub fn validate(self) -> Output {
        let dir = TempDir::new("envoy-validate");
        let path = self.write(&dir, process::free_port());
        let mut command = Command::new(envoy_bin());
        command.args(["--mode", "validate", "--log-level", "warning", "-c"]).arg(path);
        command.output().expect("Envoy does not start")
    }

    /// Starts it with a configuration with which it will not last.
    pub fn start_in_vain(self) -> (Server, TempDir) {
        let dir = TempDir::new("envoy");
        let path = self.write(&dir, process::free_port());
        let mut command = Command::new(envoy_bin());
        command.arg("-c").arg(path).args(["--concurrency", "1", "--use-dynamic-base-id"]);
        command.args(["--log-level", "warning"]);
        (Server::start(command, dir.path().join("envoy.log")), dir)
    }
}

/// The file in which Envoy writes its base id.
fn base_id(dir: &TempDir) -> PathBuf {
    dir.path().join("base-id")
}

/// See `tests/clock`.
fn set_clock(dir: &TempDir, clock_ns: u64) {
    let file =
        File::options().create(true).truncate(false).write(true).open(dir.path().join("clock"));
    let written = file.and_then(|file| file.write_all_at(&clock_ns.to_le_bytes(), 0));
    written.expect("the clock is set");
}

/// The gauge of workers that have counts which are in no counter yet.
const UNCOUNTED: &str = "wasmcustom.tollgate.uncounted";

/// The time on any machine until they are reported, unless a machine trapped.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(10);

/// The time on the test's clock until they are reported.
const HANDED_OVER_NS: u64 = 150_000_000;

/// Gauges, which are up to date at once.
const GAUGES: [&str; 8] = [
    "wasmcustom.tollgate.waiting:",
    "wasmcustom.tollgate.waiting_bytes:",
    "wasmcustom.tollgate.memory_bytes:",
    "wasmcustom.tollgate.fleet_paused:",
    "wasmcustom.tollgate.policy_",
    "wasmcustom.tollgate.unverified_addresses:",
    "http.",
    "listener",
];

fn number(value: &str) -> Option<u64> {
    value.strip_prefix(": ")?.parse().ok()
}

/// The counter or gauge with this name; 0 when there is none.
fn value(stats: &str, name: &str) -> u64 {
    stats.lines().find_map(|line| number(line.strip_prefix(name)?)).unwrap_or(0)
}

/// In a bootstrap a listener has no `@type`, in a discovery response it must.
fn without_type(mut listener: Value) -> Value {
    listener.as_object_mut().expect("an object").remove("@type");
    listener
}

fn write_lds(dir: &TempDir, listeners: &[Listener], version: u32) {
    let resources: Vec<Value> = listeners.iter().map(Listener::config).collect();
    let response = json!({"version_info": version.to_string(), "resources": resources});
    let partial = dir.path().join("lds.partial");
    fs::write(&partial, response.to_string()).expect("no listener file");
    // Moved into place: Envoy watches for moves, and never reads half a file.
    fs::rename(partial, dir.path().join("lds.json")).expect("the listener file does not move");
}

/// A running Envoy.
pub struct Envoy {
    pub server: Server,
    pub ports: Vec<u16>,
    pub admin: u16,
    setup: Setup,
    path: PathBuf,
    dir: TempDir,
    version: u32,
}

impl Envoy {
    fn wait(&mut self) {
        self.server.wait_for_port(self.admin);
        self.ports.iter().for_each(|port| self.server.wait_for_port(*port));
    }

    /// Kills it at once and starts it again with the same configuration and ports.
    #[allow(dead_code, reason = "the tests of a fleet use it")]
    pub fn crash(&mut self) {
        self.server.kill();
        self.server = self.setup.spawn(&self.dir, &self.path);
        self.wait();
    }

    /// A hot restart: another process with this configuration takes over the sockets. Returns the
    /// earlier one, which drains and exits on its own.
    #[allow(dead_code, reason = "the tests of one Envoy use it")]
    pub fn hot_restart(&mut self) -> Server {
        let id = fs::read_to_string(base_id(&self.dir)).expect("the base id");
        let mut command = self.setup.command(&self.dir, &self.path);
        command.args(["--restart-epoch", "1", "--base-id", id.trim()]);
        let next = Server::start(command, self.dir.path().join("envoy-1.log"));
        std::mem::replace(&mut self.server, next)
    }

    /// A connection to the first listener.
    pub fn client(&self) -> Client {
        Client::connect(self.ports[0])
    }

    /// Sets its monotonic clock, if it was started with one ([`Setup::clock_ns`]).
    pub fn set_clock(&self, clock_ns: u64) {
        set_clock(&self.dir, clock_ns);
    }

    /// Several connections.
    pub fn clients(&self, count: usize) -> Vec<Client> {
        (0..count).map(|_| self.client()).collect()
    }

    /// Major and minor of its version: `(1, 40)`.
    #[allow(dead_code, reason = "the tests of a fleet do not use it")]
    pub fn version(&self) -> (u32, u32) {
        let answer = Client::connect(self.admin).send(&Request::get("/server_info"));
        let info: Value = serde_json::from_str(&answer.text()).expect("JSON");
        // A hash, the version, and how it was built.
        let version = info["version"].as_str().and_then(|all| all.split('/').nth(1));
        let mut numbers =
            version.expect("a version").split('.').map(|it| it.parse().expect("a number"));
        (numbers.next().expect("a major one"), numbers.next().expect("a minor one"))
    }

    /// The counter or gauge with this name; 0 when there is none.
    pub fn stat(&self, name: &str) -> u64 {
        let is_gauge = GAUGES.iter().any(|gauge| format!("{name}:").starts_with(gauge));
        // Envoy's own counters are always up to date.
        if is_gauge || !name.starts_with("wasmcustom.") {
            return self.shown(name);
        }
        value(&self.counted(), name)
    }

    /// The same as Envoy shows it now, even if workers have not reported all their counts.
    pub fn shown(&self, name: &str) -> u64 {
        value(&self.stats(), name)
    }

    /// `tollgate.decisions` of a rule, by any quota.
    pub fn decisions(&self, rule: &str, result: &str) -> u64 {
        let rule = format!("wasmcustom.tollgate.decisions.plugin=tollgate.rule={rule}.");
        let result = format!(".result={result}: ");
        let of = |line: &str| {
            // One dot may separate the two.
            let rest = line.strip_prefix(rule.as_str().strip_suffix('.')?)?;
            rest.starts_with('.').then_some(())?;
            let (_, value) = rest.split_once(&result)?;
            value.parse::<u64>().ok()
        };
        self.counted().lines().filter_map(of).sum()
    }

    /// All counters and gauges.
    pub fn stats(&self) -> String {
        Client::connect(self.admin).send(&Request::get("/stats")).text().to_owned()
    }

    /// The same after every worker has reported its counts, which it does a tenth of a second
    /// later; a clock of the test's is advanced for this. A machine that trapped never reports, so
    /// this wait is bounded.
    pub fn counted(&self) -> String {
        let begin = Instant::now();
        loop {
            let stats = self.stats();
            let waiting = stats.lines().find_map(|line| number(line.strip_prefix(UNCOUNTED)?));
            if waiting.unwrap_or(0) == 0 || begin.elapsed() > HANDED_OVER_WITHIN {
                return stats;
            }
            self.pass_time(HANDED_OVER_NS);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Advances the test's clock, if there is one.
    fn pass_time(&self, ns: u64) {
        let read = std::fs::read(self.dir.path().join("clock")).ok();
        if let Some(now) = read.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes) {
            self.set_clock(now + ns);
        }
    }

    /// Replaces the listeners, as a control plane would, and waits until Envoy accepts or rejects
    /// them. True when it accepts them.
    pub fn replace_listeners(&mut self, listeners: &[Listener]) -> bool {
        let counters = |envoy: &Self| {
            let stat = |name| envoy.stat(&format!("listener_manager.lds.{name}"));
            (stat("update_success"), stat("update_rejected"))
        };
        let before = counters(self);
        self.version += 1;
        write_lds(&self.dir, listeners, self.version);
        let within = process::READY_WITHIN;
        process::wait_until("Envoy reads its listeners", within, || {
            let now = counters(self);
            (now != before).then_some(now.0 > before.0)
        })
    }
}
