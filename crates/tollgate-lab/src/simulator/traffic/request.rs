//! One simulated request: the facts that a policy may read.
//!
//! Invariant: a request produces only the values that the policy reads.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use tollgate_core::Timestamp;
use tollgate_policy::{Entry, Facts};

use super::document::Shape;

/// The address of client number 0.
const FIRST_ADDRESS: u32 = 0x0a00_0000; // 10.0.0.0

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its arrival, by the true time.
    pub at: Timestamp,
    /// The index of its source in the document.
    pub source: usize,
    /// The number of its client among all clients of the traffic.
    pub client: u64,
    /// How many requests of the source came before it, retries included.
    pub number: u64,
    /// How often it was denied before.
    pub attempt: u64,
}

impl Request {
    /// Its client's address: 10.0.0.0 and so on, one per client.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        let number = u32::try_from(self.client & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Ipv4Addr::from_bits(FIRST_ADDRESS.wrapping_add(number)).into()
    }
}

/// The facts that a policy may read of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'t> {
    pub(super) shape: &'t Shape,
    pub(super) request: Request,
}

impl RequestFacts<'_> {
    /// A text with the client, its address and the number filled in.
    fn filled<'a>(&self, text: &'a str) -> Cow<'a, [u8]> {
        if !text.contains('{') {
            return Cow::Borrowed(text.as_bytes());
        }
        let filled = text
            .replace("{client}", &self.request.client.to_string())
            .replace("{address}", &self.request.address().to_string())
            .replace("{n}", &self.request.number.to_string());
        Cow::Owned(filled.into_bytes())
    }
}

impl Facts for RequestFacts<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.filled(&self.shape.method.0)
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.filled(&self.shape.path.0)
    }

    fn host(&self) -> Cow<'_, [u8]> {
        self.filled(&self.shape.host.0)
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        if name == "host" {
            return Some(self.host());
        }
        self.shape.headers.0.get(name).map(|value| self.filled(&value.0))
    }

    fn peer(&self) -> Option<IpAddr> {
        Some(self.request.address())
    }

    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        self.shape.domain.as_ref().map(|domain| self.filled(&domain.0))
    }

    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let (key, value) = self.shape.descriptor.0.get(index)?;
        Some(Entry { key: key.0.as_bytes().into(), value: self.filled(&value.0) })
    }
}
