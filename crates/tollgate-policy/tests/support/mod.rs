//! Shared by the tests of the pipeline: a request as a test writes it, and a surface on a map.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::spec::{CertificateField, CloudflareField};
use tollgate_policy::{
    Disposition, Ending, Entry, Facts, Partition, Plan, Policy, RequestedLimit, ResponseFacts,
    Settlement, Surface,
};

pub use tollgate_test_support::Random;

/// A request as a test writes it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: &'static str,
    pub target: String,
    pub host: &'static str,
    pub headers: Vec<(String, Vec<u8>)>,
    pub peer: Option<IpAddr>,
    pub route: Option<&'static str>,
    pub country: Option<&'static str>,
    pub asn: Option<&'static str>,
    pub claims: Vec<(&'static str, &'static str)>,
    pub cf: Vec<(&'static str, &'static str)>,
    pub certificate: Vec<(&'static str, &'static str)>,
    /// By the path, with slashes.
    pub metadata: Vec<(&'static str, &'static str)>,
    pub domain: Option<&'static str>,
    pub entries: Descriptor,
    pub beside: Vec<Descriptor>,
    pub hits: Option<u64>,
    pub limit: Option<RequestedLimit>,
}

/// A descriptor as a test writes it: keys and values.
pub type Descriptor = Vec<(&'static str, &'static str)>;

fn entry((key, value): &(&'static str, &'static str)) -> Entry<'static> {
    Entry::new(key.as_bytes(), value.as_bytes())
}

impl Request {
    /// The same request with one more header.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_string(), value.as_ref().to_vec()));
        self
    }

    /// The same request with another method.
    pub fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }
}

fn bytes(text: Option<&'static str>) -> Option<Cow<'static, [u8]>> {
    text.map(|text| Cow::Borrowed(text.as_bytes()))
}

impl Facts for Request {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.as_bytes().into()
    }
    fn target(&self) -> Cow<'_, [u8]> {
        self.target.as_bytes().into()
    }
    fn host(&self) -> Cow<'_, [u8]> {
        self.host.as_bytes().into()
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let lines: Vec<&[u8]> =
            self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_slice()).collect();
        (!lines.is_empty()).then(|| lines.join(&b", "[..]).into())
    }
    fn peer(&self) -> Option<IpAddr> {
        self.peer
    }
    fn route(&self) -> Option<Cow<'_, [u8]>> {
        bytes(self.route)
    }
    fn country(&self) -> Option<Cow<'_, [u8]>> {
        bytes(self.country)
    }
    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        bytes(self.asn)
    }
    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        bytes(self.claims.iter().find(|(n, _)| *n == name).map(|(_, v)| *v))
    }
    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        bytes(self.cf.iter().find(|(n, _)| *n == field.name()).map(|(_, v)| *v))
    }
    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        bytes(self.certificate.iter().find(|(n, _)| *n == field.name()).map(|(_, v)| *v))
    }
    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        bytes(self.metadata.iter().find(|(n, _)| *n == path.join("/")).map(|(_, v)| *v))
    }
    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        bytes(self.domain)
    }
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        self.entries.get(index).map(entry)
    }
    fn beside(&self, other: usize, index: usize) -> Option<Entry<'_>> {
        self.beside.get(other)?.get(index).map(entry)
    }
    fn hits(&self) -> Option<u64> {
        self.hits
    }
    fn limit(&self) -> Option<RequestedLimit> {
        self.limit
    }
}

/// A GET of `target` by the client at `ip`.
pub fn get(target: &str, ip: &str) -> Request {
    Request {
        method: "GET",
        target: target.to_string(),
        peer: Some(ip.parse().unwrap()),
        ..Request::default()
    }
}

/// The response that a client sees.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub answer: Disposition,
    pub headers: Vec<(&'static str, String)>,
    pub marks: Vec<(String, String)>,
    pub body: Option<String>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }
}

/// A surface with a map for a store.
pub struct Surfaced {
    pub policy: Policy,
    pub plan: Plan,
    pub store: BTreeMap<Vec<u8>, Vec<u8>>,
    pub waited: Span,
}

impl Surfaced {
    pub fn new(document: &str) -> Self {
        Self::on(document, Surface::Envoy)
    }

    pub fn on(document: &str, surface: Surface) -> Self {
        let policy =
            tollgate_language::compile(document, surface).unwrap_or_else(|e| panic!("{e}"));
        Self { policy, plan: Plan::new(), store: BTreeMap::new(), waited: Span::ZERO }
    }

    /// Decides a request and commits its charges.
    pub fn check(&mut self, request: &Request, millis: u64) -> Seen {
        self.policy.plan(request, &mut self.plan);
        self.commit(millis);
        seen(&self.policy, &self.plan, self.waited)
    }

    /// Charges and refunds as the response's status requires; false when nothing was done.
    pub fn settle(&mut self, status: u16, millis: u64) -> bool {
        self.end(Ending::Response(status), millis)
    }

    /// The same for any ending.
    pub fn end(&mut self, ending: Ending, millis: u64) -> bool {
        self.end_with(ending, &(), millis)
    }

    /// The same for a response with headers.
    pub fn end_with(&mut self, ending: Ending, response: &dyn ResponseFacts, millis: u64) -> bool {
        let due = self.plan.settle(&self.policy, ending, response);
        if due {
            self.commit(millis);
        }
        due
    }

    /// The costs of its plan that the response settles.
    pub fn settlement(&self) -> Settlement<'_> {
        self.plan.settlement(&self.policy)
    }

    /// Loads, decides and stores the prepared plan.
    pub fn commit(&mut self, millis: u64) {
        let Self { policy, plan, store, .. } = self;
        plan.each_partition(|partition| {
            let stored = store.get(partition.key());
            partition.load(policy, stored.map(Vec::as_slice));
        });
        plan.decide(policy, Timestamp::from_millis(millis));
        for partition in plan.partitions().filter(Partition::changed) {
            store.insert(partition.key().to_vec(), partition.value().to_vec());
        }
    }
}

/// The response to the client of a decided plan.
pub fn seen(policy: &Policy, plan: &Plan, waited: Span) -> Seen {
    let outcome = plan.outcome(policy);
    let mut headers = vec![];
    outcome.headers(&mut |name, value| headers.push((name, value.to_string())));
    let mut marks = vec![];
    outcome.marks(&mut |name, value| marks.push((name.to_string(), value.to_string())));
    let answer = outcome.disposition_after(waited);
    let body = matches!(answer, Disposition::Deny { .. }).then(|| outcome.body());
    Seen { answer, headers, marks, body }
}

/// A response that shows this cost in `x-tokens`.
pub struct Tokens(pub &'static str);

impl ResponseFacts for Tokens {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (name == "x-tokens").then_some(Cow::Borrowed(self.0.as_bytes()))
    }

    fn has_ended(&self) -> bool {
        true
    }
}

/// The end of a response, which shows this number wherever a rule reads it.
pub struct Ended(pub u64);

impl ResponseFacts for Ended {
    fn header(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        assert_eq!(path, ["ai", "usage", "total"]);
        Some(self.0.to_string().into_bytes().into())
    }

    fn body_bytes(&self) -> Option<u64> {
        Some(self.0)
    }

    fn duration_ms(&self) -> Option<u64> {
        Some(self.0)
    }

    fn has_ended(&self) -> bool {
        true
    }
}

/// The head of a response with these headers.
pub struct Head<R>(pub R);

impl<R: ResponseFacts> ResponseFacts for Head<R> {
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.0.header(name)
    }

    fn has_ended(&self) -> bool {
        false
    }
}
