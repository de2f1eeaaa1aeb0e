//! Shared by the tests of the replay: a log as a test writes it, and its replay.
#![allow(dead_code)] // each test file uses its part

use std::sync::Arc;

use tollgate_access_log::{Bounds, Field, Format};
use tollgate_core::Timestamp;
use tollgate_lab::replay::{
    AssumedValues, LogCounts, Observer, Options, Replay, Source, Summary, wanted,
};
use tollgate_policy::{Policy, Surface};

/// A policy for Envoy.
pub fn policy(document: &str) -> Arc<Policy> {
    let compiled = tollgate_language::compile(document, Surface::Envoy);
    Arc::new(compiled.unwrap_or_else(|problems| panic!("{problems}")))
}

/// A policy of one rule by the client's address, with this quota and these fields.
pub fn each_client(quota: &str, fields: &str) -> Arc<Policy> {
    policy(&format!(
        r#"{{"version": 1, "rules": [{{"name": "each", "key": ["client_ip"], "quotas": [{{{quota}}}]{fields}}}]}}"#
    ))
}

/// A line of the combined format, this many seconds after 06:00 on the first of August 1995.
pub fn line(second: u64, client: &str, request: &str, status: u16) -> String {
    let (hour, minute, second) = (6 + second / 3600, second / 60 % 60, second % 60);
    format!(
        "{client} - - [01/Aug/1995:{hour:02}:{minute:02}:{second:02} +0000] \"{request} HTTP/1.1\" {status} 5 \"-\" \"-\"\n"
    )
}

/// One millisecond of that day.
pub fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(807_256_800_000 + millis)
}

/// Feeds `log` to a replay in pieces, and ends it.
pub fn run<O: Observer>(
    mut replay: Replay<O>,
    policy: &Policy,
    format: &str,
    log: &[u8],
) -> (Summary, O) {
    let format = Format::parse(format).unwrap();
    let mut fields = wanted(policy, &AssumedValues::default(), |field| format.contains(field));
    fields.extend([Field::Method, Field::Target]);
    let mut source = Source::new(&format, fields, Bounds::default()).unwrap();
    for piece in log.chunks(1000) {
        source.feed(piece, &mut |record| replay.push(record)).unwrap();
    }
    source.finish(&mut |record| replay.push(record)).unwrap();
    let mut counts = LogCounts::default();
    source.count(&mut counts);
    replay.finish(&counts)
}

/// The effect of a policy on a log of the combined format.
pub fn summary(policy: &Arc<Policy>, options: Options, log: &str) -> Summary {
    let replay = Replay::new(Arc::clone(policy), AssumedValues::default(), options);
    run(replay, policy, "combined", log.as_bytes()).0
}
