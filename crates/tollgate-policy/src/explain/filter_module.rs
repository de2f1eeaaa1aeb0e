//! The modules of the filter for Envoy: the policies that each can run, and the cost of its start.
//!
//! Invariant: this is the one list of them. The build with its ceilings, `tollgate check` and
//! `embed`, and the table in envoy/README.md read it. V8 compiles a whole module before Envoy gives
//! its first response, so a module without what a policy does not need starts sooner. Deliberately
//! not here: the dynamic module, which has nothing to compile.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::explain::rules::Explain;
use crate::policy::rule::Rule;
use crate::spec::scope::Scope;

/// Code of the filter that not every module contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It reads policies as they are written, not only compiled ones.
    Documents,
    /// It follows a server that changes its policy.
    Following,
    /// It holds requests that wait for their turn.
    Waiting,
    /// It counts for a fleet, with leases from an authority.
    Leases,
    /// It reads the bodies and trailers of responses.
    Bodies,
    /// It has regular expressions.
    Regexes,
}

impl Ability {
    /// Every ability.
    pub const ALL: [Self; 6] = [
        Self::Documents,
        Self::Following,
        Self::Waiting,
        Self::Leases,
        Self::Bodies,
        Self::Regexes,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Documents => "documents",
            Self::Following => "following",
            Self::Waiting => "waiting",
            Self::Leases => "leases",
            Self::Bodies => "bodies",
            Self::Regexes => "regexes",
        }
    }

    /// What it is for, in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Documents => "policies as they are written",
            Self::Following => "policies from a server",
            Self::Waiting => "requests that wait",
            Self::Leases => "counts of a fleet",
            Self::Bodies => "bodies and trailers of responses",
            Self::Regexes => "regular expressions",
        }
    }
}

/// One module.
#[derive(Clone, Copy, Debug)]
pub struct FilterModule {
    /// The name of its file.
    pub file: &'static str,
    /// What it can do beyond what all modules can.
    pub abilities: &'static [Ability],
    /// Its most bytes. The build fails when it has more, or less by more than a thirtieth.
    pub max_bytes: usize,
    /// The CPU until Envoy's first response with one worker, above that of Envoy without a filter,
    /// in milliseconds, rounded to ten, as `cargo xtask bench start` measured it (envoy/README.md).
    pub start_cpu_ms: u32,
}

/// Every module, the smallest first: each has the abilities of those before it.
pub const FILTER_MODULES: [FilterModule; 4] = [
    FilterModule {
        file: "tollgate-envoy-lean.wasm",
        abilities: &[],
        max_bytes: 450_000,
        start_cpu_ms: 780,
    },
    FilterModule {
        file: "tollgate-envoy-slim.wasm",
        abilities: &[Ability::Waiting, Ability::Leases],
        max_bytes: 560_000,
        start_cpu_ms: 900,
    },
    FilterModule {
        file: "tollgate-envoy.wasm",
        abilities: &[Ability::Waiting, Ability::Leases, Ability::Documents, Ability::Following],
        max_bytes: 885_000,
        start_cpu_ms: 1_310,
    },
    FilterModule {
        file: "tollgate-envoy-full.wasm",
        abilities: &Ability::ALL,
        max_bytes: 990_000,
        start_cpu_ms: 1_480,
    },
];

/// A part of a policy that needs an ability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The ability.
    pub ability: Ability,
    /// The part's place in the document: `rules[1]`; empty for the whole policy.
    pub path: String,
}

impl Requirement {
    /// A requirement of a whole configuration.
    #[must_use]
    pub const fn of_all(ability: Ability) -> Self {
        Self { ability, path: String::new() }
    }
}

/// `rules[1] needs waiting`, or `needs regexes`
impl core::fmt::Display for Requirement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let space = if self.path.is_empty() { "" } else { " " };
        write!(f, "{}{space}needs {}", self.path, self.ability.name())
    }
}

impl FilterModule {
    /// True when it has this ability.
    #[must_use]
    pub fn has(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }

    /// The requirements that it does not meet; none when it can run the policy.
    pub fn unmet<'r>(&self, all: &'r [Requirement]) -> impl Iterator<Item = &'r Requirement> {
        all.iter().filter(move |it| !self.has(it.ability))
    }

    /// The smallest that meets all of these.
    #[must_use]
    pub fn smallest(all: &[Requirement]) -> &'static Self {
        let [.., largest] = &FILTER_MODULES;
        FILTER_MODULES.iter().find(|it| it.unmet(all).next().is_none()).unwrap_or(largest)
    }

    /// `402 KB, 0.93 s of CPU at start`
    #[must_use]
    pub fn cost(&self) -> String {
        let kilobytes = self.max_bytes.div_ceil(1000);
        let hundredths = self.start_cpu_ms.div_ceil(10);
        format!("{kilobytes} KB, {}.{:02} s of CPU at start", hundredths / 100, hundredths % 100)
    }
}

impl Explain<'_> {
    /// The parts of the compiled policy that not every module of the filter for Envoy can run, in
    /// the order of [`Ability::ALL`] and of the rules.
    #[must_use]
    pub fn requirements(&self) -> Vec<Requirement> {
        let policy = self.0;
        let mut found = Vec::new();
        let mut add = |ability, path: String| {
            let requirement = Requirement { ability, path };
            if !found.contains(&requirement) {
                found.push(requirement);
            }
        };
        let path = |rule: &Rule| format!("rules[{}]", rule.place());
        policy.delaying_rules().for_each(|rule| add(Ability::Waiting, path(rule)));
        let rules = || policy.rules().iter();
        rules()
            .filter(|it| it.scope() == Scope::Fleet)
            .for_each(|rule| add(Ability::Leases, path(rule)));
        rules().filter(|it| it.reads_body()).for_each(|rule| add(Ability::Bodies, path(rule)));
        if policy.to_spec().count_regexes() > 0 {
            add(Ability::Regexes, String::new());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_is_larger_than_those_before_it_and_can_do_more() {
        assert!(FILTER_MODULES.is_sorted_by(|one, next| {
            one.max_bytes < next.max_bytes
                && one.start_cpu_ms < next.start_cpu_ms
                && one.abilities.iter().all(|ability| next.has(*ability))
                && one.abilities.len() < next.abilities.len()
        }));
        let [.., largest] = FILTER_MODULES;
        assert!(Ability::ALL.iter().all(|ability| largest.has(*ability)));
    }

    #[test]
    fn the_smallest_module_meets_all_requirements() {
        let of = |abilities: &[Ability]| {
            let all: Vec<_> = abilities.iter().copied().map(Requirement::of_all).collect();
            FilterModule::smallest(&all).file
        };
        assert_eq!(of(&[]), "tollgate-envoy-lean.wasm");
        assert_eq!(of(&[Ability::Leases]), "tollgate-envoy-slim.wasm");
        assert_eq!(of(&[Ability::Documents]), "tollgate-envoy.wasm");
        assert_eq!(of(&[Ability::Waiting, Ability::Regexes]), "tollgate-envoy-full.wasm");
    }
}
