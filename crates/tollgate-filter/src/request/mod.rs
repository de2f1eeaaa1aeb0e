//! One request: its facts, its first decision, the wait and the response.
//!
//! Invariant: between two calls of the host a request is either decided or kept in one place, so
//! that the end of its stream finds all that is held. Deliberately not here: counting (`counts`).

pub(crate) mod arrival;
pub mod facts;
pub(crate) mod held_request;
pub(crate) mod in_flight;
pub(crate) mod pending_response;
pub(crate) mod response;
pub(crate) mod settling;
pub(crate) mod waiting;
