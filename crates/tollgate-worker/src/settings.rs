//! What the deployment sets: variables and secrets of wrangler.toml.
//!
//! Invariant: a wrong setting is reported like a wrong policy, all of them at once, and never half
//! used. Secrets never appear in a report.
//!
//! | name | kind | meaning |
//! |---|---|---|
//! | `ORIGIN` | variable | forward admitted requests there; without it this is the service `POST /check` |
//! | `CHECK_TOKEN` | secret | what `/check` wants as `Authorization: Bearer` |
//! | `HASH_KEY` | secret | makes the names of objects unguessable |

use tollgate_policy::{Problem, Problems};

use crate::naming::Token;

/// The settings of one deployment.
#[derive(Default)]
pub(crate) struct Settings {
    /// Where admitted requests go: scheme, host and perhaps a path, without a slash at the end.
    pub(crate) origin: Option<String>,
    pub(crate) check_token: Option<Token>,
    pub(crate) hash_key: Vec<u8>,
}

impl Settings {
    /// Reads the settings; `variable` gives the value of a name.
    ///
    /// # Errors
    /// Every wrong setting.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut settings =
            Self { hash_key: variable("HASH_KEY").unwrap_or_default().into(), ..Self::default() };
        if let Some(value) = variable("ORIGIN").filter(|value| !value.is_empty()) {
            settings.origin = origin(&value);
            if settings.origin.is_none() {
                let message =
                    "is not an origin; use one such as \"https://example.com\", without query";
                problems.0.push(Problem { path: "ORIGIN".into(), message: message.into() });
            }
        }
        if let Some(value) = variable("CHECK_TOKEN") {
            // An empty secret must not open the service.
            if value.trim().is_empty() {
                let message = "is empty; give it a value or delete it".into();
                problems.0.push(Problem { path: "CHECK_TOKEN".into(), message });
            }
            settings.check_token = Some(Token::new(value.trim().as_bytes()));
        }
        if problems.0.is_empty() { Ok(settings) } else { Err(problems) }
    }
}

fn origin(value: &str) -> Option<String> {
    let rest = value.strip_prefix("https://").or_else(|| value.strip_prefix("http://"))?;
    let host = rest.split('/').next()?;
    let wrong =
        |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '@' | '\\');
    if host.is_empty() || rest.contains(wrong) {
        return None;
    }
    Some(value.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Settings, String> {
        let variable = |asked: &str| (asked == name).then(|| value.to_owned());
        Settings::read(variable).map_err(|problems| problems.to_string())
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_perhaps_a_path() {
        for (value, expected) in [
            ("https://example.com", Some("https://example.com")),
            ("http://127.0.0.1:9000/", Some("http://127.0.0.1:9000")),
            ("https://example.com/base/", Some("https://example.com/base")),
            ("", None),
        ] {
            let settings = read("ORIGIN", value).expect(value);
            assert_eq!(settings.origin.as_deref(), expected, "{value}");
        }
        for value in
            ["example.com", "ftp://a", "https://", "https://u@h", "https://h?q", "https://a b"]
        {
            let problem =
                "ORIGIN: is not an origin; use one such as \"https://example.com\", without query";
            assert_eq!(read("ORIGIN", value).err().as_deref(), Some(problem), "{value}");
        }
    }

    #[test]
    fn an_empty_token_does_not_open_the_service() {
        let problem = "CHECK_TOKEN: is empty; give it a value or delete it";
        assert_eq!(read("CHECK_TOKEN", " ").err().as_deref(), Some(problem));
        assert!(read("CHECK_TOKEN", "t").is_ok_and(|settings| settings.check_token.is_some()));
        assert!(read("OTHER", "").is_ok_and(|settings| settings.check_token.is_none()));
    }
}
