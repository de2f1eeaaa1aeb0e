//! One request: in front of an origin, as `POST /check`, by a service binding, or of a node.
//!
//! Invariant: every request gets a response, and its charge is settled when its response is known.
//! Deliberately not here: the calls to the objects (`counts`).

pub(crate) mod body_scan;
pub(crate) mod decide;
pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod forward;
pub(crate) mod in_flight;
pub(crate) mod leasing;
pub(crate) mod origin;
pub(crate) mod planning;
pub(crate) mod proxy;
pub(crate) mod response_end;
pub(crate) mod rpc;
pub(crate) mod service;
pub(crate) mod settle;
pub(crate) mod target;
