//! The environment of the process.
//!
//! Invariant: no variable that was meant to be a setting is ignored silently. A variable whose name
//! is nearly that of a setting, or whose value is not text, is a mistake, and any other with our
//! prefix a warning. Exempt are the variables that Kubernetes sets in every pod for a service of
//! our name.

use std::collections::BTreeMap;
use std::ffi::OsString;

use tollgate_language::nearest;
use tollgate_policy::{Problem, Problems};

use crate::config::settings::{SECRETS, SETTINGS};

const PREFIX: &str = "TOLLGATE_";
/// The setting that exists only here: the file of settings.
pub(crate) const CONFIG: &str = "TOLLGATE_CONFIG";

/// The variables, by their names.
#[derive(Debug, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// The variables whose names are text; no other can be a setting.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let named = variables.into_iter();
        Self(named.filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect())
    }

    /// The value of a variable that is text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.0.get(name)?.to_str().map(ToOwned::to_owned)
    }

    /// Notes wrong variables in `problems`, and variables without meaning in `warnings`.
    pub(crate) fn check(&self, problems: &mut Problems, warnings: &mut Vec<String>) {
        let known = known();
        let lower: Vec<String> = known.iter().map(|name| name.to_ascii_lowercase()).collect();
        let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
        for (name, value) in &self.0 {
            if known.contains(name) {
                if value.to_str().is_none() {
                    problems.0.push(Problem::new(name, "is not UTF-8".to_owned()));
                }
            } else if is_of_kubernetes(name, value) {
            } else if let Some(meant) = nearest(name, &lower) {
                let message =
                    format!("is not a setting; did you mean {}?", meant.to_ascii_uppercase());
                problems.0.push(Problem::new(name, message));
            } else if name.to_ascii_uppercase().starts_with(PREFIX) {
                warnings.push(format!("the variable {name} is not a setting; see --help"));
            }
        }
    }
}

/// The names of all variables that are read.
fn known() -> Vec<String> {
    let files = SECRETS.iter().map(|secret| format!("{}_FILE", secret.variable()));
    let named = SETTINGS.iter().chain(SECRETS).map(|setting| setting.variable());
    named.chain(files).chain([CONFIG.to_owned()]).collect()
}

/// True for the variables that Kubernetes sets in each pod for a service: `TOLLGATE_SERVICE_HOST`,
/// `TOLLGATE_PORT=tcp://...`, `TOLLGATE_PORT_80_TCP_ADDR`.
fn is_of_kubernetes(name: &str, value: &OsString) -> bool {
    let is_url = || value.to_str().is_some_and(|value| value.contains("://"));
    let is_numbered = |(_, rest): (&str, &str)| rest.starts_with(|c: char| c.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.split_once("_PORT_").is_some_and(is_numbered)
        || (name.ends_with("_PORT") && is_url())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(variables: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let (mut problems, mut warnings) = (Problems::default(), Vec::new());
        let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Environment::new(owned).check(&mut problems, &mut warnings);
        (problems.0.iter().map(ToString::to_string).collect(), warnings)
    }

    #[test]
    fn a_name_that_is_nearly_a_setting_is_a_mistake() {
        for (name, meant) in [
            ("TOLLGATE_LISTN", "TOLLGATE_LISTEN"),
            ("TOLLGATE_CHEK_TOKEN", "TOLLGATE_CHECK_TOKEN"),
            ("TOLLGATE_CHECK_TOKENFILE", "TOLLGATE_CHECK_TOKEN_FILE"),
            ("TOLGATE_ADMIN_TOKEN", "TOLLGATE_ADMIN_TOKEN"),
            ("tollgate_policy", "TOLLGATE_POLICY"),
            ("TOLLGATE_CONFG", "TOLLGATE_CONFIG"),
        ] {
            let expected = format!("{name}: is not a setting; did you mean {meant}?");
            assert_eq!(checked(&[(name, "x")]), (vec![expected], vec![]));
        }
    }

    #[test]
    fn every_variable_of_the_help_is_known_and_others_are_named() {
        for name in known() {
            assert_eq!(checked(&[(&name, "x")]), (vec![], vec![]), "{name}");
        }
        let strange = "the variable TOLLGATE_LISTEN_PORT is not a setting; see --help".to_owned();
        assert_eq!(checked(&[("TOLLGATE_LISTEN_PORT", "80")]), (vec![], vec![strange]));
        let of_others =
            [("PATH", "/bin"), ("HOME", "/"), ("OTEL_SERVICE_NAME", "a"), ("LISTEN", "b")];
        assert_eq!(checked(&of_others), (vec![], vec![]));
    }

    #[test]
    fn what_kubernetes_sets_for_a_service_is_passed_over() {
        let of_service = [
            ("TOLLGATE_SERVICE_HOST", "10.0.0.1"),
            ("TOLLGATE_SERVICE_PORT", "80"),
            ("TOLLGATE_SERVICE_PORT_HTTP", "80"),
            ("TOLLGATE_PORT", "tcp://10.0.0.1:80"),
            ("TOLLGATE_PORT_80_TCP", "tcp://10.0.0.1:80"),
            ("TOLLGATE_PORT_80_TCP_PROTO", "tcp"),
            ("TOLLGATE_PORT_80_TCP_PORT", "80"),
            ("TOLLGATE_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("TOLLGATE_STORE_PORT", "tcp://10.0.0.2:6379"),
            ("TOLLGATE_STORE_SERVICE_HOST", "10.0.0.2"),
        ];
        assert_eq!(checked(&of_service), (vec![], vec![]));
    }

    // Guards: a token that is not text, treated as absent, so that any caller on this machine is
    // allowed.
    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_text_is_a_mistake() {
        use std::os::unix::ffi::OsStringExt as _;

        let value = OsString::from_vec(b"check-token-\xff".to_vec());
        let environment = Environment::new([("TOLLGATE_CHECK_TOKEN".into(), value)]);
        let (mut problems, mut warnings) = (Problems::default(), Vec::new());
        environment.check(&mut problems, &mut warnings);
        assert_eq!(environment.text("TOLLGATE_CHECK_TOKEN"), None);
        assert_eq!(problems.0[0].to_string(), "TOLLGATE_CHECK_TOKEN: is not UTF-8");
    }
}
