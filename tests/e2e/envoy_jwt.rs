//! Counting by user behind Envoy's own jwt_authn filter: only verified claims are trusted.
//!
//! The tokens are fixed, so that no code of this project creates them: HS256 with [`SECRET`] as the
//! key.

use serde_json::{Value, json};
use tollgate_e2e::claims;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::tokens::{SECRET, signed};

use crate::envoy_server::{As, Envoy, Listener, Setup, tollgate};

/// `{"iss":"me","sub":"alice","uid":7,"exp":4102444800}`.
const ALICE: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJtZSIsInN1YiI6ImFsaWNlIiwidWlkIjo3LCJleHAiOjQxMDI0NDQ4MDB9.aZBaTbpELzLTSyUal2oQEGFyV9fo4UiZlLYSjV-g3fM";
/// `{"iss":"me","sub":"bob","uid":8,"exp":4102444800}`.
const BOB: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJtZSIsInN1YiI6ImJvYiIsInVpZCI6OCwiZXhwIjo0MTAyNDQ0ODAwfQ.lKyfyUbgarEcae0EAfB0Ubdp0W35iKc-uxw0JCVo4B0";
/// Alice's claims, signed with another key.
const FORGED: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJtZSIsInN1YiI6ImFsaWNlIiwidWlkIjo3LCJleHAiOjQxMDI0NDQ4MDB9.EAd-SRuILE0P9boeloFcoFqOkuzTWqxh6JaLFSdraas";
/// Alice's claims, but from 1970.
const EXPIRED: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJtZSIsInN1YiI6ImFsaWNlIiwidWlkIjo3LCJleHAiOjF9.L0bu3q9qPDfaLlJNh5mm2RSCUXBN7QkM-IX5Hi2CeIc";
/// `{"iss":"me","exp":4102444800}`.
const NOBODY: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJtZSIsImV4cCI6NDEwMjQ0NDgwMH0.hLpcAA0gjv4-eAtvpDSYYLUoEpk6PpjgMS8WNc1gyAQ";

/// Verifies tokens and lets every request continue, also with an invalid token or without any.
fn jwt_authn() -> Value {
    let keys = json!({"keys": [{"kty": "oct", "alg": "HS256", "k": SECRET}]});
    json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {"p": {
                "issuer": "me",
                "payload_in_metadata": "payload",
                "forward": true,
                "local_jwks": {"inline_string": keys.to_string()},
            }},
            "rules": [{"match": {"prefix": "/"}, "requires": {"requires_any": {"requirements": [
                {"provider_name": "p"}, {"allow_missing_or_failed": {}},
            ]}}}],
        },
    })
}

/// Three requests per hour for each value of the claim.
fn start(claim: &str, on_missing: &str, before: &[Value]) -> Envoy {
    let policy = json!({"version": 1, "jwt": {"metadata": "payload"}, "rules": [{
        "name": "user",
        "key": [{"jwt_claim": claim}],
        "on_missing": on_missing,
        "quotas": [{"limit": 3, "window": "1h"}],
    }]});
    let filters = [before, &[tollgate(&policy, "vm", As::Text)]].concat();
    Setup::new(2, vec![Listener::new("main", filters)]).start()
}

// Guards: a claim that is a number read as text because its bytes look like text, and the other way
// round; and a number that counts elsewhere under another spelling. The same table as for the
// Worker and the command line.
#[test]
fn a_claim_counts_by_the_text_that_the_table_says() {
    let rows = claims::rows();
    let policy =
        json!({"version": 1, "jwt": {"metadata": "payload"}, "rules": claims::rules(&rows)});
    let filters = vec![jwt_authn(), tollgate(&policy, "vm", As::Text)];
    let envoy = Setup::new(1, vec![Listener::new("main", filters)]).start();
    let payload =
        |row: &claims::Row| format!("{{\"iss\":\"me\",\"exp\":4102444800,\"c\":{}}}", row.json);
    let tokens = signed(&rows.iter().map(payload).collect::<Vec<_>>());
    let mut wrong = vec![];
    for (row, token) in rows.iter().zip(tokens) {
        let request = Request::get("/").header("authorization", format!("Bearer {token}"));
        let answer = envoy.client().send(&request);
        let field = answer.header("ratelimit-policy");
        if answer.status != 200 || field != claims::expected_field(&rows, row.text.as_deref()) {
            wrong.push(format!("{}: {} {field:?}", row.json, answer.status));
        }
    }
    assert!(wrong.is_empty() && rows.len() >= 40, "{}", wrong.join("\n"));
}

/// How many of the next nine requests with this token pass before the first denial.
fn admitted(client: &mut Client, token: &str) -> usize {
    let request = Request::get("/").header("authorization", format!("Bearer {token}"));
    (0..9).take_while(|_| client.send(&request).status == 200).count()
}

// A user is counted in the same way on every connection, by a claim that is text and by one that is
// a number.
#[test]
fn users_are_counted_by_a_verified_claim() {
    for claim in ["sub", "uid"] {
        let envoy = start(claim, "skip", &[jwt_authn()]);
        assert_eq!(admitted(&mut envoy.client(), ALICE), 3, "{claim}");
        assert_eq!(admitted(&mut envoy.client(), BOB), 3, "{claim}");
        for mut client in envoy.clients(4) {
            assert_eq!((admitted(&mut client, ALICE), admitted(&mut client, BOB)), (0, 0));
        }
        assert_eq!(envoy.stat("wasmcustom.tollgate.failures"), 0);
    }
}

// No client can use up Alice's quota with an unverified token in her name, nor hide behind one.
#[test]
fn a_token_that_was_not_verified_is_never_read() {
    let bad = [FORGED, EXPIRED, NOBODY, "", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."];
    let envoy = start("sub", "skip", &[jwt_authn()]);
    let mut client = envoy.client();
    for token in bad {
        assert_eq!(admitted(&mut client, token), 9, "the rule does not apply to {token:?}");
    }
    assert_eq!(admitted(&mut client, ALICE), 3, "nothing was charged to her");
    assert_eq!(envoy.decisions("user", "allowed"), 3);

    let envoy = start("sub", "deny", &[jwt_authn()]);
    let mut client = envoy.client();
    for token in bad {
        assert_eq!(admitted(&mut client, token), 0, "{token:?} names no user");
    }
    assert_eq!(client.send(&Request::get("/")).status, 429);
    assert_eq!(admitted(&mut client, ALICE), 3);
}

// Without the filter in front nothing is verified, so no claim is read.
#[test]
fn without_a_verifier_there_are_no_users() {
    let envoy = start("sub", "deny", &[]);
    assert_eq!(admitted(&mut envoy.client(), ALICE), 0);
    let envoy = start("sub", "skip", &[]);
    assert_eq!(admitted(&mut envoy.client(), ALICE), 9);
}
