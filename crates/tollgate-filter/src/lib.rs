//! Tollgate as an HTTP filter of a proxy, over any host that calls it.
//!
//! From the top down:
//!
//! - [`filter`]: the contexts and their callbacks. `active_policy`: a policy in force.
//! - `request`: one request, from its facts to its response.
//! - [`config`]: a plugin's configuration. `follow`: a policy that comes from a server.
//! - `fleet`: counts of a fleet, which an authority keeps.
//! - [`observability`]: metrics, access log fields, warnings.
//! - [`counts`]: the counts in the host's shared data.
//! - [`host`]: the traits that a host implements. [`wire`]: its serialisations.
//!
//! A request goes through `Filter::on_request_headers` (`filter.rs`), `Routes::choose` (`config`),
//! `ActivePolicy::plan`, `Arrival::decide` (`request`), `ActivePolicy::decide_at` and the counts'
//! `enforce.rs`; its response through `on_response_headers`, its end through `on_delete`.
//!
//! Invariant: nothing in here can trap on any input; a trap takes the worker's virtual machine
//! down. Deliberately not here: decisions, which are `tollgate-policy`'s and the same on every
//! surface, and the ABI of a host (`tollgate-envoy`).
#![forbid(unsafe_code)]

mod active_policy;
mod cell;
mod fleet;
mod follow;
mod root;

pub mod config;
pub mod counts;
pub mod filter;
pub mod host;
pub mod observability;
pub mod request;
pub mod wire;
