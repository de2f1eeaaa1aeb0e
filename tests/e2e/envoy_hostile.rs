//! The built module in a host that tries to trap it: every export, in any order, about any context,
//! also during a call of the module's, with results that are failures or nonsense.
//!
//! The law about the filter (`crates/tollgate-filter/tests/hostile.rs`) tries more; this test has
//! the shipped exports, memory and code. The host keeps one promise: the bytes that it returns are
//! where `malloc` put them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::json;
use tollgate_test_support::Random;
use wasmi::{Caller, Engine, Extern, Func, Instance, Linker, Module, Store, Val, ValType};

use crate::envoy_body::full_wasm;
use crate::envoy_server::filter_wasm;

/// Contexts have numbers below this one, so that they coincide.
const IDS: u64 = 10;

/// Calls nested in calls, at most.
const DEEPEST: u32 = 4;

/// The exports that a host calls, apart from `malloc`, and the number of arguments of each.
const CALLS: [(&str, usize); 9] = [
    ("_initialize", 0),
    ("proxy_abi_version_0_2_1", 0),
    ("proxy_on_context_create", 2),
    ("proxy_on_configure", 2),
    ("proxy_on_tick", 1),
    ("proxy_on_http_call_response", 5),
    ("proxy_on_request_headers", 3),
    ("proxy_on_response_headers", 3),
    ("proxy_on_delete", 1),
];

/// Those that the full module exports in addition.
const CALLS_OF_BODIES: [(&str, usize); 2] =
    [("proxy_on_response_body", 3), ("proxy_on_response_trailers", 2)];

struct World {
    is_full: bool,
    random: Random,
    depth: u32,
    now_ns: u64,
    shared: HashMap<Vec<u8>, (Vec<u8>, u32)>,
    policy: Vec<u8>,
    calls: u64,
}

impl World {
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn junk(&mut self) -> Vec<u8> {
        (0..self.below(60)).map(|_| u8::try_from(self.below(256)).expect("a byte")).collect()
    }
}

fn number(value: Option<&Val>) -> u32 {
    match value {
        Some(Val::I32(n)) => n.cast_unsigned(),
        _ => 0,
    }
}

fn exported(caller: &Caller<'_, World>, name: &str) -> Func {
    caller.get_export(name).and_then(Extern::into_func).unwrap_or_else(|| panic!("no {name}"))
}

fn memory(caller: &Caller<'_, World>) -> wasmi::Memory {
    caller.get_export("memory").and_then(Extern::into_memory).expect("an exported memory")
}

fn write(caller: &mut Caller<'_, World>, at: u32, bytes: &[u8]) {
    let at = usize::try_from(at).expect("an address");
    memory(caller).write(caller, at, bytes).expect("inside the memory");
}

fn read(caller: &Caller<'_, World>, at: u32, len: u32) -> Vec<u8> {
    let (at, len) = (usize::try_from(at).expect("fits"), usize::try_from(len).expect("fits"));
    memory(caller).data(caller)[at..][..len].to_vec()
}

/// The arguments of a call: context numbers, chosen at random.
fn arguments(world: &mut World, name: &str, count: usize) -> Vec<Val> {
    let mut ids: Vec<u64> = (0..count).map(|_| world.below(IDS)).collect();
    if name == "proxy_on_context_create" && world.below(2) == 0 {
        ids[1] = 0; // a root
    }
    ids.into_iter().map(|id| Val::I32(i32::try_from(id).expect("small"))).collect()
}

/// Any call of the host, inside one of the module's.
fn call_back(caller: &mut Caller<'_, World>) {
    let world = caller.data_mut();
    world.depth += 1;
    let more = if world.is_full { &CALLS_OF_BODIES[..] } else { &[] };
    let calls = [&CALLS, more].concat();
    let which = usize::try_from(world.below(calls.len() as u64)).expect("small");
    let (name, count) = calls[which];
    let arguments = arguments(world, name, count);
    let function = exported(caller, name);
    let mut results = vec![Val::I32(0); function.ty(&*caller).results().len()];
    let called = function.call(&mut *caller, &arguments, &mut results);
    called.unwrap_or_else(|error| panic!("{name} traps inside a call of its own: {error}"));
    caller.data_mut().depth -= 1;
}

/// Puts bytes into memory from the module's `malloc`; returns a status.
fn give(caller: &mut Caller<'_, World>, bytes: &[u8], data_at: u32, len_at: u32) -> i32 {
    let len = i32::try_from(bytes.len()).expect("short");
    let mut results = [Val::I32(0)];
    let malloc = exported(caller, "malloc");
    malloc.call(&mut *caller, &[Val::I32(len)], &mut results).expect("malloc does not trap");
    let at = number(results.first());
    assert!(at != 0 || bytes.is_empty(), "there is room");
    if at != 0 {
        write(caller, at, bytes);
    }
    write(caller, data_at, &at.to_le_bytes());
    write(caller, len_at, &len.to_le_bytes());
    0
}

fn headers() -> Vec<u8> {
    let json = ("content-type", "application/json");
    let pairs = [(":method", "GET"), (":path", "/"), (":authority", "a"), ("x-key", "k"), json];
    let number = |n: usize| u32::try_from(n).expect("short").to_le_bytes();
    let mut out = number(pairs.len()).to_vec();
    pairs.iter().for_each(|(k, v)| out.extend([number(k.len()), number(v.len())].concat()));
    pairs.iter().for_each(|(k, v)| out.extend(format!("{k}\0{v}\0").into_bytes()));
    out
}

/// One call of the module's, with any result.
fn answer(caller: &mut Caller<'_, World>, name: &str, given: &[Val]) -> i32 {
    caller.data_mut().calls += 1;
    if caller.data_mut().below(12) == 0 && caller.data().depth < DEEPEST {
        call_back(caller);
    }
    let world = caller.data_mut();
    if world.below(8) == 0 {
        let statuses = [1, 2, 3, 6, 7, 8, 10, 12];
        return statuses[usize::try_from(world.below(statuses.len() as u64)).expect("small")];
    }
    let is_junk = world.below(8) == 0;
    let argument = |i: usize| number(given.get(i));
    let mut bytes = if is_junk { world.junk() } else { b"200".to_vec() };
    match name {
        "proxy_get_buffer_bytes" => {
            let is_body = argument(0) == 1;
            let usual = if is_body { b"{\"n\": [1]}".to_vec() } else { world.policy.clone() };
            bytes = if is_junk { bytes } else { usual };
            give(caller, &bytes, argument(3), argument(4))
        }
        "proxy_get_header_map_pairs" => {
            bytes = if is_junk { bytes } else { headers() };
            give(caller, &bytes, argument(1), argument(2))
        }
        "proxy_get_header_map_value" => give(caller, &bytes, argument(3), argument(4)),
        "proxy_get_property" => give(caller, &bytes, argument(2), argument(3)),
        "proxy_get_shared_data" => {
            let key = read(caller, argument(0), argument(1));
            let Some((value, cas)) = caller.data().shared.get(&key).cloned() else { return 1 };
            write(caller, argument(4), &cas.to_le_bytes());
            give(caller, if is_junk { &bytes } else { &value }, argument(2), argument(3))
        }
        "proxy_set_shared_data" => {
            let key = read(caller, argument(0), argument(1));
            let value = read(caller, argument(2), argument(3));
            let cas = argument(4).wrapping_add(2);
            caller.data_mut().shared.insert(key, (value, cas));
            0
        }
        "proxy_define_metric" => {
            write(caller, argument(3), &[1, 0, 0, 0]);
            0
        }
        "proxy_get_header_map_size" => {
            let size = u32::try_from(caller.data_mut().below(1 << 32)).expect("32 bits");
            write(caller, argument(1), &size.to_le_bytes());
            0
        }
        "clock_time_get" => {
            let world = caller.data_mut();
            world.now_ns += world.below(if is_junk { 3_000_000_000 } else { 1_000_000 });
            let now = world.now_ns;
            write(caller, argument(2), &now.to_le_bytes());
            0
        }
        "random_get" => {
            let len = usize::try_from(argument(1)).expect("short");
            write(caller, argument(0), &vec![7; len]);
            0
        }
        _ => 0,
    }
}

fn start(engine: &Engine, module: &Module, seed: u64, is_full: bool) -> (Store<World>, Instance) {
    let delay = json!({"delay": {"max": "2s"}});
    let rule = |algorithm: &str| {
        json!({
            "name": algorithm, "key": [{"header": "x-key"}], "action": delay,
            "quotas": [{"limit": 2, "window": "1s", "burst": 4, "algorithm": algorithm}],
        })
    };
    let policy = json!({"version": 1, "rules": [rule(if seed.is_multiple_of(2) { "gcra" } else { "leaky-queue" })]});
    let body = json!({"version": 1, "rules": [{
        "name": "body", "key": [],
        "cost": {"estimate": 2, "max": 4, "actual": {"json": ["/n/0"], "identity": true}},
        "quotas": [{"limit": 1000, "window": "1s"}],
    }]});
    let policy = if is_full { body } else { policy };
    let policy = policy.to_string().into_bytes();
    let shared = HashMap::new();
    let mut store = Store::new(
        engine,
        World { is_full, random: Random::new(seed), depth: 0, now_ns: 1, shared, policy, calls: 0 },
    );
    let mut linker = Linker::new(engine);
    for import in module.imports() {
        let ty = import.ty().func().expect("only functions are imported").clone();
        assert_eq!(ty.results(), [ValType::I32], "every call answers a status");
        let name = import.name().to_owned();
        let func = Func::new(&mut store, ty, move |mut caller, given, results| {
            results[0] = Val::I32(answer(&mut caller, &name, given));
            Ok(())
        });
        linker.define(import.module(), import.name(), func).expect("defined once");
    }
    let instance = linker.instantiate_and_start(&mut store, module).expect("it starts");
    (store, instance)
}

#[test]
fn no_call_and_no_answer_traps_the_module() {
    try_all(&filter_wasm(), false);
}

#[test]
fn no_call_and_no_body_traps_the_full_module() {
    try_all(&full_wasm(), true);
}

fn try_all(wasm: &Path, is_full: bool) {
    const ROUNDS: u64 = 10;
    let engine = Engine::default();
    let wasm = fs::read(wasm).expect("the filter is readable");
    let module = Module::new(&engine, wasm).expect("the filter is a module");
    let mut calls = 0;
    for round in 0..ROUNDS {
        let (mut store, instance) = start(&engine, &module, round, is_full);
        for step in 0..1_500 {
            let world = store.data_mut();
            let (name, count) = match (step, world.below(60)) {
                (0..40, _) => [("proxy_on_context_create", 2), ("proxy_on_configure", 2)][step % 2],
                (_, 0) => CALLS[0],
                (_, 1) => CALLS[3],
                (_, n) if is_full && n.is_multiple_of(3) => CALLS_OF_BODIES[usize::from(n < 9)],
                (_, n) => CALLS[[2, 2, 4, 5, 5, 5, 6, 7][usize::try_from(n % 8).expect("small")]],
            };
            let arguments = arguments(world, name, count);
            let function = instance.get_func(&store, name).unwrap_or_else(|| panic!("no {name}"));
            let mut results = vec![Val::I32(0); function.ty(&store).results().len()];
            let called = function.call(&mut store, &arguments, &mut results);
            called.unwrap_or_else(|error| {
                panic!("round {round}, step {step}: {name} traps: {error}")
            });
        }
        calls += store.data().calls;
    }
    println!("{calls} calls of the module");
    assert!(calls > 4_000, "only {calls}: the law tried too little");
}

// The host allocates memory during its own calls: too much is null, which the host treats as a
// failure.
#[test]
fn memory_that_is_not_there_is_null() {
    let engine = Engine::default();
    let wasm = fs::read(filter_wasm()).expect("the filter is readable");
    let module = Module::new(&engine, wasm).expect("the filter is a module");
    let (mut store, instance) = start(&engine, &module, 0, false);
    let malloc = instance.get_func(&store, "malloc").expect("malloc");
    for len in [0, i32::MAX, -1, i32::MIN, 1 << 30] {
        let mut results = [Val::I32(1)];
        malloc.call(&mut store, &[Val::I32(len)], &mut results).expect("no trap");
        assert_eq!(number(results.first()), 0, "{len}");
    }
    // As much as there is, and then no more.
    let mut taken = 0;
    for _ in 0..10_000 {
        let mut results = [Val::I32(1)];
        malloc.call(&mut store, &[Val::I32(1 << 20)], &mut results).expect("no trap");
        if number(results.first()) == 0 {
            break;
        }
        taken += 1;
    }
    assert!((256..=512).contains(&taken), "{taken} MiB");
}
