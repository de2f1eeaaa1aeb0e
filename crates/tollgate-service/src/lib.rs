//! What an operator and a caller do over HTTP: `/check`, the admin API, metrics and the health
//! report, as one contract for every service that answers it.
//!
//! Invariant: sans-I/O. Requests come in as values, answers and operations on a store go out as
//! values; whoever connects it reads sockets, secrets, clocks and stores. Deliberately absent: how
//! a request is limited; that is the policy crate's.
#![forbid(unsafe_code)]
