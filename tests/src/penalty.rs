//! A quota with a penalty, and the denials of it by `/check`.

use serde_json::{Value, json};

/// A day in milliseconds.
pub const DAY_MS: u64 = 86_400_000;

/// A quota that denies for a day, and with its penalty for two.
#[must_use]
pub fn policy() -> Value {
    let quota = json!({"name": "q", "limit": 2, "window": "1d", "penalty": ["2d", "9d"]});
    json!({"version": 1, "rules": [
        {"name": "shared", "key": [], "quotas": [{"limit": 1_000_000, "window": "1d"}]},
        {"name": "each", "key": ["client_ip"], "quotas": [quota]}]})
}

/// True when the penalty denied the request, by its first step. A server that remembers a denial
/// repeats it while another request starts the penalty.
pub fn is_first_step(denied: &Value) -> bool {
    assert_eq!(denied["decision"], "deny", "{denied}");
    let wait = denied["retry_after_ms"].as_u64().expect("a wait");
    let rules = denied["rules"].as_array().expect("rules");
    let is_penalised = rules.contains(&json!({"name": "each", "result": "penalised"}));
    let shortest = if is_penalised { DAY_MS } else { 0 };
    assert!(shortest < wait && wait <= 2 * DAY_MS, "{denied}");
    is_penalised
}
