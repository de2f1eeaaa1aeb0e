//! Penalties of the server: in memory, and shared by two servers in Redis.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::penalty::{is_first_step, policy};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{Setup, TollgateServer};
use tollgate_e2e::workerd::answer;

use crate::fleet_engine_redis::{Kind, Redis};

fn ask(client: &mut Client) -> Value {
    let body = json!({"method": "GET", "path": "/", "client_ip": "192.0.2.1"});
    answer(&client.send(&Request::post("/check", body.to_string())))
}

fn operate(server: &TollgateServer, what: &str) {
    let key = json!({"rule": "each", "key": ["192.0.2.1"]}).to_string();
    assert_eq!(server.operate("POST", &format!("admin/keys/{what}"), &key, &[]).status, 204);
}

fn starts_once(servers: &[TollgateServer]) {
    let mut clients: Vec<Client> = servers.iter().map(TollgateServer::client).collect();
    for _ in 0..2 {
        assert_eq!(ask(&mut clients[0])["decision"], "allow");
    }
    thread::scope(|scope| {
        let race = |server: &TollgateServer| {
            let mut client = server.client();
            scope.spawn(move || (0..50).map(|_| ask(&mut client)).collect::<Vec<_>>())
        };
        let racing: Vec<_> = servers.iter().cycle().take(8).map(race).collect();
        for denied in racing.into_iter().flat_map(|it| it.join().expect("replies")) {
            is_first_step(&denied);
        }
    });
    let last = servers.last().expect("a server");
    let shown = last.operate("GET", "admin/keys?rule=each&key=192.0.2.1", "", &[]);
    assert!(shown.text().contains("\"penalty_step\":1"), "{}", shown.text());
    // An unblock leaves the use, which the next denial punishes again; a reset leaves nothing.
    operate(last, "unblock");
    for client in &mut clients {
        assert!(is_first_step(&ask(client)));
    }
    operate(last, "reset");
    wait_until("every server finds the reset", Duration::from_secs(60), || {
        (ask(&mut clients[0])["decision"] == "allow").then_some(())
    });
}

// Guards: a denial that starts a penalty, and a store that writes charges alone.
#[test]
fn a_penalty_in_memory_starts_once_and_ends_when_an_operator_says() {
    starts_once(&[Setup::new(policy()).operated().start()]);
}

// Guards: servers that take two steps for one offence, or do not see the penalty of another.
#[test]
fn servers_that_share_a_store_start_a_penalty_once() {
    let redis = Redis::start(Kind::Plain);
    let start = || {
        let setup = Setup::new(policy()).operated().set("store", redis.address());
        setup.set("store_timeout", 5_000).set("store_tolerance", 2_000).start()
    };
    starts_once(&[start(), start()]);
}
