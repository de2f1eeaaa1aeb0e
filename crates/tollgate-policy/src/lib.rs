//! What people write, and the pipeline that enforces it: plan, load, decide, commit.
//!
//! A surface compiles a [`Policy`] once and then, per request:
//!
//! 1. [`Policy::plan`] asks the surface's [`Facts`] for what the policy reads, and lists the partitions
//!    (stored values) that this request is charged to.
//! 2. The surface loads each partition's bytes from its store: [`Plan::load`].
//! 3. [`Plan::decide`] decides all rules together, all or nothing, at one `now`.
//! 4. The surface commits the partitions that [`Plan::changed`], by compare-and-swap or in a transaction. A
//!    lost race is decided again: [`Plan::redecide`]; what was committed elsewhere is given back: [`Plan::refund`].
//! 5. [`Plan::outcome`] is the answer, and writes the header fields and the body.
//!
//! The one invariant: nothing here does I/O or reads a clock, and a [`Surface`] is known only while a document is
//! compiled (what it may ask for, and where the client's address comes from by default), so the same document and facts
//! give the same decisions and the same header bytes everywhere. There is deliberately no `Store` trait: a proxy is synchronous with compare-and-swap, a Durable Object asynchronous and single-threaded.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod address;
mod apply;
mod authority;
mod body;
mod captures;
mod compile;
mod cookies;
mod decide;
mod decimal;
mod described;
mod document;
#[cfg(feature = "explain")]
mod explain;
mod facts;
mod forwarded;
mod grpc;
mod headers;
mod index;
mod jwt;
mod key;
mod key_hashes;
mod malformed;
mod node;
mod outcome;
mod path;
mod place;
mod plan;
mod problem;
mod read;
mod readings;
mod request;
mod result;
#[cfg(feature = "schema")]
mod schema;
mod table_size;
mod value;
mod values;
pub mod waiting;
mod wire;

pub use compile::{Group, Meter, Policy, QuotaSet, Rule, Surface, metric_label};
pub use decimal::decimal;
pub use described::DescribedRequest;
#[cfg(feature = "explain")]
pub use explain::{RuleInWords, RuleVerdict, Standing, TierInWords};
pub use facts::Facts;
pub use grpc::{GrpcStatus, grpc_content_type};
pub use jwt::{Jwk, Jwt};
pub use malformed::Malformed;
pub use node::MAX_DOCUMENT;
pub use outcome::{Answer, Outcome};
pub use plan::{Failure, Plan};
pub use problem::{Problem, Problems};
pub use result::RuleResult;
#[cfg(feature = "schema")]
pub use schema::schema;
pub use table_size::{
    BUCKET_HEADER, BUCKET_NAME, MAX_VALUE_LEN, MAX_WAYS, TableSize, WAY_HEADER, WORD,
};
pub use value::{UsedShare, is_value};
pub use wire::WireError;
