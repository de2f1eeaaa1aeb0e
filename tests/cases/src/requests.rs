//! Random requests: few keys, many spellings, and the same facts on every surface.
//!
//! Invariant: a request keeps its meaning on any way through HTTP/1.1. A server may remove the
//! white space around a value or join its lines, a body is announced by its length, and headers
//! that a server treats in a special way do not occur.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate_policy::{Facts, grpc_content_type};
use tollgate_test_support::Random;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: &'static str,
    /// Path and query, as sent.
    pub target: String,
    /// The header `host`, as sent.
    pub host: &'static str,
    /// All other lines, in order; names in lower case, possibly repeated.
    pub headers: Vec<(&'static str, String)>,
    /// The length of its body, which the header `content-length` announces.
    pub body_len: Option<usize>,
    /// The peer address of the connection.
    pub peer: IpAddr,
}

const PATHS: [&str; 30] = [
    "/api/items",
    "/users/42",
    "/login",
    "/",
    "/api/items/7",
    "/users/43/orders",
    "/%61pi/items",
    "//api///items",
    "/api/./items",
    "/api/../users/42",
    "/users/4%32",
    "/a%2Fb",
    "/a%2fb",
    "/caf%C3%A9/x",
    "/caf%c3%a9/x",
    "/users/%2e%2E/login",
    "/api/;v=1,2/~a!$&'()*+@:",
    "/api/%zz",
    "/api/%",
    "/api/%4",
    "/api/{x}",
    "/users/..",
    "/..%2fapi/items",
    "/x/..%2Flogin",
    "/%2flogin",
    "/users%2F42",
    "/users/42%5Corders",
    "/users/%2e%2e%5capi%2Fitems",
    "/users/42%2F",
    "/api/items/",
];

const QUERIES: [&str; 14] = [
    "",
    "?user=u1",
    "?user=u%31&page",
    "?q=a+b&user=u2",
    "?%75ser=u1",
    "?user=",
    "?user=u2&user=u1",
    "?user=u2&user=u%32",
    "?user=u1+&%75ser=u1%20",
    "?q=a%20b%26c&free=1",
    "?page=/api/../x?y",
    "?",
    "?user=u'1",
    "?user=u1%zz%",
];

const HOSTS: [&str; 7] = [
    "api.example.com",
    "API.Example.com",
    "api.example.com:8080",
    "www.api.example.com",
    "example.com.",
    "[2001:db8::5]:8443",
    "other.test",
];

const PEERS: [&str; 8] = [
    "192.0.2.1",
    "198.51.100.7",
    "192.0.2.9",
    "203.0.113.9",
    "10.0.0.5",
    "2001:db8::1",
    "2001:db8::1:0:0:2",
    "2001:db8:1::9",
];

/// In the same /24 and /48 as others, and in another /64.
const NEIGHBOURS: [&str; 2] = ["192.0.2.77", "2001:db8:0:5::9"];

const FORWARDED_FOR: [&str; 7] = [
    "203.0.113.7",
    "203.0.113.7, 10.0.0.1",
    "198.51.100.1, 192.0.2.9,10.0.0.9",
    "garbage, 192.0.2.9",
    "198.51.100.1:5678",
    "[2001:db8::7]:443, 10.1.1.1",
    "1.2.3, 10.0.0.1",
];

const FORWARDED: [&str; 5] = [
    "for=203.0.113.7",
    "for=203.0.113.7;proto=http, for=10.0.0.1",
    "For=\"[2001:db8::7]:4711\"",
    "for=unknown, for=192.0.2.9",
    "by=192.0.2.1;proto=https",
];

const COSTS: [&str; 14] = [
    "1",
    "2",
    "3",
    "7",
    "0",
    "abc",
    "-1",
    "18446744073709551616",
    "007",
    "\t2 ",
    "+2",
    "3, 3",
    "3,1",
    "1 2",
];

const KEYS: [&str; 14] = [
    "k1",
    "k2",
    "k3",
    "",
    "K1",
    "k4 and more, like this",
    "k\u{fc}",
    "long 1",
    "long 2",
    " k1\t",
    "k2,k2",
    ",k3 ,",
    "k1\tk2",
    "k1, k2",
];

/// The header with the limit of a request.
pub(crate) const LIMIT: &str = "x-limit";

const LIMITS: [&str; 14] = [
    "3",
    "8",
    "1",
    "40",
    "0",
    "99",
    "abc",
    "-1",
    "007",
    " 5\t",
    "5, 5",
    "5,6",
    "9999999999999999",
    "2.0",
];

const CONTENT_TYPES: [&str; 6] = [
    "application/grpc",
    "application/grpc+proto",
    "Application/gRPC;a=b",
    "application/grpc-web+proto",
    "application/grpc-web-text",
    "application/json",
];

/// A random request.
pub(crate) fn request(random: &mut Random) -> Request {
    let method = *random
        .pick(&["GET", "GET", "GET", "GET", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS"]);
    let has_body = matches!(method, "POST" | "PUT");
    let mut headers = headers(random);
    if has_body && random.chance(20) {
        headers.push(("content-type", (*random.lean(&CONTENT_TYPES)).to_owned()));
    }
    let path = if random.chance(60) { *random.lean(&PATHS[..4]) } else { *random.pick(&PATHS) };
    let query = if random.chance(50) { QUERIES[0] } else { *random.pick(&QUERIES) };
    Request {
        method,
        target: format!("{path}{query}"),
        host: random.lean::<&str>(&HOSTS),
        headers,
        body_len: has_body.then(|| *random.pick(&[0, 1, 99, 100, 101, 350, 2001])),
        peer: random.lean(&PEERS).parse().expect("an address"),
    }
}

fn headers(random: &mut Random) -> Vec<(&'static str, String)> {
    let mut headers = vec![];
    let mut maybe = |percent, name, values: &[&str]| {
        if random.chance(percent) {
            let value = *random.lean(values);
            // Longer than the stored length of a part of a key.
            let long = value.strip_prefix("long ").map(|end| "l".repeat(1100) + end);
            headers.push((name, long.unwrap_or_else(|| value.to_owned())));
        }
    };
    maybe(85, "x-key", &KEYS);
    maybe(5, "x-key", &["k1", "k9"]); // a second line, or the only one
    maybe(60, "x-tenant", &["t1", "t2"]);
    maybe(30, "x-plan", &["gold", "go", "silver", "Gold", "gold, gold", "silver,gold"]);
    maybe(50, "x-cost", &COSTS);
    maybe(5, "x-skip", &["1"]);
    maybe(5, "x-health-check", &["1"]);
    maybe(5, "x-over-limit", &["from the client"]);
    maybe(5, "x-cost", &["2"]);
    maybe(5, "cookie", &["sid=s2; a=b", "c=d"]);
    maybe(
        60,
        "cookie",
        &[
            "sid=s1; theme=dark",
            "theme=dark;sid=s2",
            "sid=",
            "side=s1",
            "sid=s1; sid=s2",
            "sid=\"s1\"",
            "sid=%731;\tsid = s1",
        ],
    );
    maybe(50, "x-forwarded-for", &FORWARDED_FOR);
    maybe(5, "x-forwarded-for", &FORWARDED_FOR);
    maybe(30, "forwarded", &FORWARDED);
    maybe(30, "x-real-ip", &["203.0.113.20", "2001:db8:2::1", "nobody"]);
    headers
}

impl Request {
    /// Writes some values in capitals, and sometimes comes from a neighbouring network.
    pub(crate) fn vary(&mut self, random: &mut Random) {
        for (name, value) in &mut self.headers {
            if matches!(*name, "x-key" | "x-tenant") && random.chance(30) {
                value.make_ascii_uppercase();
            }
        }
        if random.chance(20) {
            self.target.make_ascii_uppercase();
        }
        if random.chance(15) {
            self.peer = random.pick(&NEIGHBOURS).parse().expect("an address");
        }
    }

    /// Sometimes makes a value too long to be searched, or as long as one may be.
    pub(crate) fn lengthen(&mut self, random: &mut Random) {
        let value = self.headers.iter_mut().find(|(name, _)| *name == "x-key");
        if let Some((_, value)) = value.filter(|_| random.chance(4)) {
            *value = "l".repeat(*random.pick(&[2047, 2048, 2049, 3000]));
        }
    }

    /// Mostly brings a limit with it.
    pub(crate) fn add_limit(&mut self, random: &mut Random) {
        for percent in [75, 5] {
            if random.chance(percent) {
                self.headers.push((LIMIT, (*random.lean(&LIMITS)).to_owned()));
            }
        }
    }

    /// The content type of a gRPC response; `None` for other clients.
    pub fn grpc(&self) -> Option<&'static str> {
        grpc_content_type(&self.header("content-type")?)
    }
}

impl Facts for Request {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.as_bytes().into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.target.as_bytes().into()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match (name, self.body_len) {
            ("host", _) => Some(self.host.as_bytes().into()),
            ("content-length", Some(len)) => Some(len.to_string().into_bytes().into()),
            _ => {
                let lines: Vec<&str> = self
                    .headers
                    .iter()
                    .filter(|(n, _)| *n == name)
                    .map(|(_, v)| v.as_str())
                    .collect();
                (!lines.is_empty()).then(|| lines.join(", ").into_bytes().into())
            }
        }
    }

    fn peer(&self) -> Option<IpAddr> {
        Some(self.peer)
    }
}
