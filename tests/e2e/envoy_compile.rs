//! The cost of reading a policy: it occupies a worker of Envoy, or an isolate of a Worker, for that
//! time, and no other request is served meanwhile.
//!
//! The count is of instructions of the built filter, which are the same on every machine. The
//! Worker compiles with the same code.

use crate::envoy_host::work_to_configure;

/// The longest document.
const MIB: usize = 1 << 20;
/// The most that a byte of a document may cost, whatever its contents. The worst below takes 1,600.
const MOST_PER_BYTE: u64 = 4_000;

const QUOTAS: &str = r#""quotas":[{"limit":1,"window":"1s"}]"#;

/// As many items as fit, at most `most`.
fn list(room: usize, most: usize, item: impl Fn(usize) -> String) -> String {
    let mut items = item(0);
    for next in (1..most).map(item) {
        if items.len() + 1 + next.len() > room {
            break;
        }
        items.push(',');
        items.push_str(&next);
    }
    items
}

fn rules(room: usize, rest: impl Fn(usize) -> String) -> String {
    let rule = |i| format!(r#"{{"name":"r{i}",{QUOTAS},{}}}"#, rest(i));
    format!(r#"{{"version":1,"rules":[{}]}}"#, list(room - 30, 1000, rule))
}

/// One rule with this additional field.
fn rule(field: &str) -> String {
    let key = r#""key":["client_ip"]"#;
    format!(r#"{{"version":1,"rules":[{{"name":"a",{key},{QUOTAS},{field}}}]}}"#)
}

/// Makes a document of about this number of bytes.
type Family = fn(usize) -> String;

/// Each makes some part of reading it as long as possible.
const FAMILIES: [(&str, Family); 14] = [
    ("rules with paths", |room| {
        let path = "p".repeat(900);
        rules(room, |i| format!(r#""key":["client_ip"],"when":{{"paths":["/{path}{i}/**"]}}"#))
    }),
    ("rules with tiers", |room| {
        let tier = |i| format!(r#"{{"name":"t{i}","key_values":["v{i}"],{QUOTAS}}}"#);
        let tiers = list(970, 100, tier);
        rules(room, |_| format!(r#""key":["client_ip"],"tiers":[{tiers}]"#))
    }),
    ("rules and their exceptions", |room| {
        let asns = |first: usize| list(400, 100, |i| (first + i).to_string());
        let (when, unless) = (asns(10_000), asns(20_000));
        rules(room, |_| {
            format!(
                r#""key":["client_ip"],"when":{{"asns":[{when}]}},"unless":{{"asns":[{unless}]}}"#
            )
        })
    }),
    ("marks and keys", |room| {
        let name = "h".repeat(80);
        let key = |rule| list(1000, 8, |i| format!(r#"{{"header":"{name}{rule:04}{i}"}}"#));
        rules(room, |rule| {
            format!(r#""key":[{}],"action":{{"mark":{{"header":"{name}zzzzz"}}}}"#, key(rule))
        })
    }),
    ("one name of many rules", |room| {
        let path = "p".repeat(900);
        let rule =
            |_| format!(r#"{{"name":"r","key":[],"when":{{"paths":["/{path}"]}},{QUOTAS}}}"#);
        format!(r#"{{"version":1,"rules":[{}]}}"#, list(room - 30, 1000, rule))
    }),
    ("tiers of one rule", |room| {
        let when = "m".repeat(900);
        let tier = |i| format!(r#"{{"name":"t{i}","when":{{"routes":["{when}{i}"]}},{QUOTAS}}}"#);
        rule(&format!(r#""tiers":[{}]"#, list(room - 200, 1000, tier)))
    }),
    ("values of a header", |room| {
        let value = "v".repeat(90);
        let values = list(room - 200, 10_000, |i| format!(r#""{value}{i}""#));
        rule(&format!(r#""when":{{"headers":{{"x":[{values}]}}}}"#))
    }),
    ("names of headers", |room| {
        let name = "x".repeat(90);
        let names = list(room - 200, 10_000, |i| format!(r#""{name}{i}":"*""#));
        rule(&format!(r#""when":{{"headers":{{{names}}}}}"#))
    }),
    ("one name of many parameters", |room| {
        let value = "v".repeat(90);
        let names = list(room - 200, 10_000, |_| format!(r#""q":"{value}""#));
        rule(&format!(r#""when":{{"query":{{{names}}}}}"#))
    }),
    ("paths of many segments", |room| {
        let path = ["/a".repeat(5), "/".to_owned(), "p".repeat(80)].concat();
        let paths = list(room - 200, 10_000, |i| format!(r#""/{i}/*{path}""#));
        rule(&format!(r#""when":{{"paths":[{paths}]}}"#))
    }),
    ("networks", |room| {
        let pad = " ".repeat(70);
        let networks = list(room - 200, 10_000, |i| format!(r#""2001:db8:{i:x}::/48"{pad}"#));
        rule(&format!(r#""when":{{"client_cidrs":[{networks}]}}"#))
    }),
    ("deep lists", |room| {
        let deep = list(room - 200, 10_000, |_| ["[".repeat(100), "]".repeat(100)].concat());
        rule(&format!(r#""when":{{"methods":[{deep}]}}"#))
    }),
    ("fields that nobody knows", |room| {
        format!("{{{}}}", list(room - 2, usize::MAX, |i| format!(r#""f{i}":1"#)))
    }),
    ("one field again and again", |room| {
        format!("{{{}}}", list(room - 2, usize::MAX, |_| r#""version":1"#.to_owned()))
    }),
];

// Guards: a document with which an author of policies blocks a process: work that grows by the
// square of its length.
#[test]
fn reading_a_policy_takes_work_in_proportion_to_its_length() {
    for (name, family) in FAMILIES {
        let [small, large] = [MIB / 4, MIB].map(|room| {
            let document = family(room);
            assert!((room * 8 / 10..=room).contains(&document.len()), "{name}: {}", document.len());
            (document.len() as u64, work_to_configure(document.as_bytes()))
        });
        println!("{name}: {} and {} a byte", small.1 / small.0, large.1 / large.0);
        // Four times as long: a sorted list takes a little more than four times as much.
        assert!(large.1 < 6 * small.1, "{name}: {} of {small:?}, {large:?}", large.1 / small.1);
        assert!(large.1 < MOST_PER_BYTE * large.0, "{name}: {} a byte", large.1 / large.0);
    }
}
