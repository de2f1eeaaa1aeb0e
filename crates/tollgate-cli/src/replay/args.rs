//! The arguments of `tollgate replay`.
//!
//! Invariant: meaningless arguments are rejected before a log is read.

use std::path::{Path, PathBuf};

use clap::Args;
use tollgate_access_log::{Field, Format};
use tollgate_core::{Span, Timestamp};
use tollgate_lab::replay::suggest::Share;
use tollgate_lab::replay::{AssumedValues, FailIf, Options};
use tollgate_policy::Surface;

use crate::error::CommandError;
use crate::outputs::Outputs;
use crate::values::{span, surface_parser};

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The policy in JSON or YAML, or a configuration of Envoy with it
    pub(crate) policy: PathBuf,
    /// Access logs, plain, gzip or zstd; several are merged by time; - reads the standard input
    #[arg(required = true)]
    pub(crate) logs: Vec<PathBuf>,
    /// The surface that enforces the policy; envoy by default
    #[arg(long, value_parser = surface_parser())]
    pub(crate) surface: Option<Surface>,
    /// Entries of tenants, as GET tenants lists them; may be repeated, one page each
    #[arg(long, value_name = "FILE")]
    pub(crate) tenants: Vec<PathBuf>,
    /// The format of the lines: combined, common, vhost, nginx:FORMAT, envoy, envoy-json, json,
    /// csv, tsv and more; detected from the first lines by default
    #[arg(long, value_parser = format)]
    pub(crate) format: Option<Format>,
    /// The column, key or variable of a field; may be repeated
    #[arg(long = "map", value_name = "FIELD=COLUMN", value_parser = map)]
    pub(crate) maps: Vec<String>,
    /// The value of a field in every request; nothing after the sign: no request has it
    #[arg(long = "assume", value_name = "FIELD=VALUE", value_parser = assumption)]
    pub(crate) assumptions: Vec<String>,
    /// Also replay requests that were denied according to the log: those with status 429 or 503
    #[arg(long)]
    pub(crate) include_refused: bool,
    /// Leave out requests before this time: 2026-01-31, 2026-01-31T12:00:00Z, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) since: Option<Timestamp>,
    /// Leave out requests from this time on
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<Timestamp>,
    /// Sort lines that are late by at most this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = out_of_order)]
    pub(crate) out_of_order: Span,
    /// Compare with another policy: show the changes from that one to this one
    #[arg(long, value_name = "POLICY")]
    pub(crate) against: Option<PathBuf>,
    /// Show the effect of each limit, the widest gap between clients, the heaviest clients, and the
    /// limits that would affect no client, 0.1 % and 1 % of them
    #[arg(long)]
    pub(crate) suggest: bool,
    /// Also suggest a limit that would affect at most this share of the clients, such as 3%
    #[arg(long, value_name = "SHARE", requires = "suggest", value_parser = Share::parse)]
    pub(crate) touch: Option<Share>,
    /// For --suggest: copy a log that can be read only once, up to this size, to try the suggested
    /// limits on it; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub(crate) spool: u64,
    /// Fail if this is true, such as denied-clients>0.1%; may be repeated
    #[arg(long = "fail-if", value_name = "CONDITION", value_parser = FailIf::parse)]
    pub(crate) fail_if: Vec<FailIf>,
    /// Show keyed hashes instead of keys, clients and lines, with a random key for this run
    #[arg(long)]
    pub(crate) private: bool,
    /// The same with this key of 32 hexadecimal digits, so that two runs have the same hashes
    #[arg(long, value_name = "HEX", value_parser = secret)]
    pub(crate) private_key: Option<[u8; 16]>,
    /// The number of limited keys, and of examples, that are shown
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    pub(crate) top: u16,
    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

impl ReplayArgs {
    /// True when no text of the logs may be shown.
    pub(crate) const fn is_private(&self) -> bool {
        self.private || self.private_key.is_some()
    }

    /// The files that are read.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Path> {
        let policies = [&self.policy].into_iter().chain(&self.against);
        policies.chain(&self.logs).chain(&self.tenants).map(PathBuf::as_path)
    }

    /// The values assumed in addition to the logs.
    pub(crate) fn assumed(&self) -> Result<AssumedValues, CommandError> {
        let mut assumed = AssumedValues::default();
        for text in &self.assumptions {
            assumed
                .assume(text)
                .map_err(|error| CommandError::Misuse(format!("--assume {text}: {error}")))?;
        }
        for map in &self.maps {
            if let Some(field) = map.split_once('=').and_then(|(name, _)| Field::parse(name)) {
                assumed.mapped(&field);
            }
        }
        Ok(assumed)
    }

    /// The options of the replay; the secret is random unless one is given.
    pub(crate) fn options(&self) -> Result<Options, CommandError> {
        let made_up = || {
            let mut secret = [0; 16];
            match getrandom::fill(&mut secret) {
                Ok(()) => Ok(secret),
                Err(error) => Err(CommandError::Misuse(format!("no random numbers: {error}"))),
            }
        };
        Ok(Options {
            include_refused: self.include_refused,
            since: self.since,
            until: self.until,
            is_private: self.is_private(),
            secret: self.private_key.map_or_else(made_up, Ok)?,
            top: usize::from(self.top),
            ..Options::default()
        })
    }
}

fn format(text: &str) -> Result<Format, String> {
    Format::parse(text).map_err(|error| error.to_string())
}

/// Parses one pair as the format does; the policy's name of a field is also accepted.
fn map(text: &str) -> Result<String, String> {
    let (name, column) = text.split_once('=').ok_or("use FIELD=COLUMN")?;
    if column.is_empty() || column.contains(',') {
        return Err("use FIELD=COLUMN".to_owned());
    }
    let name = if name == "client_ip" { "client" } else { name };
    if !matches!(name, "request" | "path" | "query") {
        tollgate_lab::replay::field(name)?;
    }
    Ok(format!("{name}={column}"))
}

/// Checks it alone; all assumptions are combined later.
fn assumption(text: &str) -> Result<String, String> {
    AssumedValues::default().assume(text)?;
    Ok(text.to_owned())
}

/// `1GiB`, `512MiB`, `64KiB`, or bytes.
fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let of = |(unit, bytes): &(&str, u64)| Some((text.strip_suffix(unit)?, *bytes));
    let (number, unit) = units.iter().find_map(of).unwrap_or((text, 1));
    let is_plain = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let size = number.parse::<u64>().ok().filter(|_| is_plain);
    let size = size.and_then(|number| number.checked_mul(unit));
    size.ok_or_else(|| "use a size such as 1GiB, 512MiB or 0".to_owned())
}

/// The longest time that a record is held: beyond a day the timestamp itself is wrong.
fn out_of_order(text: &str) -> Result<Span, String> {
    let most = Span::from_secs(86_400);
    let bound = span(text)?;
    if bound <= most { Ok(bound) } else { Err("use at most 1d".to_owned()) }
}

fn secret(text: &str) -> Result<[u8; 16], String> {
    let number = u128::from_str_radix(text, 16)
        .ok()
        .filter(|_| text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit()));
    number.map(u128::to_be_bytes).ok_or_else(|| "use 32 hexadecimal digits".to_owned())
}

fn time(text: &str) -> Result<Timestamp, String> {
    let nanos = tollgate_access_log::Time::parse(text).map(|time| time.unix_ns);
    nanos.map(Timestamp::from_nanos).ok_or_else(|| {
        "use a date (2026-01-31), a time (2026-01-31T12:00:00Z; without a zone UTC), or seconds since 1970"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_of_1024() {
        assert_eq!(
            ["0", "7", "2KiB", "512MiB", "1GiB"].map(size),
            [Ok(0), Ok(7), Ok(2048), Ok(536_870_912), Ok(1_073_741_824)]
        );
        for wrong in ["", "GiB", "1GB", "1 GiB", "-1", "+1", "1.5GiB", "99999999999GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
