//! Who the client is: the corpus of `tests/identity`, on the policy layer.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::arithmetic_side_effects)]

mod support;

use std::net::IpAddr;

use support::{Request, Surfaced};
use tollgate_policy::Answer;

const CORPUS: &str = include_str!("../../../tests/identity/spoofing.txt");

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

/// True when `request` is counted as a request of `client` by `connection`.
fn is_counted_as(settings: &str, request: &Request, client: IpAddr) -> bool {
    let mut surface = Surfaced::new(&policy(settings));
    assert_eq!(surface.check(request, 0).answer, Answer::Pass);
    // The same client without proxies: what it has left tells whether it was the one.
    let key = surface.plan.key(0).to_vec();
    let mut direct = Surfaced::new(&policy("{}"));
    direct.check(&Request { peer: Some(client), ..Request::default() }, 0);
    key == direct.plan.key(0)
}

#[test]
fn the_corpus_of_spoofing() {
    let (mut settings, mut peer, mut cases) = ("", None, 0);
    for (number, line) in CORPUS.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(text) = line.strip_prefix("settings: ") {
            settings = text;
        } else if let Some(text) = line.strip_prefix("peer: ") {
            peer = Some(text.parse().unwrap());
        } else {
            let (headers, client) = line.split_once("=>").unwrap();
            let mut request =
                Request { peer, method: "GET", target: "/".into(), ..Request::default() };
            for header in headers.trim().split(" | ").filter(|header| *header != "-") {
                let (name, value) = header.split_once(": ").unwrap();
                request = request.header(name, value.trim());
            }
            let client = client.trim().parse().unwrap();
            assert!(is_counted_as(settings, &request, client), "line {}: {line}", number + 1);
            cases += 1;
        }
    }
    assert!(cases > 50, "only {cases} cases were found");
}
