//! `envoy.service.auth.v3.Authorization`: the request and the response of `Check`.
//!
//! Invariant: every line of a header counts, in its order, whether Envoy sends them as a map (lines
//! of one name joined already) or as received (`encode_raw_headers`). Deliberately absent: bodies,
//! certificates, and metadata; they are skipped.

use std::net::IpAddr;

use super::header_value::{self, Append};
use super::status::Status;
use super::wire::{Fields, Malformed, Value, Writer, each};

/// The path of the call.
pub const PATH: &str = "/envoy.service.auth.v3.Authorization/Check";

/// The code of a denial whose own gRPC code is 0.
const PERMISSION_DENIED: u8 = 7;

/// The name of the service.
pub const SERVICE: &str = "envoy.service.auth.v3.Authorization";

/// The most header lines of a request: Envoy's own limit is 100, unless it is raised.
pub const MAX_HEADERS: usize = 1000;

/// A request to be authorized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckRequest<'a> {
    /// The method.
    pub method: &'a [u8],
    /// Path and query.
    pub path: &'a [u8],
    /// The host.
    pub host: &'a [u8],
    /// Header lines, name and value, pseudo-headers among them.
    pub headers: Vec<(&'a [u8], &'a [u8])>,
    /// The peer address of the connection, as Envoy knows it; none for a Unix socket.
    pub source: Option<IpAddr>,
    /// True when the check is about an HTTP request.
    pub is_http: bool,
}

impl<'a> CheckRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// The request is invalid; the status gives the reason.
    pub fn read(message: &'a [u8]) -> Result<Self, Status> {
        let mut request = Self::default();
        each(message, 1, |attributes| request.attributes(attributes.bytes()?))?;
        if request.is_http {
            return Ok(request);
        }
        let message = "attributes.request.http: is missing; only HTTP requests are decided";
        Err(Status::invalid(message))
    }

    fn attributes(&mut self, message: &'a [u8]) -> Result<(), Status> {
        for field in Fields::of(message) {
            match field? {
                // The source's address.
                (1, value) => each(value.bytes()?, 1, |address| {
                    self.address(address.bytes()?).map_err(Status::from)
                })?,
                // The request's `http`.
                (4, value) => each(value.bytes()?, 2, |http| self.http(http.bytes()?))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// One of: a socket's address, a pipe, a listener of Envoy's own. The last one counts.
    fn address(&mut self, message: &'a [u8]) -> Result<(), Malformed> {
        for field in Fields::of(message) {
            match field? {
                (1, value) => {
                    let mut text = None;
                    each::<Malformed>(value.bytes()?, 2, |it| {
                        it.bytes().map(|it| text = Some(it))
                    })?;
                    if let Some(text) = text {
                        let text = std::str::from_utf8(text).ok();
                        self.source = text.and_then(|text| text.parse().ok());
                    }
                }
                (2 | 3, value) => {
                    value.bytes()?;
                    self.source = None;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn http(&mut self, message: &'a [u8]) -> Result<(), Status> {
        self.is_http = true;
        for field in Fields::of(message) {
            match field? {
                (2, value) => self.method = value.bytes()?,
                (3, value) => push(&mut self.headers, entry(value)?, "headers")?,
                (4, value) => self.path = value.bytes()?,
                (5, value) => self.host = value.bytes()?,
                (13, value) => each(value.bytes()?, 1, |line| {
                    push(&mut self.headers, header_value::read(line.bytes()?)?, "header_map")
                })?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Adds a line, if there is room.
fn push<'a>(
    lines: &mut Vec<(&'a [u8], &'a [u8])>,
    line: (&'a [u8], &'a [u8]),
    what: &str,
) -> Result<(), Status> {
    if lines.len() == MAX_HEADERS {
        return Err(Status::invalid(format!("{what}: use at most {MAX_HEADERS}")));
    }
    lines.push(line);
    Ok(())
}

/// An entry of a map.
fn entry<'a>(value: Value<'a>) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    let (mut key, mut line) = (&[][..], &[][..]);
    for field in Fields::of(value.bytes()?) {
        match field? {
            (1, it) => key = it.bytes()?,
            (2, it) => line = it.bytes()?,
            _ => {}
        }
    }
    Ok((key, line))
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResponse<'a> {
    /// The request continues.
    Allow {
        /// Fields to set on the request.
        request_fields: Vec<(&'a str, &'a str)>,
        /// Fields to add to the response.
        response_fields: Vec<(&'a str, &'a str)>,
    },
    /// The request is denied with this response.
    Deny {
        /// The HTTP status.
        status: u16,
        /// The gRPC code for gRPC clients, with its message.
        grpc: (u8, &'a str),
        /// All fields of the response.
        fields: Vec<(&'a str, &'a str)>,
        /// The body.
        body: &'a str,
    },
}

impl CheckResponse<'_> {
    /// Encodes the response as a message.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Allow { request_fields, response_fields } => {
                out.message(1, |_| {});
                out.message(3, |ok| {
                    for line in request_fields {
                        header_value::write_option(ok, 2, *line, Append::Overwrite);
                    }
                    for line in response_fields {
                        header_value::write_option(ok, 6, *line, Append::Add);
                    }
                });
            }
            Self::Deny { status, grpc: (code, word), fields, body } => {
                out.message(1, |it| {
                    // Code 0 is success, so Envoy would forward the request.
                    it.number(1, u64::from(if *code == 0 { PERMISSION_DENIED } else { *code }));
                    it.bytes(2, word.as_bytes());
                });
                out.message(2, |denied| {
                    denied.message(1, |it| it.number(1, u64::from(*status)));
                    for line in fields {
                        header_value::write_option(denied, 2, *line, Append::Overwrite);
                    }
                    denied.bytes(3, body.as_bytes());
                });
            }
        }
        out.finish()
    }
}
