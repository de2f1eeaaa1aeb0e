//! Envoy's format strings: text between command operators, `%REQ(:METHOD)%`.
//!
//! Invariant: an operator that is not known has no field and is skipped. A header that is only
//! written where another one is missing means neither, except for the path before a rewrite.

use crate::draft::TimeForm;
use crate::escape::Escape;
use crate::field::Field;
use crate::source::{Ranked, Source};
use crate::strftime::Strftime;
use crate::template::{Template, Variable, push_literal, push_variable};

/// Envoy's format when no other is configured.
pub(crate) const DEFAULT: &str = r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%""#;

/// Reads a format string; the error gives the reason why it describes no lines.
pub(crate) fn parse(text: &str) -> Result<Template, String> {
    let mut template = Template {
        lead: Vec::new(),
        variables: Vec::new(),
        escape: Escape::None,
        times: Vec::new(),
    };
    // The configuration has the line's end in the string, as such or escaped.
    let text = text.strip_suffix('\n').or(text.strip_suffix("\\n")).unwrap_or(text);
    let mut rest = text;
    while let Some(percent) = rest.find('%') {
        let (before, from) = rest.split_at(percent);
        push_literal(&mut template, before);
        let inside = from.strip_prefix('%').unwrap_or(from);
        if let Some(after) = inside.strip_prefix('%') {
            push_literal(&mut template, "%");
            rest = after;
            continue;
        }
        let (operator, after) = operator(inside).ok_or_else(|| {
            "has a \"%\" that does not begin an operator; a percent sign is \"%%\"".to_owned()
        })?;
        let source = known(operator, &mut template.times)?;
        let (name, literal) = (operator.to_owned(), Vec::new());
        let is_word = is_word(operator, &source);
        push_variable(&mut template, Variable { name, source, is_word, literal })?;
        rest = after;
    }
    push_literal(&mut template, rest);
    if template.variables.is_empty() {
        return Err("has no operators, as in \"[%START_TIME%] %RESPONSE_CODE%\"".to_owned());
    }
    Ok(template)
}

/// An operator and the text after its percent sign; percent signs between parentheses belong to it.
fn operator(text: &str) -> Option<(&str, &str)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut end = text.find(|c| !is_name(c))?;
    if text.get(end..)?.starts_with('(') {
        let closed = text.get(end..)?.find(')')?;
        end = end.checked_add(closed)?.checked_add(1)?;
    }
    let percent = end.checked_add(text.get(end..)?.find('%')?)?;
    let operator = text.get(..percent).filter(|operator| !operator.is_empty())?;
    Some((operator, text.get(percent.checked_add(1)?..)?))
}

/// The field of an operator.
pub(crate) fn known(operator: &str, times: &mut Vec<Strftime>) -> Result<Ranked, String> {
    let (name, argument) = match operator.split_once('(') {
        Some((name, rest)) => (name, rest.rsplit_once(')').map(|(argument, _)| argument)),
        None => (operator, None),
    };
    let text = |field, rank| (Source::Text(field), rank);
    Ok(match (name, argument) {
        ("START_TIME", None | Some("")) => (Source::Time(TimeForm::Iso), 2),
        ("START_TIME", Some(form)) => {
            times.push(Strftime::parse(form)?);
            (Source::Time(TimeForm::Custom(times.len().wrapping_sub(1))), 2)
        }
        ("REQ", Some(header)) => (req(header), 2),
        ("RESPONSE_CODE", None) => (Source::Status, 1),
        ("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", None) => text(Field::Client, 3),
        ("DOWNSTREAM_REMOTE_ADDRESS", None) => text(Field::Client, 2),
        ("DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT", None) => text(Field::Peer, 2),
        ("DOWNSTREAM_DIRECT_REMOTE_ADDRESS", None) => text(Field::Peer, 1),
        ("ROUTE_NAME", None) => text(Field::Route, 1),
        ("QUERY_PARAM", Some(name)) => text(Field::Query(name.to_owned()), 1),
        // The names are those of all, and a policy counts by the first.
        ("DOWNSTREAM_PEER_SUBJECT", None) => text(Field::Certificate("subject".to_owned()), 1),
        ("DOWNSTREAM_PEER_FINGERPRINT_256", None) => {
            text(Field::Certificate("sha256".to_owned()), 1)
        }
        ("DYNAMIC_METADATA", Some(path)) if is_whole(operator) => text(metadata(path), 1),
        ("METADATA", Some(path)) if is_whole(operator) => match path.strip_prefix("DYNAMIC:") {
            Some(path) => text(metadata(path), 1),
            None => (Source::Other, 0),
        },
        _ => (Source::Other, 0),
    })
}

/// Whether no client can put a space there: true for all except headers and values derived from
/// them. Envoy rejects a method or a path with a space.
fn is_word(operator: &str, source: &Ranked) -> bool {
    match &source.0 {
        Source::Text(Field::Method | Field::Target) => true,
        Source::Text(Field::Client | Field::Peer) | Source::Status => true,
        Source::Time(form) => *form == TimeForm::Iso,
        Source::Text(_) | Source::Request | Source::Path | Source::Query => false,
        Source::Other => {
            let name = operator.split('(').next().unwrap_or(operator);
            let begins = ["PROTOCOL", "BYTES_", "DURATION", "RESPONSE_FLAGS", "UPSTREAM_HOST"];
            begins.iter().any(|beginning| name.starts_with(beginning))
        }
    }
}

/// False for an operator that cuts its value: two clients could have the same beginning.
fn is_whole(operator: &str) -> bool {
    operator.ends_with(')')
}

/// The field of a path in metadata, whose names have colons between them.
fn metadata(path: &str) -> Field {
    Field::Metadata(path.replace(':', "/"))
}

/// The field of a request header, possibly with another header that is used where it is missing.
fn req(header: &str) -> Source {
    let main = match header.split_once('?') {
        None => header,
        Some((main, other)) => {
            let is_path = main.eq_ignore_ascii_case("x-envoy-original-path")
                && other.eq_ignore_ascii_case(":path");
            if is_path { other } else { return Source::Other }
        }
    };
    match main.to_ascii_lowercase().as_str() {
        ":method" => Source::Text(Field::Method),
        ":path" => Source::Text(Field::Target),
        name if name.starts_with(':') && name != ":authority" => Source::Other,
        name => Source::Text(Field::header(name)),
    }
}
