//! The dynamic module that Envoy loads: `tollgate-filter` over the C ABI of Envoy 1.38 to 1.40.
//!
//! From Envoy inwards:
//!
//! - `abi`: all `unsafe` code: what Envoy calls, and what it offers.
//! - `hooks`: each call of Envoy, with a guard against panics.
//! - `worker`: the filter of one of Envoy's threads. `context`: its streams and roots, for its
//!   `host`'s calls. `by_stream`: values of streams. `local_reply`: a response in the origin's
//!   place.
//! - `configuration`: what all threads share of one configuration.
//! - `tables`: the counts of the process. `shared_map`: what its threads agree on. `timer`: a
//!   thread that wakes workers. `metrics`: Envoy's counters. `metadata`: values of other filters.
//! - `sync`: the locks under `tables` and `shared_map`, which a model replaces.
//!
//! Envoy calls its hooks on the thread of a stream's worker, and calls about a configuration on its
//! main thread. So each thread has a filter of its own, and the counts are the process's: any
//! number of workers together allow as many requests as one would.
//!
//! Invariant: no panic crosses the ABI, and no pointer of ours does: Envoy keeps numbers. Not here:
//! what the filter does.
#![deny(unsafe_code)]

mod abi;
mod by_stream;
mod clock;
mod configuration;
mod context;
mod hooks;
mod host;
mod local_reply;
mod metadata;
mod metrics;
mod shared_map;
mod sync;
mod tables;
mod timer;
mod worker;
