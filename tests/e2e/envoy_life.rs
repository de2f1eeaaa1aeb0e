//! The shared parts of the tests of a configuration's life: an Envoy whose filter a control plane
//! replaces, clients that send requests without a pause, and crowds that wait.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::crowd::{End, Fate, Member};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::{self, TempDir};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// Far longer than anything here takes: an event that has not happened by then never does.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The pause between a denial and the client's next request, for the others on this machine.
const PAUSE: Duration = Duration::from_micros(500);

/// How the control plane replaces the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Listener discovery: another listener, the earlier one drains.
    Listeners,
    /// Extension configuration discovery: another filter in the same listener.
    Extension,
}

/// A quota that returns nothing while a test runs.
pub fn log(name: &str, limit: usize) -> Value {
    json!({"name": name, "limit": limit, "window": "1d", "algorithm": "sliding-log"})
}

/// The filter with its code in another file.
pub fn with_code(mut filter: Value, path: &Path) -> Value {
    filter["typed_config"]["config"]["vm_config"]["code"] = json!({"local": {"filename": path}});
    filter
}

/// The filter with these rules, and a rule with the policy's number in its name, for a path that
/// only the probe uses.
pub fn filter(rules: &[Value], number: usize) -> Value {
    let name = format!("policy-{number}");
    let probe = json!({
        "name": name, "when": {"paths": ["/probe"]}, "key": [],
        "quotas": [{"limit": 1_000_000, "window": "1s"}],
    });
    let rules = [rules, &[probe]].concat();
    let waiting = json!({"per_key": 1_000, "total": 1_000});
    tollgate(&json!({"version": 1, "waiting": waiting, "rules": rules}), "vm", As::Text)
}

/// An Envoy with one listener, whose filter is replaced.
pub struct Life {
    pub envoy: Envoy,
    by: By,
    port: u16,
    dir: TempDir,
    version: u32,
}

impl Life {
    /// Two workers with this filter; a replaced listener is drained for `drain_s` seconds.
    pub fn start(by: By, filter: &Value, drain_s: u32) -> Self {
        let (dir, port) = (TempDir::new("life"), process::free_port());
        let filter = match by {
            By::Listeners => filter.clone(),
            By::Extension => {
                write_extension(dir.path(), filter, 1);
                json!({"name": "tollgate", "config_discovery": {
                    "config_source": {
                        "path_config_source": {"path": extension_file(dir.path())},
                        "resource_api_version": "V3",
                    },
                    "type_urls": ["type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"],
                }})
            }
        };
        let mut setup = Setup::new(2, vec![listener(port, filter)]);
        (setup.dynamic, setup.drain_s) = (by == By::Listeners, drain_s);
        Self { envoy: setup.start(), by, port, dir, version: 1 }
    }

    /// Replaces the filter; true when Envoy accepted it.
    pub fn put(&mut self, filter: &Value) -> bool {
        if self.by == By::Listeners {
            return self.envoy.replace_listeners(&[listener(self.port, filter.clone())]);
        }
        let before = self.extension();
        self.version += 1;
        write_extension(self.dir.path(), filter, self.version);
        process::wait_until("Envoy reads the extension", process::READY_WITHIN, || {
            let now = self.extension();
            (now != before).then_some(now.0 > before.0)
        })
    }

    /// The number of updates that Envoy rejected.
    pub fn rejected(&self) -> u64 {
        match self.by {
            By::Listeners => self.envoy.stat("listener_manager.lds.update_rejected"),
            By::Extension => self.extension().1,
        }
    }

    fn extension(&self) -> (u64, u64) {
        let name = |last| format!("extension_config_discovery.http_filter.tollgate.{last}");
        let stat = |last| self.envoy.stat(&name(last));
        (stat("update_success"), stat("update_rejected"))
    }

    /// Removes the listener, while another one keeps the machines and their metrics.
    pub fn remove(&mut self, filter: &Value) {
        let other = Listener::new("other", vec![filter.clone()]);
        assert!(self.envoy.replace_listeners(&[other]));
    }

    /// True when every worker has the policy with this number.
    pub fn all_have(&self, number: usize) -> bool {
        let expected = format!(r#""policy-{number}""#);
        let says_it = |client: &mut Client| {
            let said = client.send(&Request::get("/probe")).header("ratelimit-policy");
            said.is_some_and(|said| said.contains(&expected))
        };
        // This many connections are spread over all workers.
        self.envoy.clients(16).iter_mut().all(says_it)
    }

    /// Replaces the filter and waits until every worker has it.
    pub fn change(&mut self, filter: &Value, number: usize) {
        assert!(self.put(filter), "{}", self.envoy.server.log());
        process::wait_until("all workers have it", process::READY_WITHIN, || {
            self.all_have(number).then_some(())
        });
    }

    /// A file next to the configuration.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }
}

pub fn listener(port: u16, filter: Value) -> Listener {
    Listener { port, ..Listener::new("main", vec![filter]) }
}

fn extension_file(dir: &Path) -> PathBuf {
    dir.join("extension.json")
}

fn write_extension(dir: &Path, filter: &Value, version: u32) {
    let response = json!({"version_info": version.to_string(), "resources": [{
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "tollgate",
        "typed_config": filter["typed_config"],
    }]});
    let partial = dir.join("extension.partial");
    fs::write(&partial, response.to_string()).expect("no file");
    fs::rename(partial, extension_file(dir)).expect("it does not move");
}

/// The results of clients that send requests without a pause.
pub struct Tally {
    /// Allowed requests, by key.
    pub admitted: Vec<AtomicUsize>,
    pub refused: AtomicUsize,
    /// Responses of 503, which no rule here gives.
    pub failed: AtomicUsize,
    /// The connection ended without a response.
    pub lost: AtomicUsize,
    is_over: AtomicBool,
}

impl Tally {
    pub fn new(keys: usize) -> Self {
        Self {
            admitted: (0..keys).map(|_| AtomicUsize::new(0)).collect(),
            refused: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// How many requests of each key were allowed.
    pub fn counts(&self) -> Vec<usize> {
        self.admitted.iter().map(get).collect()
    }

    pub fn sum(&self) -> usize {
        self.counts().iter().sum()
    }

    /// Makes all clients stop.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits for this many denials from now on.
    pub fn wait_for_refusals(&self, more: usize) {
        let until = get(&self.refused) + more;
        process::wait_until("refusals", PATIENCE, || (get(&self.refused) >= until).then_some(()));
    }

    /// Sends requests for one key after the other until the end, on a connection that is renewed
    /// after `renewed_after` requests.
    pub fn hammer(&self, port: u16, request_of: impl Fn(usize) -> Request, renewed_after: usize) {
        let mut client = Client::connect(port);
        for number in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if number % renewed_after == renewed_after - 1 {
                client = connect(port);
            }
            client.renew_if_closed();
            let key = number % self.admitted.len();
            let (counter, pause) = match client.try_send(&request_of(key)) {
                Ok(response) => match response.status {
                    200 => (&self.admitted[key], Duration::ZERO),
                    429 => (&self.refused, PAUSE),
                    503 => (&self.failed, PAUSE),
                    other => panic!("status {other}"),
                },
                Err(error) => {
                    let hangs = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
                    assert!(!hangs.contains(&error.kind()), "a request hangs: {error}");
                    client = connect(port);
                    (&self.lost, Duration::ZERO)
                }
            };
            counter.fetch_add(1, Ordering::Relaxed);
            thread::sleep(pause);
        }
    }
}

/// Waits until a process listens, and connects.
fn connect(port: u16) -> Client {
    process::wait_until("somebody listens", PATIENCE, || Client::try_connect(port).ok())
}

/// The decisions of a rule that let requests continue, at once or later, as far as they are
/// reported. Where clients send requests without a pause they are never all reported, nor are those
/// of a lost machine.
pub fn counted(envoy: &Envoy, rule: &str) -> usize {
    let stats = envoy.stats();
    let rule = format!("wasmcustom.tollgate.decisions.plugin=tollgate.rule={rule}.");
    let of = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        let goes_on = name.ends_with("result=allowed") || name.ends_with("result=delayed");
        (name.starts_with(&rule) && goes_on).then(|| value.parse::<usize>().ok())?
    };
    stats.lines().filter_map(of).sum()
}

pub fn get(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::Relaxed)
}

/// `count` requests for one path whose clients wait for their responses, every second one over
/// HTTP/2.
pub fn crowd(path: &str, count: usize) -> Vec<Member> {
    let request = Arc::new(Request::get(path));
    let member =
        |i| Member { request: Arc::clone(&request), is_http2: i % 2 == 0, fate: Fate::Stays };
    (0..count).map(member).collect()
}

/// How a crowd ended: passed, and ended without a response; none hangs.
pub fn passed_and_lost(ends: &[End]) -> (usize, usize) {
    assert!(!ends.contains(&End::Hung), "somebody hangs: {ends:?}");
    let passed = ends.iter().filter(|end| **end == End::Answer(200)).count();
    (passed, ends.len() - passed)
}
