//! A policy tried before it is enforced: in virtual time on simulated traffic, and on access logs.
//!
//! Invariant: no clock and no I/O; the same input gives the same figures on every target.
#![forbid(unsafe_code)]

mod reader;
pub mod replay;
pub mod simulator;
