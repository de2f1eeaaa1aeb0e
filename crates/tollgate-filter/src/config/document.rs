//! Documents: the configuration's JSON or YAML, and a server's policies, compiled here.
//!
//! Invariant: the slim module contains nothing of this; it is a quarter of the other one's code.

use tollgate_policy::{Plugin, Policy, Problems, Surface};

use crate::wire::structpb;

/// The plugin of a configuration that is not a compiled one.
///
/// # Errors
/// Every problem, one line each.
pub fn plugin(configuration: &[u8]) -> Result<Plugin, Vec<String>> {
    let text = text(configuration).map_err(|problem| vec![problem])?;
    tollgate_language::compile_plugin(&text, Surface::Envoy).map_err(|problems| lines(&problems))
}

/// The policy from a server.
///
/// # Errors
/// Every problem, one line each.
pub fn policy(text: &str) -> Result<Policy, Vec<String>> {
    tollgate_language::compile(text, Surface::Envoy).map_err(|problems| lines(&problems))
}

fn lines(problems: &Problems) -> Vec<String> {
    problems.0.iter().map(ToString::to_string).collect()
}

/// The policy's JSON text.
///
/// JSON contains no control characters but white space. A serialised `Struct` with at least one
/// field always contains others (the tag of a map entry's value is 0x12), although it may begin
/// like white space.
fn text(configuration: &[u8]) -> Result<String, String> {
    if configuration.iter().any(|byte| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')) {
        return structpb::to_json(configuration).map_err(|error| error.message().into());
    }
    let read = core::str::from_utf8(configuration);
    read.map(Into::into).map_err(|_| "the policy is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_taken_as_it_is() {
        for given in ["{}", " \r\n\t{\"a\":\n1}", "not json"] {
            assert_eq!(text(given.as_bytes()), Ok(given.into()));
        }
    }

    #[test]
    fn a_struct_is_known_by_its_control_bytes() {
        // {"version": 1}: it begins with a line feed, as an indented text might.
        let bytes = b"\n\x14\n\x07version\x12\x09\x11\0\0\0\0\0\0\xf0\x3f";
        assert_eq!(text(bytes), Ok("{\"version\":1}".into()));
        assert!(text(b"\n\x14\n\x07version").is_err());
    }

    #[test]
    fn no_text_is_refused() {
        assert_eq!(text(b"{\"\xff\"}"), Err("the policy is not UTF-8".into()));
    }
}
