//! One request of the simplest policy, admitted: `cargo xtask bench files` lists the files whose
//! code runs for it.

use crate::waiting::{come, with_policy};
use tollgate_filter::filter::Flow;

/// The request, its response and its end, which alone are counted.
#[inline(never)]
fn counted(one: impl FnOnce()) {
    one();
}

#[test]
fn one_request_of_the_simplest_policy_is_admitted() {
    let policy = r#"{"version": 1, "rules": [{"name": "all", "key": [], "quotas": [{"limit": 100, "window": "1m"}]}]}"#;
    let (filter, world) = with_policy(policy.to_owned());
    let request = |id| {
        assert_eq!(come(&filter, &world, id, "/"), Flow::Continue);
        filter.on_response_headers(id);
        filter.on_delete(id);
    };
    // The first finds no bucket.
    request(10);
    counted(|| request(11));
}
