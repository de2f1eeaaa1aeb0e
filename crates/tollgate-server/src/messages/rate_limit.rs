//! `envoy.service.ratelimit.v3.RateLimitService`: the request and the response of
//! `ShouldRateLimit`.
//!
//! Invariant: descriptors, and the entries of each, are counted while they are read. A request
//! beyond a limit is rejected with the name of that limit. The length of a value is bounded only by
//! the message, because clients write values: an error opens Envoy's filter unless it is configured
//! otherwise, so a client must not be able to cause one. A descriptor's own `limit` is read, and
//! decides only where the policy takes limits from descriptors.

use std::fmt;
use std::time::Duration;

use super::header_value;
use super::status::Status;
use super::wire::{Fields, Malformed, Writer, each};

/// The path of the call.
pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The name of the service.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The most descriptors of a request.
pub const MAX_DESCRIPTORS: usize = 100;

/// The most entries of a descriptor.
pub const MAX_ENTRIES: usize = 32;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimitRequest<'a> {
    /// The domain of the descriptors, as Envoy's filter is configured.
    pub domain: &'a [u8],
    /// At least one, at most [`MAX_DESCRIPTORS`].
    pub descriptors: Vec<Descriptor<'a>>,
}

/// A descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// Name and value, at least one, at most [`MAX_ENTRIES`]; a name may occur several times.
    pub entries: Vec<(&'a [u8], &'a [u8])>,
    /// The number of hits: its own `hits_addend`, else the request's, else 1. 0 only looks.
    pub hits: u64,
    /// A limit in the descriptor.
    pub limit: Option<DescriptorLimit>,
}

/// A limit in a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// Requests per unit, 32 bits.
    pub requests_per_unit: u64,
    unit: u64,
}

impl DescriptorLimit {
    fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut limit = Self::default();
        for field in Fields::of(message) {
            match field? {
                // The field is 32 bits wide; every reader truncates it.
                (1, value) => limit.requests_per_unit = value.number()? & u64::from(u32::MAX),
                (2, value) => limit.unit = value.number()?,
                _ => {}
            }
        }
        Ok(limit)
    }
}

impl DescriptorLimit {
    /// The length of its unit; `None` for months, years and unknown units, which have no fixed one.
    #[must_use]
    pub const fn window(&self) -> Option<Duration> {
        let secs = match self.unit {
            1 => 1,
            2 => 60,
            3 => 3_600,
            4 => 86_400,
            _ => return None,
        };
        Some(Duration::from_secs(secs))
    }
}

impl fmt::Display for DescriptorLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            1 => "second",
            2 => "minute",
            3 => "hour",
            4 => "day",
            5 => "month",
            6 => "year",
            _ => "unknown unit",
        };
        write!(f, "{} per {unit}", self.requests_per_unit)
    }
}

impl<'a> RateLimitRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// The request is invalid; the status gives the reason.
    pub fn read(message: &'a [u8]) -> Result<Self, Status> {
        let (mut domain, mut addend, mut descriptors) = (&[][..], 0, Vec::new());
        for field in Fields::of(message) {
            match field? {
                (1, value) => domain = value.bytes()?,
                (2, value) => {
                    if descriptors.len() == MAX_DESCRIPTORS {
                        let message = format!("descriptors: use at most {MAX_DESCRIPTORS}");
                        return Err(Status::invalid(message));
                    }
                    descriptors.push(descriptor(value.bytes()?, descriptors.len())?);
                }
                // The field is 32 bits wide; every reader truncates it.
                (3, value) => addend = value.number()? & u64::from(u32::MAX),
                _ => {}
            }
        }
        if descriptors.is_empty() {
            return Err(Status::invalid("descriptors: is empty; send at least one"));
        }
        let descriptors = descriptors.into_iter().map(|(descriptor, own)| {
            let hits = own.unwrap_or(addend.max(1));
            Descriptor { hits, ..descriptor }
        });
        Ok(Self { domain, descriptors: descriptors.collect() })
    }
}

/// A descriptor, with its hits not set, and its own hits.
fn descriptor(message: &[u8], index: usize) -> Result<(Descriptor<'_>, Option<u64>), Status> {
    let (mut entries, mut own, mut limit) = (Vec::new(), None, None);
    for field in Fields::of(message) {
        match field? {
            (1, value) => {
                if entries.len() == MAX_ENTRIES {
                    let message =
                        format!("descriptors[{index}].entries: use at most {MAX_ENTRIES}");
                    return Err(Status::invalid(message));
                }
                entries.push(entry(value.bytes()?)?);
            }
            (2, value) => limit = Some(DescriptorLimit::read(value.bytes()?)?),
            (3, value) => {
                // A wrapped number: a message without a field means 0.
                let mut number = own.unwrap_or(0);
                each::<Malformed>(value.bytes()?, 1, |it| it.number().map(|it| number = it))?;
                own = Some(number);
            }
            (4, value) if value.number()? != 0 => {
                let message =
                    format!("descriptors[{index}].is_negative_hits: nothing is given back here");
                return Err(Status::invalid(message));
            }
            _ => {}
        }
    }
    if entries.is_empty() {
        let message = format!("descriptors[{index}].entries: is empty; send at least one");
        return Err(Status::invalid(message));
    }
    Ok((Descriptor { entries, hits: 1, limit }, own))
}

fn entry(message: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut key, mut value) = (&[][..], &[][..]);
    for field in Fields::of(message) {
        match field? {
            (1, it) => key = it.bytes()?,
            (2, it) => value = it.bytes()?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// The result for one descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorStatus<'a> {
    /// It is over its limit.
    pub is_over: bool,
    /// The quota nearest to exhaustion, if one was decided and is shown.
    pub nearest: Option<Nearest<'a>>,
}

/// A quota, for `current_limit` and the fields next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nearest<'a> {
    /// Its name.
    pub name: &'a str,
    /// Units in its window.
    pub limit: u64,
    /// Its window.
    pub window: Duration,
    /// Units that are available now.
    pub remaining: u64,
    /// The effective window, in seconds: the time until it returns units.
    pub reset_seconds: u64,
}

/// A response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitResponse<'a> {
    /// One for each descriptor, in their order.
    pub statuses: Vec<DescriptorStatus<'a>>,
    /// Fields of the response, name and value.
    pub response_fields: Vec<(&'a str, &'a str)>,
    /// Fields of the request as it is forwarded.
    pub request_fields: Vec<(&'a str, &'a str)>,
    /// The body of a denial.
    pub body: &'a str,
}

impl RateLimitResponse<'_> {
    /// True when any descriptor is over its limit.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.statuses.iter().any(|status| status.is_over)
    }

    /// Encodes the response as a message.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(1, code(self.is_over()));
        for status in &self.statuses {
            out.message(2, |out| status.write(out));
        }
        for (name, value) in &self.response_fields {
            header_value::write(&mut out, 3, name, value);
        }
        for (name, value) in &self.request_fields {
            header_value::write(&mut out, 4, name, value);
        }
        if !self.body.is_empty() {
            out.bytes(5, self.body.as_bytes());
        }
        out.finish()
    }
}

impl DescriptorStatus<'_> {
    fn write(&self, out: &mut Writer) {
        let of_32_bits = |number: u64| number.min(u64::from(u32::MAX));
        out.number(1, code(self.is_over));
        let Some(nearest) = &self.nearest else { return };
        out.message(2, |limit| {
            limit.number(1, of_32_bits(nearest.limit));
            limit.number(2, unit(nearest.window));
            limit.bytes(3, nearest.name.as_bytes());
        });
        out.number(3, of_32_bits(nearest.remaining));
        if nearest.reset_seconds > 0 {
            out.message(4, |reset| reset.number(1, nearest.reset_seconds));
        }
    }
}

/// `OK` or `OVER_LIMIT`.
const fn code(is_over: bool) -> u64 {
    if is_over { 2 } else { 1 }
}

/// The unit of a window that is exactly one unit long; else "unknown", which is better than a wrong
/// unit. Months and years have no fixed length.
const fn unit(window: Duration) -> u64 {
    match (window.as_secs(), window.subsec_nanos()) {
        (1, 0) => 1,
        (60, 0) => 2,
        (3600, 0) => 3,
        (86_400, 0) => 4,
        _ => 0,
    }
}
