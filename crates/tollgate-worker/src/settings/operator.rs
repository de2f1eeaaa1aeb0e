//! An operator's settings for reading and changing data at run time.
//!
//! Invariant: a feature without a secret is off, and a secret opens only its own feature. A wrong
//! setting is reported with the others. Secrets never appear in a report.
//!
//! | name | kind | meaning |
//! |---|---|---|
//! | `ADMIN_TOKEN` | secret | turns the admin API on: its bearer reads and changes |
//! | `READ_TOKEN` | secret | its bearer reads |
//! | `METRICS_TOKEN` | secret | its bearer reads metrics |
//! | `FOLLOW_TOKEN` | secret | its bearer reads the policy in force |
//! | `AUDIT_HEADER` | variable | the request header that names the author of a change |
//! | `POLICY_HISTORY` | variable | how many versions of the policy keep their texts |

use std::ops::RangeInclusive;

use tollgate_service::{Token, Tokens};

pub(crate) const ADMIN_TOKEN: &str = "ADMIN_TOKEN";
pub(crate) const READ_TOKEN: &str = "READ_TOKEN";
pub(crate) const METRICS_TOKEN: &str = "METRICS_TOKEN";
pub(crate) const FOLLOW_TOKEN: &str = "FOLLOW_TOKEN";
const AUDIT_HEADER: &str = "AUDIT_HEADER";
pub(crate) const HISTORY: &str = "POLICY_HISTORY";

/// The number of texts kept, unless the deployment sets it.
const KEPT: u64 = 100;
/// One is the policy in force; a thousand of the longest are 1 GiB, of the platform's 10 for an
/// object.
const KEPTS: RangeInclusive<u64> = 1..=1000;
/// A shorter token can be found by trying.
const LEAST_TOKEN: usize = 16;

/// The operator's settings.
#[derive(Default)]
pub(crate) struct Operator {
    pub(crate) tokens: Tokens,
    /// In lower case.
    pub(crate) audit_header: Option<String>,
    /// Names of the secrets that are short.
    pub(crate) short: Vec<&'static str>,
}

impl Operator {
    /// Reads them; `text` returns the setting of a name, `wrong` takes every mistake.
    pub(crate) fn read(
        text: &mut dyn FnMut(&str) -> Option<String>,
        check_token: Option<&str>,
        wrong: &mut dyn FnMut(&str, String),
    ) -> Self {
        let names = [ADMIN_TOKEN, READ_TOKEN, METRICS_TOKEN, FOLLOW_TOKEN];
        let given = names.map(&mut *text);
        let mut taken: Vec<(&str, &str)> = Vec::new();
        taken.extend(check_token.map(|value| ("CHECK_TOKEN", value.trim())));
        let mut short = Vec::new();
        for (name, value) in names.into_iter().zip(&given) {
            let Some(value) = value.as_deref().map(str::trim) else { continue };
            if value.is_empty() {
                // An empty secret must not open anything.
                wrong(name, "is empty; give it a value or delete it".to_owned());
                continue;
            }
            if let Some((other, _)) = taken.iter().find(|(_, taken)| *taken == value) {
                wrong(name, format!("is the same as {other}; give each a value of its own"));
            }
            if value.len() < LEAST_TOKEN {
                short.push(name);
            }
            taken.push((name, value));
        }
        let [admin, read, metrics, follow] = given.map(|value| token(value.as_deref()));
        for (name, token) in [(READ_TOKEN, &read), (FOLLOW_TOKEN, &follow)] {
            if token.is_some() && admin.is_none() {
                let message = "reads what ADMIN_TOKEN turns on; set that, or delete this";
                wrong(name, message.to_owned());
            }
        }
        let audit_header = text(AUDIT_HEADER).filter(|name| !name.is_empty());
        if audit_header.as_deref().is_some_and(|name| !is_field_name(name)) {
            let message = "is not the name of a header; use one such as \
                           \"cf-access-authenticated-user-email\"";
            wrong(AUDIT_HEADER, message.to_owned());
        }
        if let Some(value) = text(HISTORY)
            && kept(&value).is_none()
        {
            let (least, most) = (KEPTS.start(), KEPTS.end());
            let message =
                format!("is not a whole number from {least} to {most}; use one such as 100");
            wrong(HISTORY, message);
        }
        let audit_header = audit_header.map(|name| name.to_ascii_lowercase());
        Self { tokens: Tokens { admin, read, metrics, follow }, audit_header, short }
    }
}

/// How many versions keep their texts in the policy object, with this [`HISTORY`]; [`Operator`]
/// reports mistakes in it.
pub(crate) fn texts_kept(value: Option<&str>) -> u64 {
    value.and_then(kept).unwrap_or(KEPT)
}

fn kept(value: &str) -> Option<u64> {
    value.parse().ok().filter(|kept| KEPTS.contains(kept))
}

fn token(value: Option<&str>) -> Option<Token> {
    let value = value.map(str::trim).filter(|value| !value.is_empty());
    value.map(|value| Token::new(value.as_bytes()))
}

/// RFC 9110, 5.6.2: a token.
fn is_field_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_service::Access;

    fn read(given: &[(&str, &str)]) -> (Operator, Vec<String>) {
        let value = |name: &str| {
            let of = given.iter().find(|(other, _)| *other == name);
            of.map(|(_, value)| (*value).to_owned())
        };
        let mut problems = Vec::new();
        let mut wrong = |name: &str, message: String| problems.push(format!("{name}: {message}"));
        let check_token = value("CHECK_TOKEN");
        let operator = Operator::read(&mut |name| value(name), check_token.as_deref(), &mut wrong);
        (operator, problems)
    }

    #[test]
    fn nothing_is_on_without_its_secret() {
        let (operator, problems) = read(&[]);
        assert!(problems.is_empty() && operator.audit_header.is_none());
        assert_eq!(operator.tokens.access(Some("Bearer ")), None);
        let (operator, problems) = read(&[(METRICS_TOKEN, "only-for-metrics-1")]);
        assert!(problems.is_empty() && operator.short.is_empty());
        assert_eq!(
            operator.tokens.access(Some("Bearer only-for-metrics-1")),
            Some(Access::Metrics)
        );
    }

    #[test]
    fn each_secret_is_one_of_its_own() {
        for (given, expected) in [
            (&[(ADMIN_TOKEN, " ")][..], "ADMIN_TOKEN: is empty; give it a value or delete it"),
            (
                &[(ADMIN_TOKEN, "a"), (READ_TOKEN, "a")],
                "READ_TOKEN: is the same as ADMIN_TOKEN; give each a value of its own",
            ),
            (
                &[("CHECK_TOKEN", "a"), (ADMIN_TOKEN, " a ")],
                "ADMIN_TOKEN: is the same as CHECK_TOKEN; give each a value of its own",
            ),
            (
                &[(READ_TOKEN, "a")],
                "READ_TOKEN: reads what ADMIN_TOKEN turns on; set that, or delete this",
            ),
            (
                &[(FOLLOW_TOKEN, "a")],
                "FOLLOW_TOKEN: reads what ADMIN_TOKEN turns on; set that, or delete this",
            ),
            (
                &[(HISTORY, "0")],
                "POLICY_HISTORY: is not a whole number from 1 to 1000; use one such as 100",
            ),
            (
                &[(AUDIT_HEADER, "x y")],
                "AUDIT_HEADER: is not the name of a header; use one such as \"cf-access-authenticated-user-email\"",
            ),
        ] {
            assert_eq!(read(given).1, [expected]);
        }
        let (operator, problems) = read(&[(ADMIN_TOKEN, "short"), (AUDIT_HEADER, "X-Who")]);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(
            (operator.short, operator.audit_header.as_deref()),
            (vec![ADMIN_TOKEN], Some("x-who"))
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let kept = |value: &str| texts_kept(Some(value));
        assert_eq!((kept("1"), kept("1000"), kept("1001"), kept("x")), (1, 1000, KEPT, KEPT));
        assert_eq!(texts_kept(None), KEPT);
    }
}
