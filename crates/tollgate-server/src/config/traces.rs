//! Whether traces are sent, and where.
//!
//! Invariant: a setting of ours takes precedence over the variables that OpenTelemetry defines for
//! every program, and those apply only where they concern a feature of this server. All mistakes
//! are noted.

use hyper::header::{HeaderName, HeaderValue};
use tollgate_policy::{Problem, Problems};
use tollgate_service::log::Share;

use crate::config::sources::Sources;
use crate::traces::{Collector, Options, pairs};

/// The share of requests without trace information from their caller, unless it is configured.
const DEFAULT_SHARE: Share = Share::DEFAULT;

/// Reads the settings; `variable` is the environment.
pub(super) fn read(
    sources: &Sources,
    variable: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> Option<Options> {
    let variable = |name: &str| variable(name).filter(|text| !text.is_empty());
    let mut reader = Reader { sources, variable: &variable, problems };
    let collector = reader.collector();
    let (share, service) = (reader.share(), reader.service());
    let mut collector = collector?;
    collector.fields = reader.fields();
    let mut attributes = reader.pairs("OTEL_RESOURCE_ATTRIBUTES");
    let named = attributes.iter().position(|(name, _)| name == "service.name");
    let named = named.map(|place| attributes.remove(place).1);
    let service = service.or(named).unwrap_or_else(|| "tollgate-server".to_owned());
    Some(Options { collector, share, service, attributes })
}

struct Reader<'a> {
    sources: &'a Sources,
    variable: &'a dyn Fn(&str) -> Option<String>,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn wrong(&mut self, place: &str, message: String) {
        self.problems.0.push(Problem::new(place, message));
    }

    /// A setting of ours, and its place.
    fn setting(&self, name: &str) -> Option<(String, String)> {
        let given = self.sources.get(name)?;
        (!given.text.is_empty()).then_some((given.text, given.place))
    }

    fn collector(&mut self) -> Option<Collector> {
        let whole = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let base = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let (text, place, is_whole) = if let Some((text, place)) = self.setting("traces") {
            (text, place, false)
        } else if self.is_off() {
            return None;
        } else if let Some(text) = (self.variable)(whole) {
            (text, whole.to_owned(), true)
        } else {
            ((self.variable)(base)?, base.to_owned(), false)
        };
        let collector = Collector::parse(&text, is_whole);
        if collector.is_none() {
            // The text may contain a password.
            self.wrong(&place, Collector::WANTED.to_owned());
        }
        for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            if (self.variable)(name).is_some_and(|protocol| protocol != "http/protobuf") {
                self.wrong(name, "is not supported; use \"http/protobuf\"".to_owned());
            }
        }
        collector
    }

    /// True when the variables switch traces off.
    fn is_off(&self) -> bool {
        let is = |name: &str, value: &str| {
            (self.variable)(name).is_some_and(|text| text.eq_ignore_ascii_case(value))
        };
        is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none")
    }

    fn share(&mut self) -> Share {
        let sampler = (self.variable)("OTEL_TRACES_SAMPLER");
        let (text, place) = if let Some(given) = self.setting("traces_share") {
            given
        } else {
            let place = "OTEL_TRACES_SAMPLER_ARG";
            let given = match sampler.as_deref() {
                Some("always_on" | "parentbased_always_on") => Some("1".to_owned()),
                Some("always_off" | "parentbased_always_off") => Some("0".to_owned()),
                Some("traceidratio" | "parentbased_traceidratio") => (self.variable)(place),
                Some(_) | None => None,
            };
            let Some(text) = given else { return DEFAULT_SHARE };
            (text, place.to_owned())
        };
        Share::parse(&text).unwrap_or_else(|| {
            self.wrong(&place, Share::WANTED.replace("of all lines", "of all requests"));
            DEFAULT_SHARE
        })
    }

    fn service(&self) -> Option<String> {
        self.setting("traces_service")
            .map(|(name, _)| name)
            .or_else(|| (self.variable)("OTEL_SERVICE_NAME"))
    }

    /// Fields of every request to the collector.
    fn fields(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        let own = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
        let name = match (self.variable)(own) {
            Some(_) => own,
            None => "OTEL_EXPORTER_OTLP_HEADERS",
        };
        let pairs = self.pairs(name);
        let field = |(name, value): &(String, String)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        };
        let fields: Option<Vec<_>> = pairs.iter().map(field).collect();
        fields.unwrap_or_else(|| {
            self.wrong(
                name,
                "contains a name or a value that HTTP does not allow in a field".to_owned(),
            );
            Vec::new()
        })
    }

    fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let Some(text) = (self.variable)(name) else { return Vec::new() };
        pairs(&text).unwrap_or_else(|| {
            self.wrong(name, "is not a list such as \"name=value,name=value\"".to_owned());
            Vec::new()
        })
    }
}
