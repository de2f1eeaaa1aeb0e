//! The settings of an HTTP connection manager in an Envoy configuration.
//!
//! Invariant: a setting has the value that Envoy 1.40 gives it: both spellings of a name, `null`
//! for a setting that is left out, numbers for the names of an enumeration, durations as texts or
//! as objects. Deliberately not here: the effect of a setting on a policy; `check` has that.

use core::fmt::Write as _;
use core::time::Duration;

use tollgate_policy::Policy;
use tollgate_policy::plugin::NamedPolicy;

use crate::client_certificates::ClientCertificates;
use tollgate_yaml::{Field, Kind, Node, Reading, Value};

/// The facts about a filter's policy that are outside its document.
#[derive(Debug, Default)]
pub(crate) struct FilterContext {
    /// The connection manager that the filter is in; `None` when the file does not contain it.
    pub(crate) manager: Option<Manager>,
    /// The certificates of clients that its filter chain accepts; `None` when the file does not
    /// contain the filter chain.
    pub(crate) certificates: Option<ClientCertificates>,
    /// The names of the filters that run only after it.
    pub(crate) later: Vec<String>,
    /// The policies of routes that name one.
    pub(crate) named: Vec<NamedPolicy>,
    /// The key with which the filter hashes keys, if its configuration contains it.
    pub(crate) hash_key: Option<[u8; 16]>,
    /// It is the dynamic module, not one of wasm.
    pub(crate) in_dynamic_module: bool,
    /// Later policies of the filter come from a server.
    pub(crate) follows_server: bool,
}

/// A connection manager.
#[derive(Clone, Debug)]
pub(crate) struct Manager {
    /// The line of its configuration.
    pub(crate) line: usize,
    fields: Vec<Field>,
    reading: Reading,
}

/// The settings that a manager around a filter with this policy needs, as comments in YAML.
pub(crate) fn needed_by(policy: &Policy) -> String {
    let wait = policy.rules().iter().filter_map(tollgate_policy::Rule::longest_wait).max();
    let idle = wait.map_or(60, |wait| wait.as_millis_ceil().div_ceil(1000).saturating_add(60));
    let escaped = match policy.explain().escaped_slashes() {
        Some(_) => "KEEP_UNCHANGED",
        None => "UNESCAPE_AND_FORWARD",
    };
    let lines = [
        "The connection manager around these http_filters needs (tollgate check envoy.yaml checks it):".to_owned(),
        "  use_remote_address: true  # or a client chooses the address that it is counted by".to_owned(),
        "  xff_num_trusted_hops: 0  # the number of your proxies in front".to_owned(),
        "  normalize_path: true".to_owned(),
        "  merge_slashes: true".to_owned(),
        format!("  path_with_escaped_slashes_action: {escaped}"),
        "  common_http_protocol_options: { headers_with_underscores_action: REJECT_REQUEST }".to_owned(),
        format!("  stream_idle_timeout: {idle}s  # above the longest wait"),
    ];
    lines.iter().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "# {line}"); // cannot fail
        out
    })
}

/// The settings that are kept: all that are ever read.
const SETTINGS: [&str; 10] = [
    "http_filters",
    "use_remote_address",
    "xff_num_trusted_hops",
    "original_ip_detection_extensions",
    "normalize_path",
    "merge_slashes",
    "path_with_escaped_slashes_action",
    "common_http_protocol_options",
    "stream_idle_timeout",
    "request_timeout",
];

impl Manager {
    /// Reads the manager from its configuration.
    pub(crate) fn new(config: &Node, reading: Reading) -> Self {
        let is_kept = |field: &&Field| SETTINGS.iter().any(|name| is_named(&field.name, name));
        let fields = config.fields().iter().filter(is_kept).cloned().collect();
        Self { line: config.line, fields, reading }
    }

    /// A setting or a part of one, by its path. `None` when it is left out.
    pub(crate) fn setting(&self, path: &[&str]) -> Option<&Field> {
        let (first, rest) = path.split_first()?;
        let first = find(&self.fields, first)?;
        let found = rest.iter().try_fold(first, |field, name| find(field.value.fields(), name))?;
        Some(found).filter(|field| !field.value.is_null(self.reading))
    }

    /// The line of a setting; the line of the manager when the setting is left out.
    pub(crate) fn line_of(&self, path: &[&str]) -> usize {
        self.setting(path).map_or(self.line, |field| field.line)
    }

    /// True when a switch is on. All switches that are read are off when they are left out.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.value(&[name])
            .is_some_and(|value| matches!(value, Value::Bool(true) | Value::Text("true")))
    }

    /// A whole number; 0 when it is left out.
    pub(crate) fn number(&self, name: &str) -> i64 {
        match self.value(&[name]) {
            Some(Value::Whole(number) | Value::Large(number)) => number,
            Some(Value::Text(text)) => text.parse().unwrap_or_default(),
            _ => 0,
        }
    }

    /// The name of an enumeration's value, even where its number is written; the first of `names`
    /// when it is left out.
    pub(crate) fn word<'m>(&'m self, path: &[&str], names: &[&'m str]) -> &'m str {
        let by_number = |number: i64| names.get(usize::try_from(number).ok()?).copied();
        let word = match self.value(path) {
            Some(Value::Text(text)) => Some(text),
            Some(Value::Whole(number)) => by_number(number),
            _ => by_number(0),
        };
        word.unwrap_or_default()
    }

    /// A length of time; `None` when it is left out, or when Envoy would reject it.
    pub(crate) fn duration(&self, path: &[&str]) -> Option<Duration> {
        let field = self.setting(path)?;
        let number = |name: &str| {
            let text = find(field.value.fields(), name).and_then(|part| part.value.text());
            text.map_or(Some(0), |text| text.parse().ok())
        };
        match &field.value.kind {
            Kind::Scalar(scalar) => {
                let seconds = scalar.text.strip_suffix('s')?.parse().ok()?;
                Duration::try_from_secs_f64(seconds).ok()
            }
            Kind::Object(_) => {
                let nanos = number("nanos")?;
                Duration::from_secs(number("seconds")?).checked_add(Duration::from_nanos(nanos))
            }
            Kind::List(_) => None,
        }
    }

    fn value(&self, path: &[&str]) -> Option<Value<'_>> {
        let Kind::Scalar(scalar) = &self.setting(path)?.value.kind else { return None };
        Some(self.reading.value(scalar))
    }
}

/// The field of this name; of several the last, as in Envoy.
fn find<'f>(fields: &'f [Field], name: &str) -> Option<&'f Field> {
    fields.iter().rev().find(|field| is_named(&field.name, name))
}

/// True for a name and for its other spelling: `use_remote_address` and `useRemoteAddress`.
fn is_named(given: &str, name: &str) -> bool {
    let mut camel = String::with_capacity(name.len());
    for (i, part) in name.split('_').enumerate() {
        let (first, rest) = part.split_at(part.len().min(1));
        camel.push_str(&if i == 0 { first.to_owned() } else { first.to_ascii_uppercase() });
        camel.push_str(rest);
    }
    given == name || given == camel
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(text: &str) -> Manager {
        Manager::new(&Node::parse(text).unwrap(), Reading::Envoy)
    }

    // Each value as Envoy 1.40 reads it.
    #[test]
    fn a_setting_has_the_value_that_envoy_gives_it() {
        for (text, is_on) in [
            ("use_remote_address: true", true),
            ("use_remote_address: yes", true),
            ("use_remote_address: \"true\"", true),
            ("useRemoteAddress: true", true),
            ("use_remote_address: {value: true}", false),
            ("use_remote_address: false", false),
            ("use_remote_address: ~", false),
            ("a: 1", false),
        ] {
            assert_eq!(manager(text).is_on("use_remote_address"), is_on, "{text}");
        }
        let hops = |text: &str| manager(text).number("xff_num_trusted_hops");
        assert_eq!(hops("xff_num_trusted_hops: 2"), 2);
        assert_eq!(hops("xffNumTrustedHops: \"2\""), 2);
        assert_eq!(hops("a: 1"), 0);
        let word = |text: &str| {
            let manager = manager(text);
            manager.word(&["path_with_escaped_slashes_action"], &["DEFAULT", "KEEP"]).to_owned()
        };
        assert_eq!(word("path_with_escaped_slashes_action: 1"), "KEEP");
        assert_eq!(word("path_with_escaped_slashes_action: KEEP"), "KEEP");
        assert_eq!(word("a: 1"), "DEFAULT");
        let time = |text: &str| manager(text).duration(&["common_http_protocol_options", "a_b"]);
        for text in ["{a_b: 1.5s}", "{aB: {seconds: 1, nanos: 500000000}}"] {
            let text = format!("common_http_protocol_options: {text}");
            assert_eq!(time(&text), Some(Duration::from_millis(1500)), "{text}");
        }
        assert_eq!(time("common_http_protocol_options: {a_b: 1}"), None);
        assert_eq!(time("common_http_protocol_options: 1"), None);
    }
}
