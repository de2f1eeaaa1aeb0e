//! One request, parsed from a line of a log.
//!
//! Invariant: each value of a record is a part of the line, or a copy of such a part without its
//! escapes. It contains only the wanted fields; a value that the line does not have is `None`.

use std::net::IpAddr;

use crate::field::{Field, Wanted, fixed_place};

/// A time in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Nanoseconds since 1970-01-01 UTC, rounded down where the log is finer.
    pub unix_ns: u64,
    /// The log has no fraction here, so the request came anywhere within this second.
    pub is_whole_second: bool,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client<'a> {
    /// An address; an IPv4 address mapped into IPv6 is the IPv4 address.
    Address(IpAddr),
    /// A host name as it is in the log, or other text that is not an address.
    Name(&'a [u8]),
}

/// Where a text of a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// The line does not contain it.
    #[default]
    Absent,
    /// Bytes of the line: start and end.
    Line(usize, usize),
    /// Bytes of the unescaped text of the line: start and end.
    Unescaped(usize, usize),
}

/// One request of a log.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When it came.
    pub time: Time,
    /// The sender; `None` when the line does not have it, as for a Unix socket.
    pub client: Option<Client<'a>>,
    /// The peer address, where the log has it in addition to the client.
    pub peer: Option<IpAddr>,
    /// The status of the response; `None` when there was no response.
    pub status: Option<u16>,
    pub(crate) texts: Texts<'a>,
}

/// The texts of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts<'a> {
    pub(crate) wanted: &'a Wanted,
    pub(crate) line: &'a [u8],
    pub(crate) unescaped: &'a [u8],
    pub(crate) places: &'a [Place],
}

impl<'a> Texts<'a> {
    pub(crate) fn get(&self, place: usize) -> Option<&'a [u8]> {
        match *self.places.get(place)? {
            Place::Absent => None,
            Place::Line(from, to) => self.line.get(from..to),
            Place::Unescaped(from, to) => self.unescaped.get(from..to),
        }
    }
}

impl<'a> Record<'a> {
    /// The method, as received.
    #[must_use]
    pub fn method(&self) -> Option<&'a [u8]> {
        self.fixed(&Field::Method)
    }

    /// The request target, path and query, as received.
    #[must_use]
    pub fn target(&self) -> Option<&'a [u8]> {
        self.fixed(&Field::Target)
    }

    /// The host, as received.
    #[must_use]
    pub fn host(&self) -> Option<&'a [u8]> {
        self.fixed(&Field::Host)
    }

    /// The cost that the response showed, as in the log.
    #[must_use]
    pub fn actual(&self) -> Option<&'a [u8]> {
        self.fixed(&Field::Actual)
    }

    /// How long the request ran, as in the log.
    #[must_use]
    pub fn duration(&self) -> Option<&'a [u8]> {
        self.fixed(&Field::Duration)
    }

    /// The name of the route.
    #[must_use]
    pub fn route(&self) -> Option<&'a [u8]> {
        self.fixed(&Field::Route)
    }

    /// The user of HTTP authentication.
    #[must_use]
    pub fn user(&self) -> Option<&'a [u8]> {
        self.fixed(&Field::User)
    }

    /// The client's country.
    #[must_use]
    pub fn country(&self) -> Option<&'a [u8]> {
        self.fixed(&Field::Country)
    }

    /// The client's autonomous system number.
    #[must_use]
    pub fn asn(&self) -> Option<&'a [u8]> {
        self.fixed(&Field::Asn)
    }

    /// The request header `name`, in lower case; several lines of it as the log joins them.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.named(|field| matches!(field, Field::Header(of) if of == name))
    }

    /// The cookie `name`.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&'a [u8]> {
        self.named(|field| matches!(field, Field::Cookie(of) if of == name))
    }

    /// The query parameter `name`, as received.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<&'a [u8]> {
        self.named(|field| matches!(field, Field::Query(of) if of == name))
    }

    /// The claim `name` of a verified token.
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<&'a [u8]> {
        self.named(|field| matches!(field, Field::Claim(of) if of == name))
    }

    /// The fact `name` of Cloudflare's.
    #[must_use]
    pub fn cloudflare(&self, name: &str) -> Option<&'a [u8]> {
        self.named(|field| matches!(field, Field::Cloudflare(of) if of == name))
    }

    /// The part `name` of the client's certificate.
    #[must_use]
    pub fn certificate(&self, name: &str) -> Option<&'a [u8]> {
        self.named(|field| matches!(field, Field::Certificate(of) if of == name))
    }

    /// The value at `path`, with slashes between its names, in the proxy's metadata.
    #[must_use]
    pub fn metadata(&self, path: &str) -> Option<&'a [u8]> {
        self.named(|field| matches!(field, Field::Metadata(of) if of == path))
    }

    fn fixed(&self, field: &Field) -> Option<&'a [u8]> {
        self.texts.get(fixed_place(field)?)
    }

    fn named(&self, is: impl Fn(&Field) -> bool) -> Option<&'a [u8]> {
        self.texts.get(self.texts.wanted.named_place(is)?)
    }
}
