//! Facts that a policy reads and that simulated traffic does not contain.
//!
//! Invariant: they are found in everything that the policy may ever read, not in the requests. A
//! rule without its key's facts limits no client, and a table of no limited client would be
//! misleading. Deliberately not here: a header that the traffic does not give a request, because a
//! document can give it.

use tollgate_policy::Policy;
use tollgate_policy::spec::Fact;

use crate::reader::reader;

/// One sentence for each fact that `policy` reads and no simulated request has, in the order of the
/// policy: `rule "api": its key reads claim.sub, which ...`.
#[must_use]
pub fn unknown_facts(policy: &Policy) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for read in policy.explain().reads() {
        if !is_unknown(read.fact) {
            continue;
        }
        let (rule, part) = reader(policy, &read);
        let by = rule.map_or(part.clone(), |rule| format!("rule \"{rule}\": its {part}"));
        let effect = match read.by.has_default() {
            true => "the quota's own limit applies",
            false => "every request is decided as one without it",
        };
        let fact = read.fact;
        let note =
            format!("{by} reads {fact}, which simulated traffic does not contain, so {effect}");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// True for a fact that no document of traffic gives.
const fn is_unknown(fact: Fact<'_>) -> bool {
    match fact {
        Fact::Route | Fact::Country | Fact::Asn | Fact::Claim(_) | Fact::Metadata(_) => true,
        Fact::Certificate(_) | Fact::Cloudflare(_) => true,
        Fact::Client | Fact::Method | Fact::Host | Fact::Path | Fact::Query(_) => false,
        Fact::Header(_) | Fact::Cookie(_) | Fact::Status | Fact::Actual | Fact::Duration => false,
        Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => false,
    }
}
