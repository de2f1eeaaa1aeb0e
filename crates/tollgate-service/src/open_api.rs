//! The description of the service in OpenAPI 3.1.
//!
//! Invariant: it is the file of the repository, which tests compare with the routes and with what
//! is answered; without the white space between its tokens when it is built.

/// The document.
pub const OPEN_API: &str = include_str!("openapi.json");
