//! Spans as the message of OTLP (opentelemetry-proto 1.x, `ExportTraceServiceRequest`).
//!
//! Invariant: the output is a whole message, whatever the spans are; field numbers are written here
//! with their names.

use crate::messages::wire::Writer;

use super::options::Options;
use super::parent::Parent;

/// The role of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A part of this server's work.
    #[default]
    Internal,
    /// A received request.
    Server,
    /// A request to another server.
    Client,
}

/// An attribute of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(super) name: &'static str,
    pub(super) value: Value,
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

/// A span that has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(super) at: Parent,
    pub(super) above: Option<[u8; 8]>,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) attributes: Vec<Attribute>,
    pub(super) links: Vec<Parent>,
    pub(super) is_failed: bool,
}

/// The message about these spans.
pub(super) fn message(options: &Options, records: &[Record]) -> Vec<u8> {
    let mut out = Writer::default();
    // ExportTraceServiceRequest.resource_spans
    out.message(1, |of_resource| {
        // ResourceSpans.resource
        of_resource.message(1, |resource| {
            let service = ("service.name", options.service.as_str());
            let others = options.attributes.iter().map(|(name, value)| (&**name, &**value));
            for (name, value) in [service].into_iter().chain(others) {
                text(resource, 1, name, value);
            }
        });
        // ResourceSpans.scope_spans
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, b"tollgate-server");
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for record in records {
                of_scope.message(2, |out| span(out, record));
            }
        });
    });
    out.finish()
}

/// A `Span`.
fn span(out: &mut Writer, record: &Record) {
    out.bytes(1, &record.at.trace);
    out.bytes(2, &record.at.span);
    if let Some(above) = &record.above {
        out.bytes(4, above);
    }
    out.bytes(5, record.name.as_bytes());
    out.number(
        6,
        match record.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
            Kind::Client => 3,
        },
    );
    out.fixed64(7, record.began_ns);
    // It never ends before it begins.
    out.fixed64(8, record.ended_ns.max(record.began_ns));
    for attribute in &record.attributes {
        out.message(9, |pair| {
            pair.bytes(1, attribute.name.as_bytes());
            pair.message(2, |out| value(out, &attribute.value));
        });
    }
    for link in &record.links {
        out.message(13, |out| {
            out.bytes(1, &link.trace);
            out.bytes(2, &link.span);
        });
    }
    if record.is_failed {
        // Status.code, STATUS_CODE_ERROR.
        out.message(15, |status| status.number(3, 2));
    }
}

/// An `AnyValue`.
fn value(out: &mut Writer, value: &Value) {
    match value {
        Value::Text(text) => out.bytes(1, text.as_bytes()),
        // A member of a `oneof`: also 0 and false are written.
        Value::Flag(flag) => out.any_number(2, u64::from(*flag)),
        Value::Number(number) => {
            out.any_number(3, (*number).min(u64::try_from(i64::MAX).unwrap_or(0)));
        }
        Value::Texts(texts) => out.message(5, |list| {
            for text in texts {
                list.message(1, |out| out.bytes(1, text.as_bytes()));
            }
        }),
    }
}

/// A `KeyValue` of a text.
fn text(out: &mut Writer, field: u32, name: &str, value: &str) {
    out.message(field, |pair| {
        pair.bytes(1, name.as_bytes());
        pair.message(2, |any| any.bytes(1, value.as_bytes()));
    });
}
