//! The encoding of the values in a document: conditions, keys, costs, actions.
//!
//! Invariant: a value that is read is one that a document could contain, so the code that uses it
//! need not check again. Names and texts are valid in a header, lists of alternatives are not
//! empty, and conditions are unique and in the order in which they are evaluated.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tollgate_core::{Limiter, Span};

use crate::facts::{CertificateField, CloudflareField};
use crate::spec::action::{Action, Delay, MAX_PRIORITIES, Mark, Reply, Text};
use crate::spec::charging::{Charging, OnAbort, ResponseCharge, Statuses};
use crate::spec::client_ip::Source;
use crate::spec::coded::{Coded, Reader, fields, shape, variants, wrapped};
use crate::spec::conditions::{Condition, Conditions};
use crate::spec::cost::Cost;
use crate::spec::descriptor::{Entries, EntryMatcher, Form, Like, MAX_ENTRIES, WantedEntry};
use crate::spec::json_cost::{JsonCost, WeightedNumber};
use crate::spec::mark_header::MarkHeader;
use crate::spec::metadata::MetadataPath;
use crate::spec::mode::{Mode, Share};
use crate::spec::on_failure::OnFailure;
use crate::spec::on_missing::OnMissing;
use crate::spec::problem::Problem;
use crate::spec::regex::Regex;
use crate::spec::response::{BodyFormat, HeaderGeneration};
use crate::spec::scalar::{Bounded, HeaderName, MAX_WAIT, Method, Name};
use crate::spec::scope::{MAX_NODES, Scope};
use crate::spec::settled_cost::{ActualCost, SettledCost, StatusCost};
use crate::spec::status::StatusPattern;
use crate::spec::wanted::{Asn, Country, Host, Matcher};
use tollgate_http_syntax::address::Cidr;
use tollgate_http_syntax::alternatives::{Alternative, Alternatives};
use tollgate_http_syntax::path::{Pattern, Segment};
use tollgate_http_syntax::readings::EscapedSlashes;
use tollgate_http_syntax::repeated::Repeated;
use tollgate_storage::{read_limiter, write_limiter};

wrapped! {
    HeaderName(String) if |text| Self::is_one(text),
    MarkHeader(String) if |text| Self::is_one(text),
    Method(String) if |text| Self::is_one(text),
    Text(String) if |text| Self::is_one(text),
    Name(String) if |text| Self::is_one(text),
    MetadataPath(Vec<String>) if |names| Self::is_one(names),
    Country(Vec<u8>) if |text| Self::is_one(text),
    Asn(Vec<u8>) if |digits| Self::is_one(digits),
    Like(Vec<Vec<u8>>) if |parts| parts.len() > 1,
    Entries(Vec<WantedEntry>) if |list| list.len() <= MAX_ENTRIES,
    Statuses(Vec<StatusPattern>) if |list| !list.is_empty(),
    Conditions(Vec<Condition>) if |all| all.is_sorted_by(Condition::may_precede),
}

impl<const MIN: u32, const MAX: u32> Coded for Bounded<MIN, MAX> {
    const SHAPE: u64 = u32::SHAPE;

    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Self {
        let number = u32::read(from);
        from.require((MIN..=MAX).contains(&number));
        Self(number)
    }
}

variants!(OnFailure { 0 => Allow, 1 => Deny, });
variants!(OnMissing { 0 => Skip, 1 => Deny, 2 => Shared, });
variants!(OnAbort { 0 => Charge, 1 => Skip, });
variants!(Repeated { 0 => Refuse, 1 => First, 2 => Last, 3 => Join, });
variants!(EscapedSlashes { 0 => Separator, 1 => Literal, });
variants!(BodyFormat { 0 => ProblemJson, 1 => Text, 2 => Empty, });
variants!(HeaderGeneration {
    0 => Draft11, 1 => Draft7, 2 => Draft6, 3 => XRateLimit, 4 => Off,
});

variants!(Source {
    0 => Connection,
    1 => XForwardedFor,
    2 => Forwarded,
    3 => CfConnectingIp,
    4 => Header(name: HeaderName),
});

variants!(Condition {
    0 => Methods(list: Vec<Method>),
    1 => Hosts(list: Vec<Host>),
    2 => Paths(list: Vec<Pattern>),
    3 => Header(name: HeaderName, wanted: Alternatives<Matcher>),
    4 => Query(name: String, wanted: Alternatives<Matcher>),
    5 => ClientCidrs(list: Alternatives<Cidr>),
    6 => Routes(list: Vec<String>),
    7 => Countries(list: Vec<Country>),
    8 => Asns(list: Vec<Asn>),
    9 => Domain(list: Vec<String>),
    10 => Descriptor(key: String, wanted: Vec<EntryMatcher>),
    11 => Entries(list: Vec<Entries>),
    12 => Beside(list: Vec<Entries>),
} if |condition| condition.alternatives() > 0);

variants!(Host { 0 => Exact(name: Vec<u8>), 1 => Suffix(name: Vec<u8>), } if |host| host.is_normal());
variants!(Segment { 0 => Literal(bytes: Vec<u8>), 1 => Any, 2 => Capture(name: String), });
fields!(Pattern { segments: Vec<Segment>, rest: bool, } if |pattern| pattern.is_normal());

fields!(EntryMatcher { form: Form, not: Vec<Form> });
variants!(Form { 0 => Plain(matcher: Matcher), 1 => Like(like: Like), });
fields!(WantedEntry { key: String, wanted: Vec<EntryMatcher> } if |it| !it.wanted.is_empty());

variants!(Scope { 0 => Local, 1 => Fleet, 2 => Share(nodes: u32), } if |scope| match scope {
    Self::Local | Self::Fleet => true,
    Self::Share(nodes) => (1..=MAX_NODES).contains(nodes),
});

variants!(CertificateField { 0 => UriSan, 1 => DnsSan, 2 => Subject, 3 => Sha256, });

variants!(CloudflareField { 0 => Colo, 1 => Ja3, 2 => Ja4, 3 => TlsVersion, });

variants!(Cost {
    0 => Fixed(cost: u64),
    1 => Header { name: HeaderName, default: u64, max: u64, repeated: Option<Repeated> },
    2 => ContentLengthPer(bytes: u64),
    3 => Reported,
} if |cost| cost.is_one());

variants!(Charging {
    0 => Request,
    1 => Response(by: ResponseCharge),
    2 => Settled(by: SettledCost),
    3 => InFlight,
});
fields!(SettledCost {
    max: u64,
    unit: Option<Name>,
    actual: ActualCost,
    on_status: Vec<StatusCost>,
} if |it| it.is_one(1));
variants!(ActualCost {
    0 => Header(name: HeaderName),
    1 => Metadata(path: MetadataPath),
    2 => BytesPer(bytes: u64),
    3 => Duration,
    4 => Json(cost: JsonCost),
});
fields!(JsonCost { numbers: Vec<WeightedNumber>, identity: bool });
fields!(WeightedNumber { pointer: String, weight: u64 });
fields!(StatusCost { statuses: StatusPattern, cost: u64 });
fields!(ResponseCharge {
    response_status: Statuses,
    reserve: Option<bool>,
    on_abort: Option<OnAbort>,
});
fields!(StatusPattern { from: u16, to: u16, } if |pattern| pattern.is_one());

variants!(Mode { 0 => Enforce, 1 => Shadow, 2 => EnforcePercent(share: Share), });
fields!(Share { percent: u32, hash_key: Option<[u8; 16]>, } if |share| share.percent <= 100);

variants!(Action {
    0 => Deny(reply: Option<Reply>),
    1 => Delay(delay: Delay),
    2 => Mark(mark: Box<Mark>),
    3 => Respond(reply: Reply),
});
fields!(Delay { max: Span, priority: Vec<Conditions>, } if |it| {
    it.max <= MAX_WAIT
        && it.priority.len() <= MAX_PRIORITIES
        && it.priority.iter().all(|conditions| !conditions.0.is_empty())
});
fields!(Reply { status: Bounded<200, 599>, body: Option<Text>, });
fields!(Mark { header: MarkHeader, value: Text });

fields!(Problem { path: String, place: String, message: String });

impl Condition {
    /// Its place in the order in which conditions are evaluated.
    const fn order(&self) -> u8 {
        match self {
            Self::Methods(_) => 0,
            Self::Hosts(_) => 1,
            Self::Paths(_) => 2,
            Self::Header(..) => 3,
            Self::Query(..) => 4,
            Self::ClientCidrs(_) => 5,
            Self::Routes(_) => 6,
            Self::Countries(_) => 7,
            Self::Asns(_) => 8,
            Self::Domain(_) => 9,
            Self::Descriptor(..) => 10,
            Self::Entries(_) => 11,
            Self::Beside(_) => 12,
        }
    }

    /// True when `next` may follow it: conditions are unique by kind, except for headers,
    /// parameters and descriptors.
    fn may_precede(&self, next: &Self) -> bool {
        let may_repeat = matches!(self, Self::Header(..) | Self::Query(..) | Self::Descriptor(..));
        self.order() < next.order() || may_repeat && self.order() == next.order()
    }

    fn alternatives(&self) -> usize {
        match self {
            Self::Methods(list) => list.len(),
            Self::Hosts(list) => list.len(),
            Self::Paths(list) => list.len(),
            Self::Header(_, wanted) | Self::Query(_, wanted) => wanted.len(),
            Self::ClientCidrs(list) => list.len(),
            Self::Routes(list) => list.len(),
            Self::Countries(list) => list.len(),
            Self::Asns(list) => list.len(),
            Self::Domain(list) => list.len(),
            Self::Descriptor(_, wanted) => wanted.len(),
            Self::Entries(list) | Self::Beside(list) => list.len(),
        }
    }
}

/// Like the list: its order follows from that.
impl<T: Coded + Alternative> Coded for Alternatives<T> {
    const SHAPE: u64 = Vec::<T>::SHAPE;

    fn write(&self, to: &mut Vec<u8>) {
        self.list().write(to);
    }

    fn read(from: &mut Reader<'_>) -> Self {
        Self::from(Vec::read(from))
    }
}

/// The length of the address, its bytes, and the prefix.
impl Coded for Cidr {
    const SHAPE: u64 = shape(&["network"], &[]);

    fn write(&self, to: &mut Vec<u8>) {
        let (address, prefix) = self.parts();
        match address {
            IpAddr::V4(v4) => {
                to.push(4);
                to.extend(v4.octets());
            }
            IpAddr::V6(v6) => {
                to.push(16);
                to.extend(v6.octets());
            }
        }
        prefix.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Self {
        let address = match from.u8() {
            4 => IpAddr::V4(Ipv4Addr::from(from.array::<4>())),
            16 => IpAddr::V6(Ipv6Addr::from(from.array::<16>())),
            _ => {
                from.fail();
                IpAddr::V4(Ipv4Addr::UNSPECIFIED)
            }
        };
        let network = Self::from_parts(address, u32::read(from));
        from.require(network.is_some());
        network.unwrap_or(Self::ALL_OF_IPV4)
    }
}

impl Coded for Limiter {
    const SHAPE: u64 = shape(&["limiter"], &[]);

    fn write(&self, to: &mut Vec<u8>) {
        write_limiter(self, to);
    }

    fn read(from: &mut Reader<'_>) -> Self {
        from.try_with(|rest| read_limiter(&mut rest.0)).unwrap_or(CLOSED)
    }
}

/// The limiter that is read after a failure.
#[allow(clippy::empty_loop, reason = "it is made when this is compiled, which would not end")]
const CLOSED: Limiter = match Limiter::closed(Span::ZERO) {
    Ok(limiter) => limiter,
    Err(_) => loop {},
};

/// Like a variant of any other enum, but an expression may be one that this build does not have.
impl Coded for Matcher {
    const SHAPE: u64 = shape(
        &["Present", "0", "Exact", "1", "Prefix", "2", "Match", "3"],
        &[<Vec<u8>>::SHAPE, <Vec<u8>>::SHAPE, Regex::SHAPE],
    );

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Present => to.push(0),
            Self::Exact(value) => {
                to.push(1);
                value.write(to);
            }
            Self::Prefix(value) => {
                to.push(2);
                value.write(to);
            }
            Self::Match(regex) => {
                to.push(3);
                regex.write(to);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Self {
        match from.u8() {
            0 => Self::Present,
            1 => Self::Exact(Vec::read(from)),
            2 => Self::Prefix(Vec::read(from)),
            3 => Regex::read(from).map_or(Self::Present, Self::Match),
            _ => {
                from.fail();
                Self::Present
            }
        }
    }
}

/// Like any other option.
impl Coded for Option<Regex> {
    const SHAPE: u64 = shape(&["optional"], &[Regex::SHAPE]);

    fn write(&self, to: &mut Vec<u8>) {
        to.push(self.is_some().into());
        if let Some(regex) = self {
            regex.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Self {
        if bool::read(from) { Regex::read(from) } else { None }
    }
}
