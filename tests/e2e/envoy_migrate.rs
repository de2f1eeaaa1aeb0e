//! The statements of `docs/migrate.md` about Envoy's own filter: its example and Tollgate's, on the
//! same requests.
//!
//! Invariant: both configurations and the table of cases are read from the document, so the
//! document shows exactly what was compared, also where it states that the two differ.

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process;

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

const DOCUMENT: &str = include_str!("../../docs/migrate.md");
const MINUTE_NS: u64 = 60_000_000_000;
const START_NS: u64 = 1_000_000 * MINUTE_NS;

/// The block of `language` after `mark`.
fn block(mark: &str, language: &str) -> &'static str {
    let section = DOCUMENT.split("\n## Envoy's local_ratelimit").nth(1).expect("the section");
    let rest = section.split(mark).nth(1).unwrap_or_else(|| panic!("no {mark}"));
    let fenced = rest.split(&format!("```{language}\n")).nth(1).expect("a block");
    fenced.split("```").next().expect("its end")
}

fn yaml(file: &str) -> Value {
    let text = block(&format!("<!-- file: {file} -->"), "yaml");
    serde_yaml_ng::from_str(text).expect("YAML")
}

fn policy() -> Value {
    serde_json::from_str(block("<!-- surface: envoy -->", "json")).expect("JSON")
}

/// Envoy's filter, as the document configures it.
fn native() -> Listener {
    let shown = yaml("local_ratelimit.yaml");
    let filters = shown["http_filters"].as_array().expect("filters").clone();
    let manager = json!({"route_config": shown["route_config"]});
    Listener { manager, ..Listener::new("native", filters) }
}

/// Tollgate with `policy`, on the same routes without their limits.
fn ours(policy: &Value) -> Listener {
    let mut routes = yaml("local_ratelimit.yaml")["route_config"].take();
    let all = routes["virtual_hosts"][0]["routes"].as_array_mut().expect("routes");
    for route in all {
        route.as_object_mut().expect("a route").remove("typed_per_filter_config");
    }
    let reply = yaml("local_reply.yaml")["local_reply_config"].take();
    let manager = json!({"route_config": routes, "local_reply_config": reply});
    Listener { manager, ..Listener::new("ours", vec![tollgate(policy, "vm", As::Text)]) }
}

/// One Envoy with all of these, and the origins behind them; the clock does not advance until it is
/// set.
fn start(listeners: Vec<Listener>) -> Envoy {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let named = listeners.into_iter().zip(NAMES).map(|(one, name)| Listener { name, ..one });
    let mut listeners: Vec<Listener> = named.collect();
    let origin = Listener::new("origin", vec![]);
    let port = origin.port;
    listeners.push(origin);
    let mut setup = Setup::new(1, listeners);
    setup.origin = port;
    setup.clock_ns = Some(START_NS);
    setup.dynamic = true;
    setup.start()
}

/// A row of the table.
struct Case {
    row: &'static str,
    minutes: u64,
    is_new_connection: bool,
    request: Request,
    times: usize,
    there: Vec<u16>,
    here: Vec<u16>,
}

/// `5 minutes later, on a new connection, `GET /` with `x-user: a`, 4 times`, and the statuses.
fn case(row: &'static str) -> Case {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [requests, there, here] = cells[..] else { panic!("three cells: {row}") };
    let quoted: Vec<&str> = requests.split('`').collect();
    let (method, path) = quoted[1].split_once(' ').expect("a method and a path");
    let mut request = Request::new(method, path);
    if let Some((name, value)) = quoted.get(3).and_then(|header| header.split_once(": ")) {
        request = request.header(name, value);
    }
    let times = quoted.last().expect("how often").trim_start_matches(", ");
    let statuses = |cell: &str| -> Vec<u16> {
        let runs = cell.split(", ").map(|run| run.split_once(" × ").expect("so many of these"));
        let number = |text: &str| text.parse::<u16>().expect("a number");
        runs.flat_map(|(n, status)| vec![number(status); number(n).into()]).collect()
    };
    let minutes = quoted[0].split_once(" minutes later");
    Case {
        row,
        minutes: minutes.map_or(0, |(n, _)| n.parse().expect("a number")),
        is_new_connection: quoted[0].contains("on a new connection"),
        request,
        times: times.strip_suffix(" times").map_or(1, |n| n.parse().expect("a number")),
        there: statuses(there),
        here: if here == "the same" { statuses(there) } else { statuses(here) },
    }
}

fn statuses(client: &mut Client, request: &Request, times: usize) -> Vec<u16> {
    (0..times).map(|_| client.send(request).status).collect()
}

// Guards: an operator who migrates by the document gets the results of the table, and every
// difference is listed there.
#[test]
fn both_answer_as_the_table_says() {
    let envoy = start(vec![native(), ours(&policy())]);
    let table = DOCUMENT.split("| requests | there | here |\n|---|---|---|\n").nth(1);
    let rows = table.expect("a table").lines().take_while(|line| line.starts_with('|'));
    let connect = || [Client::connect(envoy.ports[0]), Client::connect(envoy.ports[1])];
    let mut clients = connect();
    let (mut now, mut same, mut differ) = (START_NS, 0, 0);
    for case in rows.map(case) {
        now += case.minutes * MINUTE_NS;
        envoy.set_clock(now);
        if case.is_new_connection {
            clients = connect();
        }
        let [there, here] =
            clients.each_mut().map(|client| statuses(client, &case.request, case.times));
        assert_eq!((there, here), (case.there.clone(), case.here.clone()), "{}", case.row);
        *(if case.there == case.here { &mut same } else { &mut differ }) += 1;
    }
    assert!(same >= 9 && differ >= 2, "{same} rows are the same, {differ} differ");
}

// Guards: fields, added fields and gRPC, where the document states that they are the same.
#[test]
fn refusals_say_the_same() {
    const SAME: [&str; 4] =
        ["x-ratelimit-limit", "x-ratelimit-remaining", "retry-after", "x-limited-by"];
    let envoy = start(vec![native(), ours(&policy())]);
    let user = Request::get("/").header("x-user", "a");
    let call = Request::post("/login", "").header("content-type", "application/grpc");
    let [there, here] = [0, 1].map(|listener| {
        let mut client = Client::connect(envoy.ports[listener]);
        let mut said = vec![];
        for _ in 0..4 {
            let answer = client.send(&user);
            said.push(SAME.map(|name| answer.header(name)));
            println!("{listener}: {:?}", answer.header("x-ratelimit-reset"));
        }
        let calls = statuses(&mut client, &call, 2);
        let refused = client.send(&call);
        (said, calls, refused.status, refused.header("grpc-status"))
    });
    assert_eq!(there, here);
    assert_eq!((there.2, there.3.as_deref()), (200, Some("8")));
    let text = |value: &str| Some(value.to_owned());
    assert_eq!(there.0[3], [text("3"), text("0"), text("1200"), text("envoy")]);
}

// Guards: rows of the table of fields that are the same, and that the example does not have.
#[test]
fn fields_that_the_example_lacks_become_what_the_document_says() {
    let changed = |change: Value| {
        let mut native = native();
        let config = native.filters[0]["typed_config"].as_object_mut().expect("fields");
        config.extend(change.as_object().expect("fields").clone());
        native
    };
    let user = Request::get("/").header("x-user", "a");
    // Only requests that match no descriptor take from the bucket of all.
    let bucket = json!({"max_tokens": 2, "tokens_per_fill": 2, "fill_interval": "3600s"});
    let change = json!({"always_consume_default_token_bucket": false, "token_bucket": bucket});
    let mut rest = policy();
    rest["rules"][0]["unless"] = json!({"headers": {"x-user": "*"}});
    rest["rules"][0]["quotas"][0]["limit"] = json!(2);
    let rest = (changed(change), rest);
    // One descriptor in shadow.
    let mut descriptors = native().filters[0]["typed_config"]["descriptors"].clone();
    descriptors[0]["shadow_mode"] = json!(true);
    let mut one = policy();
    one["rules"][1]["mode"] = json!("shadow");
    let one = (changed(json!({"descriptors": descriptors})), one);
    // Nothing is enforced, as by default.
    let mut none = policy();
    (0..3).for_each(|rule| none["rules"][rule]["mode"] = json!("shadow"));
    let none = (changed(json!({"filter_enforced": null})), none);

    // Each policy has counts of its own.
    let pairs = [("vm-a", rest), ("vm-b", one), ("vm-c", none)].into_iter();
    let envoy = start(
        pairs
            .flat_map(|(vm, (there, policy))| {
                let filters = vec![tollgate(&policy, vm, As::Text)];
                [there, Listener { filters, ..ours(&policy) }]
            })
            .collect(),
    );
    for listener in 0..6 {
        let mut client = Client::connect(envoy.ports[listener]);
        let users = statuses(&mut client, &user, 5);
        let others = statuses(&mut client, &Request::get("/"), 3);
        let (user, other) = match listener / 2 {
            0 => ([200, 200, 200, 429, 429], [200, 200, 429]),
            _ => ([200; 5], [200; 3]),
        };
        assert_eq!((&users[..], &others[..]), (&user[..], &other[..]), "listener {listener}");
    }
}

// Guards: the document's statements about defaults of the other filter: a status, gRPC, another
// configuration.
#[test]
fn defaults_and_updates_of_the_other_filter_are_as_told() {
    let native = |status: &str| {
        let mut native = native();
        let route = &mut native.manager["route_config"]["virtual_hosts"][0]["routes"][0];
        let config = &mut route["typed_per_filter_config"]["envoy.filters.http.local_ratelimit"];
        config["status"]["code"] = json!(status);
        config.as_object_mut().expect("fields").remove("rate_limited_as_resource_exhausted");
        native
    };
    let [first, second] = ["Found", "Conflict"].map(native);
    let mut envoy = start(vec![first, ours(&policy())]);
    let (there, port, behind) = (envoy.ports[0], envoy.ports[1], envoy.ports[2]);
    let login = Request::get("/login");
    let asked = |port| statuses(&mut Client::connect(port), &login, 3);
    assert_eq!(asked(there), [200, 200, 429], "302 is none of a refusal there");
    assert_eq!(asked(port), [200, 200, 503]);
    let call = Request::post("/login", "").header("content-type", "application/grpc");
    let refused = Client::connect(there).send(&call);
    assert_eq!(refused.header("grpc-status").as_deref(), Some("14"));
    // Another configuration of both.
    let mut policy = policy();
    policy["rules"][3]["action"]["deny"]["status"] = json!(409);
    let origin = Listener { port: behind, ..Listener::new("origin", vec![]) };
    let there_anew = Listener { name: "a", port: there, ..second };
    let listeners = [there_anew, Listener { name: "b", port, ..ours(&policy) }, origin];
    assert!(envoy.replace_listeners(&listeners));
    let is_new = || (asked(port) == [409; 3]).then_some(());
    process::wait_until("the new configuration is in force", process::READY_WITHIN, is_new);
    assert_eq!(asked(there), [200, 200, 409], "full buckets there, the same count here");
}

// Guards: the document's statement about a full table: in Envoy's filter the bucket of a returning
// client is a new one.
#[test]
fn a_full_table_forgets_there_and_not_here() {
    const USERS: usize = 30;
    const ROUNDS: usize = 6;
    const LIMIT: usize = 2;
    let with = |most: usize| {
        let mut native = native();
        let config = &mut native.filters[0]["typed_config"];
        config["token_bucket"]["max_tokens"] = json!(100_000);
        config["descriptors"][0]["token_bucket"]["max_tokens"] = json!(LIMIT);
        config["descriptors"][0]["token_bucket"]["tokens_per_fill"] = json!(LIMIT);
        config["max_dynamic_descriptors"] = json!(most);
        native
    };
    let mut policy = policy();
    policy["rules"][0]["quotas"][0]["limit"] = json!(100_000);
    policy["rules"][1]["quotas"][0]["limit"] = json!(LIMIT);
    // 20 is the default of the proto.
    let envoy = start(vec![with(20), with(1000), ours(&policy)]);
    let admitted = [0, 1, 2].map(|listener| {
        let mut client = Client::connect(envoy.ports[listener]);
        let users = (0..ROUNDS).flat_map(|_| 0..USERS);
        let request = |user| Request::get("/").header("x-user", format!("u{user}"));
        users.filter(|user| client.send(&request(*user)).status == 200).count()
    });
    assert_eq!(admitted, [USERS * ROUNDS, USERS * LIMIT, USERS * LIMIT]);
}

// Guards: Envoy's filter draws a share for each request, Tollgate selects it by key.
#[test]
fn a_share_is_of_requests_there_and_of_keys_here() {
    let mut native = native();
    let config = &mut native.filters[0]["typed_config"];
    config["filter_enforced"]["default_value"]["numerator"] = json!(50);
    config["token_bucket"]["max_tokens"] = json!(100_000);
    let mut policy = policy();
    policy["rules"][0]["quotas"][0]["limit"] = json!(100_000);
    policy["rules"][1]["mode"] = json!({"enforce_percent": 50, "salt": "d41b8f7c0e6a4935"});
    let envoy = start(vec![native, ours(&policy)]);
    // Per user, after the limit: denials of 60 requests.
    let [there, here] = [0, 1].map(|listener| {
        let mut client = Client::connect(envoy.ports[listener]);
        let refused = |user: usize| {
            let request = Request::get("/").header("x-user", format!("u{user}"));
            statuses(&mut client, &request, 3);
            statuses(&mut client, &request, 60).into_iter().filter(|one| *one == 429).count()
        };
        (0..12).map(refused).collect::<Vec<usize>>()
    });
    assert!(there.iter().all(|refused| (1..60).contains(refused)), "{there:?}");
    assert!(here.iter().all(|refused| [0, 60].contains(refused)), "{here:?}");
    assert!(here.contains(&0) && here.contains(&60), "{here:?}");
}
