//! A policy, and the pipeline that enforces it: plan, load, decide, commit.
//!
//! `tollgate-language` compiles documents to policies; programs that embed Tollgate use both
//! through the crate `tollgate`.
//!
//! A surface compiles a [`Policy`] once and then, per request:
//!
//! 1. [`Policy::plan`] reads the facts that the policy needs from the surface's [`Facts`], and
//!    lists the partitions (stored values) that this request is charged to.
//! 2. The surface loads each partition's bytes from its store: [`PartitionMut::load`].
//! 3. [`Plan::decide`] decides all rules together, all or nothing, at one `now`.
//! 4. The surface commits every partition that has [changed](Partition::changed), by
//!    compare-and-swap or in a transaction. After a lost race it decides again:
//!    [`PartitionMut::redecide`]. It refunds charges that were committed elsewhere:
//!    [`PartitionMut::refund`].
//! 5. [`Plan::outcome`] is the decision, and writes the header fields and the body.
//!
//! ```
//! # use std::{borrow::Cow, collections::BTreeMap, net::{IpAddr, Ipv4Addr}};
//! # struct Request;
//! # impl tollgate_policy::Facts for Request {
//! #     fn method(&self) -> Cow<'_, [u8]> { b"GET"[..].into() }
//! #     fn target(&self) -> Cow<'_, [u8]> { b"/"[..].into() }
//! #     fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> { None }
//! #     fn peer(&self) -> Option<IpAddr> { Some(Ipv4Addr::LOCALHOST.into()) }
//! # }
//! # let (request, now) = (Request, tollgate_policy::Timestamp::from_millis(1));
//! use tollgate_policy::{Disposition, Partition, Plan, Policy, Surface};
//!
//! let policy = tollgate_language::compile(r#"{"version": 1, "rules": [
//!     {"name": "each", "key": ["client_ip"], "quotas": [{"limit": 10, "window": "1m"}]}
//! ]}"#, Surface::Library)?;
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
//! # Ok::<(), tollgate_policy::Problems>(())
//! ```
//!
//! The one invariant: nothing here does I/O or reads a clock, and a [`Surface`] is used only while
//! a document is compiled (it determines the facts that are available, and the default source of
//! the client's address), so the same document and facts give the same decisions and the same
//! header bytes everywhere. There is deliberately no `Store` trait: a proxy is synchronous with
//! compare-and-swap, a Durable Object asynchronous and single-threaded.
//!
//! The modules are listed in the order of their imports: each imports only modules declared below
//! it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(feature = "explain")]
pub mod explain;
pub mod waiting;
mod denials;
mod answer;
mod pipeline;
mod request;
mod binary;
mod policy;
pub mod metrics;
pub mod spec;
mod stable_hash;
mod facts;
mod decimal;
mod slab_map;
#[cfg(test)]
mod compiled_for_tests;

pub use answer::deny_match::DenyMatch;
pub use answer::fields::NearestQuota;
pub use answer::grpc::{GrpcStatus, grpc_content_type};
pub use answer::outcome::{Disposition, Outcome};
pub use answer::problem_details::ProblemDetails;
pub use answer::rule_decision::RuleDecision;
pub use answer::rule_result::RuleResult;
pub use binary::plugin::{self, Plugin};
pub use binary::{NotCompiled, compiled_text};
pub use decimal::{decimal, whole_number};
pub use denials::{Denials, FRESH};
pub use facts::{CertificateField, CloudflareField, Entry, Facts, RequestedLimit};
pub use pipeline::applied::SettledCharge;
pub use pipeline::body_scan::BodyScan;
pub use pipeline::in_flight::{CONFIRMED_AFTER, RequestInFlight};
pub use pipeline::key_hashes::{pk_text, push_pk_text};
pub use pipeline::memory::PlanMemory;
pub use pipeline::now::Now;
pub use pipeline::order::ChargingOrder;
pub use pipeline::partition::{Partition, PartitionMut};
pub use pipeline::partitions::Failure;
pub use pipeline::plan::Plan;
pub use pipeline::remote::outdated::Outdated;
pub use pipeline::remote::spend::{Node, Paid, Spending};
pub use pipeline::settlement::Settlement;
pub use pipeline::tenant::RequestTenant;
pub use policy::compiled::Policy;
pub use policy::directory::{Directory, Registered};
pub use policy::eviction_claim::EvictionClaim;
pub use policy::fleet::{FleetRules, fleet_secret, plugin_hash_key};
pub use policy::group::{Group, QuotaSet};
pub use policy::lone::LoneQuota;
pub use policy::quota::CompiledQuota;
pub use policy::record::UsedShare;
pub use policy::records::{WORD, is_value};
pub use policy::rule::Rule;
pub use policy::tenant::Tenant;
pub use policy::tenant_name::Tenants;
pub use request::claims::Claims;
pub use request::given_key::{GivenKey, NoKey};
pub use slab_map::SlabMap;
pub use spec::deny::DenyRule;
pub use spec::problem::{Problem, Problems};
pub use spec::scope::Scope;
pub use spec::settled_cost::{ActualUnits, ResponseFacts, UnknownCost};
pub use spec::status::Ending;
pub use spec::surface::Surface;
pub use spec::tenant::{MAX_TENANT_ENTRY, MAX_TENANT_ID, TenantEntry};
/// The types of the core that the calls above take and return, so that a service needs this crate
/// alone.
pub use tollgate_core::{Algorithm, Decision, Limiter, Quota, Span, Timestamp, Verdict};
pub use tollgate_http_syntax::malformed::Malformed;
