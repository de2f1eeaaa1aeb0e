//! `tollgate convert`: compares the decisions of the policy with those of the converted
//! configuration.
//!
//! The oracle parses the configuration independently and counts as `envoyproxy/ratelimit` documents
//! it: it walks the tree of descriptors, adds the hit to the counter of all entries and of the
//! window, and compares. It shares no code with the command.

use std::collections::BTreeMap;
use std::path::Path;

use crate::convert_oracle::{Call, Generator, Oracle};
use crate::support::{Ran, tollgate, tollgate_reading};
use serde_json::Value;
use tollgate_core::Timestamp;
use tollgate_policy::{Disposition, Entry, Facts, Partition, Plan, Policy, Surface};
use tollgate_test_support::golden::assert_file;

/// A server with a map for a store: each descriptor of a call is a separate request.
struct Server {
    policy: Policy,
    plan: Plan,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// One descriptor of a call.
struct DescriptorFacts<'c>(&'c Call, usize);

impl DescriptorFacts<'_> {
    fn entry_of(&self, descriptor: usize, index: usize) -> Option<Entry<'_>> {
        let (key, value) = self.0.descriptors.get(descriptor)?.get(index)?;
        Some(Entry::new(key.as_bytes(), value.as_bytes()))
    }
}

impl Facts for DescriptorFacts<'_> {
    fn method(&self) -> std::borrow::Cow<'_, [u8]> {
        b"POST".into()
    }
    fn target(&self) -> std::borrow::Cow<'_, [u8]> {
        b"/".into()
    }
    fn header(&self, _: &str) -> Option<std::borrow::Cow<'_, [u8]>> {
        None
    }
    fn peer(&self) -> Option<std::net::IpAddr> {
        None
    }
    fn domain(&self) -> Option<std::borrow::Cow<'_, [u8]>> {
        Some(self.0.domain.as_bytes().into())
    }
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        self.entry_of(self.1, index)
    }
    fn beside(&self, other: usize, index: usize) -> Option<Entry<'_>> {
        self.entry_of(if other < self.1 { other } else { other + 1 }, index)
    }
    fn hits(&self) -> Option<u64> {
        Some(self.0.hits)
    }
}

impl Server {
    fn new(document: &str) -> Self {
        let policy = tollgate_language::compile(document, Surface::Server);
        let policy = policy.unwrap_or_else(|problems| panic!("{problems}\n{document}"));
        let warns = !policy.warnings().0.is_empty() && !policy.rules().is_empty();
        assert!(!warns, "{}\n{document}", policy.warnings());
        Self { policy, plan: Plan::new(), store: BTreeMap::new() }
    }

    /// The descriptors of the call that are over their limit.
    fn over(&mut self, call: &Call) -> Vec<bool> {
        (0..call.descriptors.len())
            .map(|i| self.is_over(&DescriptorFacts(call, i), call.at))
            .collect()
    }

    fn is_over(&mut self, asked: &DescriptorFacts<'_>, seconds: u64) -> bool {
        let Self { policy, plan, store } = self;
        policy.plan(asked, plan);
        plan.each_partition(|partition| {
            let stored = store.get(partition.key());
            partition.load(policy, stored.map(Vec::as_slice));
        });
        plan.decide(policy, Timestamp::from_millis(seconds * 1000));
        for partition in plan.partitions().filter(Partition::changed) {
            store.insert(partition.key().to_vec(), partition.value().to_vec());
        }
        match plan.outcome(policy).disposition() {
            Disposition::Allow => false,
            Disposition::Deny { status: 429 } => true,
            other => panic!("{other:?}"),
        }
    }
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn convert(configuration: &str) -> Ran {
    tollgate_reading(here(), &["convert", "-"], configuration.as_bytes())
}

fn converted(configuration: &str) -> Ran {
    let ran = convert(configuration);
    assert_eq!(ran.code, 0, "{}\n{configuration}", ran.stderr);
    ran
}

/// An hour at which only the shortest window ends soon.
const START: u64 = 1_767_229_200;

/// `domain | key=value, key=value | ...`: one call, its descriptors after the domain.
fn call(text: &str, at: u64) -> Call {
    let mut parts = text.split(" | ").map(str::trim);
    let domain = parts.next().unwrap().to_owned();
    let entry = |text: &str| {
        let (key, value) = text.split_once('=').unwrap();
        (key.to_owned(), value.to_owned())
    };
    let descriptors = parts.map(|part| part.split(", ").map(entry).collect()).collect();
    Call { domain, descriptors, hits: 1, at }
}

/// The examples of that project's README, each with calls and the number of them in a row that are
/// allowed: `*` for all that are tried. A line `config` begins an example; a line `+ 60` lets 60
/// seconds pass.
const EXAMPLES: &str = include_str!("convert/examples.txt");

#[test]
fn the_documented_examples_are_decided_alike() {
    let (mut configurations, mut rows) = (0, 0);
    for example in EXAMPLES.split("\n== ").skip(1) {
        let (title, rest) = example.split_once('\n').unwrap();
        let (configuration, calls) = rest.split_once("--\n").unwrap();
        configurations += 1;
        let mut oracle = Oracle::new(configuration);
        let mut server = Server::new(&converted(configuration).stdout);
        let mut now = START;
        for line in calls.lines().filter(|line| !line.trim().is_empty()) {
            if let Some(seconds) = line.strip_prefix("+ ") {
                now += seconds.parse::<u64>().unwrap();
                continue;
            }
            let (count, text) = line.trim().split_once(' ').unwrap();
            let wanted = count.parse::<usize>().ok();
            let call = call(text, now);
            let tries = wanted.map_or(600, |count| count + 3);
            for i in 0..tries {
                let (there, here) = (oracle.over(&call), server.over(&call));
                assert_eq!(there, here, "{title}: {line}, number {i}");
                let passes = !here.contains(&true);
                assert_eq!(passes, wanted.is_none_or(|count| i < count), "{title}: {line}, {i}");
            }
            rows += 1;
        }
    }
    assert!(configurations >= 14 && rows >= 40, "{configurations} examples, {rows} rows");
}

/// Random trees and calls of one hit. A descriptor is over the limit in both or in neither, unless
/// the command reports a difference for this configuration.
#[test]
fn random_configurations_are_decided_alike() {
    let seen = decided_alike(0..150, true, 1);
    assert!(seen.alike >= 80 && seen.differing >= 10, "{seen:?}");
    assert!(seen.over * 12 > seen.asked && seen.over * 2 < seen.asked, "{seen:?}");
}

/// With more hits per call the command reports one difference, and it is the only one: without it
/// that service decides as Tollgate does, and with it differently.
#[test]
fn refused_hits_are_the_only_difference_of_many_hits() {
    let seen = decided_alike(1_000..1_050, false, 4);
    assert!(seen.alike >= 25, "{seen:?}");
    let configuration =
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n";
    let ran = converted(configuration);
    assert!(ran.stderr.contains("differs: a denied hit does not count"), "{}", ran.stderr);
    let (mut there, mut here) = (Oracle::new(configuration), Server::new(&ran.stdout));
    let asked = [8, 5, 2].map(|hits| Call { hits, ..call("d | a=x", START) });
    let over = asked.map(|call| (there.over(&call)[0], here.over(&call)[0]));
    assert_eq!(over, [(false, false), (true, true), (true, false)]);
}

// Guards: limits with one shared stored value that all requests wait for and that each one
// enlarges.
#[test]
fn limits_for_fixed_values_have_stored_values_of_their_own() {
    let configuration = "domain: d\ndescriptors:\n\
                         - {key: a, value: x, rate_limit: {unit: day, requests_per_unit: 1}}\n\
                         - {key: a, value: y, rate_limit: {unit: day, requests_per_unit: 2}}\n\
                         - key: b\n  value: x\n  descriptors:\n  \
                         - {key: a, value: z, rate_limit: {unit: day, requests_per_unit: 3}}\n";
    let policy = converted(configuration).stdout;
    let policy: serde_json::Value = serde_json::from_str(&policy).unwrap();
    let keys: Vec<String> =
        policy["rules"].as_array().unwrap().iter().map(|rule| rule["key"].to_string()).collect();
    let (a, b) = (r#"{"descriptor":"a"}"#, r#"{"descriptor":"b"}"#);
    assert_eq!(keys, [format!("[{a}]"), format!("[{a}]"), format!("[{b},{a}]")]);
    let mut server = Server::new(&converted(configuration).stdout);
    let over: Vec<bool> = ["a=x", "a=y", "a=x", "a=y", "a=y"]
        .iter()
        .map(|entry| server.over(&call(&format!("d | {entry}"), START))[0])
        .collect();
    assert_eq!(over, [false, false, true, false, true]);
}

/// The properties of the random calls.
#[derive(Debug, Default)]
struct Coverage {
    alike: usize,
    /// Configurations for which the command reports a difference.
    differing: usize,
    over: usize,
    asked: usize,
}

fn decided_alike(seeds: std::ops::Range<u64>, counts_refused: bool, most_hits: u64) -> Coverage {
    let mut seen = Coverage::default();
    for seed in seeds {
        let mut random = Generator::new(seed);
        let configuration = random.configuration();
        let ran = converted(&configuration);
        if ran.stderr.lines().any(|line| line.starts_with("<stdin>:") && line.contains("differs:"))
        {
            seen.differing += 1;
            continue;
        }
        seen.alike += 1;
        let mut oracle = Oracle::new(&configuration);
        oracle.counts_refused = counts_refused;
        let mut server = Server::new(&ran.stdout);
        let mut now = START;
        for i in 0..300 {
            now += random.below(3) / 2;
            now += if random.below(50) == 0 { random.below(4_000) } else { 0 };
            let call = random.call(now, most_hits);
            let (there, here) = (oracle.over(&call), server.over(&call));
            let document = &ran.stdout;
            assert_eq!(there, here, "seed {seed}, call {i}: {call:?}\n{configuration}\n{document}");
            seen.over += here.iter().filter(|over| **over).count();
            seen.asked += here.len();
        }
    }
    seen
}

#[test]
fn mistakes_are_told_all_at_once_with_their_places() {
    let configuration = "domain: ''\ndescriptor: 5\ndescriptors:\n- key: a\n  value: 1.5\n  rate_limit: {unit: fortnight, requests_per_unit: '10'}\n\
                         - value: x\n  share_threshold: yes\n- key: a*\n  rate_limit: {unit: day, unlimited: true}\n- hi\n\
                         - key: b\n  shadow_mode: maybe\n  rate_limit: {unit: day, requests_per_unit: -1, name: n, replaces: [{name: n}, {name: ''}]}\n\
                         - key: b\n- {key: c, key: d, rate_limits: {}}\n- key: [1]\n";
    let ran = convert(configuration);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/convert/mistakes.txt");
    assert_file(file, &ran.stderr);
}

#[test]
fn what_that_service_takes_is_read_as_there() {
    // Booleans and numbers of YAML 1.1, merge keys, names in any case, texts that look like
    // numbers.
    let configuration = "\u{feff}# first\nx: &l {unit: MINUTE, requests_per_unit: 1_000}\n";
    assert_eq!(convert(configuration).code, 1, "an unknown field");
    let configuration = "domain: 5\ndescriptors:\n\
        - &first {key: a, value: 010, shadow_mode: on, rate_limit: &l {unit: Hour, requests_per_unit: 1_000}}\n\
        - {key: b, value: ~, rate_limit: {<<: *l, requests_per_unit: 0x10}}\n\
        - {<<: [*first], key: c, descriptors: null}\n";
    let ran = converted(configuration);
    let policy: Value = serde_json::from_str(&ran.stdout).unwrap();
    let of = |rule: usize, path: &str| policy["rules"][rule].pointer(path).cloned().unwrap();
    assert_eq!(of(0, "/when/domain"), "5");
    assert_eq!(of(0, "/when/entries/0/0/a"), "010");
    assert_eq!((of(0, "/mode"), of(0, "/quotas/0/limit")), ("shadow".into(), 1000.into()));
    assert_eq!((of(1, "/when/entries/0/0/b"), of(1, "/quotas/0/limit")), ("*".into(), 16.into()));
    assert_eq!(
        (of(1, "/quotas/0/window"), of(2, "/when/entries/0/0/c")),
        ("1h".into(), "010".into())
    );
}

// Guards: a file that the service accepts, rejected for a field that it reads elsewhere.
#[test]
fn a_field_that_the_service_reads_elsewhere_has_no_effect() {
    let ran = convert(
        "domain: d\nname: file\nquota_mode: true\ndescriptors:\n- key: k\n  name: descriptor\n  rate_limit: \
         {unit: second, requests_per_unit: 5, quota_mode: true}\n",
    );
    let (said, policy) = (ran.stderr, ran.stdout);
    for line in [
        "2:1: ignored: \"name\" has no effect on the file",
        "3:1: ignored: \"quota_mode\" has no effect on the file",
        "6:3: ignored: \"name\" has no effect on a descriptor",
        "7:52: ignored: \"quota_mode\" has no effect on \"rate_limit\"",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(policy.contains("\"limit\": 5"), "{policy}");
}

#[test]
fn hostile_files_are_refused_in_bounded_memory() {
    let deep = format!("domain: d\ndescriptors: {}{}", "[".repeat(5000), "]".repeat(5000));
    let mut nested = "[]".to_owned();
    (0..90).for_each(|_| nested = format!("[{{key: k, descriptors: {nested}}}]"));
    let nested = format!("domain: d\ndescriptors: {nested}");
    let mut laughs = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    (1..12).for_each(|i| {
        let alias = format!("*a{}, ", i - 1).repeat(10);
        laughs.push_str(&format!("b{i}: &a{i} [{alias}]\n"));
    });
    let limit = "{unit: day, requests_per_unit: 1}";
    let rows = |count: usize, row: &dyn Fn(usize) -> String| {
        let rows: String = (0..count).map(row).collect();
        format!("domain: d\ndescriptors:\n{rows}")
    };
    let many = rows(1001, &|i| format!("- {{key: k{i}, rate_limit: {limit}}}\n"));
    // For each of 300 patterns, 3,000 values are excluded.
    let exact = |i: usize| format!("- {{key: k, value: v{}{i}}}\n", "v".repeat(200));
    let pattern = |i: usize| format!("- {{key: k, value: 'v*{i}*', rate_limit: {limit}}}\n");
    let quadratic = format!("{}{}", rows(3000, &exact), (0..300).map(pattern).collect::<String>());
    // Only values and patterns, which exclude nothing of each other.
    let side = format!(
        "{}{}",
        rows(30_000, &|i| format!("- {{key: k, value: w{}{i}}}\n", "w".repeat(60))),
        (0..900)
            .map(|i| format!("- {{key: k, value: 'w*{i}*x', rate_limit: {limit}}}\n"))
            .collect::<String>()
    );
    // Each of 900 limits is replaced by each of 900 others.
    let replaced = rows(900, &|i| {
        let limit = "{unit: day, requests_per_unit: 1, name: n, replaces: [{name: m}]}";
        format!(
            "- {{key: k{i}, rate_limit: {limit}}}\n- {{key: l{i}, rate_limit: {{unlimited: true, replaces: [{{name: n}}]}}}}\n"
        )
    });
    let long = format!(
        "domain: d\ndescriptors:\n{}",
        format!("- {{key: {0}*}}\n", "k".repeat(9_000)).repeat(20)
    );
    let wrong = rows(200_000, &|_| "- 5\n".to_owned());
    for (name, text, said) in [
        ("deep", deep, "recursion limit"),
        ("nested", nested, "nested more than"),
        ("laughs", laughs, "too many values"),
        ("many", many, "1001 limits"),
        ("quadratic", quadratic, "more than 1 MiB"),
        ("side by side", side, "too many patterns and values on one level"),
        ("replaced", replaced, "more than 1 MiB"),
        ("long", long, "kkk...\" has a star"),
        ("wrong", wrong, "is an object"),
        ("large", " ".repeat(9 << 20), "more than 8 MiB"),
        ("empty", String::new(), "is empty"),
        ("two", "domain: d\n---\ndomain: e\n".to_owned(), "second document"),
        ("tab", "domain: d\n\t- x\n".to_owned(), "not YAML"),
    ] {
        let ran = convert(&text);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{name}: {}", ran.stderr);
        assert!(ran.stderr.len() < 40_000, "{name}: {} bytes", ran.stderr.len());
    }
    let bytes = tollgate_reading(here(), &["convert", "-"], b"domain: \xff");
    assert_eq!(bytes.code, 2, "{}", bytes.stderr);
}

#[test]
fn several_files_are_several_domains_of_one_policy() {
    let file = |name: &str, domain: &str| {
        let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
        let text = format!("domain: {domain}\ndescriptors:\n- {{key: k, {limit}}}\n");
        std::fs::write(here().join(name), text).unwrap();
    };
    file("convert_a.yaml", "a");
    file("convert_b.yaml", "b");
    let ran = tollgate(here(), &["convert", "convert_a.yaml", "convert_b.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let mut server = Server::new(&ran.stdout);
    for domain in ["a", "b"] {
        let call = call(&format!("{domain} | k=v"), START);
        assert_eq!((server.over(&call), server.over(&call)), (vec![false], vec![true]), "{domain}");
    }
    assert_eq!(server.over(&call("c | k=v", START)), [false], "nobody's domain");
    let twice = tollgate(here(), &["convert", "convert_a.yaml", "convert_a.yaml"]);
    assert_eq!(twice.code, 1);
    assert!(twice.stderr.contains("is in convert_a.yaml already"), "{}", twice.stderr);
}

#[test]
fn the_report_has_the_policy_and_what_differs() {
    let limit = "{unit: day, requests_per_unit: 0}";
    let configuration =
        format!("domain: d\ndescriptors:\n- {{key: k, quota_mode: true, rate_limit: {limit}}}\n");
    let ran = tollgate_reading(here(), &["convert", "--json", "-"], configuration.as_bytes());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (report["ok"].clone(), report["policy"]["version"].clone()),
        (true.into(), 1.into())
    );
    let findings = report["findings"].as_array().unwrap();
    let kinds: Vec<&str> =
        findings.iter().map(|finding| finding["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["differs", "written"]);
    assert_eq!((findings[0]["line"].clone(), findings[0]["column"].clone()), (3.into(), 12.into()));
    let ran = tollgate_reading(here(), &["convert", "--json", "-"], b"domain: d\ndescriptors: 5\n");
    assert_eq!(ran.code, 1);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((report["ok"].clone(), report["policy"].clone()), (false.into(), Value::Null));
}

#[test]
fn the_rules_whose_hits_are_reported_are_named() {
    let configuration = "domain: llm\ndescriptors:\n  - key: user\n    rate_limit: { name: tokens, unit: hour, requests_per_unit: 1000 }\n  - key: calls\n    rate_limit: { unit: hour, requests_per_unit: 9 }\n";
    let convert = |names: &[&str]| {
        let named = names.iter().flat_map(|name| ["--reported", name]);
        let arguments: Vec<&str> = ["convert", "-"].into_iter().chain(named).collect();
        tollgate_reading(here(), &arguments, configuration.as_bytes())
    };
    let ran = convert(&["tokens"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let policy: serde_json::Value = serde_json::from_str(&ran.stdout).expect("a policy");
    let costs = [0, 1].map(|i| policy["rules"][i]["cost"].as_str());
    assert_eq!(costs, [Some("reported"), None]);
    let ran = convert(&["tokens", "token"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("error: --reported: no rule is called \"token\""),
        "{}",
        ran.stderr
    );
}
