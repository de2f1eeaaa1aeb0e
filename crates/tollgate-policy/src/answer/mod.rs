//! The response to a decided request: pass, wait or deny, with fields and bodies.
//!
//! Invariant: these modules only read the plan.

pub(crate) mod rule_decision;
pub(crate) mod deny_match;
pub(crate) mod grpc;
pub(crate) mod body;
pub(crate) mod problem_details;
pub(crate) mod outcome;
pub(crate) mod fields;
pub(crate) mod cause;
pub(crate) mod text;
pub(crate) mod rule_result;
