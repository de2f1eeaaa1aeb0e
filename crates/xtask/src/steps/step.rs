//! A row of the list of steps.
//!
//! Invariant: two lanes build into different folders of cargo, which it locks.

use crate::{problem::Result, tools::Tool, workspace::Workspace};

pub type Needs = &'static [&'static Tool];
pub type Run = fn(&Workspace) -> Result<()>;

/// One row of the list.
pub struct Step {
    pub group: &'static str,
    pub name: &'static str,
    pub needs: Needs,
    pub run: Run,
    pub lane: Lane,
}

/// Where a step runs. Two threads run lanes: the first one `Debug`, then `Served`; the second one
/// `Release`, then `Patient`, with which the first one helps at last. A third one runs `Page` after
/// `Release`. Cargo locks its folder for each profile and target, so two steps of a lane of builds
/// would only wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Everything that cargo builds without optimisation.
    Debug,
    /// Products, tests of products as shipped, and the outputs of other compilers.
    Release,
    /// Real servers, with tests that are their clients, when all builds are done.
    Served,
    /// The same, of tests that wait for events and measure few times and rates: in parallel with
    /// debug builds, with served steps and with each other.
    Patient,
    /// Pages in a browser, which wait for two thirds of their time: in parallel with both others.
    Page,
    /// Nothing runs in parallel with it: it is measured, or uses ports that others have.
    Alone,
}

/// A step of cargo's debug folder.
pub const fn checked(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Debug }
}

/// A step of other folders, so that cargo does not let it wait for the ones above.
pub const fn built(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Release }
}

/// A step with real servers, after all builds.
pub const fn served(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Served }
}

/// A step with real servers that may be slow, in parallel with anything but steps that run alone.
pub const fn patient(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Patient }
}

/// A step with a browser, after all builds of products.
pub const fn paged(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Page }
}

/// A step alone on the machine, at the end.
pub const fn alone(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Alone }
}
