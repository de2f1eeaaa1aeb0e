//! A small proxy-wasm host: the shipped filter, with a clock that the test sets.
//!
//! A clock that requests can set must never exist in a shipped build, so decisions at chosen times
//! are tested on the built module itself, in this host. Shared data behaves as Envoy's does: `set`
//! on an absent name inserts whatever the number, on a present one only under its own (or 0). A
//! test may choose numbers that other hosts give ([`Numbers`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::LazyLock;

use serde_json::Value;
use wasmi::{Caller, Config, Engine, Extern, Instance, Linker, Memory, Module, Store, Val};

use crate::envoy_body::full_wasm;
use crate::envoy_server::{compiled, filter_wasm, reads_documents};

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const BAD_ARGUMENT: u32 = 2;
const CAS_MISMATCH: u32 = 8;

const ROOT: u32 = 1;

const BODY: &str = "proxy_on_response_body";

/// Stops a request with its body, regardless of `allow_on_headers_stop_iteration`.
const STOP_ALL: u32 = 4;

/// Compiled once, instantiated for every worker.
static FILTER: LazyLock<(Engine, Module)> =
    LazyLock::new(|| load(&Config::default(), &filter_wasm()));

/// The module that also reads bodies and searches values.
static FULL: LazyLock<(Engine, Module)> = LazyLock::new(|| load(&Config::default(), &full_wasm()));

/// The same, with a count of the instructions.
static METERED: LazyLock<(Engine, Module)> =
    LazyLock::new(|| load(Config::default().consume_fuel(true), &filter_wasm()));

/// More than any test uses.
const FUEL: u64 = 1 << 60;

fn load(config: &Config, wasm: &Path) -> (Engine, Module) {
    let engine = Engine::new(config);
    let wasm = fs::read(wasm).expect("the filter is readable");
    let module = Module::new(&engine, wasm).expect("the filter is a module");
    (engine, module)
}

/// The work of a new worker that reads this configuration, valid or not: about the number of
/// instructions.
pub fn work_to_configure(configuration: &[u8]) -> u64 {
    let mut filter = Filter::instantiate(&METERED, &Shared::default(), Some(FUEL));
    let before = filter.store.get_fuel().expect("it is metered");
    filter.configure(configuration);
    before - filter.store.get_fuel().expect("it is metered")
}

/// The numbering of the map's writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// One sequence for all names, as in Envoy.
    #[default]
    OneSequence,
    /// Each name counts its own writes.
    PerName,
    /// As in Envoy, and a write under `u32::MAX` replaces an existing value.
    NoInsertion,
}

/// The host's map, shared by several modules like that of Envoy's workers.
#[derive(Default)]
pub struct SharedMap {
    pub numbers: Numbers,
    pub entries: HashMap<Vec<u8>, (Vec<u8>, u32)>,
    last_cas: u32,
    /// The number of reads.
    pub looks: u32,
    /// Called before a write: the action of another worker in the meantime.
    pub meanwhile: Option<Box<dyn FnMut()>>,
}

pub type Shared = Rc<RefCell<SharedMap>>;

impl SharedMap {
    /// As in Envoy: a mismatch only for a present name and a number other than its own.
    pub fn set(&mut self, name: &[u8], value: &[u8], cas: u32) -> u32 {
        let own = self.entries.get(name).map(|(_, own)| *own);
        let is_blind = cas == 0 || cas == u32::MAX && self.numbers == Numbers::NoInsertion;
        if own.is_some_and(|own| !is_blind && cas != own) {
            return CAS_MISMATCH;
        }
        self.last_cas += 1;
        let number = match self.numbers {
            Numbers::OneSequence | Numbers::NoInsertion => self.last_cas,
            Numbers::PerName => own.unwrap_or(0) + 1,
        };
        self.entries.insert(name.to_vec(), (value.to_vec(), number));
        OK
    }
}

/// A request that the filter itself sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub number: u32,
    pub cluster: String,
    pub headers: Vec<(String, String)>,
    pub timeout_ms: u32,
}

/// The host's side of a module: its inputs and outputs.
struct World {
    now_ns: u64,
    /// The wall clock when the monotonic one is 0.
    booted_at_ns: u64,
    peer: String,
    status: u16,
    response_headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The piece of the response's body that passes.
    response_body: Vec<u8>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    marks: Vec<(String, String)>,
    configuration: Vec<u8>,
    shared: Shared,
    metrics: Vec<(String, i64)>,
    log: Vec<String>,
    reply: Option<Reply>,
    added: Vec<(String, String)>,
    tick_ms: u32,
    streams: Vec<u32>,
    effective: u32,
    resumed: Vec<u32>,
    calls: Vec<Call>,
    calls_made: u32,
    /// The response that is being delivered.
    called: (Vec<(String, String)>, Vec<u8>),
}

impl World {
    fn new(shared: &Shared) -> Self {
        Self {
            now_ns: 0,
            booted_at_ns: 0,
            peer: "192.0.2.1:1234".into(),
            status: 200,
            response_headers: vec![],
            response_body: vec![],
            headers: vec![],
            marks: vec![],
            configuration: vec![],
            shared: Rc::clone(shared),
            metrics: vec![],
            log: vec![],
            reply: None,
            added: vec![],
            tick_ms: 0,
            streams: vec![],
            effective: 0,
            resumed: vec![],
            calls: vec![],
            calls_made: 0,
            called: (vec![], vec![]),
        }
    }
}

/// A local response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u32,
    pub grpc_status: i32,
    pub details: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// The filter's action for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Allowed; these fields are added to the response.
    Passed(Vec<(String, String)>),
    /// Held; the stream's number.
    Held(u32),
    /// Denied, with this response.
    Refused(Reply),
}

impl Answer {
    pub fn passed(&self) -> bool {
        matches!(self, Self::Passed(_))
    }

    /// The field `name`, of a denial or of the response.
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = match self {
            Self::Passed(fields) => fields,
            Self::Refused(reply) => &reply.headers,
            Self::Held(_) => return None,
        };
        fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// One worker's instance of the filter.
pub struct Filter {
    store: Store<World>,
    instance: Instance,
    next: u32,
}

impl Filter {
    /// A worker that shares `shared`, with `policy` configured, compiled where the module reads no
    /// documents.
    pub fn new(policy: &Value, shared: &Shared) -> Self {
        let mut filter = Self::without_policy(shared);
        assert!(filter.configure_policy(policy), "{:?}", filter.log());
        filter
    }

    /// A worker on a machine that was started at `booted_at_ns` by its wall clock, after
    /// `uptime_ns`.
    pub fn on_machine(policy: &Value, shared: &Shared, machine: (u64, u64)) -> Self {
        Self::without_policy(shared).started(policy, machine).unwrap_or_else(|log| panic!("{log}"))
    }

    /// The same with the full module, where the one under test rejects the policy.
    pub fn full_on_machine(policy: &Value, shared: &Shared, machine: (u64, u64)) -> Self {
        let full = Self::instantiate(&FULL, shared, None);
        full.started(policy, machine).unwrap_or_else(|log| panic!("{log}"))
    }

    /// True when the module under test accepts a policy.
    pub fn accepts(policy: &Value) -> bool {
        Self::without_policy(&Shared::default()).configure_policy(policy)
    }

    fn started(
        mut self,
        policy: &Value,
        (booted_at_ns, uptime_ns): (u64, u64),
    ) -> Result<Self, String> {
        let world = self.store.data_mut();
        (world.booted_at_ns, world.now_ns) = (booted_at_ns, uptime_ns);
        let is_accepted = self.configure_policy(policy);
        if is_accepted { Ok(self) } else { Err(self.log().join("\n")) }
    }

    /// Sets the machine's wall clock: by it, the machine was started at `booted_at_ns`.
    pub fn set_wall_clock(&mut self, booted_at_ns: u64) {
        self.store.data_mut().booted_at_ns = booted_at_ns;
    }

    /// Configures `policy`, compiled where the module reads no documents; false when it is
    /// rejected.
    pub fn configure_policy(&mut self, policy: &Value) -> bool {
        let mut configuration = Vec::new();
        match if reads_documents() { None } else { compiled(policy) } {
            Some(plugin) => plugin.write_compiled(&mut configuration),
            None => configuration = policy.to_string().into_bytes(),
        }
        self.configure(&configuration)
    }

    /// A worker that is not configured yet.
    pub fn without_policy(shared: &Shared) -> Self {
        Self::instantiate(&FILTER, shared, None)
    }

    fn instantiate(
        (engine, module): &(Engine, Module),
        shared: &Shared,
        fuel: Option<u64>,
    ) -> Self {
        let mut store = Store::new(engine, World::new(shared));
        if let Some(fuel) = fuel {
            store.set_fuel(fuel).expect("it is metered");
        }
        let mut linker = Linker::new(engine);
        define(&mut linker);
        let instance = linker.instantiate_and_start(&mut store, module).expect("it starts");
        let mut filter = Self { store, instance, next: ROOT + 1 };
        filter.call::<()>("_initialize", &[]);
        filter.call::<()>("proxy_on_context_create", &[ROOT, 0]);
        filter
    }

    /// Passes a configuration to the module; false when it is rejected.
    pub fn configure(&mut self, configuration: &[u8]) -> bool {
        self.store.data_mut().configuration = configuration.to_vec();
        let len = u32::try_from(configuration.len()).expect("short");
        self.call::<u32>("proxy_on_configure", &[ROOT, len]) != 0
    }

    /// Sets the peer of the connection for the requests from now on.
    pub fn set_peer(&mut self, peer: IpAddr) {
        self.store.data_mut().peer = SocketAddr::new(peer, 1234).to_string();
    }

    /// Sets the status of the origin's responses from now on.
    pub fn set_status(&mut self, status: u16) {
        self.store.data_mut().status = status;
    }

    /// Sets the headers of the origin's responses.
    pub fn set_response_headers(&mut self, headers: &[(&str, &str)]) {
        let pair =
            |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        self.store.data_mut().response_headers = headers.iter().map(pair).collect();
    }

    /// The headers for the origin that were set since the last time.
    pub fn take_marks(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.store.data_mut().marks)
    }

    /// The response to a request that was held.
    pub fn take_reply(&mut self) -> Option<Reply> {
        self.store.data_mut().reply.take()
    }

    /// One request at a time, from its headers to its end.
    pub fn request(&mut self, now_ns: u64, headers: &[(&str, &[u8])]) -> Answer {
        let (id, answer) = self.begin(now_ns, headers);
        if !matches!(answer, Answer::Held(_)) {
            self.end(id);
        }
        answer
    }

    /// The same to the head of its response; the stream of the request goes on.
    pub fn begin(&mut self, now_ns: u64, headers: &[(&str, &[u8])]) -> (u32, Answer) {
        let id = self.start(now_ns, headers);
        let answer = match self.outcome(id) {
            Answer::Passed(_) => Answer::Passed(self.respond(id)),
            Answer::Held(_) => Answer::Held(id),
            Answer::Refused(reply) => Answer::Refused(self.replied(id, reply)),
        };
        (id, answer)
    }

    fn start(&mut self, now_ns: u64, headers: &[(&str, &[u8])]) -> u32 {
        let id = self.next;
        self.next += 1;
        let world = self.store.data_mut();
        world.now_ns = now_ns;
        world.reply = None;
        world.streams.push(id);
        let pair = |(name, value): &(&str, &[u8])| (name.as_bytes().to_vec(), value.to_vec());
        world.headers = headers.iter().map(pair).collect();
        self.call::<()>("proxy_on_context_create", &[id, ROOT]);
        id
    }

    fn outcome(&mut self, id: u32) -> Answer {
        let action: u32 = self.call("proxy_on_request_headers", &[id, 0, 1]);
        match (action, self.store.data_mut().reply.take()) {
            (0, None) => Answer::Passed(vec![]),
            (STOP_ALL, None) => Answer::Held(id),
            (STOP_ALL, Some(reply)) => Answer::Refused(reply),
            other => panic!("the filter answers and lets go on: {other:?}"),
        }
    }

    /// The origin responds to an allowed request; returns the fields that are added.
    pub fn respond(&mut self, id: u32) -> Vec<(String, String)> {
        self.store.data_mut().added.clear();
        assert_eq!(self.call::<u32>("proxy_on_response_headers", &[id, 0, 1]), 0);
        self.store.data().added.clone()
    }

    /// The local response `reply` passes the filter like any other; fields added to it become part
    /// of it.
    pub fn replied(&mut self, id: u32, mut reply: Reply) -> Reply {
        reply.headers.extend(self.respond(id));
        reply
    }

    /// A piece of the response's body passes, which only the full module reads.
    pub fn pass_body(&mut self, id: u32, piece: &[u8], is_last: bool) {
        if self.instance.get_func(&self.store, BODY).is_some() {
            self.store.data_mut().response_body = piece.to_vec();
            let len = u32::try_from(piece.len()).expect("short");
            assert_eq!(self.call::<u32>(BODY, &[id, len, is_last.into()]), 0);
        }
    }

    /// Sets the clock.
    pub fn set_now(&mut self, now_ns: u64) {
        self.store.data_mut().now_ns = now_ns;
    }

    /// The stream is over.
    pub fn end(&mut self, id: u32) {
        self.store.data_mut().streams.retain(|stream| *stream != id);
        self.call::<()>("proxy_on_delete", &[id]);
    }

    /// The timer fires; returns the streams that are released.
    pub fn tick(&mut self, now_ns: u64) -> Vec<u32> {
        self.store.data_mut().now_ns = now_ns;
        self.call::<()>("proxy_on_tick", &[ROOT]);
        std::mem::take(&mut self.store.data_mut().resumed)
    }

    /// The requests that the filter itself sent since the last time.
    pub fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.store.data_mut().calls)
    }

    /// Responds to one of them; without headers when the host has no response.
    pub fn answer_call(&mut self, call: &Call, headers: &[(&str, &str)], body: &[u8]) {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.store.data_mut().called = (headers.iter().map(own).collect(), body.to_vec());
        let len = |count: usize| u32::try_from(count).expect("short");
        let arguments = [ROOT, call.number, len(headers.len()), len(body.len()), 0];
        self.call::<()>("proxy_on_http_call_response", &arguments);
    }

    /// The period of the timer; 0 when it is off.
    pub fn tick_ms(&self) -> u32 {
        self.store.data().tick_ms
    }

    /// A counter of the filter, after the filter has reported its counts.
    pub fn metric(&mut self, name: &str) -> i64 {
        self.call::<()>("proxy_on_tick", &[ROOT]);
        let metrics = &self.store.data().metrics;
        metrics.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value)
    }

    /// All its log lines.
    pub fn log(&self) -> &[String] {
        &self.store.data().log
    }

    fn call<R: FromWasm>(&mut self, name: &str, arguments: &[u32]) -> R {
        let function = self.instance.get_func(&self.store, name);
        let function = function.unwrap_or_else(|| panic!("the filter does not export {name}"));
        let arguments: Vec<Val> = arguments.iter().map(|a| Val::I32(a.cast_signed())).collect();
        let mut results = vec![Val::I32(0); R::COUNT];
        let called = function.call(&mut self.store, &arguments, &mut results);
        called.unwrap_or_else(|e| panic!("{name} traps: {e}; log: {:?}", self.log()));
        R::read(&results)
    }
}

/// A result of an exported function.
trait FromWasm {
    const COUNT: usize;
    fn read(results: &[Val]) -> Self;
}

impl FromWasm for () {
    const COUNT: usize = 0;
    fn read(_: &[Val]) -> Self {}
}

impl FromWasm for u32 {
    const COUNT: usize = 1;
    fn read(results: &[Val]) -> Self {
        results[0].i32().expect("a number").cast_unsigned()
    }
}

fn memory(caller: &Caller<'_, World>) -> Memory {
    caller.get_export("memory").and_then(Extern::into_memory).expect("an exported memory")
}

fn read(caller: &Caller<'_, World>, at: u32, len: u32) -> Vec<u8> {
    memory(caller).data(caller)[at as usize..][..len as usize].to_vec()
}

fn text(caller: &Caller<'_, World>, at: u32, len: u32) -> String {
    String::from_utf8(read(caller, at, len)).expect("the filter writes UTF-8")
}

fn write(caller: &mut Caller<'_, World>, at: u32, bytes: &[u8]) {
    memory(caller).write(caller, at as usize, bytes).expect("inside the memory");
}

/// Returns bytes as the host does: in memory that the module allocates.
fn give(caller: &mut Caller<'_, World>, bytes: &[u8], data_at: u32, len_at: u32) {
    let malloc = caller.get_export("malloc").and_then(Extern::into_func).expect("malloc");
    let malloc = malloc.typed::<u32, u32>(&*caller).expect("malloc takes a length");
    let len = u32::try_from(bytes.len()).expect("short");
    let at = malloc.call(&mut *caller, len).expect("malloc gives room");
    write(caller, at, bytes);
    write(caller, data_at, &at.to_le_bytes());
    write(caller, len_at, &len.to_le_bytes());
}

fn serialise(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let number = |n: usize| u32::try_from(n).expect("short").to_le_bytes();
    let mut out = number(pairs.len()).to_vec();
    pairs.iter().for_each(|(k, v)| out.extend([number(k.len()), number(v.len())].concat()));
    pairs.iter().for_each(|(k, v)| out.extend([k, &b"\0"[..], v, &b"\0"[..]].concat()));
    out
}

fn deserialise(bytes: &[u8]) -> Vec<(String, String)> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4")) as usize;
    let count = number(0);
    let mut at = 4 + 8 * count;
    let mut take = |len: usize| {
        let text = String::from_utf8(bytes[at..at + len].to_vec()).expect("text");
        assert_eq!(bytes[at + len], 0);
        at += len + 1;
        text
    };
    (0..count).map(|i| (take(number(4 + 8 * i)), take(number(8 + 8 * i)))).collect()
}

/// Every host call that the filter makes.
fn define(linker: &mut Linker<World>) {
    type C<'a> = Caller<'a, World>;
    let env = "env";
    let wasi = "wasi_snapshot_preview1";
    linker
        .func_wrap(wasi, "clock_time_get", |mut c: C<'_>, clock: u32, _: u64, at: u32| {
            let World { now_ns, booted_at_ns, .. } = c.data();
            let now = match clock {
                0 => booted_at_ns + now_ns,
                1 => *now_ns,
                other => panic!("clock {other} is not read"),
            };
            write(&mut c, at, &now.to_le_bytes());
            OK
        })
        .expect("defined once")
        .func_wrap(wasi, "random_get", |mut c: C<'_>, at: u32, len: u32| {
            write(&mut c, at, &vec![7; len as usize]);
            OK
        })
        .expect("defined once")
        .func_wrap(env, "proxy_log", |mut c: C<'_>, _: u32, at: u32, len: u32| {
            let line = text(&c, at, len);
            c.data_mut().log.push(line);
            OK
        })
        .expect("defined once")
        .func_wrap(
            env,
            "proxy_get_buffer_bytes",
            |mut c: C<'_>, kind: u32, from: u32, most: u32, data: u32, len: u32| {
                let bytes = match kind {
                    1 => c.data().response_body[from as usize..].to_vec(),
                    4 => c.data().called.1.clone(),
                    7 => c.data().configuration.clone(),
                    other => panic!("buffer {other} is not read"),
                };
                give(&mut c, &bytes[..bytes.len().min(most as usize)], data, len);
                OK
            },
        )
        .expect("defined once")
        .func_wrap(
            env,
            "proxy_get_header_map_pairs",
            |mut c: C<'_>, map: u32, data: u32, len: u32| {
                let pairs = match map {
                    0 => serialise(&c.data().headers),
                    2 => serialise(&c.data().response_headers),
                    other => panic!("the map {other} is not read"),
                };
                give(&mut c, &pairs, data, len);
                OK
            },
        )
        .expect("defined once")
        .func_wrap(
            env,
            "proxy_add_header_map_value",
            |mut c: C<'_>, map: u32, name: u32, name_len: u32, value: u32, value_len: u32| {
                assert_eq!(map, 2, "fields go onto the response");
                let pair = (text(&c, name, name_len), text(&c, value, value_len));
                c.data_mut().added.push(pair);
                OK
            },
        )
        .expect("defined once")
        .func_wrap(env, "proxy_get_header_map_size", |mut c: C<'_>, map: u32, at: u32| {
            assert_eq!(map, 0, "only a request that waits is measured");
            let headers = c.data().headers.iter();
            let size: usize = headers.map(|(name, value)| name.len() + value.len()).sum();
            write(&mut c, at, &u32::try_from(size).expect("short").to_le_bytes());
            OK
        })
        .expect("defined once")
        .func_wrap(
            env,
            "proxy_get_header_map_value",
            |mut c: C<'_>, map: u32, name: u32, name_len: u32, data: u32, len: u32| {
                let name = text(&c, name, name_len);
                let value = match (map, name.as_str()) {
                    (2, ":status") => Some(c.data().status.to_string()),
                    (6, name) => {
                        let headers = &c.data().called.0;
                        headers.iter().find(|(known, _)| known == name).map(|(_, v)| v.clone())
                    }
                    other => panic!("{other:?} is not read"),
                };
                let Some(value) = value else { return NOT_FOUND };
                give(&mut c, value.as_bytes(), data, len);
                OK
            },
        )
        .expect("defined once")
        .func_wrap(
            env,
            "proxy_replace_header_map_value",
            |mut c: C<'_>, map: u32, name: u32, name_len: u32, value: u32, value_len: u32| {
                let (name, value) = (text(&c, name, name_len), text(&c, value, value_len));
                let world = c.data_mut();
                let fields = match map {
                    0 => &mut world.marks,
                    2 => &mut world.added,
                    other => panic!("no header of map {other} is set"),
                };
                fields.retain(|(known, _)| *known != name);
                fields.push((name, value));
                OK
            },
        )
        .expect("defined once")
        .func_wrap(
            env,
            "proxy_get_property",
            |mut c: C<'_>, path: u32, path_len: u32, data: u32, len: u32| match read(
                &c, path, path_len,
            )
            .as_slice()
            {
                b"source\0address" => {
                    let peer = c.data().peer.clone();
                    give(&mut c, peer.as_bytes(), data, len);
                    OK
                }
                b"plugin_name" => {
                    give(&mut c, b"tollgate", data, len);
                    OK
                }
                _ => NOT_FOUND,
            },
        )
        .expect("defined once");
    define_shared_data(linker);
    define_answers(linker);
}

fn define_shared_data(linker: &mut Linker<World>) {
    type C<'a> = Caller<'a, World>;
    linker
        .func_wrap(
            "env",
            "proxy_get_shared_data",
            |mut c: C<'_>, name: u32, name_len: u32, data: u32, len: u32, cas_at: u32| {
                let name = read(&c, name, name_len);
                c.data().shared.borrow_mut().looks += 1;
                let found = c.data().shared.borrow().entries.get(&name).cloned();
                let Some((value, cas)) = found else { return NOT_FOUND };
                give(&mut c, &value, data, len);
                write(&mut c, cas_at, &cas.to_le_bytes());
                OK
            },
        )
        .expect("defined once")
        .func_wrap(
            "env",
            "proxy_set_shared_data",
            |c: C<'_>, name: u32, name_len: u32, value: u32, value_len: u32, cas: u32| {
                let (name, value) = (read(&c, name, name_len), read(&c, value, value_len));
                let shared = Rc::clone(&c.data().shared);
                let meanwhile = shared.borrow_mut().meanwhile.take();
                if let Some(mut meanwhile) = meanwhile {
                    meanwhile(); // writes without being interrupted itself
                    shared.borrow_mut().meanwhile = Some(meanwhile);
                }
                shared.borrow_mut().set(&name, &value, cas)
            },
        )
        .expect("defined once");
}

fn define_answers(linker: &mut Linker<World>) {
    type C<'a> = Caller<'a, World>;
    let env = "env";
    linker
        .func_wrap(
            env,
            "proxy_send_local_response",
            |mut c: C<'_>,
             status: u32,
             details: u32,
             details_len: u32,
             body: u32,
             body_len: u32,
             headers: u32,
             headers_len: u32,
             grpc_status: i32| {
                let reply = Reply {
                    status,
                    grpc_status,
                    details: text(&c, details, details_len),
                    headers: deserialise(&read(&c, headers, headers_len)),
                    body: text(&c, body, body_len),
                };
                c.data_mut().reply = Some(reply);
                OK
            },
        )
        .expect("defined once")
        .func_wrap(
            env,
            "proxy_define_metric",
            |mut c: C<'_>, _: u32, name: u32, name_len: u32, at: u32| {
                let name = text(&c, name, name_len);
                let metrics = &mut c.data_mut().metrics;
                let known = metrics.iter().position(|(n, _)| *n == name);
                let id = known.unwrap_or_else(|| {
                    metrics.push((name, 0));
                    metrics.len() - 1
                });
                write(&mut c, at, &u32::try_from(id).expect("few").to_le_bytes());
                OK
            },
        )
        .expect("defined once")
        .func_wrap(env, "proxy_increment_metric", |mut c: C<'_>, id: u32, by: i64| {
            c.data_mut().metrics[id as usize].1 += by;
            OK
        })
        .expect("defined once")
        .func_wrap(
            env,
            "proxy_http_call",
            |mut c: C<'_>,
             cluster: u32,
             cluster_len: u32,
             headers: u32,
             headers_len: u32,
             _: u32,
             body_len: u32,
             trailers: u32,
             trailers_len: u32,
             timeout_ms: u32,
             at: u32| {
                assert_eq!(body_len, 0, "nothing is sent but a question");
                assert_eq!(deserialise(&read(&c, trailers, trailers_len)), []);
                let cluster = text(&c, cluster, cluster_len);
                let headers = deserialise(&read(&c, headers, headers_len));
                let world = c.data_mut();
                let number = world.calls_made;
                world.calls_made += 1;
                world.calls.push(Call { number, cluster, headers, timeout_ms });
                write(&mut c, at, &number.to_le_bytes());
                OK
            },
        )
        .expect("defined once")
        .func_wrap(env, "proxy_record_metric", |mut c: C<'_>, id: u32, value: u64| {
            c.data_mut().metrics[id as usize].1 = i64::try_from(value).expect("small");
            OK
        })
        .expect("defined once")
        .func_wrap(env, "proxy_set_tick_period_milliseconds", |mut c: C<'_>, ms: u32| {
            c.data_mut().tick_ms = ms;
            OK
        })
        .expect("defined once")
        .func_wrap(env, "proxy_set_property", |_: u32, _: u32, _: u32, _: u32| OK)
        .expect("defined once")
        .func_wrap(env, "proxy_set_effective_context", |mut c: C<'_>, id: u32| {
            if !c.data().streams.contains(&id) {
                return BAD_ARGUMENT;
            }
            c.data_mut().effective = id;
            OK
        })
        .expect("defined once")
        .func_wrap(env, "proxy_continue_stream", |mut c: C<'_>, _: u32| {
            let id = c.data().effective;
            c.data_mut().resumed.push(id);
            OK
        })
        .expect("defined once");
}
