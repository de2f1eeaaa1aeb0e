//! The input of a command: a policy, or the filters of an Envoy configuration, compiled for the
//! requested surfaces.
//!
//! Invariant: every problem is reported once; a problem that only some surfaces have is reported
//! with their names.

use std::path::Path;

use serde::Serialize;
use serde::de::IgnoredAny;
use tollgate_policy::plugin::NamedPolicy;
use tollgate_policy::{Plugin, Policy, Problem, Problems, Rule, Surface};

use crate::configuration::Host;
use crate::envoy::{self, Filters};
use crate::error::CommandError;
use crate::input::{self, Input};
use tollgate_yaml::{Document, Fault, Language, Node, Reading, read_beside};

/// A problem or a warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The file, if it is not the policy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The surface that has it; `None` when all requested ones have it.
    pub(crate) surface: Option<&'static str>,
    /// The line in the file, where it is known: in YAML, and everywhere in an Envoy configuration.
    pub(crate) line: Option<usize>,
    /// The position in the document: `rules[2].quotas[0].window`; empty for the document itself.
    pub(crate) path: String,
    /// The mistake, and the allowed values.
    pub(crate) message: String,
}

impl From<Fault> for Finding {
    fn from(Fault { line, message, .. }: Fault) -> Self {
        Self { file: None, surface: None, line: Some(line), path: String::new(), message }
    }
}

impl Finding {
    /// One line: `envoy: rules[0].when.asns: needs geo.asn_header ...`.
    pub(crate) fn words(&self) -> String {
        let Self { surface, path, message, .. } = self;
        let surface = surface.map(|name| format!("{name}: ")).unwrap_or_default();
        let separator = if path.is_empty() { "" } else { ": " };
        format!("{surface}{path}{separator}{message}")
    }

    /// Its position for people to find: `envoy.yaml:70: `; empty for a policy in JSON.
    pub(crate) fn mark(&self, file: &str) -> String {
        let file = self.file.as_deref().unwrap_or(file);
        if self.file.is_some() && self.line.is_none() {
            return format!("{file}: ");
        }
        self.line.map(|line| format!("{file}:{line}: ")).unwrap_or_default()
    }
}

/// The content of a file.
#[derive(Debug)]
pub(crate) enum Source {
    Policy(Document),
    Envoy(Filters),
    /// Neither: it cannot be parsed.
    Fault(Fault),
}

/// A document, compiled for each requested surface.
pub(crate) struct Compiled {
    pub(crate) surfaces: Vec<Surface>,
    pub(crate) policies: Vec<(Surface, Policy)>,
    pub(crate) problems: Vec<Finding>,
    pub(crate) warnings: Vec<Finding>,
}

/// Reads the file at `path`; also returns its name.
pub(crate) fn load(path: &Path) -> Result<(String, Source), CommandError> {
    let Input { name, text, language } = input::read(path)?;
    Ok((name, read(text, language).with_files(path)))
}

impl Source {
    /// A policy with the values that its lists have from files in the folder of `path`.
    pub(crate) fn with_files(self, path: &Path) -> Self {
        match self {
            Self::Policy(document) => document
                .take_files(|name| read_beside(path, name))
                .map_or_else(Self::Fault, Self::Policy),
            other => other,
        }
    }
}

/// Determines the content of `text`.
pub(crate) fn read(text: String, language: Language) -> Source {
    let plain = text.trim_start_matches('\u{feff}');
    match language {
        Language::Yaml => match Node::parse(plain) {
            Err(fault) => Source::Fault(fault),
            Ok(root) if envoy::is_envoy(&root) => {
                Source::Envoy(Filters::find(&root, Reading::Envoy))
            }
            Ok(root) => Source::Policy(Document::from_tree(root, Reading::Policy)),
        },
        Language::Json => json(text),
    }
}

/// JSON is YAML, once it is known to be JSON; only surrogates (`\ud83d\ude00`) are not in YAML.
fn json(text: String) -> Source {
    let plain = text.trim_start_matches('\u{feff}');
    let is_json = serde_json::from_str::<IgnoredAny>(plain).is_ok();
    match is_json.then(|| Node::parse(plain)) {
        Some(Ok(root)) if envoy::is_envoy(&root) => {
            Source::Envoy(Filters::find(&root, Reading::Json))
        }
        Some(Err(fault)) if envoy::looks_like_envoy(plain) => Source::Fault(fault),
        _ => Source::Policy(Document::from_json(text)),
    }
}

/// Compiles `document` for all of `surfaces`.
pub(crate) fn compile(document: &Document, surfaces: &[Surface]) -> Compiled {
    let mut policies = Vec::new();
    let mut problems = Vec::new();
    for surface in surfaces {
        match tollgate_language::compile(&document.json, *surface) {
            Ok(policy) => policies.push((*surface, policy)),
            Err(found) => problems.push((*surface, document.hinted(found, *surface))),
        }
    }
    let warnings = policies.iter().map(|(at, p)| (*at, document.with_files(p.warnings().clone())));
    let warnings: Vec<_> = warnings.collect();
    let find = |found: &[(Surface, Problems)]| merge(found, surfaces.len(), document);
    let mut warnings = find(&warnings);
    warnings
        .extend(policies.first().into_iter().flat_map(|(_, policy)| unbacked(document, policy)));
    Compiled { surfaces: surfaces.to_vec(), problems: find(&problems), warnings, policies }
}

/// Compiles the policy of a filter in Envoy, whose routes have the policies `named`, for its host.
pub(crate) fn compile_for(host: Host, document: &Document, named: &[NamedPolicy]) -> Compiled {
    let mut compiled = compile(document, &[Surface::Envoy]);
    if host == Host::DynamicModule {
        let own = compiled.policies.iter().map(|(_, policy)| (String::new(), policy));
        let named = named.iter().map(|it| (format!("policies.{}.", it.name), &it.policy));
        for (of, policy) in own.chain(named) {
            let found = policy.explain().problems_in_dynamic_module();
            compiled.problems.extend(found.0.into_iter().map(
                |Problem { path, message, .. }| {
                    let line = if of.is_empty() { document.line(&path) } else { None };
                    Finding {
                        file: None,
                        surface: None,
                        line,
                        path: format!("{of}{path}"),
                        message,
                    }
                },
            ));
        }
    }
    compiled
}

/// A warning for each rule that a client can evade with an invented value. It is the same for every
/// surface, and only a person can judge it, so surfaces do not report it.
fn unbacked(document: &Document, policy: &Policy) -> Vec<Finding> {
    let finding = |rule: usize| {
        let place = policy.rules().get(rule).map_or(rule, Rule::place);
        let path = format!("rules[{place}].key");
        Finding {
            file: None,
            surface: None,
            line: document.line(&path),
            path,
            message: if policy.explain().lets_clients_choose(rule) { CHOSEN } else { UNBACKED }
                .into(),
        }
    };
    let mut findings: Vec<Finding> =
        policy.explain().unbacked_rules().into_iter().map(finding).collect();
    // A rule with quotas and a limit on requests in flight is two.
    findings.dedup_by(|next, one| next.path == one.path);
    findings
}

const CHOSEN: &str = "has any_of with a value that the client chooses: a client that sends another value with each request is not limited, and none of its requests is counted by the parts after it; use a verified claim there, add a rule by \"client_ip\" for the same requests, or let only a proxy set it";

const UNBACKED: &str = "has a value that the client chooses, and a client that sends another value with each request is not limited; add a rule by \"client_ip\" for the same requests, or let only a proxy set it";

/// Rejects a policy that needs reported costs, for requests that are never reported on: simulated
/// ones, and those of a log.
pub(crate) fn refuse_reported(policy: &Policy, file: &str) -> Result<(), CommandError> {
    match policy.rules().iter().find(|rule| rule.is_reported()) {
        Some(rule) => Err(CommandError::Misuse(format!(
            "{file}: rule \"{}\" has \"cost\": \"reported\", which only the descriptors of a rate limit service contain; leave it out here, or use another cost",
            rule.name()
        ))),
        None => Ok(()),
    }
}

/// Compiles the configuration of `surface`, and returns it with its warnings, or else its mistakes.
/// The configuration is a policy, or for a proxy a policy and the servers of its fleet.
pub(crate) fn compile_plugin(
    document: &Document,
    surface: Surface,
) -> Result<(Plugin, Vec<Finding>), Vec<Finding>> {
    let find = |found: Problems| merge(&[(surface, found)], 1, document);
    let compiled = match surface {
        Surface::Envoy => tollgate_language::compile_plugin(&document.json, surface),
        Surface::Worker | Surface::Library | Surface::Server => {
            tollgate_language::compile(&document.json, surface).map(Plugin::alone)
        }
    };
    let plugin = compiled.map_err(|found| find(document.hinted(found, surface)))?;
    if plugin.policy_from.is_some() {
        return Err(vec![Finding {
            file: None,
            surface: None,
            line: document.line("policy_from"),
            path: "policy_from".to_owned(),
            message:
                "the server sends a document, and a filter that takes a compiled policy may be unable to read it; leave it out, or give the filter the document"
                    .to_owned(),
        }]);
    }
    let mut warnings = document.with_files(plugin.policy.warnings().clone());
    for NamedPolicy { name, policy } in &plugin.named {
        let named = policy.warnings().0.iter().map(|warning| Problem {
            path: format!("policies.{name}.{}", warning.path),
            ..warning.clone()
        });
        warnings.0.extend(named);
    }
    let warnings = find(warnings);
    Ok((plugin, warnings))
}

impl Compiled {
    /// The result for a file that could not be compiled at all.
    pub(crate) fn failed(fault: Fault, surfaces: &[Surface]) -> Self {
        let surfaces = surfaces.to_vec();
        let (policies, warnings) = (Vec::new(), Vec::new());
        Self { surfaces, policies, problems: vec![fault.into()], warnings }
    }
}

/// The findings of several surfaces, each once; those of only some surfaces with their names.
fn merge(found: &[(Surface, Problems)], surfaces: usize, document: &Document) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for (of, problems) in found {
        for Problem { path, message, .. } in &problems.0 {
            let having = found.iter().filter(|(_, other)| {
                other.0.iter().any(|p| p.path == *path && p.message == *message)
            });
            let surface = (having.count() < surfaces).then_some(of.name());
            let (line, path) = (document.line(path), path.clone());
            let finding = Finding { file: None, surface, line, path, message: message.clone() };
            if !merged.contains(&finding) {
                merged.push(finding);
            }
        }
    }
    merged
}
