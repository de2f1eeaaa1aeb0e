//! The integration tests of this crate as one program, which is compiled and linked once. Tests
//! that need their own process or target are separate programs.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may panic, and overflow"
)]

mod authority;
mod backing;
mod calendar;
mod beside;
mod charging;
mod closed;
mod concurrency;
mod corpora;
mod counts;
mod denials;
mod deny;
mod descriptors;
mod explain;
mod features;
mod given_key;
mod hits;
mod hostile;
mod identity;
mod in_flight_reports;
mod layout;
mod limit_from;
mod malformed;
mod operate;
mod paths;
mod penalties;
mod pipeline;
mod reads;
mod regexes;
mod reported;
mod scope;
mod settle;
mod settled_costs;
mod sparse;
mod spread;
mod stored_sets;
mod succession;
mod support;
mod tenants;
mod values;
mod waiting;
