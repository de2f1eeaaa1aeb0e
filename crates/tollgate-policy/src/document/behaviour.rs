//! What a rule costs, when it charges, how far it is enforced, and what it does.
//!
//! Invariant: each of these has a shape of its own in the document, so a mistake in one is told in
//! its own words.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tollgate_core::Span;

use crate::document::conditions::{AtMost, MAX_VALUES};
use crate::document::identity::Repeated;
pub(crate) use crate::document::mode::{Mode, Share};
use crate::document::scalar::{Bounded, HeaderName, MarkHeader, Wait};
use crate::json::node::Node;
use crate::json::reader::{At, FromNode, quoted, record, schema};

/// The highest cost of one request, and the highest that `max` may name.
const MAX_COST: u64 = 1_000_000_000;

/// Why a cost or a token has fewer modes than a key.
pub(crate) const NO_JOIN: &str =
    "\"join\" makes a list, and one value is read here; use \"refuse\", \"first\" or \"last\"";

/// What one request costs, in quota units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// The same for every request.
    Fixed(u64),
    /// The whole number in a header.
    Header {
        /// Its name.
        name: HeaderName,
        /// When it is absent or no whole number.
        default: u64,
        /// At most this.
        max: u64,
        /// What several costs mean.
        repeated: Option<Repeated>,
    },
    /// One unit per this many bytes of body announced, rounded up, at least 1.
    ContentLengthPer(u64),
}

record! {
    /// The cost in a header.
    HeaderCostDoc {
        /// The header.
        header: HeaderName,
        /// The cost when the header is absent or no whole number; 1 by default.
        default: Option<Units>,
        /// The highest cost that is believed.
        max: Units,
        /// What several costs mean that differ; "join" is none of these.
        repeated: Option<Repeated>,
    }
}

record! {
    /// The cost by body size.
    LengthCostDoc {
        /// Bytes per unit.
        content_length_per: Units,
    }
}

/// A number of quota units, 1 to 1,000,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units(u64);

impl FromNode for Units {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(n) if (1..=MAX_COST).contains(n) => Some(Self(*n)),
            _ => at.wrong(node, &format!("a whole number from 1 to {MAX_COST}")),
        }
    }

    schema!({"type": "integer", "minimum": 1, "maximum": MAX_COST});
}

impl FromNode for Cost {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Integer(_) | Node::OtherNumber(_) => Units::read(node, at).map(|n| Self::Fixed(n.0)),
            Node::Object(fields) if fields.iter().any(|(name, _)| name == "content_length_per") => {
                LengthCostDoc::read(node, at).map(|doc| Self::ContentLengthPer(doc.content_length_per.0))
            }
            Node::Object(_) => {
                let doc = HeaderCostDoc::read(node, at)?;
                let default = doc.default.map_or(1, |n| n.0);
                if default > doc.max.0 {
                    at.field("default").problem(format!("{default} is more than max, {}", doc.max.0));
                }
                if doc.repeated == Some(Repeated::Join) {
                    at.field("repeated").problem(NO_JOIN.into());
                }
                let (max, repeated) = (doc.max.0, doc.repeated);
                Some(Self::Header { name: doc.header, default, max, repeated })
            }
            _ => at.wrong(
                node,
                "a cost; use a number, {\"header\": name, \"max\": n} or {\"content_length_per\": n}",
            ),
        }
    }

    schema!({"anyOf": [Units::schema(), HeaderCostDoc::schema(), LengthCostDoc::schema()]});
}

/// When a request is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Charging {
    /// When it is admitted.
    Request,
    /// By its response.
    Response(ResponseChargeDoc),
}

record! {
    /// Charging by response.
    #[derive(PartialEq, Eq)]
    ResponseChargeDoc {
        /// Statuses: "401", or "5xx" for a class.
        response_status: Statuses,
        /// A place is held from the request on, and given back when the response is not charged; false by default.
        reserve: Option<bool>,
        /// What a request without a response is; "charge" by default.
        on_abort: Option<OnAbort>,
    }
}

impl ResponseChargeDoc {
    /// True when a response with this status is charged; without one, its client left before.
    pub(crate) fn charges(&self, status: Option<u16>) -> bool {
        match status {
            Some(status) => self.response_status.0.iter().any(|pattern| pattern.matches(status)),
            None => self.on_abort != Some(OnAbort::Skip),
        }
    }

    /// True when places are held.
    pub(crate) const fn reserves(&self) -> bool {
        matches!(self.reserve, Some(true))
    }
}

/// What a request is charged that never had a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAbort {
    /// As for a status that is charged.
    Charge,
    /// Nothing.
    Skip,
}

impl FromNode for OnAbort {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "charge" => Some(Self::Charge),
            Node::Text(text) if text == "skip" => Some(Self::Skip),
            _ => at.wrong(node, "\"charge\" or \"skip\""),
        }
    }

    schema!({"enum": ["charge", "skip"]});
}

/// The statuses that are charged: at least one, and not to be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(pub(crate) Vec<StatusPattern>);

impl FromNode for Statuses {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let AtMost(statuses) = AtMost::<MAX_VALUES, StatusPattern>::read(node, at)?;
        if statuses.is_empty() {
            at.problem(
                "is empty, so nothing would be charged; give statuses such as \"401\" or \"5xx\""
                    .into(),
            );
            return None;
        }
        Some(Self(statuses))
    }

    schema!({"type": "array", "minItems": 1, "maxItems": MAX_VALUES, "items": StatusPattern::schema()});
}

impl FromNode for Charging {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text) if text == "request" => Some(Self::Request),
            Node::Object(_) => ResponseChargeDoc::read(node, at).map(Self::Response),
            _ => at.wrong(node, "\"request\" or {\"response_status\": [\"401\", \"5xx\"]}"),
        }
    }

    schema!({"anyOf": [{"const": "request"}, ResponseChargeDoc::schema()]});
}

/// A status or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusPattern {
    from: u16,
    to: u16,
}

impl StatusPattern {
    /// True when `status` is meant.
    pub(crate) const fn matches(self, status: u16) -> bool {
        self.from <= status && status <= self.to
    }
}

impl StatusPattern {
    /// The lowest and the highest status that is meant.
    #[cfg(feature = "explain")]
    pub(crate) const fn range(self) -> (u16, u16) {
        (self.from, self.to)
    }
}

impl FromNode for StatusPattern {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let parsed = match node {
            Node::Text(text) => match text.as_bytes() {
                [class @ b'1'..=b'5', b'x', b'x'] => {
                    let from = u16::from(class.saturating_sub(b'0')).saturating_mul(100);
                    Some(Self { from, to: from.saturating_add(99) })
                }
                [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9'] => {
                    text.parse().ok().map(|status| Self { from: status, to: status })
                }
                _ => None,
            },
            _ => None,
        };
        match parsed.filter(|p| (100..=599).contains(&p.from)) {
            Some(pattern) => Some(pattern),
            None => at.wrong(node, "a status; use \"401\" or a class such as \"5xx\""),
        }
    }

    schema!({"type": "string", "pattern": "^[1-5]([0-9][0-9]|xx)$"});
}

/// What happens to a request over the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is refused: with 429, or with a status and a body.
    Deny(Option<Reply>),
    /// It waits until it is admitted, at most this long; then it is refused with 429.
    Delay(Span),
    /// It passes with a header for the origin.
    Mark(Box<MarkDoc>),
    /// It is answered without being processed, and not told why.
    Respond(Reply),
}

record! {
    /// A fixed reply.
    #[derive(PartialEq, Eq)]
    Reply {
        /// The response's status.
        status: Bounded<200, 599>,
        /// The response's body, text/plain.
        body: Option<Text>,
    }
}

record! {
    /// How long a request may wait.
    #[derive(PartialEq, Eq)]
    DelayDoc {
        /// At most this long.
        max: Wait,
    }
}

record! {
    /// A header for the origin.
    #[derive(PartialEq, Eq)]
    MarkDoc {
        /// Its name: none that says what a request is or whom it is from.
        header: MarkHeader,
        /// Its value, visible characters and spaces.
        value: Text,
    }
}

record! {
    /// The actions that have parameters; exactly one is given.
    ActionDoc {
        /// Refuse with a status and a body of one's own.
        deny: Option<Reply>,
        /// Wait, at most so long.
        delay: Option<DelayDoc>,
        /// Pass on with a header.
        mark: Option<MarkDoc>,
        /// Answer without processing.
        respond: Option<Reply>,
    }
}

impl FromNode for Action {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        const WANTED: &str = "one action; use \"deny\", {\"deny\": {...}}, {\"delay\": {...}}, {\"mark\": {...}} or {\"respond\": {...}}";
        match node {
            Node::Text(text) if text == "deny" => Some(Self::Deny(None)),
            Node::Object(fields) => {
                let noted = at.noted();
                let doc = ActionDoc::read(node, at)?;
                if at.noted() > noted {
                    return None;
                }
                match doc {
                    _ if fields.len() != 1 => at.wrong(node, WANTED),
                    ActionDoc { deny: Some(reply), .. } => Some(Self::Deny(Some(reply))),
                    ActionDoc { delay: Some(delay), .. } => Some(Self::Delay(delay.max.0)),
                    ActionDoc { mark: Some(mark), .. } => Some(Self::Mark(Box::new(mark))),
                    ActionDoc { respond: Some(reply), .. } => Some(Self::Respond(reply)),
                    ActionDoc { .. } => at.wrong(node, WANTED),
                }
            }
            _ => at.wrong(node, WANTED),
        }
    }

    schema!({"anyOf": [{"const": "deny"}, ActionDoc::schema()]});
}

/// Text of visible ASCII characters and spaces, at most 1 KiB: fit for a header value and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl FromNode for Text {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        match node {
            Node::Text(text)
                if text.len() <= 1024 && text.bytes().all(|b| (0x20..=0x7e).contains(&b)) =>
            {
                Some(Self(text.clone()))
            }
            Node::Text(_) => {
                at.problem(format!("{} must be at most 1024 characters of %x20-7E", quoted(node)));
                None
            }
            _ => at.wrong(node, "a string"),
        }
    }

    schema!({"type": "string", "pattern": "^[ -~]{0,1024}$"});
}
