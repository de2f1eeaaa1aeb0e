//! The policy document and the sans-I/O pipeline.
#![no_std]
