//! A cost that the response shows: the request is charged an estimate, which is settled when the
//! response comes.
//!
//! Invariant: a response that does not show its cost leaves the estimate. What an origin sends is
//! at most the maximum of the document.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use crate::spec::cost::MAX_COST;
use crate::spec::json_cost::JsonCost;
use crate::spec::metadata::MetadataPath;
use crate::spec::scalar::{HeaderName, Name};
use crate::spec::status::{Ending, StatusPattern};

/// The facts of a response that a settled cost reads.
pub trait ResponseFacts {
    /// The value of the header `name` (lower case); several lines are joined by commas in their
    /// order, with or without blanks; `None` when there is none.
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// The value of the metadata at this path, which a filter of the proxy has set by the end of
    /// the response: text unchanged, a number in decimal; `None` when there is none.
    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        let _ = path;
        None
    }

    /// Bytes of the body that were sent to the client by the end of the response.
    fn body_bytes(&self) -> Option<u64> {
        None
    }

    /// Milliseconds from the request to the end of the response, rounded up.
    fn duration_ms(&self) -> Option<u64> {
        None
    }

    /// The units of a cost in the body, as [`BodyScan`](crate::BodyScan) finds them; `None` while
    /// they are not known.
    fn json(&self, cost: &JsonCost) -> Option<ActualUnits> {
        let _ = cost;
        None
    }

    /// True at the head of a response whose trailers are shown later: a header that it does not
    /// have may be among them.
    fn may_have_trailers(&self) -> bool {
        false
    }

    /// False at the head of a response: costs that only its end shows are settled by another call
    /// then.
    fn has_ended(&self) -> bool;
}

/// A response without headers that has ended: only its status is known.
impl ResponseFacts for () {
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn has_ended(&self) -> bool {
        true
    }
}

/// How the cost of a request is settled by its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledCost {
    /// The highest cost: a response that shows more costs this.
    pub max: u64,
    /// The name of a unit, for clients (`qu`).
    pub unit: Option<Name>,
    /// Where the response shows its cost.
    pub actual: ActualCost,
    /// Statuses that decide the cost, whatever the response shows. A status goes before its class.
    pub on_status: Vec<StatusCost>,
}

/// Where a response shows its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActualCost {
    /// In this header, as a whole number.
    Header(HeaderName),
    /// In the proxy's metadata at the end of the response.
    Metadata(MetadataPath),
    /// One unit per this many bytes of its body, rounded up.
    BytesPer(u64),
    /// Its length in milliseconds, from the request to its end.
    Duration,
    /// In its body, as numbers in JSON.
    Json(JsonCost),
}

impl ActualCost {
    /// True for one that a document may have.
    pub(crate) fn is_one(&self) -> bool {
        match self {
            Self::Header(_) | Self::Metadata(_) | Self::Duration => true,
            Self::BytesPer(bytes) => (1..=MAX_COST).contains(bytes),
            Self::Json(cost) => cost.is_one(),
        }
    }

    /// True when it is known with the headers of the response; else at its end.
    #[must_use]
    pub const fn is_in_head(&self) -> bool {
        matches!(self, Self::Header(_))
    }

    /// How it is in the body, if it is.
    #[must_use]
    pub const fn json(&self) -> Option<&JsonCost> {
        match self {
            Self::Json(cost) => Some(cost),
            Self::Header(_) | Self::Metadata(_) | Self::BytesPer(_) | Self::Duration => None,
        }
    }
}

/// The units that a response turned out to cost, or the reason why they are unknown: then the
/// estimate stays charged.
pub type ActualUnits = Result<u64, UnknownCost>;

/// The cost of responses with some statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusCost {
    /// The statuses.
    pub statuses: StatusPattern,
    /// Their cost, in quota units.
    pub cost: u64,
}

/// Why the cost of a response is unknown, so that the estimate stays charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCost {
    /// There was no response: the client disconnected before it.
    NoResponse,
    /// The response does not have the header, or what else shows the cost.
    Absent,
    /// The value is not a whole number.
    Unreadable,
    /// The response shows two different costs.
    Conflicting,
    /// The body has a content coding, so it was not read.
    Compressed,
    /// The body is of a type that is not read.
    ContentType,
    /// The body ended before its JSON did.
    Incomplete,
}

impl UnknownCost {
    /// All of them, in the order of [`UnknownCost::index`].
    pub const ALL: [Self; 7] = [
        Self::NoResponse,
        Self::Absent,
        Self::Unreadable,
        Self::Conflicting,
        Self::Compressed,
        Self::ContentType,
        Self::Incomplete,
    ];

    /// The word for it in metrics and logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoResponse => "no_response",
            Self::Absent => "absent",
            Self::Unreadable => "unreadable",
            Self::Conflicting => "conflicting",
            Self::Compressed => "compressed",
            Self::ContentType => "content_type",
            Self::Incomplete => "incomplete",
        }
    }

    /// Its place in [`UnknownCost::ALL`].
    #[must_use]
    #[expect(clippy::as_conversions, reason = "an enumeration without fields, from 0")]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl SettledCost {
    /// True for values that a document may have, with an estimate of at most `estimate`.
    pub(crate) fn is_one(&self, estimate: u64) -> bool {
        let is_known = |cost: &StatusCost| cost.statuses.is_one() && cost.cost <= self.max;
        let is_unique = |(i, cost): (usize, &StatusCost)| {
            self.on_status.iter().take(i).all(|other| other.statuses != cost.statuses)
        };
        (estimate..=MAX_COST).contains(&self.max)
            && self.actual.is_one()
            && self.unit.as_ref().is_none_or(|unit| Name::is_one(&unit.0))
            && self.on_status.iter().all(is_known)
            && self.on_status.iter().enumerate().all(is_unique)
    }

    /// The units that an allowed request used which ended like this, 0 to the maximum; `None` while
    /// only the end of the response shows them.
    pub fn used(&self, ending: Ending, response: &dyn ResponseFacts) -> Option<ActualUnits> {
        let status = match ending {
            Ending::Response(status) => status,
            Ending::Disconnect => return Some(Err(UnknownCost::NoResponse)),
            Ending::NotSent => return Some(Ok(0)),
        };
        let matching = self.on_status.iter().filter(|cost| cost.statuses.matches(status));
        if let Some(cost) = matching.min_by_key(|cost| cost.statuses.from != cost.statuses.to) {
            return Some(Ok(cost.cost));
        }
        let is_shown = response.has_ended()
            || match &self.actual {
                ActualCost::Header(name) => {
                    !response.may_have_trailers() || response.header(&name.0).is_some()
                }
                ActualCost::Json(cost) => response.json(cost).is_some(),
                ActualCost::Metadata(_) | ActualCost::BytesPer(_) | ActualCost::Duration => false,
            };
        is_shown.then(|| self.shown(response))
    }

    /// The units that a response shows.
    fn shown(&self, response: &dyn ResponseFacts) -> ActualUnits {
        let text = |text: Option<Cow<'_, [u8]>>| self.read(&text.ok_or(UnknownCost::Absent)?);
        let number = |number: Option<u64>, per: u64| {
            let units = number.ok_or(UnknownCost::Absent)?.div_ceil(per.max(1));
            Ok(units.min(self.max))
        };
        match &self.actual {
            ActualCost::Header(name) => text(response.header(&name.0)),
            ActualCost::Metadata(path) => text(response.metadata(&path.0)),
            ActualCost::BytesPer(bytes) => number(response.body_bytes(), *bytes),
            ActualCost::Duration => number(response.duration_ms(), 1),
            ActualCost::Json(cost) => {
                let units = response.json(cost).unwrap_or(Err(UnknownCost::Absent));
                units.map(|units| units.min(self.max))
            }
        }
    }

    /// The cost in a header's value; several lines or members must say the same.
    fn read(&self, value: &[u8]) -> Result<u64, UnknownCost> {
        let mut costs = value.split(|byte| *byte == b',').map(|member| self.units(member));
        let first = costs.next().unwrap_or(Err(UnknownCost::Absent))?;
        for other in costs {
            if other? != first {
                return Err(UnknownCost::Conflicting);
            }
        }
        Ok(first)
    }

    /// The cost in `member`, digits with blanks around them; 16 digits or more are the maximum.
    fn units(&self, member: &[u8]) -> Result<u64, UnknownCost> {
        let digits = member.trim_ascii();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(UnknownCost::Unreadable);
        }
        if digits.len() > MAX_DIGITS {
            return Ok(self.max);
        }
        let units = digits.iter().fold(0_u64, |units, digit| {
            units.saturating_mul(10).saturating_add(u64::from(digit.saturating_sub(b'0')))
        });
        Ok(units.min(self.max))
    }
}

/// The most digits that are read as a number; more are more than any maximum.
const MAX_DIGITS: usize = 15;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    struct Response(Option<&'static [u8]>);

    impl ResponseFacts for Response {
        fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
            assert_eq!(name, "x-tokens");
            self.0.map(Cow::Borrowed)
        }

        fn has_ended(&self) -> bool {
            true
        }
    }

    fn status_cost(from: u16, to: u16, cost: u64) -> StatusCost {
        StatusCost { statuses: StatusPattern { from, to }, cost }
    }

    fn cost() -> SettledCost {
        SettledCost {
            max: 900,
            unit: None,
            actual: ActualCost::Header(HeaderName("x-tokens".to_string())),
            on_status: vec![
                status_cost(400, 499, 1),
                status_cost(404, 404, 7),
                status_cost(500, 599, 0),
            ],
        }
    }

    #[test]
    fn only_digits_are_a_cost() {
        let read = |value| cost().used(Ending::Response(200), &Response(value)).unwrap();
        let (unreadable, conflicting) =
            (Err(UnknownCost::Unreadable), Err(UnknownCost::Conflicting));
        for (value, used) in [
            (&b"0"[..], Ok(0)),
            (b"350", Ok(350)),
            (b" 350\t", Ok(350)),
            (b"000000000000012", Ok(12)),
            (b"0000000000000012", Ok(900)),
            (b"900", Ok(900)),
            (b"901", Ok(900)),
            (b"999999999999999", Ok(900)),
            (b"1000000000000000000000000000000", Ok(900)),
            (b"350, 350", Ok(350)),
            (b"350,350 ,350", Ok(350)),
            (b"901,902", Ok(900)),
            (b"350, 351", conflicting),
            (b"350,", unreadable),
            (b",350", unreadable),
            (b"", unreadable),
            (b"  ", unreadable),
            (b"-1", unreadable),
            (b"+1", unreadable),
            (b"1.0", unreadable),
            (b"1e3", unreadable),
            (b"0x10", unreadable),
            (b"1 000", unreadable),
            (b"\"350\"", unreadable),
            (b"\xd9\xa3", unreadable),
            (b"many", unreadable),
        ] {
            assert_eq!(read(Some(value)), used, "{}", value.escape_ascii());
        }
        assert_eq!(read(None), Err(UnknownCost::Absent));
    }

    #[test]
    fn a_status_goes_before_its_class_and_both_before_the_header() {
        let response = Response(Some(b"350"));
        for (status, used) in [(200, 350), (302, 350), (400, 1), (404, 7), (500, 0), (503, 0)] {
            assert_eq!(
                cost().used(Ending::Response(status), &response),
                Some(Ok(used)),
                "{status}"
            );
        }
        assert_eq!(cost().used(Ending::Disconnect, &response), Some(Err(UnknownCost::NoResponse)));
        assert_eq!(cost().used(Ending::NotSent, &response), Some(Ok(0)));
        assert_eq!(cost().used(Ending::Response(200), &()), Some(Err(UnknownCost::Absent)));
    }

    #[test]
    fn a_maximum_is_no_less_than_the_estimate_and_statuses_are_unique() {
        assert!(cost().is_one(1) && cost().is_one(900));
        assert!(!cost().is_one(901), "the estimate is more");
        let with = |change: fn(&mut SettledCost)| {
            let mut cost = cost();
            change(&mut cost);
            cost.is_one(1)
        };
        assert!(with(|cost| cost.on_status.clear()));
        assert!(!with(|cost| cost.max = MAX_COST + 1));
        assert!(!with(|cost| cost.on_status.push(status_cost(404, 404, 1))));
        assert!(!with(|cost| cost.on_status.push(status_cost(200, 200, 901))));
        assert!(!with(|cost| cost.on_status.push(status_cost(200, 250, 1))));
        assert!(!with(|cost| cost.unit = Some(Name("\n".to_string()))));
    }

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        for (i, reason) in UnknownCost::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), i);
            assert_eq!(
                UnknownCost::ALL.iter().filter(|it| it.label() == reason.label()).count(),
                1
            );
        }
    }
}
