//! The HTTP API for operators and callers: `/check`, `/lease`, the admin API, metrics and the
//! health report, as one contract for every service that implements it.
//!
//! A request is a [`Call`]. [`Service::begin`] returns the [`Next`] step: an [`ApiResponse`], a
//! body to read, or a [`StoreCall`] to carry out; the latter two with a way to continue. The
//! connecting service loops until there is a response.
//!
//! Invariant: sans-I/O. Requests come in as values, responses and operations on a store go out as
//! values; the connecting service reads sockets, secrets, clocks and stores. Deliberately absent:
//! how a request is limited; that is in the policy crate.
//!
//! The modules are in the order in which they import: each imports only modules declared below it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod begin;
mod admin;
mod changes;
mod mask;
mod request_head;
mod service;
pub mod following;
mod policy_question;
pub mod deployment;
mod memory;
mod tenant_plan;
mod tenant_set;
mod store;
mod access;
mod open_api;
mod problem;
mod routes;
mod query;
mod document;
mod entity_tag;
pub mod in_flight_reports;
pub mod in_flight;
pub mod settle;
pub mod drive;
mod lease_course;
pub mod lease;
pub mod check;
pub mod health;
mod api_response;
mod bearer;
pub mod usage_work;
mod usage_report;
mod csv;
pub mod key_work;
pub mod key_report;
mod unauthorized;
pub mod together;
mod events;
pub mod metrics;
pub mod log;
mod media_type;

pub use access::{Access, Actor, Tokens};
pub use api_response::{ApiResponse, Fields, HEALTH_PATH};
pub use bearer::Token;
pub use begin::{Allowed, Next, WantsBody, WantsStore};
pub use events::{NotableResult, notable_results};
pub use lease_course::{CountRequest, Course, Round};
pub use media_type::is_media_type;
pub use memory::MemoryStore;
pub use memory::limits::MemoryLimits;
pub use open_api::OPEN_API;
pub use problem::PROBLEM_TYPES;
pub use routes::{PREFIX, is_ours};
pub use service::{Call, DeployedFile, Service};
pub use store::key_history::{KEY_ROWS, KeyAct, KeyChange, KeyRow};
pub use store::keys::{KeyCall, KeyReply, KeyTask, RuleKey};
pub use store::metrics::{MetricsCall, MetricsReply};
pub use store::policy::{
    Change, Current, Deployed, HistoryRow, Kind, NewPolicy, PolicyCall, PolicyReply, Row, Source,
    Summary,
};
pub use store::tenants::{Expect, StoredTenant, TenantCall, TenantReply};
pub use store::usage::{UsageCall, UsageFormat, UsageReply};
pub use store::{StoreCall, StoreReply};
pub use tenant_plan::{TenantCacheEntry, TenantLookup};
pub use tenant_set::{Found, Look, TenantSet};
pub use unauthorized::{Api, Unauthorized};
