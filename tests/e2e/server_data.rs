//! Rules that survive the process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::wait_until;
use tollgate_e2e::server::{ADMIN_TOKEN, Setup};

const ENTRY: &str = r#"{"quotas": {"each": [{"limit": 5, "window": "1h"}]}}"#;

fn policy(limit: u64) -> Value {
    json!({"version": 1, "tenant": {"header": "x-tenant"}, "rules": [{"name": "each", "key": ["client_ip"], "quotas": [
        {"algorithm": "fixed-window", "limit": limit, "window": "366d"}]}]})
}

// Guards: every acknowledged write is there after `kill -9` in the middle of others.
#[test]
fn what_was_answered_is_there_after_a_crash() {
    let mut server = Setup::new(policy(1)).operated().set("data", "data").start();
    let read = server.operate("GET", "admin/policy", "", &[]);
    let tag = read.header("etag").expect("a tag");
    let put = server.operate("PUT", "admin/policy", &policy(7).to_string(), &[("if-match", &tag)]);
    assert!(put.status < 300, "{}", put.text());
    let mut acknowledged = 0;
    for round in 0..3 {
        let (answered, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let port = server.port;
        thread::scope(|scope| {
            scope.spawn(|| {
                let Ok(mut client) = Client::try_connect(port) else { return };
                while !is_over.load(Ordering::Relaxed) {
                    let n = answered.load(Ordering::Relaxed);
                    let target = format!("/.well-known/tollgate/admin/tenants/t{round}-{n}");
                    let request = Request::new("PUT", &target)
                        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
                        .header("content-type", "application/json")
                        .header("if-none-match", "*")
                        .body(ENTRY);
                    match client.try_send(&request) {
                        Ok(response) if response.status < 300 => {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(response) => panic!("{}: {}", response.status, response.text()),
                        Err(_) => return,
                    }
                }
            });
            wait_until("writes", Duration::from_secs(60), || {
                (answered.load(Ordering::Relaxed) > 20).then_some(())
            });
            server.crash();
            is_over.store(true, Ordering::Relaxed);
        });
        let answered = answered.into_inner();
        acknowledged += answered;
        for n in 0..answered {
            let path = format!("admin/tenants/t{round}-{n}");
            assert_eq!(server.operate("GET", &path, "", &[]).status, 200, "{path} of {answered}");
        }
    }
    assert!(acknowledged > 60);
    let read = server.operate("GET", "admin/policy", "", &[]);
    assert!(read.text().contains("\"limit\":7"), "{}", read.text());
    let history = server.operate("GET", "admin/policy/history", "", &[]).text();
    assert!(history.contains("\"put\""), "{history}");
}

#[test]
fn a_folder_that_is_damaged_or_taken_stops_the_start() {
    let mut server = Setup::new(policy(1)).operated().set("data", "data").start();
    let put = server.operate("PUT", "admin/tenants/a", ENTRY, &[("if-none-match", "*")]);
    assert!(put.status < 300, "{}", put.text());
    let put = server.operate("PUT", "admin/tenants/b", ENTRY, &[("if-none-match", "*")]);
    assert!(put.status < 300, "{}", put.text());
    server.server.kill();
    let rules = server.file("data").join("rules");
    let mut bytes = std::fs::read(&rules).expect("read");
    bytes[40] ^= 1;
    std::fs::write(&rules, &bytes).expect("written");
    let mut command = std::process::Command::new(tollgate_e2e::server::server_bin());
    command.env_clear().current_dir(server.file("")).args([
        "--policy",
        "policy.json",
        "--data",
        "data",
    ]);
    command.args(["--listen", "127.0.0.1:0", "--operations-listen", "127.0.0.1:0"]);
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("line 1 of rules is damaged; restore the file"), "{said}");
    assert_eq!(std::fs::read(&rules).expect("read"), bytes, "the file was touched");
}
