//! The sums as text for Prometheus: the text format 0.0.4, and OpenMetrics 1.0.0 for clients that
//! accept it.
//!
//! Invariant: every family is there with its help and type, and series that need no rule are there
//! from the start with 0, so that the first count is a growth. Lines are in the order of families
//! and label values, the same for the same sums. Source:
//! prometheus.io/docs/instrumenting/exposition_formats, and the OpenMetrics specification.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use serde::{Deserialize, Serialize};
use tollgate_policy::metrics::{Description, FAMILIES, Family, Kind};

use super::event::Event;
use super::series::{Series, is_summed};
use super::sums::Sums;
use super::waits::{INFINITE, SUM, WAIT_BOUNDS_MS};
use crate::media_type::accepts;

/// The format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The format for a request with this field `accept`.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let is_open = accepts(accept, "application/openmetrics-text");
        if is_open { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The media type of the text.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Sums {
    /// The text at `now_s` seconds since 1970.
    #[must_use]
    pub fn text(&self, format: Format, now_s: u64) -> String {
        let mut text = String::new();
        for row in FAMILIES.iter().filter(|row| is_summed(row)) {
            head(row, format, &mut text);
            match row.kind {
                Kind::Counter => self.counters(row, &mut text),
                Kind::Gauge => self.gauge(row, now_s, &mut text),
                Kind::Histogram => self.waits(row, &mut text),
            }
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn value(&self, family: Family, values: &[&str]) -> u64 {
        self.series.get(&Series::new(family, values)).map_or(0, |cell| cell.value)
    }

    /// A family of events has all its series; one of rules those that were counted.
    fn counters(&self, row: &Description, text: &mut String) {
        for (family, values) in Event::ALL.iter().map(|event| event.series()) {
            if family == row.family {
                sample(row, values, self.value(family, values), text);
            }
        }
        if row.labels.contains(&"rule") {
            let is_of = |series: &Series| series.family() == Some(row.family);
            for (series, cell) in self.series.iter().filter(|(series, _)| is_of(series)) {
                let values: Vec<&str> = series.values().collect();
                sample(row, &values, cell.value, text);
            }
        }
    }

    fn gauge(&self, row: &Description, now_s: u64, text: &mut String) {
        let fingerprint = format!("{:016x}", self.policy.fingerprint);
        let info = [fingerprint.as_str(), self.policy.source.word()];
        let gauges: [(Family, &[&str], u64); 4] = [
            (Family::PolicyVersion, &[], self.policy.version),
            (Family::PolicyInfo, &info, 1),
            (Family::Isolates, &[], self.isolates_at(now_s)),
            (Family::Series, &[], len(self.series.len())),
        ];
        for (_, values, value) in gauges.into_iter().filter(|(family, ..)| *family == row.family) {
            sample(row, values, value, text);
        }
    }

    /// Buckets are kept separately and written cumulatively, as Prometheus requires: each with all
    /// below it.
    fn waits(&self, row: &Description, text: &mut String) {
        let (family, name) = (row.family, row.name);
        let mut below = 0_u64;
        let bounds = WAIT_BOUNDS_MS.into_iter().map(|(_, bound)| bound).chain([INFINITE]);
        for bound in bounds {
            below = below.saturating_add(self.value(family, &[bound]));
            line(format_args!("{name}_bucket{{le=\"{bound}\"}} {below}"), text);
        }
        let sum_ms = self.value(family, &[SUM]);
        let (seconds, rest) = (sum_ms / 1000, sum_ms % 1000);
        line(format_args!("{name}_sum {seconds}.{rest:03}"), text);
        line(format_args!("{name}_count {below}"), text);
    }
}

impl Format {
    /// Appends a family that is not in the sums: its head, and a sample for each series.
    pub fn push<const N: usize>(
        self,
        family: Family,
        samples: impl IntoIterator<Item = ([&'static str; N], u64)>,
        text: &mut String,
    ) {
        let row = family.describe();
        head(row, self, text);
        for (values, value) in samples {
            sample(row, &values, value, text);
        }
    }
}

fn head(row: &Description, format: Format, text: &mut String) {
    // In OpenMetrics a counter's family is named without the suffix of its samples.
    let name = match (format, row.kind) {
        (Format::OpenMetrics, Kind::Counter) => row.name.trim_end_matches("_total"),
        _ => row.name,
    };
    // A help is ASCII without a backslash or a line's end: the table's test checks that.
    line(format_args!("# HELP {name} {}", row.help), text);
    line(format_args!("# TYPE {name} {}", row.kind.word()), text);
    if let (Format::OpenMetrics, true) = (format, name.ends_with("_seconds")) {
        line(format_args!("# UNIT {name} seconds"), text);
    }
}

fn sample(row: &Description, values: &[&str], value: u64, text: &mut String) {
    text.push_str(row.name);
    for (i, (label, value)) in row.labels.iter().zip(values).enumerate() {
        text.push(if i == 0 { '{' } else { ',' });
        text.push_str(label);
        text.push_str("=\"");
        escape(value, text);
        text.push('"');
    }
    if !row.labels.is_empty() {
        text.push('}');
    }
    line(format_args!(" {value}"), text);
}

/// A label's value, escaped for both formats.
fn escape(value: &str, text: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

fn line(content: core::fmt::Arguments<'_>, text: &mut String) {
    // Writing into a String cannot fail.
    let _ = text.write_fmt(content);
    text.push('\n');
}

fn len(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::metrics::{Delta, PolicyInForce};
    use crate::store::policy::Source;

    fn sums() -> Sums {
        let decision = |values: [&str; 4]| Series::new(Family::Decisions, &values);
        let counts = vec![
            (Series::new(Family::Requests, &["passed"]), 41),
            (decision(["a \"b\" \\c", "", "", "allowed"]), 3),
            (decision(["api", "minute", "gold", "denied"]), u64::MAX),
            (Series::new(Family::Waits, &["0.05"]), 2),
            (Series::new(Family::Waits, &["5.0"]), 1),
            (Series::new(Family::Waits, &[INFINITE]), 4),
            (Series::new(Family::Waits, &[SUM]), 61_005),
        ];
        let policy = PolicyInForce { version: 12, fingerprint: 0xfe, source: Source::Written };
        let mut sums = Sums::default();
        sums.add(&Delta { isolate: 1, sequence: 1, policy, counts }, 0);
        sums
    }

    #[test]
    fn sums_are_told_in_lines() {
        let text = sums().text(Format::Prometheus, 0);
        for line in [
            "# TYPE tollgate_requests_total counter",
            "tollgate_requests_total{answer=\"passed\"} 41",
            "tollgate_requests_total{answer=\"refused\"} 0",
            r#"tollgate_decisions_total{rule="a \"b\" \\c",quota="",tier="",result="allowed"} 3"#,
            r#"tollgate_decisions_total{rule="api",quota="minute",tier="gold",result="denied"} 18446744073709551615"#,
            "# TYPE tollgate_wait_seconds histogram",
            "tollgate_wait_seconds_bucket{le=\"0.01\"} 0",
            "tollgate_wait_seconds_bucket{le=\"0.05\"} 2",
            "tollgate_wait_seconds_bucket{le=\"5.0\"} 3",
            "tollgate_wait_seconds_bucket{le=\"60.0\"} 3",
            "tollgate_wait_seconds_bucket{le=\"+Inf\"} 7",
            "tollgate_wait_seconds_sum 61.005",
            "tollgate_wait_seconds_count 7",
            "tollgate_policy_version 12",
            "tollgate_policy_info{fingerprint=\"00000000000000fe\",source=\"written\"} 1",
            "tollgate_isolates 1",
            "tollgate_metrics_series 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("EOF") && text.ends_with('\n'));
        for row in FAMILIES.iter().filter(|row| is_summed(row)) {
            let has_sample = text.lines().any(|line| line.starts_with(row.name));
            assert!(has_sample || row.family == Family::NearLimit, "{}", row.name);
        }
    }

    #[test]
    fn open_metrics_differs_where_it_must() {
        let text = sums().text(Format::OpenMetrics, 0);
        assert!(text.contains("# TYPE tollgate_requests counter\n"), "{text}");
        assert!(text.contains("\ntollgate_requests_total{answer=\"passed\"} 41\n"), "{text}");
        assert!(text.contains("# UNIT tollgate_wait_seconds seconds\n"), "{text}");
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn open_metrics_is_for_who_accepts_it() {
        use Format::{OpenMetrics, Prometheus};
        let scraper = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (None, Prometheus),
            (Some("*/*"), Prometheus),
            (Some(scraper), OpenMetrics),
            (Some("text/plain, Application/OpenMetrics-Text"), OpenMetrics),
            (Some("application/openmetrics-text;q=0"), Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept:?}");
        }
    }
}
