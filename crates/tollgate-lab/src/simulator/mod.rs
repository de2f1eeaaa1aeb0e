//! A policy in virtual time: the production code decides on simulated traffic, clocks and stores,
//! and an exact log checks every decision.
//!
//! ```
//! # use std::{borrow::Cow, net::{IpAddr, Ipv4Addr}, sync::Arc};
//! # struct Get;
//! # impl tollgate_policy::Facts for Get {
//! #     fn method(&self) -> Cow<'_, [u8]> { b"GET"[..].into() }
//! #     fn target(&self) -> Cow<'_, [u8]> { b"/"[..].into() }
//! #     fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> { None }
//! #     fn peer(&self) -> Option<IpAddr> { Some(Ipv4Addr::LOCALHOST.into()) }
//! # }
//! use tollgate_core::{Span, Timestamp};
//! use tollgate_policy::{Policy, Surface};
//! use tollgate_lab::simulator::{Fate, Node, Store};
//!
//! let policy = tollgate_language::compile(r#"{"version": 1, "rules": [
//!     {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 1, "window": "1m"}]}
//! ]}"#, Surface::Library)?;
//! let mut node = Node::new(Arc::new(policy), Store::exact());
//! let now = Timestamp::from_millis(1_000);
//! assert_eq!(node.decide(&Get, now, 200).fate(), Fate::Admitted);
//! let retry_after = Some(Span::from_secs(60));
//! assert_eq!(node.decide(&Get, now, 200).fate(), Fate::Denied { status: 429, retry_after });
//! # Ok::<(), tollgate_policy::Problems>(())
//! ```
//!
//! Invariant: no clock and no I/O; the same seed gives the same table, natively and as wasm.

mod run_record;
mod random;
mod clock;
mod worker_pool;
mod node_decision;
mod exact_log;
mod judge;
mod lines;
mod node;
mod races;
mod run;
mod store;
mod table;
mod tenants;
mod traffic;
mod unknown_facts;
mod waits;

pub use exact_log::{ExactLog, WindowCount};
pub use judge::Exact;
pub use node::Node;
pub use node_decision::{Arrival, Fate, NodeDecision, OriginResponse, RuleDecision};
pub use run::{Progress, Run};
pub use run_record::ObservedDecision;
pub use store::{CountPlace, Store};
pub use table::{QuotaRow, RuleRow, SourceRow, Table};
pub use tenants::{SetNumbers, Tenants};
pub use traffic::{
    ClientResponse, MAX_PENDING, MAX_REQUESTS, Request, RequestFacts, Requests, START, Traffic,
    TrafficError,
};
pub use unknown_facts::unknown_facts;
pub use waits::{WaitFigures, Waits};
