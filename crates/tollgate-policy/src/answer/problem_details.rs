//! Problem details (RFC 9457): the one writer of `application/problem+json`.
//!
//! Invariant: whatever the texts contain, the output is one JSON object. Deliberately absent: the
//! wording, which the callers provide.

use alloc::format;
use alloc::string::String;

use crate::answer::text::Text;
use crate::spec::problem::Problems;

/// Bytes of a denial by one quota with a usual name.
const USUAL: usize = 256;

/// One problem, in the members of RFC 9457, section 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemDetails<'a> {
    /// A URI for the kind of problem; `about:blank` when the status is sufficient.
    pub kind: &'a str,
    /// The kind of problem in words.
    pub title: &'a str,
    /// The HTTP status of the response.
    pub status: u16,
    /// The problem in this instance.
    pub detail: &'a str,
}

impl ProblemDetails<'_> {
    /// The media type of problem details.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// The document, with the names of the violated policies (`violated-policies`, as
    /// draft-ietf-httpapi-ratelimit-headers registers it), if there are any.
    pub(crate) fn of_quotas<'q>(&self, violated: impl Iterator<Item = &'q str>) -> String {
        let mut out = self.begin();
        list(violated, "violated-policies", &mut out, push_text);
        out.push('}');
        out
    }

    /// The document, with the place and the message of every one of `errors` (section 3 has this
    /// example), if there are any.
    #[must_use]
    pub fn with_errors(&self, errors: &Problems) -> String {
        let mut out = self.begin();
        list(errors.0.iter(), "errors", &mut out, |problem, out| {
            out.push_str("{\"path\":");
            push_text(&problem.path, out);
            out.push_str(",\"detail\":");
            push_text(&problem.message, out);
            out.push('}');
        });
        out.push('}');
        out
    }

    /// The members that every problem has.
    fn begin(&self) -> String {
        let mut out = String::with_capacity(USUAL);
        out.push_str("{\"type\":");
        push_text(self.kind, &mut out);
        out.push_str(",\"title\":");
        push_text(self.title, &mut out);
        out.push_str(",\"status\":");
        let mut status = Text::new();
        status.push_number(self.status.into());
        out.push_str(status.as_str());
        out.push_str(",\"detail\":");
        push_text(self.detail, &mut out);
        out
    }
}

/// `,"name":[...]`, if there is anything to list.
fn list<T>(
    items: impl Iterator<Item = T>,
    name: &str,
    out: &mut String,
    push: impl Fn(T, &mut String),
) {
    let mut is_open = false;
    for item in items {
        if is_open {
            out.push(',');
        } else {
            out.push(',');
            push_text(name, out);
            out.push_str(":[");
            is_open = true;
        }
        push(item, out);
    }
    if is_open {
        out.push(']');
    }
}

/// `text` as a JSON string (RFC 8259, section 7).
fn push_text(text: &str, out: &mut String) {
    let is_special = |c: char| matches!(c, '"' | '\\' | '\0'..='\x1f');
    out.push('"');
    // None of them, as almost always. The search is by byte, because no byte of a longer character
    // is one of them, and reads all of them, which takes one instruction for several.
    if !text.bytes().fold(false, |found, byte| found | is_special(char::from(byte))) {
        out.push_str(text);
        return out.push('"');
    }
    for part in text.split_inclusive(is_special) {
        match part.chars().next_back().filter(|last| is_special(*last)) {
            None => out.push_str(part),
            Some(special) => {
                out.push_str(part.strip_suffix(special).unwrap_or_default());
                match special {
                    '"' | '\\' => out.extend(['\\', special]),
                    _ => out.push_str(&format!("\\u{:04x}", u32::from(special))),
                }
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::spec::problem::Problem;

    const BAD: ProblemDetails<'_> =
        ProblemDetails { kind: "about:blank", title: "Bad", status: 400, detail: "it is" };

    #[test]
    fn members_that_say_nothing_are_left_out() {
        let plain = r#"{"type":"about:blank","title":"Bad","status":400,"detail":"it is"}"#;
        assert_eq!(BAD.with_errors(&Problems::default()), plain);
        assert_eq!(BAD.of_quotas(core::iter::empty()), plain);
        let violated = BAD.of_quotas(["a", "b\""].into_iter());
        let end = r#","violated-policies":["a","b\""]}"#;
        assert_eq!(violated, format!("{}{end}", plain.trim_end_matches('}')));
    }

    #[test]
    fn any_text_is_one_json_string() {
        let odd = "\0\u{1f}\n\"\\/\u{7f}\u{2028}ä\u{1f600}";
        let errors = Problems(vec![Problem::new(odd, odd.into()), Problem::new("", "b".into())]);
        let text =
            ProblemDetails { kind: odd, title: odd, detail: odd, ..BAD }.with_errors(&errors);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        for member in ["type", "title", "detail"] {
            assert_eq!(read[member], odd);
        }
        assert_eq!(read["errors"][0], serde_json::json!({"path": odd, "detail": odd}));
        assert_eq!(read["errors"][1], serde_json::json!({"path": "", "detail": "b"}));
        assert!(!text.contains(|c| c < ' '), "one line");
    }
}
