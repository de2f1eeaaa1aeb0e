//! The configuration: every setting read, checked and typed.
//!
//! Invariant: all mistakes are reported at once, each with the place where it stands, and a server
//! with one does not start.
//!
//! The modules stand in the order in which they import: each only what is declared below it.

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
