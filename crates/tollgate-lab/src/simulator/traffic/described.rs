//! A parsed traffic document, valid as a whole and not only in each of its values.
//!
//! Invariant: a `Traffic` exists only for a valid document.

use std::fmt;

use serde::Deserialize as _;
use tollgate_core::{Span, Timestamp};

use super::document::{Actual, Document, Servers, Source, StoreKind};

/// The longest document, in bytes: 1 MiB.
const MAX_DOCUMENT: usize = 1 << 20;
/// The most sources.
const MAX_SOURCES: usize = 64;
/// The most clients that have arrivals of their own, in all sources.
const MAX_LANES: u64 = 100_000;
/// The most clients that hold requests back, in all sources.
const MAX_PACED: u64 = 1_000_000;
/// The longest path and message of a mistake, in characters: both repeat text of the document.
const MAX_SHOWN: usize = 400;

/// The start of the traffic: 2000-01-01T00:00:00Z, the edge of every window that divides a day.
pub const START: Timestamp = Timestamp::from_millis(946_684_800_000);

/// The requests that a document describes.
#[derive(Clone, Debug)]
pub struct Traffic {
    document: Document,
}

/// A mistake in a traffic document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficError {
    /// Its place, such as `sources[0].arrivals.steady.rate`; empty for the document itself.
    pub path: String,
    /// The text in the document, and the allowed values.
    pub message: String,
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

impl std::error::Error for TrafficError {}

impl TrafficError {
    fn new(path: impl AsRef<str>, message: impl AsRef<str>) -> Self {
        Self { path: escaped(path.as_ref()), message: escaped(message.as_ref()) }
    }
}

/// `text` on one line of bounded length; characters that a terminal cannot show are escaped.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == MAX_SHOWN {
            out.push_str("...");
            break;
        }
        match c {
            '"' | '\'' | '\\' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    out
}

/// The message of the JSON reader. It is replaced where it is about code: a choice (`arrivals`,
/// `wait`, a fault of a clock) made twice, or named without its fields.
fn in_words(json: &str, error: &serde_json::Error) -> String {
    let message = error.to_string();
    let is_json = || serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok();
    match message.strip_prefix("expected value") {
        Some(place) if is_json() => format!("contains more than one kind; use one of them{place}"),
        _ => message
            .replace(
                "unit variant, expected struct variant",
                "a kind alone, expected an object of it",
            )
            .replace(
                "invalid type: map, expected a sequence",
                "invalid type: object, expected a list",
            ),
    }
}

impl Traffic {
    /// Reads a traffic document.
    ///
    /// # Errors
    /// The first mistake, with its place, the text there and the allowed values.
    pub fn parse(json: &str) -> Result<Self, TrafficError> {
        if json.len() > MAX_DOCUMENT {
            return Err(TrafficError::new("", "the traffic is longer than 1 MiB"));
        }
        let mut reader = serde_json::Deserializer::from_str(json);
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
        let document = Document::deserialize(tracked).map_err(|error| {
            let path = track.path().to_string();
            let path = if matches!(path.as_str(), "." | "?") { "" } else { &path };
            TrafficError::new(path, in_words(json, &error))
        })?;
        reader.end().map_err(|error| TrafficError::new("", error.to_string()))?;
        let traffic = Self { document };
        traffic.check()?;
        Ok(traffic)
    }

    /// The document as JSON, with every default filled in.
    #[must_use]
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(&self.document);
        debug_assert!(json.is_ok(), "a traffic document has no map with other keys than texts");
        json.unwrap_or_default()
    }

    /// How long requests arrive.
    #[must_use]
    pub const fn length(&self) -> Span {
        self.document.length.0
    }

    /// The sources' names, in their order; `source 1` where the document has none.
    pub fn sources(&self) -> impl Iterator<Item = String> {
        self.document.sources.iter().enumerate().map(|(i, source)| match source.name.0.as_str() {
            "" => format!("source {}", i.saturating_add(1)),
            name => name.to_string(),
        })
    }

    pub(super) fn source(&self, index: usize) -> Option<&Source> {
        self.document.sources.get(index)
    }

    pub(super) fn all_sources(&self) -> &[Source] {
        &self.document.sources
    }

    /// The number of nodes, each with a store of its own.
    #[must_use]
    pub const fn nodes(&self) -> u64 {
        self.document.servers.count.0
    }

    /// True when its nodes keep counts in Envoy's table.
    #[must_use]
    pub const fn keeps_counts_as_envoy(&self) -> bool {
        matches!(self.servers().store, StoreKind::Envoy)
    }

    pub(crate) const fn servers(&self) -> &Servers {
        &self.document.servers
    }

    /// Finds mistakes that involve several values, each of them valid.
    fn check(&self) -> Result<(), TrafficError> {
        let Document { length, sources, .. } = &self.document;
        if length.0 == Span::ZERO {
            return Err(TrafficError::new("length", "must be more than 0s"));
        }
        if sources.is_empty() || sources.len() > MAX_SOURCES {
            return Err(TrafficError::new("sources", format!("use 1 to {MAX_SOURCES} sources")));
        }
        let (mut lanes, mut paced) = (0_u64, 0_u64);
        for (i, source) in sources.iter().enumerate() {
            let end = source.to.unwrap_or(*length).0;
            if end <= source.from.0 {
                let message = "has no duration; `from` must be before `to` and `length`";
                return Err(TrafficError::new(format!("sources[{i}]"), message));
            }
            paced = paced.saturating_add(if source.paced { source.clients.count.0 } else { 0 });
            lanes = lanes.saturating_add(if source.each { source.clients.count.0 } else { 1 });
            for (name, drawn) in [("actual", source.actual), ("duration", source.duration)] {
                if let Some(Actual::Uniform { from, to }) = drawn
                    && from.0 > to.0
                {
                    let message = "has no numbers; `from` must not be above `to`";
                    let place = format!("sources[{i}].{name}.uniform");
                    return Err(TrafficError::new(place, message));
                }
            }
            if source.clients.fresh && (source.each || source.paced) {
                let message =
                    "clients that send one request each can be neither `each` nor `paced`";
                return Err(TrafficError::new(format!("sources[{i}].clients.fresh"), message));
            }
        }
        if paced > MAX_PACED {
            let message = format!("at most {MAX_PACED} clients can be paced");
            return Err(TrafficError::new("sources", message));
        }
        if lanes > MAX_LANES {
            let message = format!("at most {MAX_LANES} clients can have separate arrivals");
            return Err(TrafficError::new("sources", message));
        }
        Ok(())
    }
}
