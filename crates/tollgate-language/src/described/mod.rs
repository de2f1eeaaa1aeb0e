//! Requests and settlements that a caller describes in JSON, in the terms of the policy document.

pub(crate) mod in_flight;
pub(crate) mod request;
pub(crate) mod settlement;
