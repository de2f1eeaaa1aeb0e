//! The problem responses of the admin API: each with a type that stays the same.
//!
//! Invariant: a type has one status and one title; only the detail varies. Source: RFC 9457, 3.1.
//! `docs/admin.md` has a heading for every type.

use alloc::string::String;

use tollgate_policy::{ProblemDetails, Problems};

use crate::api_response::ApiResponse;

/// The base of the types' URLs, where they are described.
pub const PROBLEM_TYPES: &str =
    concat!("https://github.com/tollgate/tollgate/blob/main/", "docs/admin.md#");

/// Declares the types of problems.
macro_rules! types {
    ($($(#[doc = $doc:literal])* $name:ident, $status:literal, $slug:literal, $title:literal;)*) => {
        /// A mistake in a request, or a fault of the service.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Wrong { $($(#[doc = $doc])* $name,)* }

        impl Wrong {
            /// Every one.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];

            /// Status, the end of the type, and title.
            pub(crate) const fn about(self) -> (u16, &'static str, &'static str) {
                match self { $(Self::$name => ($status, $slug, $title),)* }
            }
        }
    };
}

types! {
    /// The request cannot be read.
    Malformed, 400, "malformed", "Malformed request";
    /// There is no token of ours.
    Unauthorized, 401, "unauthorized", "Unauthorized";
    /// The token may not do this.
    Forbidden, 403, "forbidden", "Forbidden";
    /// There is nothing of this name.
    NotFound, 404, "not-found", "Not found";
    /// The method is not one of this path.
    MethodNotAllowed, 405, "method-not-allowed", "Method not allowed";
    /// Another change came first, or the change is already made.
    Conflict, 409, "conflict", "Conflict";
    /// A precondition does not hold.
    PreconditionFailed, 412, "precondition-failed", "Precondition failed";
    /// The body is too long.
    TooLarge, 413, "content-too-large", "Content too large";
    /// The target is too long.
    UriTooLong, 414, "uri-too-long", "URI too long";
    /// The body is not JSON by its type.
    UnsupportedType, 415, "unsupported-media-type", "Unsupported media type";
    /// A document that can be read has mistakes.
    Invalid, 422, "invalid", "Invalid document";
    /// A write names no precondition.
    PreconditionRequired, 428, "precondition-required", "Precondition required";
    /// A header field is too long.
    FieldTooLarge, 431, "header-field-too-large", "Header field too large";
    /// The deployed file is not a policy.
    Unreadable, 500, "unreadable-policy", "The policy cannot be read";
    /// The store did not respond.
    StoreUnavailable, 503, "store-unavailable", "Store unavailable";
    /// There is no room for another entry.
    StoreFull, 507, "store-full", "Store full";
}

impl Wrong {
    /// The response, with the mistake in this request.
    pub(crate) fn answer(self, detail: &str) -> ApiResponse {
        self.with_errors(detail, &Problems::default())
    }

    /// The response with a list of errors.
    pub(crate) fn with_errors(self, detail: &str, errors: &Problems) -> ApiResponse {
        let (status, slug, title) = self.about();
        let mut kind = String::from(PROBLEM_TYPES);
        kind.push_str(slug);
        let details = ProblemDetails { kind: &kind, title, status, detail };
        ApiResponse::new(status, ProblemDetails::MEDIA_TYPE, details.with_errors(errors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_one_kind_of_problem_and_is_described() {
        let described = include_str!("../../../docs/admin.md");
        for (i, wrong) in Wrong::ALL.iter().enumerate() {
            let (status, slug, title) = wrong.about();
            let is_other = |other: &Wrong| other.about().1 != slug && other.about().2 != title;
            assert!(Wrong::ALL.iter().take(i).all(is_other), "{slug}");
            let row = alloc::format!("| {status} | <a id=\"{slug}\"></a>`{slug}` |");
            assert!(described.contains(&row), "docs/admin.md has no row {row}");
        }
    }
}
