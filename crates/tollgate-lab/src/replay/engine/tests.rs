//! Compares the short way of known clients with the long one.
#![allow(clippy::arithmetic_side_effects)]

use super::*;
use crate::replay::{LogCounts, Source};
use tollgate_access_log::{Batch, Bounds, Field, Format, Wanted};
use tollgate_policy::Surface;
use tollgate_test_support::Random;

/// Records every reported request.
#[derive(Default)]
struct All(Vec<CountedRequest>);

impl Observer for All {
    fn counted(&mut self, request: CountedRequest) {
        self.0.push(request);
    }
}

/// Addresses of both versions, names, and no client; some already denied.
fn log() -> String {
    let mut random = Random::new(3);
    let mut log = String::new();
    for number in 0..3000 {
        let (kind, client) = (random.below(5), random.below(12) * random.below(12));
        let client = match kind {
            0 => format!("2001:db8::{client}"),
            1 => format!("2001:db8:0:{client}::1"),
            2 => format!("host{client}.example"),
            3 if client == 7 => "-".to_owned(),
            _ => format!("192.0.2.{client}"),
        };
        let (minute, second) = (number / 600, number / 10 % 60);
        let status = if random.one_in(32) { 429 } else { 200 };
        log += &format!(
            "{client} - - [01/Aug/1995:06:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" {status} 5\n"
        );
    }
    log
}

fn replayed(policy: &Arc<Policy>, is_short: bool) -> (String, Vec<CountedRequest>, usize) {
    let mut replay = Replay::observed(
        Arc::clone(policy),
        AssumedValues::default(),
        Options::default(),
        All::default(),
    );
    assert!(replay.shortcuts.is_some(), "a lone quota of the log's clients");
    if !is_short {
        replay.shortcuts = None;
    }
    let fields = vec![Field::Time, Field::Client, Field::Status];
    let format = Format::parse("common").unwrap();
    let mut source = Source::new(&format, fields.clone(), Bounds::default()).unwrap();
    let mut batch = Batch::new(Wanted::new(fields));
    for piece in log().as_bytes().chunks(7000) {
        if is_short {
            source.feed(piece, &mut |record| batch.push(record)).unwrap();
            replay.push_all(&mut batch);
        } else {
            source.feed(piece, &mut |record| replay.push(record)).unwrap();
        }
    }
    source.finish(&mut |record| replay.push(record)).unwrap();
    let mut counts = LogCounts::default();
    source.count(&mut counts);
    let known = replay.shortcuts.as_ref().map_or(0, Shortcuts::len);
    let (summary, All(counted)) = replay.finish(&counts);
    (format!("{summary:?}"), counted, known)
}

#[test]
fn the_short_way_gives_the_results_of_the_long_one() {
    for algorithm in ["gcra", "token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        for more in ["", r#", "mode": "shadow""#, r#", "on_missing": "deny""#] {
            let policy = format!(
                r#"{{"version":1,"rules":[{{"name":"each","key":["client_ip"],"quotas":[
                    {{"limit":5,"window":"20s","algorithm":"{algorithm}"}}]{more}}}]}}"#
            );
            let policy = Arc::new(tollgate_language::compile(&policy, Surface::Envoy).unwrap());
            let (long, told_long, none) = replayed(&policy, false);
            let (short, told_short, known) = replayed(&policy, true);
            assert_eq!(short, long, "{algorithm}{more}");
            assert_eq!(told_short, told_long);
            assert!(known > 50 && none == 0, "{known} of the clients were known");
            assert!(told_long.iter().filter(|counted| counted.is_over).count() > 50);
        }
    }
}
