//! `grpc.health.v1.Health`: reports whether to send requests here, to Envoy, Kubernetes and
//! clients.

use super::wire::{Malformed, Writer, each};

/// The path of the call for one check.
pub const CHECK_PATH: &str = "/grpc.health.v1.Health/Check";

/// The path of the call that reports every change.
pub const WATCH_PATH: &str = "/grpc.health.v1.Health/Watch";

/// The name of the service.
pub const SERVICE: &str = "grpc.health.v1.Health";

/// The health of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// The service accepts requests.
    Serving,
    /// The service accepts no requests now.
    NotServing,
    /// The service is unknown; sent only to callers of `Watch`.
    ServiceUnknown,
}

impl Serving {
    /// Encodes the response as a message.
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

/// The service named in the request; empty for the server as a whole.
///
/// # Errors
/// It is malformed.
pub fn service(message: &[u8]) -> Result<&[u8], Malformed> {
    let mut service = &[][..];
    each::<Malformed>(message, 1, |value| value.bytes().map(|it| service = it))?;
    Ok(service)
}
