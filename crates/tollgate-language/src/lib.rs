//! The policy language: what people write, and how it becomes a
//! [`Policy`](tollgate_policy::Policy).
//!
//! A document in JSON is parsed to a tree that keeps its duplicates, read into typed values with
//! every mistake at its place, validated as a whole for one
//! [`Surface`](tollgate_policy::Surface), and compiled to a
//! [`PolicySpec`](tollgate_policy::spec::PolicySpec). Tenants' entries, plugin configurations and
//! descriptions of requests are read in the same way.
//!
//! ```
//! use tollgate_language::compile;
//! use tollgate_policy::Surface;
//!
//! let wrong = r#"{"version": 1, "rules": [{"name": "a", "key": ["ip"], "quotas": []}, 1]}"#;
//! let problems = compile(wrong, Surface::Library).unwrap_err();
//! assert_eq!(problems.to_string(), "\
//! rules[0].key[0]: unknown key part \"ip\"; did you mean \"client_ip\"?
//! rules[1]: 1 is not an object");
//! ```
//!
//! The one invariant: nothing here decides about a request; a policy that was compiled and one that
//! was read from bytes decide alike.
//!
//! The modules are listed in the order of their imports: each imports only modules declared below
//! it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod compile;
mod described;
mod document;
mod surface;
mod json;

pub use compile::plugin::compile_plugin;
pub use compile::tenant::{tenant_entry, tenant_entry_for, without_effect};
pub use compile::{compile, fingerprint, spec};
pub use described::in_flight::DescribedInFlight;
pub use described::request::{DescribedRequest, DescribedRequests};
pub use described::settlement::DescribedSettlement;
#[cfg(feature = "schema")]
pub use document::root::schema;
pub use json::node::MAX_DOCUMENT;
pub use json::place::BOOLEAN_HINT;
pub use json::suggest::nearest;
