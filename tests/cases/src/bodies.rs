//! Costs in the bodies of responses, and the bodies.
//!
//! Invariant: they come from numbers of their own, so the cases without them stay what they were.

use std::borrow::Cow;

use serde_json::{Value, json};
use tollgate_core::Algorithm;
use tollgate_policy::{ActualUnits, BodyScan, ResponseFacts, spec::JsonCost};
use tollgate_test_support::Random;

use crate::policies::settled_cost;

/// The body of a response, and the headers that describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseBody {
    /// Its type.
    pub content_type: &'static str,
    /// Its coding, which the bytes need not have.
    pub content_encoding: Option<&'static str>,
    /// Its bytes.
    pub bytes: &'static [u8],
    /// The length of the pieces in which it comes.
    pub piece_len: usize,
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const LINES: &str = "application/x-ndjson";

/// Bodies by their types, and the reasons for which some show no cost.
const BODIES: [(&str, Option<&str>, &[u8]); 34] = [
    (JSON, None, br#"{"usage": {"in": 5, "out": 3}, "n": [2, 4]}"#),
    (JSON, None, br#"{"usage": {"in": 0, "out": 0}, "n": [0, 0]}"#),
    (JSON, None, br#"{"n": [1, 1], "usage": {"in": 1, "out": 0, "more": {"in": 100}}}"#),
    (JSON, None, br#"{"text": "\"usage\": {\"in\": 9}", "usage": {"out": 2, "in": 2}, "n": [7]}"#),
    (JSON, None, b"{\"a\": \"\xff\\ud800\", \"usage\": {\"in\": 4, \"out\": 2}, \"n\": [3, 3]}"),
    (JSON, None, b"\xef\xbb\xbf{\"usage\": {\"in\": 3, \"out\": 1}, \"n\": [3, 1]}"),
    (JSON, None, br#"{"usage": {"in": 30, "out": 90}, "n": [40, 41]}"#),
    (JSON, None, br#"{"usage": {"in": 10000000000000000, "out": 0}, "n": [9999999999999999]}"#),
    (JSON, None, br#"{"usage": {"in": -5, "out": 1}, "n": [-1, 1]}"#),
    (JSON, None, br#"{"usage": {"in": 1.5, "out": 1}, "n": [1e3, 1]}"#),
    (JSON, None, br#"{"usage": {"in": "5", "out": null}, "n": ["1", {}]}"#),
    (JSON, None, br#"{"usage": {"in": 1, "out": 0}, "usage": {"in": 2, "out": 0}, "n": [1]}"#),
    (JSON, None, br#"{"usage": {"in": 1, "out": 0}, "\u0075sage": {"in": 1, "out": 0}, "n": [6]}"#),
    (JSON, None, br#"{"usage": {"in": 5, "out": 3}, "n": [2, 4]"#),
    (JSON, None, br#"{"usage": {"in": 5, "out": 3}, "n": [2, 4]}}"#),
    (JSON, None, br#"{"usage": {"in": 5 "out": 3}}"#),
    (JSON, None, b"{}"),
    (JSON, None, b""),
    (JSON, None, &[b'['; 65]),
    (JSON, Some("identity"), br#"{"usage": {"in": 2, "out": 2}, "n": [2, 2]}"#),
    (JSON, Some("gzip"), br#"{"usage": {"in": 2, "out": 2}, "n": [2, 2]}"#),
    (JSON, Some("identity, BR"), br#"{"usage": {"in": 2, "out": 2}, "n": [2, 2]}"#),
    ("Application/Problem+JSON; a=b", None, br#"{"usage": {"in": 1, "out": 1}, "n": [1, 1]}"#),
    ("text/html", None, br#"{"usage": {"in": 2, "out": 2}, "n": [2, 2]}"#),
    ("application/json, text/html", None, br#"{"usage": {"in": 2, "out": 2}, "n": [2, 2]}"#),
    (EVENTS, None, b"data: {\"usage\": {\"in\": 7, \"out\": 2}, \"n\": [1, 2]}\n\ndata: [DONE]\n\n"),
    (
        EVENTS,
        None,
        b"data: {\"usage\": null}\r\n\r\n: ping\r\n\r\nevent: usage\r\ndata: {\"n\": [2, 3], \"usage\":\r\n\
          data: {\"in\": 1, \"out\": 2}}\r\n\r\n",
    ),
    (EVENTS, None, b"data: {\"usage\": {\"in\": 1}}\r\rdata: {\"usage\": {\"out\": 5}, \"n\": [4]}\r\r"),
    (EVENTS, None, b"data: {\"usage\": {\"in\": 2, \"out\": 1}, \"n\": [1, 1]}"),
    (EVENTS, None, b"data: {\"usage\": {\"in\": 2, \"out\": 1}, \"n\": [1, 1]}\n\ndata: {\"usage\": {\"in\": 8"),
    (EVENTS, None, b"data: {}\n\ndata: [DONE]\n\n"),
    (LINES, None, b"{\"usage\": {\"in\": 1, \"out\": 1}, \"n\": [9]}\n{\"usage\": {\"in\": 2, \"out\": 1}}\n"),
    (LINES, None, b"{\"usage\": {\"in\": 1, \"out\": 1}, \"n\": [1, 2]}\nno JSON\n{\"n\": [2, 1]}"),
    (LINES, None, b"\n\n"),
];

/// Lets the bodies of responses settle the costs of this share of the rules of `document`.
pub(crate) fn settle_by_bodies(document: &mut Value, percent: u64, random: &mut Random) {
    let numbers = [
        json!({"json": ["/usage/in"]}),
        json!({"json": ["/usage/in", "/usage/out"], "weights": [1, 6]}),
        json!({"json": ["/usage/out", "/usage/in"], "identity": true}),
        json!({"json": ["/n/0"], "weights": [2]}),
        json!({"json": ["/n/0", "/n/1", "/usage/in"], "identity": true}),
    ];
    for rule in document["rules"].as_array_mut().into_iter().flatten() {
        // The core alone reproduces the plain one.
        if rule["name"] == "plain" || random.chance(100 - percent) {
            continue;
        }
        give_up(rule, &[Algorithm::LeakyQueue, Algorithm::SlidingLog]);
        let mut cost = settled_cost(random);
        cost["actual"] = random.pick(&numbers).clone();
        let Some(rule) = rule.as_object_mut() else { continue };
        if let Some(cost) = cost.as_object_mut().filter(|_| random.chance(60)) {
            cost.remove("on_status");
        }
        rule.remove("charge");
        rule.insert("cost".into(), cost);
    }
}

/// Counts by another algorithm than these: a queue holds no units, and a log has room for its limit
/// alone.
pub(crate) fn give_up(rule: &mut Value, algorithms: &[Algorithm]) {
    let (mut own, mut tiers) = (rule["quotas"].take(), rule["tiers"].take());
    let of_tiers = tiers.as_array_mut().into_iter().flatten().map(|tier| &mut tier["quotas"]);
    for quota in of_tiers.chain([&mut own]).flat_map(|quotas| quotas.as_array_mut()).flatten() {
        if algorithms.iter().any(|algorithm| quota["algorithm"] == algorithm.name()) {
            quota["algorithm"] = Algorithm::Gcra.name().into();
        }
    }
    rule["quotas"] = own;
    if !tiers.is_null() {
        rule["tiers"] = tiers;
    } else if let Some(rule) = rule.as_object_mut() {
        rule.remove("tiers");
    }
}

/// A random body.
pub(crate) fn body(random: &mut Random) -> ResponseBody {
    let (content_type, content_encoding, bytes) = *random.pick(&BODIES);
    let piece_len = *random.pick(&[1, 2, 7, 20, 4096]);
    ResponseBody { content_type, content_encoding, bytes, piece_len }
}

impl ResponseBody {
    /// The header `name` of a response with this body.
    pub(crate) const fn header(&self, name: &str) -> Option<&'static str> {
        match name.as_bytes() {
            b"content-type" => Some(self.content_type),
            b"content-encoding" => self.content_encoding,
            _ => None,
        }
    }
}

/// The end of a response, with the numbers of its body.
pub(crate) struct ResponseEnd(pub(crate) Option<Box<BodyScan>>);

impl ResponseFacts for ResponseEnd {
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn json(&self, cost: &JsonCost) -> Option<ActualUnits> {
        self.0.as_ref()?.units(cost)
    }

    fn has_ended(&self) -> bool {
        true
    }
}
