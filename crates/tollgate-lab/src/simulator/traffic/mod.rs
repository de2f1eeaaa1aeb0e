//! Simulated traffic: several sources of requests, merged by time.
//!
//! Invariant: the same document and seed, and the same responses, give the same requests in the
//! same order. Everything that can grow has a bound: clients and lists by the document, requests by
//! [`MAX_REQUESTS`], clients that wait to retry by [`MAX_PENDING`].

mod requests;
mod request;
mod described;
mod clients;
mod arrivals;
pub(crate) mod document;
mod scalar;

pub use clients::ClientResponse;
pub use described::{START, Traffic, TrafficError};
pub use request::{Request, RequestFacts};
pub use requests::{MAX_PENDING, MAX_REQUESTS, Requests};
