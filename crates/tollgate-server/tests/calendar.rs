//! Counts by a calendar in the memory of a server: they follow the wall clock, and only they.

use std::time::Duration;

use serde_json::json;
use tollgate_core::Timestamp;
use tollgate_server::clock::Clock;

use crate::cases::{ask, gate_of};

/// 2026-11-30 23:00 UTC.
const NOVEMBER: u64 = 1_796_079_600;
const MINUTE: u64 = 60;

/// 2 per month for `/month`, and 2 in each hour for `/hour`.
fn policy() -> String {
    let rule = |(name, key): (&str, &str), path: &str, quota: &str| {
        json!({"name": name, "key": [key], "when": {"paths": [path]},
            "quotas": [serde_json::from_str::<serde_json::Value>(quota).expect("JSON")]})
    };
    let month =
        r#"{"limit": 2, "window": "1mo", "algorithm": "fixed-window", "align": "calendar"}"#;
    let hour = r#"{"limit": 2, "window": "1h", "algorithm": "fixed-window"}"#;
    let rules = [rule(("month", "path"), "/month", month), rule(("hour", "method"), "/hour", hour)];
    json!({"version": 1, "rules": rules}).to_string()
}

#[test]
fn a_month_begins_by_the_wall_clock() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        // The machine's clock was 90 minutes late when the server began, and is right since then.
        let clock = Clock::showing(Timestamp::from_millis((NOVEMBER - 90 * MINUTE) * 1_000));
        let gate = gate_of(policy(), clock.with_wall_ahead(90 * 60)).expect("a gate");
        let asked = |path: &'static str| {
            let gate = &gate;
            async move {
                let body = json!({"method": "GET", "path": path, "client_ip": "192.0.2.1"});
                let answer = ask(gate, &body).await;
                let policy = answer["headers"]["ratelimit-policy"].as_str().expect("a text");
                (answer["decision"] == "allow", policy.to_owned())
            }
        };
        let november = "\"month\";q=2;w=2592000".to_owned();
        for passes in [true, true, false] {
            assert_eq!(asked("/month").await, (passes, november.clone()));
            assert_eq!(asked("/hour").await.0, passes);
        }
        // It is 21:59:59 by the clock that never goes back, and 23:29:59 by the wall clock.
        tokio::time::advance(Duration::from_secs(30 * MINUTE - 1)).await;
        assert!(!asked("/hour").await.0);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(asked("/hour").await.0);
        tokio::time::advance(Duration::from_secs(30 * MINUTE - 1)).await;
        assert_eq!(asked("/month").await, (false, november));
        tokio::time::advance(Duration::from_secs(1)).await;
        for passes in [true, true, false] {
            assert_eq!(asked("/month").await, (passes, "\"month\";q=2;w=2678400".into()));
        }
    });
}
