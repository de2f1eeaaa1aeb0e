//! The settings of the deployment: variables and secrets of wrangler.toml.
//!
//! Invariant: a wrong setting is reported like a wrong policy, all of them at once, and never half
//! used. Secrets never appear in a report.
//!
//! | name | kind | meaning |
//! |---|---|---|
//! | `ORIGIN` | variable | forward allowed requests there; without it serve `POST /check` |
//! | `CHECK_TOKEN` | secret | the token that `/check` requires as `Authorization: Bearer` |
//! | `HASH_KEY` | secret | makes the names of objects unguessable |
//! | `FLEET_SECRET` | secret | lets nodes lease counts of the fleet, which it names |
//! | `OBJECT_TIMEOUT_MS` | variable | an object that does not reply for this long has failed |
//! | `METRICS_INTERVAL_S` | variable | the time between two flushes of counts to the sums |
//! | `LOG_SAMPLE` | variable | the fraction of denials and failures that is logged |
//! | `LOCATION_HINT`, `JURISDICTION` | variables | where objects are made: `placement` |
//! | `ADMIN_TOKEN` and others | | the settings of the admin API and metrics: `operator` |

pub(crate) mod namespaces;
pub(crate) mod operator;
pub(crate) mod placement;

use std::cell::RefCell;
use std::ops::RangeInclusive;

use tollgate_policy::{Problem, Problems};

use tollgate_core::Span;
use tollgate_service::Token;
use tollgate_service::log::Share;

use crate::settings::operator::Operator;
use crate::settings::placement::{JURISDICTION, LOCATION_HINT, Placement};

/// How long an object may take, unless the deployment sets it. One that has to start far away needs
/// about a second, and then `on_failure` decides about its first request.
const OBJECT_TIMEOUT_MS: u32 = 500;

/// A shorter time would give up objects that are near and healthy; a longer one exceeds the time
/// that clients wait.
const OBJECT_TIMEOUTS_MS: RangeInclusive<u32> = 10..=30_000;

/// Between two flushes of counts, unless the deployment sets it. Each is a call of an object.
const METRICS_INTERVAL: Span = Span::from_secs(10);

/// The platform allows 30 s for work after a response.
const METRICS_INTERVALS_S: RangeInclusive<u64> = 1..=20;

/// The deployment's binding of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// Nothing.
    Absent,
    /// A text, or a number as it is written.
    Text(String),
    /// Something else, such as a secret of a store, which must not be taken for an absent one.
    Other,
}

/// The settings of one deployment.
pub(crate) struct Settings {
    /// Where allowed requests go: scheme, host and perhaps a path, without a slash at the end.
    pub(crate) origin: Option<String>,
    pub(crate) hash_key: Vec<u8>,
    /// The secret that names the counts of a fleet; none where no node leases.
    pub(crate) fleet_secret: Option<[u8; 16]>,
    pub(crate) object_timeout_ms: u32,
    pub(crate) placement: Placement,
    pub(crate) metrics_interval: Span,
    pub(crate) log_share: Share,
    pub(crate) operator: Operator,
}

impl Default for Settings {
    fn default() -> Self {
        let object_timeout_ms = OBJECT_TIMEOUT_MS;
        let (placement, operator) = (Placement::default(), Operator::default());
        Self {
            origin: None,
            hash_key: Vec::new(),
            fleet_secret: None,
            object_timeout_ms,
            placement,
            operator,
            metrics_interval: METRICS_INTERVAL,
            log_share: Share::DEFAULT,
        }
    }
}

impl Settings {
    /// Reads the settings; `binding` returns the binding of a name.
    ///
    /// # Errors
    /// Every wrong setting.
    pub(crate) fn read(binding: impl Fn(&str) -> Binding) -> Result<Self, Problems> {
        let problems = RefCell::new(Problems::default());
        let mut wrong = |path: &str, message: String| {
            problems.borrow_mut().0.push(Problem::new(path, message));
        };
        let mut text = |name: &str| match binding(name) {
            Binding::Absent => None,
            Binding::Text(text) => Some(text),
            Binding::Other => {
                let message = "is bound to a value that is not a text; bind a text".to_owned();
                problems.borrow_mut().0.push(Problem::new(name, message));
                None
            }
        };
        let given = [ORIGIN, CHECK_TOKEN, HASH_KEY, TIMEOUT].map(&mut text);
        let [given_origin, token, hash_key, timeout] = given;
        let [hint, jurisdiction] = [LOCATION_HINT, JURISDICTION].map(&mut text);
        let fleet_secret = text(FLEET_SECRET);
        let [interval, log_share] = [METRICS_INTERVAL_S, LOG_SAMPLE].map(&mut text);
        let mut settings =
            Self { hash_key: hash_key.unwrap_or_default().into(), ..Self::default() };
        if let Some(value) = given_origin.filter(|value| !value.is_empty()) {
            settings.origin = origin(&value);
            if settings.origin.is_none() {
                wrong(ORIGIN, NO_ORIGIN.to_owned());
            }
        }
        // An empty secret must not open the service.
        if token.as_deref().is_some_and(|value| value.trim().is_empty()) {
            wrong(CHECK_TOKEN, "is empty; give it a value or delete it".to_owned());
        }
        if let Some(value) = fleet_secret {
            settings.fleet_secret = fleet(&value, token.is_some(), &mut wrong);
        }
        if let Some(value) = timeout {
            settings.object_timeout_ms = object_timeout(&value, &mut wrong);
        }
        if let Some(value) = interval {
            match value.parse().ok().filter(|value| METRICS_INTERVALS_S.contains(value)) {
                Some(value) => settings.metrics_interval = Span::from_secs(value),
                None => {
                    let wanted =
                        "is not a whole number of seconds from 1 to 20; use one such as 10";
                    wrong(METRICS_INTERVAL_S, wanted.to_owned());
                }
            }
        }
        if let Some(value) = log_share {
            match Share::parse(&value) {
                Some(share) => settings.log_share = share,
                None => wrong(LOG_SAMPLE, Share::WANTED.to_owned()),
            }
        }
        settings.placement = Placement::read(hint.as_deref(), jurisdiction.as_deref(), &mut wrong);
        settings.operator = Operator::read(&mut text, token.as_deref(), &mut wrong);
        let problems = problems.into_inner();
        if problems.0.is_empty() { Ok(settings) } else { Err(problems) }
    }
}

/// Reads the secret that names the fleet's counts. A node that leases can starve all others, so
/// leasing requires a token.
fn fleet(value: &str, has_token: bool, wrong: &mut dyn FnMut(&str, String)) -> Option<[u8; 16]> {
    let value = value.trim();
    let is_visible = value.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_visible || !FLEET_SECRETS.contains(&value.len()) {
        wrong(FLEET_SECRET, "must be 16 to 256 visible ASCII characters".to_owned());
    } else if !has_token {
        wrong(FLEET_SECRET, "needs CHECK_TOKEN, which nodes send; set it".to_owned());
    }
    Some(tollgate_policy::fleet_secret(value))
}

fn object_timeout(value: &str, wrong: &mut dyn FnMut(&str, String)) -> u32 {
    let milliseconds = value.parse().ok().filter(|value| OBJECT_TIMEOUTS_MS.contains(value));
    milliseconds.unwrap_or_else(|| {
        let (least, most) = (OBJECT_TIMEOUTS_MS.start(), OBJECT_TIMEOUTS_MS.end());
        let wanted = "is not a whole number of milliseconds";
        wrong(TIMEOUT, format!("{wanted} from {least} to {most}; use one such as 500"));
        OBJECT_TIMEOUT_MS
    })
}

/// Reads `CHECK_TOKEN`, even when other settings are wrong: its bearer may read what is wrong.
pub(crate) fn check_token(binding: impl Fn(&str) -> Binding) -> Option<Token> {
    match binding(CHECK_TOKEN) {
        Binding::Text(value) if !value.trim().is_empty() => {
            Some(Token::new(value.trim().as_bytes()))
        }
        Binding::Text(_) | Binding::Absent | Binding::Other => None,
    }
}

pub(crate) const ORIGIN: &str = "ORIGIN";
const CHECK_TOKEN: &str = "CHECK_TOKEN";
const HASH_KEY: &str = "HASH_KEY";
pub(crate) const FLEET_SECRET: &str = "FLEET_SECRET";
/// How long the secret may be, as in the configuration of a node.
const FLEET_SECRETS: RangeInclusive<usize> = 16..=256;
const TIMEOUT: &str = "OBJECT_TIMEOUT_MS";
const METRICS_INTERVAL_S: &str = "METRICS_INTERVAL_S";
const LOG_SAMPLE: &str = "LOG_SAMPLE";

pub(crate) const NO_ORIGIN: &str =
    "is not an origin; use one such as \"https://example.com\", without query";

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

    fn bound(name: &str, binding: Binding) -> Result<Settings, String> {
        let given = |asked: &str| if asked == name { binding.clone() } else { Binding::Absent };
        Settings::read(given).map_err(|problems| problems.to_string())
    }

    fn read(name: &str, value: &str) -> Result<Settings, String> {
        bound(name, Binding::Text(value.to_owned()))
    }

    #[test]
    fn a_time_out_is_a_whole_number_of_milliseconds_within_bounds() {
        let timeout = |value: &str| read(TIMEOUT, value).map(|settings| settings.object_timeout_ms);
        assert_eq!(bound("OTHER", Binding::Other).map(|s| s.object_timeout_ms), Ok(500));
        for (value, expected) in [("10", 10), ("750", 750), ("30000", 30_000)] {
            assert_eq!(timeout(value), Ok(expected));
        }
        let problem = "OBJECT_TIMEOUT_MS: is not a whole number of milliseconds from 10 to 30000; \
                       use one such as 500";
        for value in ["9", "30001", "", "0", "-1", "1.5", "1e3", "500ms", " 500", "99999999999"] {
            assert_eq!(timeout(value).as_ref().map_err(String::as_str), Err(problem), "{value}");
        }
    }

    #[test]
    fn an_interval_is_one_that_the_platform_waits_for() {
        let interval =
            |value: &str| read(METRICS_INTERVAL_S, value).map(|settings| settings.metrics_interval);
        let problem = "METRICS_INTERVAL_S: is not a whole number of seconds from 1 to 20; use one \
                       such as 10";
        for (value, expected) in [("1", 1), ("20", 20)] {
            assert_eq!(interval(value), Ok(Span::from_secs(expected)));
        }
        for value in ["0", "21", "", "-1", "1.5", "10s"] {
            assert_eq!(interval(value).as_ref().map_err(String::as_str), Err(problem), "{value}");
        }
        assert_eq!(Settings::default().metrics_interval, Span::from_secs(10));
    }

    #[test]
    fn a_fleets_secret_is_long_and_goes_with_a_token() {
        let read = |secret: &str, token: Option<&str>| {
            let given = |asked: &str| match (asked, token) {
                (FLEET_SECRET, _) => Binding::Text(secret.to_owned()),
                (CHECK_TOKEN, Some(token)) => Binding::Text(token.to_owned()),
                _ => Binding::Absent,
            };
            let read = Settings::read(given).map_err(|problems| problems.to_string());
            read.map(|settings| settings.fleet_secret)
        };
        let secret = "sixteen-random-bytes-or-more";
        let expected = Some(tollgate_policy::fleet_secret(secret));
        assert_eq!(read(secret, Some("t")), Ok(expected));
        assert_eq!(read(&format!(" {secret}\n"), Some("t")), Ok(expected), "as a file ends");
        let problem = "FLEET_SECRET: needs CHECK_TOKEN, which nodes send; set it";
        assert_eq!(read(secret, None), Err(problem.to_owned()));
        let problem = "FLEET_SECRET: must be 16 to 256 visible ASCII characters";
        for wrong in ["", "fifteen-letters", "sixteen letters or more", &"x".repeat(257)] {
            assert_eq!(read(wrong, Some("t")), Err(problem.to_owned()), "{wrong}");
        }
        assert_eq!(Settings::default().fleet_secret, None);
    }

    #[test]
    fn a_part_of_all_lines_is_from_none_to_all() {
        let share = |value: &str| read(LOG_SAMPLE, value).map(|settings| settings.log_share);
        assert_eq!(share("1/100"), Ok(Share::DEFAULT));
        let problem = "LOG_SAMPLE: is not a share of all lines; use a number from 0 to 1 such as 0.01, \
                       or 1/100";
        for value in ["", "2", "1%", "-1"] {
            assert_eq!(share(value).as_ref().map_err(String::as_str), Err(problem), "{value}");
        }
    }

    #[test]
    fn what_is_bound_to_no_text_is_not_taken_for_absent() {
        for name in
            [ORIGIN, CHECK_TOKEN, HASH_KEY, FLEET_SECRET, TIMEOUT, LOCATION_HINT, JURISDICTION]
        {
            let expected = format!("{name}: is bound to a value that is not a text; bind a text");
            assert_eq!(bound(name, Binding::Other).err(), Some(expected));
        }
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
        assert!(read("CHECK_TOKEN", "t").is_ok() && read("OTHER", "").is_ok());
        let token = |binding: Binding| check_token(|_| binding.clone());
        for none in [Binding::Absent, Binding::Other, Binding::Text(" ".into())] {
            assert!(token(none).is_none());
        }
        let token = token(Binding::Text(" t ".into())).expect("a token");
        assert!(token.authorizes(Some("Bearer t")) && !token.authorizes(Some("Bearer  ")));
    }
}
