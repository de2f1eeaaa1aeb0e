//! What a request and a deployment are to the service.
//!
//! Invariant: values only; whoever connects the service reads its secrets, clock and files.

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

/// What answers whom it may: the file and the policy of one deployment.
#[derive(Clone, Copy)]
pub struct Service<'a> {
    /// Where policies are enforced.
    pub surface: Surface,
    /// The file that was deployed.
    pub deployed: DeployedFile<'a>,
    /// The policy in force as far as it is known here: what entries of tenants are read under.
    pub policy: Option<&'a Policy>,
    /// A document that was sent, as JSON: what a surface reads that reads more than that.
    pub to_json: &'a dyn Fn(String) -> Result<String, Problems>,
    /// What is wrong with a policy that compiles, as it would be enforced here.
    pub objections: &'a dyn Fn(&Policy) -> Problems,
}

/// The policy file that was deployed.
#[derive(Clone, Copy)]
pub struct DeployedFile<'a> {
    /// Its text.
    pub text: &'a str,
    /// What the store knows it by.
    pub fingerprint: u64,
}
