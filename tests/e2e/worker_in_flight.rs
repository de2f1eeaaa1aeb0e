//! Limits on requests in flight in a real workerd: in front of an origin, where every end of a
//! response frees a place, and for callers of `/check`, which report the ends.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{ANSWER_WITHIN, Client, Request};
use tollgate_e2e::in_flight::{self, LIMIT, done, fill, renew};
use tollgate_e2e::login::Login;
use tollgate_e2e::process::{self, READY_WITHIN, wait_until};
use tollgate_e2e::workerd::{Setup, Workerd, answer, node_bin};

use crate::worker_admin::{READER, asks, body, operated};
use crate::worker_failure::trapping;
use crate::worker_origin::{Received, serve};

const KEYS: &str = "/.well-known/tollgate/admin/keys";
const SECRET: &str = "the secret that names objects";
const CLIENT: &str = "192.0.2.1";
const QUOTA: u64 = 1_000_000;

/// A limit for each user, next to a quota.
fn policy(limit: usize, max_age: &str) -> Value {
    json!({"version": 1, "rules": [{
        "name": "each",
        "key": [{"header": "x-user"}],
        "quotas": [{"limit": QUOTA, "window": "366d", "algorithm": "fixed-window"}],
        "concurrency": {"limit": limit, "max_age": max_age},
        "action": {"deny": {"status": 403}},
    }]})
}

fn of(user: &str, target: &str) -> Request {
    Request::get(target).header("x-user", user)
}

fn start(policy: &Value, origin: &str) -> Workerd {
    operated(policy).binding("ORIGIN", origin).start()
}

fn in_front(policy: &Value, login: &Login) -> Workerd {
    start(policy, &format!("http://127.0.0.1:{}", login.port))
}

/// The requests in flight of a key, or what else it has used, as an operator sees it.
fn counted(worker: &Workerd, rule: &str, key: &str) -> u64 {
    let target = format!("{KEYS}?rule={rule}&key={key}");
    let shown = body(&worker.client().send(&asks(READER, "GET", &target, "")));
    shown["quotas"].get(0).map_or(0, |quota| quota["used"].as_u64().expect("a number"))
}

fn runs(worker: &Workerd, user: &str) -> u64 {
    counted(worker, "each.concurrency", user)
}

fn wait_for(worker: &Workerd, user: &str, count: u64) {
    wait_until("the places", READY_WITHIN, || (runs(worker, user) == count).then_some(()));
}

fn connect(worker: &Workerd, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", worker.port)).expect("a connection");
    stream.set_read_timeout(Some(ANSWER_WITHIN)).expect("a time limit");
    stream.write_all(request).expect("it is sent");
    stream
}

/// Reads until this text came.
fn read(stream: &mut TcpStream, until: &str) {
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !text.contains(until) {
        let read = process::read(stream, &mut piece).expect("more");
        assert!(read > 0, "it ended after {text}");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
}

// Guards: one more than the limit at the same time; a place that is lost or freed twice; a quota
// that a request is charged to which found no place; and a denial that is remembered.
#[test]
fn no_more_than_the_limit_run_at_once_and_every_end_frees_one() {
    let login = Login::start();
    let worker = in_front(&policy(LIMIT, "1h"), &login);
    for round in 1..=3 {
        let mut clients: Vec<Client> = (0..60).map(|_| worker.client()).collect();
        let before = login.arrived();
        login.hold(true);
        clients.iter_mut().for_each(|client| client.start(&of("u", "/200")).expect("taken"));
        wait_until("each is held or denied", READY_WITHIN, || {
            let denied = clients.iter_mut().filter(|client| client.has_answer()).count();
            (login.arrived() - before + denied == 60).then_some(())
        });
        assert_eq!((login.arrived() - before, runs(&worker, "u")), (LIMIT, LIMIT as u64));
        let denied = worker.client().send(&of("u", "/200"));
        assert_eq!((denied.status, denied.header("retry-after")), (403, None));
        assert_eq!(body(&denied)["violated-policies"], json!(["each.concurrency"]));
        login.hold(false);
        let statuses = clients.iter_mut().map(|it| it.finish(false).expect("answered").status);
        assert_eq!(statuses.filter(|status| *status == 200).count(), LIMIT);
        wait_for(&worker, "u", 0);
        assert_eq!(counted(&worker, "each", "u"), round * LIMIT as u64, "denied ones pay nothing");
    }
    assert!(login.most_at_once() <= LIMIT);
}

// Guards: more than the limit at the origin, and a request that waits for a place and is forgotten.
#[test]
fn requests_wait_for_a_place() {
    const CROWD: usize = 8;
    for limit in [1, 2] {
        let login = Login::start();
        let mut policy = policy(limit, "1h");
        policy["rules"][0]["action"] = json!({"delay": {"max": "60s"}});
        let worker = in_front(&policy, &login);
        let mut clients: Vec<Client> = (0..CROWD).map(|_| worker.client()).collect();
        for client in &mut clients {
            client.start(&of("u", "/200").header("x-pause-ms", "200")).expect("taken");
        }
        for client in &mut clients {
            assert_eq!(client.finish(false).expect("answered").status, 200);
        }
        assert!(login.most_at_once() <= limit, "{} at once", login.most_at_once());
        wait_for(&worker, "u", 0);
        assert_eq!(counted(&worker, "each", "u"), CROWD as u64, "each is charged once");
    }
}

/// The response to the key of a handshake (RFC 6455, 4.2.2).
fn accept(key: &str) -> String {
    let hash = "process.stdout.write(require('crypto').createHash('sha1').update(process.argv[1]).digest('base64'))";
    let key = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let output = Command::new(node_bin()).args(["-e", hash, &key]).output().expect("Node starts");
    String::from_utf8(output.stdout).expect("base64")
}

/// An origin with an end of each kind; `/endless` sends until its client leaves.
fn origin(has_ended: &Arc<AtomicBool>) -> String {
    let has_ended = Arc::clone(has_ended);
    serve(move |request: &mut Received| match request.target.as_str() {
        "/204" => request.send("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"),
        "/304" => request.send("HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n"),
        "/empty" => request.answer("200 OK", "", ""),
        "/moved" => request.answer("302 Found", "location: /empty\r\n", "moved"),
        "/head" => {
            request.send("HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\n")
        }
        "/short" => {
            request.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nabc");
        }
        "/none" => {}
        "/switch" => request.send(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: other\r\nconnection: upgrade\r\n\r\n",
        ),
        "/socket" => {
            let key = request.header("sec-websocket-key").expect("a handshake").to_owned();
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade";
            let accept = accept(&key);
            request.send(format!("{head}\r\nsec-websocket-accept: {accept}\r\n\r\n"));
            while !has_ended.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
        }
        "/endless" => {
            request
                .send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n");
            while request.try_send("5\r\npiece\r\n") {
                thread::sleep(Duration::from_millis(1));
            }
            has_ended.store(true, Ordering::SeqCst);
        }
        _ => request.answer("200 OK", "", "plain"),
    })
}

// Guards: an end that frees no place. The limit is one, so each must be free before the next.
#[test]
fn every_kind_of_end_frees_the_place() {
    let has_ended = Arc::new(AtomicBool::new(false));
    let worker = start(&policy(1, "1h"), &origin(&has_ended));
    let ends = [
        ("GET", "/plain", 200),
        ("GET", "/empty", 200),
        ("GET", "/204", 204),
        ("GET", "/304", 304),
        ("GET", "/moved", 302),
        ("HEAD", "/head", 200),
        ("GET", "/short", 0),
        ("GET", "/none", 502),
        ("GET", "/switch", 502),
        ("CHUNKS", "/plain", 411),
        ("GET", "/plain", 200),
    ];
    for (method, target, status) in ends {
        let mut client = worker.client();
        if method == "CHUNKS" {
            let head = "GET /plain HTTP/1.1\r\nhost: x\r\nx-user: u\r\ntransfer-encoding: chunked";
            let mut stream =
                connect(&worker, format!("{head}\r\n\r\n1\r\nx\r\n0\r\n\r\n").as_bytes());
            read(&mut stream, "HTTP/1.1 411");
        } else {
            client.start(&Request::new(method, target).header("x-user", "u")).expect("taken");
            let response = client.finish(method == "HEAD");
            assert_eq!(response.map_or(0, |it| it.status), status, "{method} {target}");
        }
        wait_for(&worker, "u", 0);
    }
    // A client that leaves in the middle, also one that has read nothing.
    for until in ["piece", ""] {
        has_ended.store(false, Ordering::SeqCst);
        let mut stream = connect(&worker, &of("u", "/endless").to_bytes());
        read(&mut stream, until);
        wait_for(&worker, "u", 1);
        assert_eq!(worker.client().send(&of("u", "/plain")).status, 403);
        drop(stream);
        wait_until("the origin has lost its client", READY_WITHIN, || {
            has_ended.load(Ordering::SeqCst).then_some(())
        });
        wait_for(&worker, "u", 0);
    }
    assert_eq!(worker.client().send(&of("u", "/plain")).status, 200);
}

// Guards: streams that outlive `max_age` and are forgotten, so that more than the limit run; the
// time before the head of the response counts as well, and that of a client that does not read.
#[test]
fn a_request_is_counted_for_as_long_as_it_runs() {
    let has_ended = Arc::new(AtomicBool::new(false));
    let worker = start(&policy(1, "4s"), &origin(&has_ended));
    let silent = connect(&worker, &of("silent", "/endless").to_bytes());
    let mut reader = connect(&worker, &of("reader", "/endless").to_bytes());
    let login = Login::start();
    let held = in_front(&policy(1, "4s"), &login);
    login.hold(true);
    let mut waits = held.client();
    waits.start(&of("u", "/200")).expect("taken");
    wait_for(&held, "u", 1);
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(200));
        read(&mut reader, "piece");
        for user in ["silent", "reader"] {
            assert_eq!(worker.client().send(&of(user, "/plain")).status, 403, "{user}");
        }
        assert_eq!(held.client().send(&of("u", "/200")).status, 403);
    }
    drop((silent, reader));
    wait_for(&worker, "silent", 0);
    wait_for(&worker, "reader", 0);
    login.hold(false);
    assert_eq!(waits.finish(false).expect("answered").status, 200);
    wait_for(&held, "u", 0);
}

// Guards: places of a killed isolate that never return, and those of a connection whose end is not
// seen.
#[test]
fn what_nothing_confirms_returns_by_expiry() {
    let has_ended = Arc::new(AtomicBool::new(false));
    let mut worker = start(&policy(3, "2s"), &origin(&has_ended));
    let upgrade = "GET /socket HTTP/1.1\r\nhost: x\r\nx-user: s\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut socket = connect(&worker, upgrade.as_bytes());
    read(&mut socket, "HTTP/1.1 101");
    wait_for(&worker, "s", 0);
    has_ended.store(true, Ordering::SeqCst);

    let streams = [(); 3].map(|()| connect(&worker, &of("u", "/endless").to_bytes()));
    wait_for(&worker, "u", 3);
    worker.kill();
    drop(streams);
    worker.restart();
    wait_for(&worker, "u", 0);
    assert_eq!(worker.client().send(&of("u", "/plain")).status, 200);
}

/// Aborts the wasm in a request to `/abort`.
const ABORTS: &str = r#"
import Tollgate from "./entry.mjs";
export { Metrics, Policies, Tenants } from "./entry.mjs";

export default class extends Tollgate {
  fetch(request) {
    if (!request.url.endsWith("/abort")) return super.fetch(request);
    return super.fetch(new Proxy(request, {
      get(target, name) {
        if (name === "url") return bomb;
        const value = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    }));
  }
}
"#;

// Guards: responses that end with the instance that counts them, or whose places never return.
#[test]
fn an_aborted_instance_ends_no_stream() {
    let (go, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let origin = {
        let (go, sent) = (Arc::clone(&go), Arc::clone(&sent));
        serve(move |request: &mut Received| {
            request.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst");
            sent.fetch_add(1, Ordering::SeqCst);
            while !go.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            request.send(" half");
        })
    };
    let mut rules = policy(1, "2s");
    rules["rules"][0]["cost"] = json!({"estimate": 1, "max": 100, "actual": "bytes"});
    let setup = operated(&rules).front(&trapping(ABORTS)).binding("ORIGIN", &origin);
    let worker = setup.start();
    let mut stream = connect(&worker, &of("u", "/").to_bytes());
    read(&mut stream, "first");
    let aborted = worker.client().send(&Request::get("/abort"));
    assert_eq!(aborted.status, 500);
    assert_eq!(runs(&worker, "u"), 1);
    go.store(true, Ordering::SeqCst);
    read(&mut stream, " half");
    wait_for(&worker, "u", 0);
    assert_eq!(worker.client().send(&of("u", "/")).text(), "first half");
}

// Guards: places that stay taken of requests that another key denied.
#[test]
fn a_request_that_another_key_denies_keeps_no_place() {
    let login = Login::start();
    let mut rules = policy(LIMIT, "1h");
    rules["rules"].as_array_mut().expect("rules").push(json!({"name": "all", "key": [],
        "concurrency": {"limit": 3, "max_age": "1h"}}));
    let worker = in_front(&rules, &login);
    let mut clients: Vec<Client> = (0..20).map(|_| worker.client()).collect();
    login.hold(true);
    clients.iter_mut().for_each(|client| client.start(&of("u", "/200")).expect("taken"));
    wait_until("each is held or denied", READY_WITHIN, || {
        let denied = clients.iter_mut().filter(|client| client.has_answer()).count();
        (login.arrived() + denied == 20).then_some(())
    });
    let arrived = login.arrived() as u64;
    assert!((1..=3).contains(&arrived), "{arrived}");
    wait_for(&worker, "u", arrived);
    login.hold(false);
    clients.iter_mut().for_each(|client| drop(client.finish(false).expect("answered")));
    wait_for(&worker, "u", 0);
    assert_eq!(counted(&worker, "each", "u"), arrived);
}

fn service(max_age: &str) -> Setup {
    let rules = in_flight::policy(max_age);
    operated(&rules).binding("HASH_KEY", SECRET).beside(&rules)
}

// Guards: callers that race through isolates, ends that are counted twice, and requests of callers
// that are gone.
#[test]
fn callers_of_check_report_the_ends() {
    let worker = service("1h").start();
    let connect = |i: usize| Client::connect(worker.ports[i % 2]);
    let count = || counted(&worker, "each", CLIENT);
    let mut ids: Vec<String> = thread::scope(|scope| {
        let each = |i: usize| {
            let mut caller = connect(i);
            scope.spawn(move || {
                (0..3).filter_map(|_| in_flight::id(&mut caller, CLIENT)).collect::<Vec<_>>()
            })
        };
        let racing: Vec<_> = (0..20).map(each).collect();
        racing.into_iter().flat_map(|it| it.join().expect("ids")).collect()
    });
    assert_eq!((ids.len(), count()), (LIMIT, LIMIT as u64));
    let mut callers = [connect(0), connect(1)];
    for _ in 0..3 {
        let ended = ids.pop().expect("an id");
        for caller in [0, 1, 1, 0] {
            done(&mut callers[caller], &ended);
        }
        assert_eq!(count(), LIMIT as u64 - 1, "one end frees one");
        assert_eq!(renew(&mut callers[1], &ended), json!({"result": "expired"}));
        ids.extend(fill(&mut callers[0], CLIENT));
        assert_eq!(ids.len(), LIMIT);
    }
    let renewed = renew(&mut callers[1], &ids[0]);
    assert_eq!(
        (&renewed["result"], &renewed["renew_after_ms"]),
        (&json!("renewed"), &json!(1_200_000))
    );
    let several = |ids: &[String]| {
        let each: Vec<Value> = ids.iter().map(|id| json!({ "id": id })).collect();
        Request::post("/check/done", json!({ "requests": each }).to_string())
    };
    let answers = answer(&callers[0].send(&several(&[ids[0].clone(), "AA".to_owned()])));
    assert_eq!(answers["answers"][0], json!({"result": "done"}));
    assert_eq!(answers["answers"][1]["status"], 400);
    answer(&callers[0].send(&several(&ids)));
    assert_eq!(count(), 0);
    // What is not confirmed is forgotten.
    let worker = service("1s").start();
    let mut caller = worker.client();
    let ids: Vec<_> = (0..LIMIT).filter_map(|_| in_flight::id(&mut caller, CLIENT)).collect();
    wait_until("the places of a killed caller are free", READY_WITHIN, || {
        (counted(&worker, "each", CLIENT) == 0).then_some(())
    });
    assert_eq!(renew(&mut caller, &ids[0]), json!({"result": "expired"}));
}

/// A Worker that calls the methods of the service binding by the names in its request's path.
const CALLER: &str = r#"
import Tollgate from "./entry.mjs";
export { Tollgate };
export { Limiter, Metrics, Policies, Tenants } from "./entry.mjs";

export default {
  async fetch(request, env) {
    const name = new URL(request.url).pathname.slice(1);
    if (!["check", "renew", "done"].includes(name)) return env.TOLLGATE.fetch(request);
    try {
      return Response.json(await env.TOLLGATE[name](await request.json()));
    } catch (error) {
      return Response.json({ name: error.name, message: error.message });
    }
  },
};
"#;

// Guards: a binding whose caller cannot end a request.
#[test]
fn a_service_binding_reports_the_ends() {
    let rules = in_flight::policy("1h");
    let front = |setup: Setup| setup.front(CALLER).service_binding("TOLLGATE").start();
    let worker = front(operated(&rules).binding("HASH_KEY", SECRET));
    let mut client = worker.client();
    let asked = json!({"method": "GET", "path": "/", "client_ip": CLIENT});
    let mut call =
        |name: &str, asked: &Value| answer(&client.send(&Request::post(name, asked.to_string())));
    let checked = call("/check", &asked);
    assert_eq!(checked["in_flight"]["renew_after_ms"], 1_200_000, "{checked}");
    let renewed = call("/renew", &checked["in_flight"]["id"]);
    assert_eq!(renewed["result"], "renewed", "{renewed}");
    assert_eq!(counted(&worker, "each", CLIENT), 1);
    for id in [&renewed["id"], &checked["in_flight"]["id"]] {
        assert_eq!(call("/done", id), json!({"result": "done"}));
    }
    assert_eq!(counted(&worker, "each", CLIENT), 0);
    assert_eq!(call("/renew", &renewed["id"]), json!({"result": "expired"}));
    let wrong = call("/done", &json!("AA"));
    assert_eq!(wrong["name"], "TypeError", "{wrong}");
    // Without the secret there are no ids: nothing is allowed that its caller could not end.
    let worker = front(operated(&rules).binding("ORIGIN", "http://127.0.0.1:9"));
    let thrown = answer(&worker.client().send(&Request::post("/check", asked.to_string())));
    assert!(thrown["message"].as_str().is_some_and(|it| it.contains("HASH_KEY")), "{thrown}");
    assert_eq!(counted(&worker, "each", CLIENT), 0);
}

// Guards: a service that allows requests which nothing can end.
#[test]
fn a_service_without_the_secret_refuses_the_limit_by_name() {
    let worker = Setup::new(in_flight::policy("60s")).start();
    let health = worker.client().send(&Request::get("/.well-known/tollgate/health"));
    assert_eq!(health.status, 500);
    assert_eq!(body(&health)["errors"][0]["path"], "rules[0].concurrency");
    assert_eq!(worker.client().send(&Request::post("/check/done", "{}")).status, 500);
}
