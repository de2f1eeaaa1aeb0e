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

/// Where a step runs. Cargo locks its folder for each profile and target, so steps of one lane
/// would only wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Everything that cargo builds without optimisation.
    Debug,
    /// Products, tests of products as shipped, and the outputs of other compilers.
    Release,
    /// Real servers, with tests that are their clients.
    Served,
    /// The same, of tests that wait for events and measure few times and rates.
    Patient,
    /// Nothing runs in parallel with it: it is measured, or uses ports that others have.
    Alone,
}

/// Which lanes run in parallel, one pair after the other. The output of the second one is shown
/// when a step of it has ended.
pub const SIDE_BY_SIDE: [(Lane, Option<Lane>); 3] =
    [(Lane::Debug, Some(Lane::Release)), (Lane::Served, Some(Lane::Patient)), (Lane::Alone, None)];

/// A step of cargo's debug folder.
pub const fn checked(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Debug }
}

/// A step of other folders, so that cargo does not let it wait for the ones above.
pub const fn built(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Release }
}

/// A step with real servers, after all large builds.
pub const fn served(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Served }
}

/// A step with real servers that may be slow, in parallel with the ones above.
pub const fn patient(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Patient }
}

/// A step alone on the machine, at the end.
pub const fn alone(group: &'static str, name: &'static str, needs: Needs, run: Run) -> Step {
    Step { group, name, needs, run, lane: Lane::Alone }
}
