//! The inputs of the service: a request and a deployment.
//!
//! Invariant: values only; the connecting service reads its secrets, clock and files.

use alloc::string::String;

use tollgate_policy::{Policy, Problems, Surface};

/// The head of a request.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The method, as it was sent.
    pub method: &'a str,
    /// Path and query, as they were sent.
    pub target: &'a str,
    /// The value of a field, by its name in lower case; lines of one name joined by commas (RFC
    /// 9110, 5.3).
    pub field: &'a dyn Fn(&str) -> Option<String>,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
}

/// The file and the policy of one deployment, which serves allowed requests.
#[derive(Clone, Copy)]
pub struct Service<'a> {
    /// Where policies are enforced.
    pub surface: Surface,
    /// The deployed file.
    pub deployed: DeployedFile<'a>,
    /// The policy in force as far as it is known here: entries of tenants are read under it.
    pub policy: Option<&'a Policy>,
    /// Converts a document to JSON: for a surface that also reads other formats.
    pub to_json: &'a dyn Fn(String) -> Result<String, Problems>,
    /// The mistakes of a policy that compiles, as it would be enforced here.
    pub objections: &'a dyn Fn(&Policy) -> Problems,
}

/// The policy file that was deployed.
#[derive(Clone, Copy)]
pub struct DeployedFile<'a> {
    /// Its text.
    pub text: &'a str,
    /// The store's identifier of it.
    pub fingerprint: u64,
}
