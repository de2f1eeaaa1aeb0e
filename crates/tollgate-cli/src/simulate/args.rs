//! The flags of `simulate`.
//!
//! Invariant: as for all flags (`args`), meaningless values are rejected before a file is read.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tollgate_core::{Algorithm, Span};
use tollgate_policy::Surface;

use crate::outputs::Outputs;
use crate::values::{span, surface_parser};

/// One half describes the limit, by a policy or by one quota; the other half describes the
/// requests, by a traffic document or by a row of requests.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// A policy in JSON or YAML, instead of one quota; - reads the standard input
    #[arg(long, value_name = "POLICY", help_heading = "Limit")]
    #[arg(conflicts_with_all = ["limit", "window", "algorithm", "burst", "buckets", "weighted", "strict", "delay"])]
    pub(crate) policy: Option<PathBuf>,
    /// The number of requests per window, of all clients together
    #[arg(long, help_heading = "Limit")]
    pub(crate) limit: Option<u64>,
    /// The window: 500ms, 10s, 1m, 1h, 1d
    #[arg(long, value_name = "TIME", default_value = "1m", help_heading = "Limit")]
    pub(crate) window: String,
    /// The algorithm; gcra by default
    #[arg(long, value_parser = algorithm_parser(), help_heading = "Limit")]
    pub(crate) algorithm: Option<String>,
    /// The number of requests allowed at once when idle; the limit by default
    #[arg(long, help_heading = "Limit")]
    pub(crate) burst: Option<u64>,
    /// The parts of a window, for sliding-buckets
    #[arg(long, help_heading = "Limit")]
    pub(crate) buckets: Option<u64>,
    /// Weight the oldest part, for sliding-buckets
    #[arg(long, help_heading = "Limit")]
    pub(crate) weighted: bool,
    /// Use the stricter bound of the algorithm
    #[arg(long, help_heading = "Limit")]
    pub(crate) strict: bool,
    /// Delay requests over the limit for at most this long instead of denying them
    #[arg(long, value_name = "TIME", help_heading = "Limit")]
    pub(crate) delay: Option<String>,
    /// The surface that enforces the policy
    #[arg(long, value_parser = surface_parser(), default_value = "envoy", help_heading = "Limit")]
    pub(crate) surface: Surface,
    /// Entries of tenants, as GET tenants lists them; may be repeated, one page each
    #[arg(long, value_name = "FILE", help_heading = "Limit")]
    pub(crate) tenants: Vec<PathBuf>,

    /// A traffic document in JSON or YAML, instead of a row of requests; - reads the standard input
    #[arg(long, value_name = "TRAFFIC", help_heading = "Requests")]
    #[arg(conflicts_with_all = ["requests", "wait", "jitter", "parallel"])]
    pub(crate) traffic: Option<PathBuf>,
    /// The number of requests of all workers together
    #[arg(long, default_value_t = 100, help_heading = "Requests")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) requests: u64,
    /// The time from one request of a worker to its next: 0s, 500us, 100ms, 2s
    #[arg(long, default_value = "100ms", value_parser = span, value_name = "TIME", help_heading = "Requests")]
    pub(crate) wait: Span,
    /// The most random time added to --wait
    #[arg(long, default_value = "0s", value_parser = span, value_name = "TIME", help_heading = "Requests")]
    pub(crate) jitter: Span,
    /// The number of workers that send requests in parallel
    #[arg(long, default_value_t = 1, value_name = "WORKERS", help_heading = "Requests")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) parallel: u64,
    /// The random seed: the same seed gives the same run
    #[arg(long, default_value_t = 1, help_heading = "Requests")]
    pub(crate) seed: u64,

    /// The number of nodes, each with counts of its own; that of the traffic by default
    #[arg(long, help_heading = "Enforcement", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) nodes: Option<u64>,
    /// The store of the counts: exact, or Envoy's table with the rule's capacity; that of the
    /// traffic by default
    #[arg(long, value_parser = ["exact", "envoy"], help_heading = "Enforcement")]
    pub(crate) store: Option<String>,
    /// The time of the origin for each response, for rules with `charge`; that of the traffic by
    /// default
    #[arg(long, value_parser = span, value_name = "TIME", help_heading = "Enforcement")]
    pub(crate) latency: Option<Span>,
    /// A fault of the nodes' clocks: fast:100ppm, slow:100ppm, forward:10s@1m, back:10s@1m,
    /// oscillates:500ms/2s, freezes:3s@1m; may be repeated
    #[arg(long = "clock", value_name = "FAULT", value_parser = clock_fault, help_heading = "Enforcement")]
    pub(crate) clock: Vec<ClockFault>,

    /// List the last requests, 1,000 by default, each with the decision of an exact log
    #[arg(long, help_heading = "Output", value_name = "COUNT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) trace: Option<u32>,
    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

impl SimulateArgs {
    /// The files that are read.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Path> {
        self.policy.iter().chain(&self.traffic).chain(&self.tenants).map(PathBuf::as_path)
    }
}

/// A fault of a clock, in the form of the traffic document.
#[derive(Clone, Debug)]
pub(crate) struct ClockFault(pub(crate) serde_json::Value);

fn algorithm_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(Algorithm::ALL.map(Algorithm::name))
}

/// Parses `back:10s@1m` and so on.
fn clock_fault(text: &str) -> Result<ClockFault, String> {
    const WANTED: &str = "use fast:100ppm, slow:100ppm, forward:10s@1m, back:10s@1m, oscillates:500ms/2s or \
                          freezes:3s@1m";
    let (name, rest) = text.split_once(':').ok_or(WANTED)?;
    let two = |sign: char| {
        let (first, second) = rest.split_once(sign).ok_or(WANTED)?;
        (span(first).and(span(second))).map(|_| (first, second)).map_err(|_| WANTED)
    };
    let what = match name {
        "fast" | "slow" => {
            let ppm = rest.strip_suffix("ppm").and_then(|ppm| ppm.parse::<u64>().ok());
            json!({ "ppm": ppm.ok_or(WANTED)? })
        }
        "forward" | "back" => two('@').map(|(by, at)| json!({ "by": by, "at": at }))?,
        "oscillates" => two('/').map(|(by, every)| json!({ "by": by, "every": every }))?,
        "freezes" => two('@').map(|(length, at)| json!({ "length": length, "at": at }))?,
        _ => return Err(WANTED.to_owned()),
    };
    Ok(ClockFault(json!({ name: what })))
}
