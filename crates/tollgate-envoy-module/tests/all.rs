//! The module in front of an Envoy of the tests' own, which offers the functions of the ABI in this
//! process and calls the hooks in any order.

mod calls;
mod envoy;
mod hooks;
mod linearizable;
mod metadata;
mod races;
