//! How many calls of gRPC ended, and with what.
//!
//! Invariant: every call once, whoever ends it; a client that left is none.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_grpc::status::Code;
use tollgate_service::metrics::Format;

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// Envoy's rate limit service.
    RateLimit,
    /// Envoy's external authorization.
    ExtAuthz,
    /// Health, once or watched.
    Health,
    /// Something else, or nothing that is spoken here.
    Unknown,
}

impl Called {
    const ALL: [Self; 4] = [Self::RateLimit, Self::ExtAuthz, Self::Health, Self::Unknown];

    const fn label(self) -> &'static str {
        match self {
            Self::RateLimit => "ratelimit",
            Self::ExtAuthz => "ext_authz",
            Self::Health => "health",
            Self::Unknown => "unknown",
        }
    }
}

/// A number for each of them and each code.
type Numbers<T> = [[T; Code::ALL.len()]; Called::ALL.len()];

/// The counts.
#[derive(Debug, Default)]
pub struct CallCounts(Numbers<AtomicU64>);

impl CallCounts {
    /// Counts one.
    pub fn add(&self, called: Called, code: Code) {
        let row = Called::ALL.iter().position(|it| *it == called);
        let column = Code::ALL.iter().position(|it| *it == code);
        let cell = row.zip(column).and_then(|(row, column)| self.0.get(row)?.get(column));
        if let Some(cell) = cell {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Appends the family; a refusal has a series from the first one on.
    pub fn write(&self, format: Format, text: &mut String) {
        let name = "tollgate_grpc_calls";
        let family = match format {
            Format::OpenMetrics => name.to_owned(),
            Format::Prometheus => format!("{name}_total"),
        };
        let help = "Calls of gRPC, and the code that they ended with";
        let _ = write!(text, "# HELP {family} {help}\n# TYPE {family} counter\n");
        for (called, row) in Called::ALL.iter().zip(&self.0) {
            for (code, cell) in Code::ALL.iter().zip(row) {
                let value = cell.load(Ordering::Relaxed);
                if value > 0 || *code == Code::Ok {
                    let (call, code) = (called.label(), code.name());
                    let _ =
                        writeln!(text, "{name}_total{{call=\"{call}\",code=\"{code}\"}} {value}");
                }
            }
        }
    }
}
