//! Reads `spoofing.txt`: requests, and the client under which each is counted.
//!
//! Invariant: nothing is guessed and nothing is skipped silently; a case that cannot apply on some
//! surface has a marker with the reason. Deliberately not here: running the cases, and any
//! dependency, so that every crate can include this one file.
#![allow(
    dead_code,
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    reason = "test code that several crates include, each using a part"
)]

use std::net::IpAddr;

const CORPUS: &str = include_str!("spoofing.txt");

/// The surfaces on which cases run.
const PLACES: [&str; 4] = ["policy", "envoy", "proxy", "check"];

/// Cases under one `settings:` and one `peer:` line.
#[derive(Clone, Debug)]
pub struct Group {
    /// The policy's `client_ip`, as JSON.
    pub settings: &'static str,
    /// The peer of the connection.
    pub peer: IpAddr,
    pub cases: Vec<Case>,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub line: usize,
    pub headers: Vec<(&'static str, &'static str)>,
    pub client: IpAddr,
    /// The surface on which it cannot apply.
    pub not_on: Option<&'static str>,
}

/// The cases that run on `place`, and the number of those that do not.
pub fn corpus(place: &str) -> (Vec<Group>, usize) {
    assert!(PLACES.contains(&place), "{place} is none of {PLACES:?}");
    let (mut groups, mut left_out) = (read(), 0);
    for group in &mut groups {
        let all = group.cases.len();
        group.cases.retain(|case| case.not_on != Some(place));
        left_out += all - group.cases.len();
    }
    groups.retain(|group| !group.cases.is_empty());
    (groups, left_out)
}

fn read() -> Vec<Group> {
    let (mut groups, mut settings) = (Vec::<Group>::new(), "");
    for (number, line) in (1..).zip(CORPUS.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(text) = line.strip_prefix("settings: ") {
            settings = text;
        } else if let Some(peer) = line.strip_prefix("peer: ") {
            let peer = peer.parse().unwrap_or_else(|_| panic!("line {number}: no address"));
            groups.push(Group { settings, peer, cases: vec![] });
        } else {
            let case = case(number, line).unwrap_or_else(|| panic!("line {number} is no case"));
            groups.last_mut().expect("a peer before the first case").cases.push(case);
        }
    }
    groups
}

fn case(line: usize, text: &'static str) -> Option<Case> {
    let (headers, rest) = text.split_once("=>")?;
    let (client, not_on) = match rest.split_once(" -- not on ") {
        Some((client, marker)) => (client, Some(place(marker)?)),
        None => (rest, None),
    };
    let lines = headers.trim().split(" | ").filter(|header| *header != "-");
    let headers: Option<Vec<_>> =
        lines.map(|line| line.split_once(": ").map(|(name, value)| (name, value.trim()))).collect();
    Some(Case { line, headers: headers?, client: client.trim().parse().ok()?, not_on })
}

/// `envoy: a reason`; a marker without a reason is invalid.
fn place(marker: &str) -> Option<&str> {
    let (place, reason) = marker.split_once(": ")?;
    (PLACES.contains(&place) && !reason.trim().is_empty()).then_some(place)
}
