//! Reading a policy for one or two surfaces, and telling what is wrong with it.
//!
//! Invariant: every problem is told once; one that only one surface has is told with its name.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Serialize;
use tollgate_policy::{Group, MAX_DOCUMENT, MAX_VALUE_LEN, Policy, Problem, Problems};

use crate::End;
use crate::args::Place;

/// A problem or a warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The only surface that has it; `None` when all that were asked for have it.
    pub(crate) surface: Option<&'static str>,
    /// Where in the document: `rules[2].quotas[0].window`; empty for the document itself.
    pub(crate) path: String,
    /// What, and what is allowed.
    pub(crate) message: String,
}

impl Finding {
    /// One line: `envoy: rules[0].when.asns: needs geo.asn_header ...`.
    pub(crate) fn line(&self) -> String {
        let Self { surface, path, message } = self;
        let surface = surface.map(|name| format!("{name}: ")).unwrap_or_default();
        let separator = if path.is_empty() { "" } else { ": " };
        format!("{surface}{path}{separator}{message}\n")
    }
}

/// A document, compiled for each surface that was asked for.
pub(crate) struct Compiled {
    pub(crate) policies: Vec<(Place, Policy)>,
    pub(crate) problems: Vec<Finding>,
}

/// The text of the policy at `path`; of one that is too long only enough to tell so.
pub(crate) fn read(path: &Path) -> Result<String, End> {
    let cannot = |error| End::Misuse(format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_DOCUMENT).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(cannot)?;
    if bytes.len() > MAX_DOCUMENT {
        return Ok(String::from_utf8_lossy(&bytes).into_owned()); // it may be cut inside a character
    }
    String::from_utf8(bytes).map_err(|_| End::Misuse(format!("{} is not UTF-8", path.display())))
}

/// Compiles `document` for all of `places`.
pub(crate) fn compile(document: &str, places: &[Place]) -> Compiled {
    let mut policies = Vec::new();
    let mut problems = Vec::new();
    for place in places {
        match Policy::compile(document, place.surface()).and_then(|policy| fits(policy, *place)) {
            Ok(policy) => policies.push((*place, policy)),
            Err(found) => problems.push((*place, found)),
        }
    }
    Compiled { policies, problems: merge(&problems, places.len()) }
}

/// The findings of several surfaces, each once, those of one surface alone with its name.
pub(crate) fn merge(found: &[(Place, Problems)], surfaces: usize) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for (place, problems) in found {
        for Problem { path, message, .. } in &problems.0 {
            let having = found.iter().filter(|(_, other)| {
                other.0.iter().any(|p| p.path == *path && p.message == *message)
            });
            let surface = (having.count() < surfaces).then_some(place.name());
            let finding = Finding { surface, path: path.clone(), message: message.clone() };
            if !merged.contains(&finding) {
                merged.push(finding);
            }
        }
    }
    merged
}

/// Envoy's table has a longest value; the filter refuses such a policy with the same words.
fn fits(policy: Policy, place: Place) -> Result<Policy, Problems> {
    let longest = policy.groups().iter().map(Group::value_len).max().unwrap_or(0);
    if place != Place::Envoy || longest <= MAX_VALUE_LEN {
        return Ok(policy);
    }
    let message = format!(
        "the quotas of one key take {longest} bytes together, more than {MAX_VALUE_LEN}; use another \
         algorithm than sliding-log or fewer quotas"
    );
    Err(Problems(vec![Problem::new("rules", message)]))
}
