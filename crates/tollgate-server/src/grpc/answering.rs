//! The status that calls about requests share: how they end during an overload.

use crate::messages::status::{Code, Status};

/// The status of a call during an overload.
pub(crate) fn overloaded() -> Status {
    Status::new(Code::Unavailable, "too many requests are under way; try again")
}
