//! Each credential and each host has one count, in any spelling: through a real Envoy, over
//! HTTP/1.1 and HTTP/2. HTTP/2 values keep the white space that HTTP/1.1 removes.
//!
//! Invariant: of all spellings that an origin reads as one value, exactly one request is allowed
//! under a limit of 1.

use serde_json::{Value, json};
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::http2;
use tollgate_e2e::values::{padded, unreadable};

use crate::envoy_server::{Envoy, Setup};

fn start(rule: &Value) -> Envoy {
    let mut rule = rule.clone();
    rule["name"] = json!("r");
    rule["quotas"] = json!([{"limit": 1, "window": "1h"}]);
    Setup::policy(2, &json!({"version": 1, "rules": [rule]})).start()
}

/// The status over HTTP/2 of a GET with these fields.
fn h2(envoy: &Envoy, authority: &[u8], path: &[u8], fields: &[(&[u8], &[u8])]) -> Option<u16> {
    let pseudo: [(&[u8], &[u8]); 4] =
        [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", authority), (b":path", path)];
    http2::status_of(envoy.ports[0], &[&pseudo, fields].concat())
}

#[test]
fn white_space_makes_no_new_key() {
    let envoy = start(&json!({"key": [{"header": "x-api-key"}]}));
    for credential in ["secret", "another", "third"] {
        let mut statuses: Vec<Option<u16>> = padded(credential)
            .iter()
            .map(|value| h2(&envoy, b"a.example", b"/", &[(b"x-api-key", value.as_bytes())]))
            .collect();
        let mut client = envoy.client();
        statuses.extend(
            padded(credential).iter().map(|value| {
                Some(client.send(&Request::get("/").header("x-api-key", value)).status)
            }),
        );
        assert_eq!(statuses.len(), 102);
        assert_eq!(statuses.iter().filter(|s| **s == Some(200)).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|s| matches!(s, Some(200 | 429))), "{statuses:?}");
    }
}

#[test]
fn another_line_or_element_makes_no_new_key() {
    let envoy = start(&json!({"key": [{"header": "x-api-key"}]}));
    let name = b"x-api-key";
    let send = |values: &[&str]| {
        let fields: Vec<(&[u8], &[u8])> =
            values.iter().map(|value| (&name[..], value.as_bytes())).collect();
        let over_2 = h2(&envoy, b"a.example", b"/", &fields);
        let get = values.iter().fold(Request::get("/"), |get, value| get.header(name, value));
        assert_eq!(over_2, Some(envoy.client().send(&get).status), "{values:?}");
        over_2
    };
    assert_eq!(h2(&envoy, b"a.example", b"/", &[(name, b"secret")]), Some(200));
    for same in [&["secret", "secret"][..], &["secret,secret"], &["", "secret"], &[",\tsecret ,"]] {
        assert_eq!(send(same), Some(429), "{same:?}");
    }
    for i in 0..20 {
        let other = format!("x{i}");
        for values in [&["secret", &other][..], &[&other, "secret"], &["", &other, "secret"]] {
            assert_eq!(send(values), Some(400), "{values:?}");
        }
        assert_eq!(send(&[&format!("secret,{other}")]), Some(400));
    }
    assert!(envoy.decisions("r", "malformed") >= 160);
    assert_eq!(envoy.decisions("r", "allowed"), 1);
}

// A value with bytes that HTTP forbids is rejected by Envoy, or by the filter; it is never a new
// key.
#[test]
fn control_characters_and_folds_make_no_new_key() {
    let envoy = start(&json!({"key": [{"header": "x-api-key"}]}));
    let send = |value: &[u8]| h2(&envoy, b"a.example", b"/", &[(b"x-api-key", value)]);
    assert_eq!(send(b"secret"), Some(200));
    for byte in (0..0x20).chain([0x7f]) {
        let status = send(&[b"secret", &[byte][..]].concat());
        let expected: &[Option<u16>] =
            if byte == b'\t' { &[Some(429)] } else { &[None, Some(400), Some(429)] };
        assert!(expected.contains(&status), "{byte:#x}: {status:?}");
    }
    let folded = Request::get("/").header("x-api-key", "secret\r\n ");
    let status = envoy.client().try_send(&folded).map(|answer| answer.status);
    assert!(!matches!(status, Ok(200)), "{status:?}");
    assert_eq!(envoy.decisions("r", "allowed"), 1);
}

#[test]
fn cookies_and_query_values_make_no_new_key() {
    let cookie = start(&json!({"key": [{"cookie": "sid"}]}));
    let h2_cookies = |lines: &[&str]| {
        let fields: Vec<(&[u8], &[u8])> =
            lines.iter().map(|line| (&b"cookie"[..], line.as_bytes())).collect();
        h2(&cookie, b"a.example", b"/", &fields)
    };
    let mut client = cookie.client();
    let mut h1_cookies = |lines: &[&str]| {
        let get = lines.iter().fold(Request::get("/"), |get, line| get.header("cookie", line));
        Some(client.send(&get).status)
    };
    assert_eq!(h2_cookies(&["sid=secret"]), Some(200));
    for same in [
        &["sid=secret; a=b"][..],
        &["a=b", "sid=secret"],
        &["sid=secret", "sid=secret"],
        &["sid=\"secret\""],
        &["sid=%73ecret"],
    ] {
        assert_eq!((h2_cookies(same), h1_cookies(same)), (Some(429), Some(429)), "{same:?}");
    }
    for differ in
        [&["sid=x; sid=secret"][..], &["sid=secret", "sid=y"], &["a=b, sid=z; sid=secret"]]
    {
        assert_eq!((h2_cookies(differ), h1_cookies(differ)), (Some(400), Some(400)), "{differ:?}");
    }
    let query = start(&json!({"key": [{"query": "k"}]}));
    let mut client = query.client();
    for (target, status) in [
        ("/?k=secret", 200),
        ("/?%6b=%73ecret&k=secret", 429),
        ("/?k=x&k=secret", 400),
        ("/?k=secret&k=", 400),
    ] {
        assert_eq!(client.send(&Request::get(target)).status, status, "{target}");
    }
}

const HOST: &str = "api.example.com";

/// A GET with this host.
fn to(host: impl AsRef<[u8]>) -> Request {
    Request::get("/").header("host", host)
}

#[test]
fn no_spelling_of_a_host_goes_round_its_rule() {
    for rule in [json!({"key": [], "when": {"hosts": [HOST]}}), json!({"key": ["host"]})] {
        let envoy = start(&rule);
        let over_1 = |host: &str| envoy.client().try_send(&to(host)).ok().map(|a| a.status);
        assert_eq!(over_1(HOST), Some(200));
        for same in
            ["API.Example.COM", "api.example.com:80", "api.example.com:", "api.example.com."]
        {
            assert_eq!(over_1(same), Some(429), "{same}");
            assert_eq!(h2(&envoy, same.as_bytes(), b"/", &[]), Some(429), "{same}");
        }
        for wrong in unreadable(HOST) {
            let statuses = [over_1(&wrong), h2(&envoy, wrong.as_bytes(), b"/", &[])];
            // `None`: Envoy closed the stream itself.
            let is_refused = statuses.iter().all(|status| matches!(status, None | Some(400)));
            assert!(is_refused, "{wrong}: {statuses:?}");
        }
        assert_eq!(envoy.decisions("r", "allowed"), 1, "{rule}");
        assert!(envoy.decisions("r", "malformed") > 0, "some of them pass Envoy");
    }
}

// RFC 9112, 3.2: of two hosts in a request the target's counts; a request with two lines is
// invalid.
#[test]
fn the_host_of_the_target_counts() {
    let envoy = start(&json!({"key": [], "when": {"hosts": [HOST]}}));
    let status = |request: &Request| {
        let mut client: Client = envoy.client();
        client.try_send(request).ok().map(|answer| answer.status)
    };
    let absolute = |host| Request::get("http://api.example.com/").header("host", host);
    assert_eq!(status(&absolute("other.test")), Some(200));
    assert_eq!(status(&to(HOST)), Some(429));
    assert_eq!(status(&absolute("other.test")), Some(429));
    for wrong in ["http://api.example.com:80:80/", "http://user@api.example.com/"] {
        let status = status(&Request::get(wrong).header("host", "other.test"));
        assert!(!matches!(status, Some(200)), "{wrong}: {status:?}");
    }
    let two = to("other.test").header("host", HOST);
    assert!(!matches!(status(&two), Some(200)), "{:?}", status(&two));
    // Envoy drops `host` next to `:authority`, and an invalid path, from which an origin would take
    // its host.
    let fields: [(&[u8], &[u8]); 1] = [(b"host", HOST.as_bytes())];
    assert_eq!(h2(&envoy, b"other.test", b"/", &fields), Some(200));
    assert_eq!(h2(&envoy, HOST.as_bytes(), b"/", &[(b"host", b"other.test")]), Some(429));
    for path in [&b"http://api.example.com/"[..], b"*", b"api.example.com"] {
        let status = h2(&envoy, b"other.test", path, &[]);
        assert_eq!(status, None, "{}", String::from_utf8_lossy(path));
    }
    assert_eq!(envoy.decisions("r", "allowed"), 1);
}

#[test]
fn a_policy_without_hosts_reads_none() {
    let envoy = start(&json!({"key": [{"header": "x-key"}]}));
    assert_eq!(envoy.client().send(&to("api.example.com:80:80")).status, 200);
}
