//! What was decided, and what is said about it: pass, wait or refuse, fields and bodies.
//!
//! Invariant: an answer only reads the plan.

pub(crate) mod rule_decision;
pub(crate) mod grpc;
pub(crate) mod body;
pub(crate) mod problem_details;
pub(crate) mod outcome;
pub(crate) mod fields;
pub(crate) mod text;
pub(crate) mod rule_result;
