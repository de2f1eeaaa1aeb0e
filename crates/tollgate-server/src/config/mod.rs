//! The configuration: every setting read, checked and typed.
//!
//! Invariant: all mistakes are reported at once, each with its place, and a server with a mistake
//! does not start.
//!
//! The modules are in the order in which they import: each imports only modules declared below it.

mod command;
mod environment;
mod placeholders;
mod traces;
mod values;
mod reader;
mod sources;
mod settings;
pub mod networks;

pub use self::command::{Command, command};
pub use self::environment::Environment;
pub use self::values::{Callers, Config, Limits, Readiness};
