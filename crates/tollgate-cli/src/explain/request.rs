//! The request that the command line describes.
//!
//! Invariant: it behaves as on the surface: a fact that a surface does not know is absent, even
//! when it was given. A fact that cannot be given for a surface is misuse, which is reported
//! before. Assumptions are reported.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use tollgate_policy::spec::{CertificateField, CloudflareField};
use tollgate_policy::{Entry, Facts, Surface, grpc_content_type};

use crate::args::ExplainArgs;
use crate::curl::{self, Url};
use crate::error::CommandError;

/// The default client address of a request that is given as a URL: an address reserved for
/// documentation (RFC 5737).
const SOMEBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The facts of the request.
pub(super) struct Request<'a> {
    args: &'a ExplainArgs,
    pub(super) surface: Surface,
    method: String,
    target: String,
    host: String,
    headers: Vec<(String, String)>,
    ip: Option<IpAddr>,
    asn: Option<String>,
    /// The assumptions, in words.
    pub(super) assumed: Vec<String>,
}

impl<'a> Request<'a> {
    /// Builds the request, unless it has facts that its surface does not know.
    pub(super) fn new(args: &'a ExplainArgs, surface: Surface) -> Result<Self, CommandError> {
        match surface {
            Surface::Envoy if args.country.is_some() || args.asn.is_some() => misuse(
                "--country and --asn do not exist in Envoy; give the header that the policy's \
                 \"geo\" names",
            ),
            Surface::Worker if args.route.is_some() => {
                misuse("--route exists in Envoy only; a Worker has no named routes")
            }
            Surface::Envoy | Surface::Worker
                if args.domain.is_some()
                    || !args.descriptor.is_empty()
                    || !args.beside.is_empty() =>
            {
                misuse(
                    "--domain, --descriptor and --beside describe a call to a rate limit service; use --surface server",
                )
            }
            Surface::Worker if !args.metadata.is_empty() => {
                misuse("--metadata exists in Envoy only; a Worker has no filters that set it")
            }
            Surface::Server
                if args.route.is_some() || !args.claims.is_empty() || !args.metadata.is_empty() =>
            {
                misuse("--route, --claim and --metadata are not known to a server")
            }
            Surface::Envoy | Surface::Library | Surface::Server if !args.cf.is_empty() => {
                misuse("--cf exists in the Worker only, to which Cloudflare reports it")
            }
            Surface::Server if !args.certificate.is_empty() => {
                misuse("--certificate is not known to a server: its callers send none")
            }
            Surface::Envoy | Surface::Worker | Surface::Library | Surface::Server => {
                Self::described(args, surface)
            }
        }
    }

    fn described(args: &'a ExplainArgs, surface: Surface) -> Result<Self, CommandError> {
        let named = match (&args.curl, &args.url, args.words.as_slice()) {
            (Some(line), ..) => {
                let words = curl::split(line)
                    .map_err(|error| CommandError::Misuse(format!("--curl: {error}")))?;
                Some(from_curl(&words)?)
            }
            (None, None, words @ [_, ..]) => Some(from_curl(words)?),
            (None, Some(url), _) => Some(from_url(url, &args.method)?),
            (None, None, []) => None,
        };
        let is_url = named.is_some();
        let request = named.unwrap_or_else(|| curl::Request {
            method: args.method.clone(),
            target: args.path.clone(),
            host: args.host.clone(),
            headers: Vec::new(),
            unknown: Vec::new(),
        });
        let mut assumed = request.unknown;
        if is_url && args.ip.is_none() {
            assumed.push(format!("the connection comes from {SOMEBODY}; give another with --ip"));
        }
        Ok(Self {
            args,
            surface,
            method: request.method,
            target: request.target,
            host: request.host,
            headers: request.headers.into_iter().chain(args.headers.iter().cloned()).collect(),
            ip: args.ip.or(is_url.then_some(SOMEBODY)),
            asn: args.asn.map(|number| number.to_string()),
            assumed,
        })
    }

    /// The content type of a gRPC response; `None` when the request is not a gRPC request.
    pub(super) fn grpc_content_type(&self) -> Option<&'static str> {
        grpc_content_type(&self.header("content-type")?)
    }
}

fn entry_of(descriptor: &[(String, String)], index: usize) -> Option<Entry<'_>> {
    let (key, value) = descriptor.get(index)?;
    Some(Entry::new(key.as_bytes(), value.as_bytes()))
}

fn misuse<T>(message: &str) -> Result<T, CommandError> {
    Err(CommandError::Misuse(message.to_owned()))
}

fn from_curl(words: &[String]) -> Result<curl::Request, CommandError> {
    curl::request(words).map_err(|error| CommandError::Misuse(format!("curl: {error}")))
}

fn from_url(url: &str, method: &str) -> Result<curl::Request, CommandError> {
    let url = Url::parse(url).map_err(|error| CommandError::Misuse(format!("--url: {error}")))?;
    Ok(curl::Request {
        method: method.to_owned(),
        target: url.target(),
        host: url.host,
        headers: Vec::new(),
        unknown: Vec::new(),
    })
}

impl Facts for Request<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.as_bytes().into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.target.as_bytes().into()
    }

    fn host(&self) -> Cow<'_, [u8]> {
        self.header("host").unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match (name, self.surface, self.ip) {
            ("host", ..) if !self.host.is_empty() => {
                return Some(self.host.as_bytes().into());
            }
            // The platform writes this header itself.
            ("cf-connecting-ip", Surface::Worker, Some(ip)) => {
                return Some(ip.to_string().into_bytes().into());
            }
            _ => {}
        }
        let lines = self.headers.iter().filter(|(given, _)| given == name);
        let lines: Vec<&str> = lines.map(|(_, value)| value.as_str()).collect();
        (!lines.is_empty()).then(|| lines.join(", ").into_bytes().into())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.ip
    }

    fn route(&self) -> Option<Cow<'_, [u8]>> {
        self.args.route.as_ref().map(|route| route.as_bytes().into())
    }

    fn country(&self) -> Option<Cow<'_, [u8]>> {
        let country = self.args.country.as_ref()?;
        Some(country.to_ascii_uppercase().into_bytes().into())
    }

    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        self.asn.as_ref().map(|number| number.as_bytes().into())
    }

    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let claim = self.args.claims.iter().find(|claim| claim.name == name)?;
        claim.text.as_ref().map(|text| text.as_bytes().into())
    }

    fn cloudflare(&self, field: CloudflareField) -> Option<Cow<'_, [u8]>> {
        let (_, value) = self.args.cf.iter().find(|(given, _)| *given == field)?;
        Some(value.as_bytes().into())
    }

    fn client_certificate(&self, field: CertificateField) -> Option<Cow<'_, [u8]>> {
        let (_, value) = self.args.certificate.iter().find(|(given, _)| *given == field)?;
        Some(value.as_bytes().into())
    }

    fn metadata(&self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        let path = path.join("/");
        let value = self.args.metadata.iter().find(|value| value.name == path)?;
        value.text.as_ref().map(|text| text.as_bytes().into())
    }

    fn domain(&self) -> Option<Cow<'_, [u8]>> {
        self.args.domain.as_ref().map(|domain| domain.as_bytes().into())
    }

    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        entry_of(&self.args.descriptor, index)
    }

    fn beside(&self, other: usize, index: usize) -> Option<Entry<'_>> {
        entry_of(&self.args.beside.get(other)?.0, index)
    }
}
