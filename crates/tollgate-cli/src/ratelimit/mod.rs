//! Converts a configuration of `envoyproxy/ratelimit` to a policy, and lists the differences.
//!
//! Invariant: with a problem there is no policy, so none has fewer limits than its configuration.
//! Memory is bounded for any content of the files. Deliberately not here: the settings of that
//! service's process and of Envoy, which such a file does not contain; and everything about the
//! command line, so that a fuzzer can call this module.

mod config;
mod fields;
mod finding;
mod policy;
mod read;
mod rules;

pub(crate) use finding::{Finding, Kind, Place};
use finding::{Findings, has_problems, shown};
use policy::Domain;
use tollgate_yaml::Node;

/// The differences that apply to every configuration.
const ALWAYS: [(Kind, &str); 4] = [
    (
        Kind::Differs,
        "a denied hit does not count; in the service it does, so a denied call with a \"hits_addend\" of more than 1 uses up the rest of the window",
    ),
    (
        Kind::Differs,
        "keys and values are compared one by one; the service joins them with \"_\", so that a_b with c equals a with b_c",
    ),
    (
        Kind::Differs,
        "when the counts cannot be read, requests are allowed, as \"on_failure\" sets it; in the service the call fails, and Envoy's \"failure_mode_deny\" decides",
    ),
    (
        Kind::NoEquivalent,
        "a limit that a descriptor carries in the call belongs to no rule, so it is ignored",
    ),
];

/// A file of a configuration.
pub(crate) struct File {
    /// The name of the file.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The result of a conversion.
pub(crate) struct Converted {
    /// The policy as text; `None` where there are problems.
    pub(crate) policy: Option<String>,
    /// With problems, all problems; otherwise all differences. In the order of the files.
    pub(crate) findings: Vec<Finding>,
}

/// Converts the files, one per domain. A file of more than `most` bytes is a problem. The rules
/// named in `reported` are for hits that are reported after the response; such a file does not
/// contain that fact.
pub(crate) fn convert(files: Vec<File>, reported: &[String], most: usize) -> Converted {
    let mut findings = Vec::new();
    let mut domains: Vec<Domain> = Vec::new();
    for file in files {
        let (domain, found) = domain(file, most, &domains);
        findings.extend(found);
        domains.extend(domain);
    }
    let policy = match has_problems(&findings) {
        true => None,
        false => policy::write(&domains, reported, &mut findings),
    };
    let policy = policy.filter(|_| !has_problems(&findings));
    if policy.is_none() {
        findings.retain(|finding| finding.kind == Kind::Problem);
    } else {
        let always = |(kind, message): (Kind, &str)| Finding {
            kind,
            file: None,
            place: None,
            message: message.to_owned(),
        };
        findings.extend(ALWAYS.map(always));
    }
    Converted { policy, findings }
}

/// The limits of one file, and its findings.
fn domain(file: File, most: usize, earlier: &[Domain]) -> (Option<Domain>, Vec<Finding>) {
    let File { name: file, text } = file;
    let mut findings = Findings::of(file.clone());
    let start = Place { line: 1, column: 1 };
    if text.len() > most {
        findings.problem(start, format!("has more than {} MiB", most >> 20));
        return (None, findings.all);
    }
    let root = match Node::parse_of_others(text.trim_start_matches('\u{feff}')) {
        Ok(root) => root,
        Err(fault) => {
            findings.problem(Place { line: fault.line, column: fault.column }, fault.message);
            return (None, findings.all);
        }
    };
    let Some(config) = read::config(&root, &mut findings) else { return (None, findings.sorted()) };
    if let Some(other) = earlier.iter().find(|other| other.name == config.domain) {
        let message = format!("the domain {} is in {} already", shown(&config.domain), other.file);
        findings.problem(config.at, message);
    }
    let candidates = rules::candidates(&config, &mut findings);
    (Some(Domain { file, name: config.domain, candidates }), findings.sorted())
}
