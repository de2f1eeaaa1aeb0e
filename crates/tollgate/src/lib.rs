//! Rate limits by policy in your own service: one JSON document says which clients are limited, by
//! which key and quota, and this crate decides without I/O.
//!
//! A service compiles a [`Policy`] once and then, per request:
//!
//! 1. [`Policy::plan`] reads the facts that the policy needs from the service's [`Facts`], and
//!    lists the partitions (stored values) that this request is charged to.
//! 2. The service loads each partition's bytes from its store: [`PartitionMut::load`].
//! 3. [`Plan::decide`] decides all rules together, all or nothing, at one `now`.
//! 4. The service commits every partition that has [changed](Partition::changed), by
//!    compare-and-swap or in a transaction. After a lost race it decides again:
//!    [`PartitionMut::redecide`]. It refunds charges that were committed elsewhere:
//!    [`PartitionMut::refund`].
//! 5. [`Plan::outcome`] is the decision, and writes the header fields and the body.
//!
//! ```
//! # use std::{borrow::Cow, collections::BTreeMap, net::{IpAddr, Ipv4Addr}};
//! # struct Request;
//! # impl tollgate::Facts for Request {
//! #     fn method(&self) -> Cow<'_, [u8]> { b"GET"[..].into() }
//! #     fn target(&self) -> Cow<'_, [u8]> { b"/"[..].into() }
//! #     fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> { None }
//! #     fn peer(&self) -> Option<IpAddr> { Some(Ipv4Addr::LOCALHOST.into()) }
//! # }
//! # let (request, now) = (Request, tollgate::Timestamp::from_millis(1));
//! use tollgate::{Disposition, Partition, Plan};
//!
//! let policy = tollgate::compile(r#"{"version": 1, "rules": [
//!     {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 10, "window": "1m"}]}
//! ]}"#)?;
//! let mut store: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
//!
//! let mut plan = Plan::new();
//! policy.plan(&request, &mut plan);
//! plan.each_partition(|partition| {
//!     let stored = store.get(partition.key());
//!     partition.load(&policy, stored.map(Vec::as_slice));
//! });
//! plan.decide(&policy, now);
//! for partition in plan.partitions().filter(Partition::changed) {
//!     // Hash the key where it is kept.
//!     store.insert(partition.key().to_vec(), partition.value().to_vec());
//! }
//! let outcome = plan.outcome(&policy);
//! assert_eq!(outcome.disposition(), Disposition::Allow);
//! let mut fields = Vec::new();
//! outcome.headers(&mut |name, value| fields.push(format!("{name}: {value}")));
//! assert_eq!(fields, [r#"ratelimit-policy: "each";q=10;w=60"#, r#"ratelimit: "each";r=9;t=54"#]);
//! # Ok::<(), tollgate::Problems>(())
//! ```
//!
//! `examples/pipeline.rs` shows the whole pipeline, with a key per client and charges by the
//! response; `examples/axum` of the repository is a complete service, and docs/embedding.md lists
//! what such a service must get right.
//!
//! The one invariant: this is the interface for programs that embed Tollgate, and nothing else is;
//! the crates behind it may change their names and their parts.
#![no_std]
#![forbid(unsafe_code)]

/// Requests that wait for their turn.
pub use tollgate_policy::waiting;

pub use tollgate_language::{MAX_DOCUMENT, tenant_entry};
pub use tollgate_policy::spec::JsonCost;
pub use tollgate_policy::{
    ActualUnits, BodyScan, CertificateField, CloudflareField, CompiledQuota, Directory,
    Disposition, Ending, Entry, Facts, Failure, Group, GrpcStatus, Malformed, NearestQuota,
    NotCompiled, Now, Outcome, Partition, PartitionMut, Plan, Policy, Problem, ProblemDetails,
    Problems, QuotaSet, Registered, RequestInFlight, RequestTenant, RequestedLimit, ResponseFacts,
    Rule, RuleDecision, RuleResult, Scope, SettledCharge, Settlement, Surface, Tenant, TenantEntry,
    UnknownCost, UsedShare, grpc_content_type, is_value,
};
pub use tollgate_policy::{Algorithm, Decision, Limiter, Quota, Span, Timestamp, Verdict};

/// Compiles a policy document for a service that uses this crate ([`Surface::Library`]), which may
/// read every fact that [`Facts`] can give.
///
/// # Errors
/// Every mistake of the document at once, in its order, each with its path and the valid values.
pub fn compile(document: &str) -> Result<Policy, Problems> {
    tollgate_language::compile(document, Surface::Library)
}

/// Reads a policy that `tollgate compile --surface library` wrote, without the parser and the
/// compiler of documents. It decides exactly as the document does.
///
/// # Errors
/// Why the bytes are no such policy; a sentence without its subject.
pub fn read_compiled(bytes: &[u8]) -> Result<Policy, NotCompiled> {
    Policy::read_compiled(bytes, Surface::Library)
}

/// Runs the example of the package's front page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
