//! A request as the command line describes it.
//!
//! Invariant: it answers as the surface would: what a surface does not know is not there, even when
//! it was given. What cannot be given for a surface is misuse, told before.

use std::borrow::Cow;
use std::net::IpAddr;

use tollgate_policy::{Facts, grpc_content_type};

use crate::End;
use crate::args::{ExplainArgs, Place};

/// The facts of the request.
pub(super) struct Request<'a> {
    args: &'a ExplainArgs,
    asn: Option<String>,
}

impl<'a> Request<'a> {
    /// The request, unless it has facts that its surface does not know.
    pub(super) fn new(args: &'a ExplainArgs) -> Result<Self, End> {
        let misuse = |message: &str| Err(End::Misuse(message.to_owned()));
        match args.surface {
            Place::Envoy if args.country.is_some() || args.asn.is_some() => misuse(
                "--country and --asn exist in the Worker only; for Envoy give the header that the policy's \
                 \"geo\" names",
            ),
            Place::Worker if args.route.is_some() => {
                misuse("--route exists in Envoy only; a Worker has no named routes")
            }
            _ => Ok(Self { args, asn: args.asn.map(|number| number.to_string()) }),
        }
    }

    /// The content type of a gRPC answer; `None` when this is no gRPC request.
    pub(super) fn grpc_content_type(&self) -> Option<&'static str> {
        grpc_content_type(&self.header("content-type")?)
    }
}

impl Facts for Request<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.args.method.as_bytes().into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.args.path.as_bytes().into()
    }

    fn host(&self) -> Cow<'_, [u8]> {
        self.header("host").unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match (name, self.args.surface, self.args.ip) {
            ("host", ..) if !self.args.host.is_empty() => {
                return Some(self.args.host.as_bytes().into());
            }
            // The platform writes this header itself.
            ("cf-connecting-ip", Place::Worker, Some(ip)) => {
                return Some(ip.to_string().into_bytes().into());
            }
            _ => {}
        }
        let lines = self.args.headers.iter().filter(|(given, _)| given == name);
        let lines: Vec<&str> = lines.map(|(_, value)| value.as_str()).collect();
        (!lines.is_empty()).then(|| lines.join(", ").into_bytes().into())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.args.ip
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
}
