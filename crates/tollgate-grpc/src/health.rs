//! `grpc.health.v1.Health`: whether to send requests here, as Envoy, Kubernetes and clients ask.

use alloc::vec::Vec;

use crate::wire::{Malformed, Writer, each};

/// The path of the call that asks once.
pub const CHECK_PATH: &str = "/grpc.health.v1.Health/Check";

/// The path of the call that wants to know of every change.
pub const WATCH_PATH: &str = "/grpc.health.v1.Health/Watch";

/// The name of the service.
pub const SERVICE: &str = "grpc.health.v1.Health";

/// How a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Send requests here.
    Serving,
    /// Send them elsewhere.
    NotServing,
    /// Nothing is known of it; only said to who watches.
    ServiceUnknown,
}

impl Serving {
    /// The answer, as a message.
    #[must_use]
    pub fn write(self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(
            1,
            match self {
                Self::Serving => 1,
                Self::NotServing => 2,
                Self::ServiceUnknown => 3,
            },
        );
        out.finish()
    }
}

/// The service that is asked about; empty for the server as a whole.
///
/// # Errors
/// It is malformed.
pub fn service(message: &[u8]) -> Result<&[u8], Malformed> {
    let mut service = &[][..];
    each::<Malformed>(message, 1, |value| value.bytes().map(|it| service = it))?;
    Ok(service)
}
