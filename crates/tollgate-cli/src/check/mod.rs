//! `tollgate check`: is this a valid policy, what does it do, and what does it cost?
//!
//! Invariant: the report is the same data for people and for machines.

mod around;
mod bill;
mod render;
mod report;

use around::Judgement;
use tollgate_policy::Surface;
use tollgate_policy::explain::{Ability, Requirement};

use crate::args::{CheckArgs, Surfaces};
use crate::command::{self, CommandInput, FailureLevel, PolicyReport};
use crate::error::CommandError;
use crate::filter_modules::{self, ModuleReport};
use crate::manager::FilterContext;
use crate::output::Page;
use crate::source::{Compiled, Finding};
use crate::tenants::Tenants;
pub(crate) use report::{Report, report};

/// Checks the named file and prints the report.
pub(crate) fn run(args: &CheckArgs) -> Result<(), CommandError> {
    let question = CommandInput {
        path: &args.policy,
        surfaces: args.surface.map(|surfaces| surfaces.0),
        default: Surfaces::MODULES.0,
        json: args.json,
        fails_by: if args.deny_warnings { FailureLevel::Warnings } else { FailureLevel::Problems },
    };
    let tenants = Tenants::read(&args.tenants)?;
    command::run(&question, |compiled, around| {
        let mut compiled = tenants.judge_with(compiled);
        let mut judgement =
            around.map(|around| Judgement::of(&compiled, around)).unwrap_or_default();
        judgement.add_to(&mut compiled);
        let modules = modules(&compiled, around);
        Report { manager: judgement.address, modules, ..report(compiled, &tenants) }
    })
}

/// The modules that run the policy, where it is for Envoy alone.
fn modules(compiled: &Compiled, around: Option<&FilterContext>) -> Vec<ModuleReport> {
    let ([(Surface::Envoy, policy)], [Surface::Envoy], []) =
        (&compiled.policies[..], &compiled.surfaces[..], &compiled.problems[..])
    else {
        return Vec::new();
    };
    if around.is_some_and(|around| around.in_dynamic_module) {
        return Vec::new();
    }
    let named = around.map_or(&[][..], |around| &around.named);
    let mut requirements = filter_modules::requirements(policy, named);
    if around.is_some_and(|around| around.follows_server) {
        requirements.push(Requirement::of_all(Ability::Following));
    }
    filter_modules::report(&requirements)
}

impl PolicyReport for Report {
    fn problems(&self) -> &[Finding] {
        &self.problems
    }

    fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    fn write(&self, file: &str, page: &mut Page) {
        render::write(self, file, page);
    }
}
