//! A policy in virtual time: the very code that decides in production, on traffic, clocks and
//! stores that are models, with an exact log beside every decision.
//!
//! Invariant: no clock and no I/O; the same seed gives the same table, natively and as wasm.
#![forbid(unsafe_code)]
