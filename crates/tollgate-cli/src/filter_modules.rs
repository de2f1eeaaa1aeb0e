//! The modules of the filter for Envoy, with what each lacks for a policy.
//!
//! Invariant: the modules, their abilities and costs are those of their one list
//! (`tollgate_policy::explain`). Deliberately not here: the dynamic module, which runs every policy
//! that `check` accepts for it.

use serde::Serialize;
use tollgate_policy::Policy;
use tollgate_policy::explain::{Ability, FILTER_MODULES, FilterModule, Requirement};
use tollgate_policy::plugin::NamedPolicy;

/// One module, for one policy. Documented in docs/policy/command-line.md.
#[derive(Debug, Serialize)]
pub(crate) struct ModuleReport {
    file: &'static str,
    /// False when the policy has to be compiled for it.
    reads_documents: bool,
    /// The most that it has.
    bytes: usize,
    start_cpu_ms: u32,
    /// What the policy needs and the module lacks; empty when the module runs it.
    lacks: Vec<Lack>,
    #[serde(skip)]
    cost: String,
}

#[derive(Debug, Serialize)]
struct Lack {
    ability: &'static str,
    /// The part of the document; empty for the whole.
    path: String,
    #[serde(skip)]
    words: String,
}

/// What the policy of a plugin and those of its routes need.
pub(crate) fn requirements(policy: &Policy, named: &[NamedPolicy]) -> Vec<Requirement> {
    let mut all = policy.explain().requirements();
    for NamedPolicy { name, policy } in named {
        all.extend(policy.explain().requirements().into_iter().map(|it| {
            let dot = if it.path.is_empty() { "" } else { "." };
            Requirement { path: format!("policies.{name}{dot}{}", it.path), ..it }
        }));
    }
    all
}

/// The path under which the images of Envoy and our examples have a module.
pub(crate) fn installed(module: &FilterModule) -> String {
    format!("/etc/envoy/{}", module.file)
}

/// All modules, the smallest first.
pub(crate) fn report(requirements: &[Requirement]) -> Vec<ModuleReport> {
    let lack = |it: &Requirement| Lack {
        ability: it.ability.name(),
        path: it.path.clone(),
        words: it.to_string(),
    };
    let module = |module: &FilterModule| ModuleReport {
        file: module.file,
        reads_documents: module.has(Ability::Documents),
        bytes: module.max_bytes,
        start_cpu_ms: module.start_cpu_ms,
        lacks: module.unmet(requirements).map(lack).collect(),
        cost: module.cost(),
    };
    FILTER_MODULES.iter().map(module).collect()
}

impl ModuleReport {
    /// Its file, its cost, and whether it runs the policy. `best` are the smallest that does, and
    /// the smallest that does without compiling it.
    fn words(&self, best: [Option<&'static str>; 2]) -> String {
        let Self { file, cost, lacks, .. } = self;
        let compiled = if self.reads_documents { "" } else { ", compiled" };
        let runs = match lacks.first() {
            Some(first) if lacks.len() > 1 => {
                let others = lacks.len().saturating_sub(1);
                format!("no: {}, and {others} more", first.words)
            }
            Some(first) => format!("no: {}", first.words),
            None if best[0] == Some(file) => format!("the smallest for this policy{compiled}"),
            None if best[1] == Some(file) => {
                "the smallest for this policy as it is written".to_owned()
            }
            None => format!("yes{compiled}"),
        };
        format!("{file:<26}{cost}; {runs}")
    }
}

/// One line for each.
pub(crate) fn lines(modules: &[ModuleReport]) -> impl Iterator<Item = String> {
    let runs = |it: &&ModuleReport| it.lacks.is_empty();
    let smallest = modules.iter().find(runs);
    let reading = modules.iter().filter(runs).find(|it| it.reads_documents);
    let best = [smallest, reading].map(|it| it.map(|it| it.file));
    modules.iter().map(move |module| module.words(best))
}
