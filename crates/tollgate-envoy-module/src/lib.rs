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
//! - `calls`: requests to clusters, which the main thread sends. `stored_policy`: that a policy
//!   from a server was stored.
//! - `tables`: the counts of the process. `shared_map`: what its threads agree on. `timer`: wakes
//!   threads. `metrics`: Envoy's counters. `metadata`: values of other filters.
//! - `sync`: the locks under `tables` and `shared_map`, which a model replaces.
//!
//! Envoy calls its hooks on the thread of a stream's worker, and calls about a configuration on its
//! main thread. So each thread has a filter of its own, and the counts are the process's: any
//! number of workers together allow as many requests as one would.
//!
//! Envoy sends requests of a configuration on its main thread alone, and calls a worker about its
//! streams alone. So the main thread has a filter, too, for each configuration that makes calls:
//! it sends the calls of all threads, requests policies from servers for all, and continues the
//! lease work of a worker whose last stream has ended.
//!
//! Invariant: no panic crosses the ABI, and no pointer of ours does: Envoy keeps numbers. Not here:
//! what the filter does.
#![deny(unsafe_code)]

mod abi;
mod by_stream;
mod calls;
mod clock;
mod configuration;
mod context;
mod hooks;
mod host;
mod local_reply;
mod metadata;
mod metrics;
mod shared_map;
mod stored_policy;
mod sync;
mod tables;
mod timer;
mod worker;
