//! Small JSON bodies: objects of a few members.
//!
//! Invariant: a member that is unknown or duplicated is rejected, like everything that is not JSON:
//! a typing error never has an effect.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tollgate_policy::{Problem, Problems};

use crate::api_response::ApiResponse;
use crate::document::{Members, without_mark};
use crate::problem::Wrong;
use crate::service::Service;

/// The hint for a body that may be YAML, on a surface that reads JSON only.
const NO_YAML: &str = "; YAML is not read here; `tollgate compile --json` converts it to JSON";

/// `body` as text.
///
/// # Errors
/// The response: it is not UTF-8.
pub(crate) fn text(body: Vec<u8>) -> Result<String, ApiResponse> {
    String::from_utf8(body).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Wrong::Malformed.answer(&format!("the body is not UTF-8 at byte {at}"))
    })
}

/// The document in `body`, as JSON: also from YAML, where the surface reads it.
///
/// # Errors
/// The response: it is not UTF-8, or wrong YAML.
pub(crate) fn document(service: &Service<'_>, body: Vec<u8>) -> Result<String, ApiResponse> {
    (service.to_json)(text(body)?).map_err(|problems| invalids(&problems))
}

/// The response to a document that is not JSON; for one that may be YAML it explains how to convert
/// it.
pub(crate) fn not_json(error: &serde_json::Error, text: &str) -> ApiResponse {
    let is_yaml = !without_mark(text).trim_ascii_start().starts_with(['{', '[']);
    let hint = if is_yaml { NO_YAML } else { "" };
    Wrong::Malformed.answer(&format!("the body is not JSON: {error}{hint}"))
}

/// The members of the object in `text`, which may have only `known` ones.
///
/// # Errors
/// The response: it is not a JSON object, or has others.
pub(crate) fn members<'t>(text: &'t str, known: &[&str]) -> Result<Members<'t>, ApiResponse> {
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        return Err(Wrong::Malformed.answer(&format!("the body is not JSON: {error}")));
    }
    let Some(members) = Members::of(text) else {
        return Err(invalid("", "is not an object".to_string()));
    };
    let mut problems = Problems::default();
    for (i, (name, _)) in members.0.iter().enumerate() {
        match known.iter().find(|known| *known == name) {
            None => {
                let message =
                    format!("has a member that is not known here; use {}", known.join(", "));
                problems.0.push(Problem::new("", message));
                break;
            }
            Some(name) if members.0.iter().take(i).any(|(earlier, _)| earlier == name) => {
                problems.0.push(Problem::new(name, "is given twice; give it once".to_string()));
                break;
            }
            Some(_) => {}
        }
    }
    if problems.0.is_empty() { Ok(members) } else { Err(invalids(&problems)) }
}

/// The response to a body with one mistake.
pub(crate) fn invalid(path: &str, message: String) -> ApiResponse {
    invalids(&Problems([Problem::new(path, message)].into()))
}

/// The response to a body with mistakes.
pub(crate) fn invalids(problems: &Problems) -> ApiResponse {
    Wrong::Invalid
        .with_errors("the document is wrong and nothing was changed; see errors", problems)
}
