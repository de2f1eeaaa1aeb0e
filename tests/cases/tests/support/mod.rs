//! Digests of the cases and of the limiters' traces, and their comparison with `golden.txt`.
#![allow(dead_code, reason = "each test binary uses a part")]

use tollgate_cases::{Case, Digest, Reference, cases, golden, limits};
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
        for expected in Reference::new(&case, surface, [7; 16]) {
            digest.add(expected.at_ms.to_le_bytes());
            digest.add(expected.seen.to_string());
        }
        digest
    };
    let digest = of(Surface::Envoy);
    assert_eq!(of(Surface::Worker), digest, "case {number} means something else in the Worker");
    digest
}

/// Fails with every line that differs.
pub fn compare(lines: &[Line]) {
    let wrong: Vec<String> = (lines.iter())
        .filter(|(kind, number, digest)| golden(kind, *number) != Some(digest.to_string().as_str()))
        .map(|(kind, number, digest)| {
            let golden = golden(kind, *number).unwrap_or("nothing");
            format!("{kind} {number}: {digest} here, {golden} in golden.txt")
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} differ; if that is meant, run `{}`:\n{}",
        wrong.len(),
        lines.len(),
        tollgate_cases::BLESS,
        wrong.join("\n")
    );
}
