//! A day of real traffic: NASA Kennedy Space Center's web server, 1 August 1995 (30,969 requests of
//! 2,365 hosts).
//!
//! Invariant: requests are in the order of the file, and times never go back. The log's stamps are
//! whole seconds, so the requests of one second are spread evenly inside it. Where `TOLLGATE_DATA`
//! names no folder with the file, a seeded day of the same shape replaces it, and a line of output
//! reports this.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use tollgate_test_support::Random;

const FILE: &str = "nasa_19950801.tsv";
const SECOND_NS: u64 = 1_000_000_000;

/// One request of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// The client: a host's name or address.
    pub client: String,
    /// `GET`, `HEAD` or `POST`.
    pub method: String,
    /// The path.
    pub target: String,
}

/// The day, or its replacement.
pub fn day() -> Vec<Hit> {
    let folder = std::env::var_os("TOLLGATE_DATA").map(PathBuf::from);
    let text = folder.and_then(|folder| fs::read_to_string(folder.join(FILE)).ok());
    let mut hits = match text {
        Some(text) => text.lines().skip(1).map(parse).collect(),
        None => {
            println!("NOTE: TOLLGATE_DATA names no {FILE}; a seeded day of the same shape is used");
            stand_in()
        }
    };
    spread_ties(&mut hits);
    hits
}

/// host, logname, time, method, url, ...; separated by tabs.
fn parse(line: &str) -> Hit {
    let fields: Vec<&str> = line.split('\t').collect();
    let second: u64 = fields[2].parse().expect("a time in seconds");
    Hit {
        at_ns: second * SECOND_NS,
        client: fields[0].into(),
        method: fields[3].into(),
        target: fields[4].into(),
    }
}

/// The i-th of n requests of one second happens i/n into it.
fn spread_ties(hits: &mut [Hit]) {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    hits.iter().for_each(|hit| *counts.entry(hit.at_ns).or_default() += 1);
    let mut place = 0;
    let mut last = None;
    for hit in hits {
        place = if last == Some(hit.at_ns) { place + 1 } else { 0 };
        last = Some(hit.at_ns);
        hit.at_ns += SECOND_NS * place / counts[&hit.at_ns];
    }
}

/// The same number of requests in the same time: visits of up to 40 requests a few seconds apart,
/// few clients that come often and many that come rarely.
fn stand_in() -> Vec<Hit> {
    const REQUESTS: usize = 30_969;
    const CLIENTS: u64 = 2_365;
    const FIRST_SECOND: u64 = 807_256_800;
    const SECONDS: u64 = 46_321;
    let mut numbers = Random::new(1);
    let mut random = |end: u64| numbers.below(end);
    let mut hits = Vec::with_capacity(REQUESTS);
    while hits.len() < REQUESTS {
        let most = random(CLIENTS) + 1;
        let client = format!("client-{}.example", random(most));
        let mut second = FIRST_SECOND + random(SECONDS);
        for _ in 0..random(40).min(REQUESTS as u64 - hits.len() as u64 - 1) + 1 {
            let target = format!("/page-{}.html", random(500));
            let (at_ns, method) = (second * SECOND_NS, "GET".into());
            hits.push(Hit { at_ns, client: client.clone(), method, target });
            second += random(8);
        }
    }
    hits.sort_by_key(|hit| hit.at_ns);
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stand_in_has_the_shape_of_the_day() {
        let mut hits = stand_in();
        spread_ties(&mut hits);
        assert_eq!(hits.len(), 30_969);
        assert!(hits.is_sorted_by_key(|hit| hit.at_ns));
        let clients: std::collections::BTreeSet<_> = hits.iter().map(|hit| &hit.client).collect();
        assert!((500..=2_365).contains(&clients.len()), "{}", clients.len());
        // As on the real day, some clients send more than twenty requests in a minute.
        let mut minutes: BTreeMap<(&str, u64), u32> = BTreeMap::new();
        let minute = |hit: &Hit| hit.at_ns / (60 * SECOND_NS);
        hits.iter().for_each(|hit| *minutes.entry((&hit.client, minute(hit))).or_default() += 1);
        assert!(minutes.values().filter(|count| **count > 20).count() > 10);
    }

    #[test]
    fn ties_are_spread_evenly_inside_their_second() {
        let mut hits = ["1", "1", "1", "1", "3"].map(|s| parse(&format!("h\t-\t{s}\tGET\t/")));
        spread_ties(&mut hits);
        let expected = [1000, 1250, 1500, 1750, 3000].map(|ms| ms * 1_000_000);
        assert_eq!(hits.map(|hit| hit.at_ns), expected);
    }
}
