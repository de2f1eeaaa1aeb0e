//! Problem details (RFC 9457): the one writer of `application/problem+json`.
//!
//! Invariant: whatever the texts contain, the output is one JSON object. Deliberately absent: the
//! wording, which the callers provide.

use alloc::format;
use alloc::string::String;

use crate::answer::text::{DIGITS, digits};
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

/// A kind of problem of which every denial is one: its type and title, as the JSON before the
/// status.
pub(crate) struct ProblemKind(&'static str);

impl ProblemKind {
    pub(crate) const QUOTA_EXCEEDED: Self = Self(
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":"#,
    );
    pub(crate) const ABNORMAL_USAGE: Self = Self(
        r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected","status":"#,
    );
    pub(crate) const REDUCED_CAPACITY: Self = Self(
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":"#,
    );
    pub(crate) const BAD_REQUEST: Self =
        Self(r#"{"type":"about:blank","title":"Bad Request","status":"#);
    /// Of a rule that denies without counting. No registered type has this meaning;
    /// docs/denied.md documents it.
    pub(crate) const DENIED_BY_RULE: Self =
        Self(r#"{"type":"urn:tollgate:problem:denied-by-rule","title":"Denied by Rule","status":"#);

    /// Appends the document, with the names of the violated policies (`violated-policies`, as
    /// draft-ietf-httpapi-ratelimit-headers registers it), if there are any.
    pub(crate) fn write<'q>(
        self,
        status: u16,
        detail: Detail,
        violated: impl Iterator<Item = &'q str>,
        out: &mut String,
    ) {
        out.reserve(USUAL);
        out.push_str(self.0);
        out.push_str(digits(status.into(), &mut [0; DIGITS]));
        out.push_str(",\"detail\":\"");
        let start = out.len();
        detail.push(out);
        debug_assert!(!out.get(start..).unwrap_or_default().contains(['"', '\\']), "as it is");
        out.push('"');
        list(violated, ",\"violated-policies\":[", out, push_text);
        out.push('}');
    }
}

/// A denial in words: a sentence, with at most one number in it. It has no character that JSON
/// escapes.
#[derive(Clone, Copy)]
pub(crate) struct Detail {
    pub(crate) before: &'static str,
    /// The number, and what follows it.
    pub(crate) number: Option<(u64, &'static str)>,
}

impl Detail {
    pub(crate) fn push(self, out: &mut String) {
        out.push_str(self.before);
        if let Some((number, after)) = self.number {
            out.push_str(digits(number, &mut [0; DIGITS]));
            out.push_str(after);
        }
    }

    pub(crate) fn text(self) -> String {
        let mut out = String::new();
        self.push(&mut out);
        out
    }
}

impl ProblemDetails<'_> {
    /// The media type of problem details.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// The document, with the place and the message of every one of `errors` (section 3 has this
    /// example), if there are any.
    #[must_use]
    pub fn with_errors(&self, errors: &Problems) -> String {
        let mut out = self.begin();
        list(errors.0.iter(), ",\"errors\":[", &mut out, |problem, out| {
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
        out.push_str(digits(self.status.into(), &mut [0; DIGITS]));
        out.push_str(",\"detail\":");
        push_text(self.detail, &mut out);
        out
    }
}

/// A member that is a list, if there is anything to list: it begins with `start`.
fn list<T>(
    items: impl Iterator<Item = T>,
    start: &str,
    out: &mut String,
    push: impl Fn(T, &mut String),
) {
    let mut before = start;
    for item in items {
        out.push_str(before);
        push(item, out);
        before = ",";
    }
    if before != start {
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
        let mut text = String::new();
        assert_eq!(BAD.with_errors(&Problems::default()), plain);
        let it_is = Detail { before: "it is", number: None };
        let bad = ProblemKind(r#"{"type":"about:blank","title":"Bad","status":"#);
        bad.write(400, it_is, core::iter::empty(), &mut text);
        assert_eq!(text, plain);
    }

    #[test]
    fn each_kind_begins_an_object_with_its_type_and_title() {
        let kinds = [
            (ProblemKind::QUOTA_EXCEEDED, "Quota Exceeded"),
            (ProblemKind::ABNORMAL_USAGE, "Abnormal Usage Detected"),
            (ProblemKind::REDUCED_CAPACITY, "Temporary Reduced Capacity"),
            (ProblemKind::BAD_REQUEST, "Bad Request"),
            (ProblemKind::DENIED_BY_RULE, "Denied by Rule"),
        ];
        for (kind, title) in kinds {
            let detail = Detail { before: "in ", number: Some((7, " s")) };
            let mut text = String::new();
            kind.write(429, detail, ["a", "b\""].into_iter(), &mut text);
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            let kind = read["type"].as_str().unwrap();
            let problem = ProblemDetails { kind, title, status: 429, detail: "in 7 s" };
            let plain = problem.with_errors(&Problems::default());
            let end = r#","violated-policies":["a","b\""]}"#;
            assert_eq!(text, format!("{}{end}", plain.trim_end_matches('}')));
        }
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
