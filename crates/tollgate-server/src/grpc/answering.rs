//! What calls about requests share: how they end when too many ask.

use tollgate_grpc::status::{Code, Status};

/// What a call ends with that too many others came before.
pub(crate) fn overloaded() -> Status {
    Status::new(Code::Unavailable, "too many requests are under way; try again")
}
