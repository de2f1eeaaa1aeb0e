//! A request that a caller describes in JSON: the input of the Worker's `POST /check`.
//!
//! Invariant: any input is either a request or a list of all mistakes, each with the name of its
//! field, in the words of the policy document. All values are trusted. Deliberately absent: bodies,
//! and claims, which require a verified token.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::document::lists::within;
use crate::json::node::Node;
use crate::json::place::{At, read_document};
use crate::json::reader::{Fields, FromNode, record, schema};
use tollgate_http_syntax::token::is_token;
use tollgate_policy::Facts;
use tollgate_policy::spec::{Asn, Bounded, Country, Problems};

/// The longest method: the longest registered one, UPDATEREDIRECTREF, has 17 letters.
const MAX_METHOD: usize = 32;

record! {
    /// The facts of a request.
    RequestDoc {
        /// The method; any token, because methods are case-sensitive and may be new.
        method: Method,
        /// The path, with the query.
        path: Target,
        /// The host, perhaps with a port; in place of a `host` among the headers.
        host: Option<Host>,
        /// Header lines by name.
        headers: Option<Lines>,
        /// The client's address.
        client_ip: Option<Address>,
        /// The client's two-letter country code.
        country: Option<Country>,
        /// The client's autonomous system number.
        asn: Option<Asn>,
        /// The status of the response to a request that was allowed before.
        response_status: Option<Bounded<100, 599>>,
        /// The response contains an id, with which the cost can be settled later.
        settle: Option<bool>,
    }
}

/// A request as its caller described it.
#[derive(Clone, Debug)]
pub struct DescribedRequest(RequestDoc);

impl DescribedRequest {
    /// Reads `{"method": "GET", "path": "/"}`, with `host`, `headers`, `client_ip`, `country`,
    /// `asn` and `response_status` where they are known, and `settle` where its cost is not.
    ///
    /// # Errors
    /// Every mistake, with the name of its field and what is allowed.
    ///
    /// ```
    /// use tollgate_language::DescribedRequest;
    /// use tollgate_policy::Facts;
    /// let described = br#"{"method": "GET", "path": "/", "country": "de"}"#;
    /// let request = DescribedRequest::parse(described)?;
    /// assert_eq!(request.country().as_deref(), Some(&b"DE"[..]));
    /// # Ok::<(), tollgate_policy::Problems>(())
    /// ```
    pub fn parse(json: &[u8]) -> Result<Self, Problems> {
        let node = Node::parse_bytes(json)?;
        Self::read(&node, &node, None)
    }

    /// Reads `described`, which is the whole `document` or an item of its list.
    fn read(described: &Node, document: &Node, item: Option<usize>) -> Result<Self, Problems> {
        let doc = read_document(document, |root| {
            let list = root.field(REQUESTS);
            RequestDoc::read(described, &item.map_or(*root, |item| list.item(item)))
        });
        doc.map(Self)
    }

    /// The status of the response, when this reports one.
    #[must_use]
    pub fn response_status(&self) -> Option<u16> {
        self.0.response_status.and_then(|status| u16::try_from(status.0).ok())
    }
}

/// The input of `POST /check`: one request, or several in a batch.
#[derive(Clone, Debug)]
pub enum DescribedRequests {
    /// One, described as [`DescribedRequest::parse`] reads it.
    One(DescribedRequest),
    /// Several in their order, each of which may be wrong independently.
    Many(Vec<Result<DescribedRequest, Problems>>),
}

impl DescribedRequests {
    /// Reads one request, or `{"requests": [...]}` with at most `most` of them.
    ///
    /// # Errors
    /// Every mistake of the one request, or the mistakes of the list.
    ///
    /// ```
    /// use tollgate_language::DescribedRequests;
    /// let batch = br#"{"requests": [{"method": "GET", "path": "/"}, {"method": "GET"}]}"#;
    /// let Ok(DescribedRequests::Many(requests)) = DescribedRequests::parse(batch, 100) else {
    ///     panic!("several");
    /// };
    /// assert!(requests[0].is_ok());
    /// assert_eq!(requests[1].as_ref().unwrap_err().to_string(), "requests[1].path: is missing");
    /// ```
    pub fn parse(json: &[u8], most: usize) -> Result<Self, Problems> {
        let node = Node::parse_bytes(json)?;
        let Some(items) = items_of(&node, most)? else {
            return DescribedRequest::read(&node, &node, None).map(Self::One);
        };
        let read = |(i, item)| DescribedRequest::read(item, &node, Some(i));
        Ok(Self::Many(items.iter().enumerate().map(read).collect()))
    }
}

/// The member that contains several requests.
pub(crate) const REQUESTS: &str = "requests";

/// The items of `{"requests": [...]}`, at most `most`; `None` for any other value.
///
/// # Errors
/// The mistakes of the list.
pub(crate) fn items_of(node: &Node, most: usize) -> Result<Option<&[Node]>, Problems> {
    if !matches!(node, Node::Object(fields) if fields.iter().any(|(name, _)| name == REQUESTS)) {
        return Ok(None);
    }
    let items = read_document(node, |root| {
        let fields = Fields::open(node, root, &[REQUESTS])?;
        let requests = fields.node(REQUESTS)?;
        let at = root.field(REQUESTS);
        match requests {
            Node::List(items) if items.is_empty() => {
                at.problem("is empty; give at least one".into());
                None
            }
            Node::List(items) => within(most, items.len(), &at).map(|()| items),
            _ => at.wrong(requests, "a list; use [{...}]"),
        }
    });
    items.map(|items| Some(items.as_slice()))
}

impl Facts for DescribedRequest {
    fn method(&self) -> Cow<'_, [u8]> {
        self.0.method.0.as_bytes().into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.0.path.0.as_bytes().into()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let lines = || self.0.headers.as_ref()?.0.get(name);
        let host = self.0.host.as_ref().filter(|_| name == "host").map(|host| &host.0);
        host.or_else(lines).map(|value| value.as_bytes().into())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.0.client_ip.as_ref().map(|address| address.0)
    }

    fn country(&self) -> Option<Cow<'_, [u8]>> {
        self.0.country.as_ref().map(|country| country.0.as_slice().into())
    }

    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        self.0.asn.as_ref().map(|asn| asn.0.as_slice().into())
    }

    fn is_to_be_settled(&self) -> bool {
        self.0.settle == Some(true)
    }
}

/// Declares a kind of text: its valid values, and their description in messages.
macro_rules! text {
    ($(#[doc = $about:literal])* $name:ident, $wanted:literal, $is_allowed:expr) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name(String);

        impl FromNode for $name {
            fn read(node: &Node, at: &At<'_>) -> Option<Self> {
                let is_allowed: fn(&str) -> bool = $is_allowed;
                match node {
                    Node::Text(text) if is_allowed(text) => Some(Self(text.clone())),
                    _ => at.wrong(node, $wanted),
                }
            }

            schema!({"type": "string"});
        }
    };
}

text!(
    /// A request method.
    Method,
    "a request method; use a token such as \"GET\"",
    |text| text.len() <= MAX_METHOD && is_token(text.as_bytes())
);
text!(
    /// A path with an optional query.
    Target,
    "a path; use one that begins with \"/\"",
    |text| text.starts_with('/') && is_field_value(text)
);
text!(
    /// A host with an optional port.
    Host,
    "a host; use one such as \"example.com\"",
    |text| !text.is_empty() && is_field_value(text)
);
text!(
    /// One line of a header.
    Line,
    "a header value; use one line of text",
    is_field_value
);

/// True for a valid field value (RFC 9110, 5.5): any text on one line.
fn is_field_value(text: &str) -> bool {
    !text.bytes().any(|b| matches!(b, b'\r' | b'\n' | 0))
}

/// Header values by lower-case name.
#[derive(Clone, Debug)]
pub(crate) struct Lines(BTreeMap<String, String>);

impl FromNode for Lines {
    /// Names are case-insensitive; several lines of one name are one list (RFC 9110, 5.3).
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let Node::Object(fields) = node else {
            return at.wrong(node, "an object of names and values");
        };
        let mut lines = BTreeMap::<String, String>::new();
        for (name, node) in fields {
            let at = at.user_field(name);
            if !is_token(name.as_bytes()) {
                at.problem("is not a header name".into());
            } else if let Some(Line(line)) = Line::read(node, &at) {
                match lines.entry(name.to_ascii_lowercase()) {
                    Entry::Vacant(entry) => drop(entry.insert(line)),
                    Entry::Occupied(mut entry) => entry.get_mut().extend([", ", &line]),
                }
            }
        }
        Some(Self(lines))
    }

    schema!({"type": "object", "additionalProperties": {"type": "string"}});
}

/// An address without a port.
#[derive(Clone, Debug)]
pub(crate) struct Address(IpAddr);

impl FromNode for Address {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let address = match node {
            Node::Text(text) => text.parse().ok(),
            _ => None,
        };
        address.map(Self).or_else(|| at.wrong(node, "an address; use IPv4 or IPv6 without a port"))
    }

    schema!({"type": "string"});
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    fn problems(json: &str) -> String {
        DescribedRequest::parse(json.as_bytes()).expect_err(json).to_string()
    }

    #[test]
    fn reads_every_field() {
        let json = r#"{"method":"get","host":"example.com","path":"/a?b=c","headers":{"X-Key":"k","host":"no","x-key":"l","x-none":""},
            "client_ip":"2001:db8::1","country":"de","asn":64500,"response_status":599}"#;
        let request = DescribedRequest::parse(json.as_bytes()).expect(json);
        assert_eq!((&*request.method(), &*request.target()), (&b"get"[..], &b"/a?b=c"[..]));
        let header = |name| request.header(name).map(Cow::into_owned);
        assert_eq!(header("x-key").as_deref(), Some(&b"k, l"[..]));
        assert_eq!(header("host").as_deref(), Some(&b"example.com"[..]));
        assert_eq!(&*request.host(), b"example.com");
        assert_eq!((header("x-none"), header("other")), (Some(b"".into()), None));
        assert_eq!(request.peer(), "2001:db8::1".parse().ok());
        assert_eq!(request.country().as_deref(), Some(&b"DE"[..]));
        assert_eq!(request.asn().as_deref(), Some(&b"64500"[..]));
        assert_eq!(request.response_status(), Some(599));
    }

    #[test]
    fn all_but_method_and_path_may_be_left_out() {
        let least = DescribedRequest::parse(br#"{"method":"GET","path":"/"}"#).expect("least");
        assert_eq!((least.peer(), least.header("host"), &*least.host()), (None, None, &b""[..]));
        assert_eq!((least.country(), least.asn(), least.response_status()), (None, None, None));
        let host = br#"{"method":"GET","path":"/","headers":{"Host":"a"}}"#;
        assert_eq!(&*DescribedRequest::parse(host).expect("a host").host(), b"a");
    }

    #[test]
    fn every_mistake_names_its_field_and_what_is_allowed() {
        let all = r#"{"method":"A B","host":"","path":"a","headers":{"x y":"1","ok":5,"nl":"a\nb"},"client_ip":"1.2.3.4:80",
            "country":"Germany","asn":"AS64500","response_status":99,"cuntry":"DE"}"#;
        assert_eq!(
            problems(all),
            "unknown field \"cuntry\"; did you mean \"country\"?\n\
             method: \"A B\" is not a request method; use a token such as \"GET\"\n\
             host: \"\" is not a host; use one such as \"example.com\"\n\
             path: \"a\" is not a path; use one that begins with \"/\"\n\
             headers.\"x y\": is not a header name\n\
             headers.ok: 5 is not a header value; use one line of text\n\
             headers.nl: \"a\\nb\" is not a header value; use one line of text\n\
             client_ip: \"1.2.3.4:80\" is not an address; use IPv4 or IPv6 without a port\n\
             country: \"Germany\" is not a country; use two letters, such as \"DE\"\n\
             asn: \"AS64500\" is not a system number; use 0 to 4294967295\n\
             response_status: 99 is not a whole number from 100 to 599"
        );
        let wrong =
            r#"{"method":null,"path":[],"headers":true,"client_ip":{},"country":1,"asn":-1}"#;
        assert_eq!(
            problems(wrong),
            "method: null is not a request method; use a token such as \"GET\"\n\
             path: a list is not a path; use one that begins with \"/\"\n\
             headers: true is not an object of names and values\n\
             client_ip: an object is not an address; use IPv4 or IPv6 without a port\n\
             country: 1 is not a country; use two letters, such as \"DE\"\n\
             asn: -1 is not a system number; use 0 to 4294967295"
        );
        assert_eq!(problems("{}"), "method: is missing\npath: is missing");
        let twice = r#"{"path":"/","path":"/","method":"GET"}"#;
        assert_eq!(problems(twice), "path: is given twice; give it once");
        assert_eq!(problems("[1]"), "a list is not an object");
        assert_eq!(problems(""), "not JSON: EOF while parsing a value at line 1 column 0");
        let bytes = DescribedRequest::parse(b"\xff").expect_err("no text").to_string();
        assert_eq!(bytes, "not JSON: invalid utf-8 sequence of 1 bytes from index 0");
    }

    #[test]
    fn lengths_are_bounded_at_their_edge() {
        let method = |length: usize| format!(r#"{{"method":"{}","path":"/"}}"#, "M".repeat(length));
        assert!(DescribedRequest::parse(method(MAX_METHOD).as_bytes()).is_ok());
        assert!(DescribedRequest::parse(method(MAX_METHOD + 1).as_bytes()).is_err());
        let long = problems(&format!(r#"{{"method":"GET","path":"{}"}}"#, "a".repeat(1000)));
        let shown = "a".repeat(60);
        assert_eq!(
            long,
            format!("path: \"{shown}...\" is not a path; use one that begins with \"/\"")
        );
    }
}
