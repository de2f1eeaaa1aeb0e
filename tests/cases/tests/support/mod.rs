//! Digests of the cases and of the limiters' traces, and their comparison with `golden.txt`.
#![allow(dead_code, reason = "each test binary uses a part")]

use tollgate_cases::{Case, Digest, HASH_KEY, Reference, cases, golden, limits, transcript};
use tollgate_policy::Surface;

/// One line of `golden.txt`: what was run, which one, and its digest.
pub type Line = (&'static str, u32, Digest);

/// Every case, on both surfaces: a document means the same on either.
pub fn policy_digests() -> Vec<Line> {
    (0..cases()).map(|number| ("policy", number, policy_digest(number))).collect()
}

pub fn limit_digests() -> Vec<Line> {
    (0..limits::TRACES.min(cases())).map(|number| ("limit", number, limits::run(number))).collect()
}

fn policy_digest(number: u32) -> Digest {
    let case = Case::new(number);
    let of = |surface| {
        let mut digest = Digest::default();
        for expected in Reference::new(&case, surface, HASH_KEY) {
            digest.add(expected.at_ms.to_le_bytes());
            digest.add(expected.seen.to_string());
        }
        digest
    };
    let digest = of(Surface::Envoy);
    assert_eq!(of(Surface::Worker), digest, "case {number} means something else in the Worker");
    digest
}

/// Fails with every line that differs, and with all answers of the first case that does.
pub fn compare(lines: &[Line]) {
    let differs =
        |(kind, number, digest): &&Line| golden(kind, *number) != Some(digest.to_string().as_str());
    let wrong: Vec<&Line> = lines.iter().filter(differs).collect();
    let Some((kind, first, _)) = wrong.first() else { return };
    let answers = if *kind == "policy" { transcript(*first) } else { String::new() };
    let each: Vec<String> =
        wrong.iter().map(|(kind, number, _)| format!("{kind} {number}")).collect();
    panic!(
        "{} of {} differ from golden.txt: {}\nThe answers here follow; those elsewhere: `cargo run -p tollgate-cases \
         --example show {first}`. If the change is meant: `{}`\n{answers}",
        wrong.len(),
        lines.len(),
        each.join(", "),
        tollgate_cases::BLESS
    );
}
