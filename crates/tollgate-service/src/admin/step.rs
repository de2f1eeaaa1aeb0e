//! One step of an operation.
//!
//! Invariant: a step results in a response, or in exactly one call of the store to continue from.

use crate::api_response::ApiResponse;

/// The next step of an operation that sends `Call` and continues from `State`.
pub(crate) enum Step<Call, State> {
    /// Send this response.
    Response(ApiResponse),
    /// Send this call, and continue from this state.
    Ask(Call, State),
}
