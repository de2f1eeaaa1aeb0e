//! The identity of a client: the corpus of `tests/identity`, on the policy layer.

#[path = "../../../tests/identity/format.rs"]
mod format;
use std::net::IpAddr;

use crate::support::{Request, Surfaced};
use format::{Case, Group, corpus};
use tollgate_policy::{Disposition, Surface};

/// One client may send one request; whole addresses are clients.
fn policy(settings: &str) -> String {
    let prefix = if settings == "{}" {
        r#"{"ipv6_prefix": 128}"#.into()
    } else {
        settings.replacen('{', r#"{"ipv6_prefix": 128, "#, 1)
    };
    format!(
        r#"{{"version": 1, "client_ip": {prefix}, "rules": [
        {{"name": "r", "key": ["client_ip"], "quotas": [{{"limit": 1, "window": "1h"}}]}}]}}"#
    )
}

fn request(peer: IpAddr, case: &Case) -> Request {
    let request =
        Request { peer: Some(peer), method: "GET", target: "/".into(), ..Request::default() };
    case.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// True when `case` is counted as a request of its client by `connection`.
fn is_counted_as_its_client(group: &Group, case: &Case, surface: Surface) -> bool {
    let mut surfaced = Surfaced::on(&policy(group.settings), surface);
    assert_eq!(surfaced.check(&request(group.peer, case), 0).answer, Disposition::Allow);
    // The same client without proxies: its remaining units show whether it was the counted one.
    let key = surfaced.plan.partition(0).unwrap().key().to_vec();
    let mut direct = Surfaced::on(&policy("{}"), surface);
    direct.check(&Request { peer: Some(case.client), ..Request::default() }, 0);
    key == direct.plan.partition(0).unwrap().key()
}

#[test]
fn the_corpus_of_spoofing() {
    for (surface, place) in [(Surface::Envoy, "envoy"), (Surface::Worker, "policy")] {
        let (groups, left_out) = corpus(place);
        let mut ran = 0;
        for group in &groups {
            for case in &group.cases {
                let counted = is_counted_as_its_client(group, case, surface);
                assert!(counted, "line {}: {case:?} on {surface:?}", case.line);
                ran += 1;
            }
        }
        let expected = if surface == Surface::Envoy { (65, 2) } else { (67, 0) };
        assert_eq!((ran, left_out), expected, "on {surface:?}");
    }
}
