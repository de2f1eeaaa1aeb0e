//! Where a request has the limit of a quota.
//!
//! Invariant: exactly one source. Deliberately not here: which quotas can have one, which `compile`
//! checks.

use alloc::string::String;

use crate::document::scalar::Limit;
use crate::json::node::Node;
use crate::json::place::At;
use crate::json::reader::{FromNode, record, schema};
use tollgate_policy::spec::{HeaderName, LimitSource, MetadataPath};

record! {
    /// The source of a limit, of which exactly one is set, and the highest limit.
    LimitFromFields {
        /// A claim of a verified token.
        claim: Option<String>,
        /// A header that a trusted proxy or the caller writes.
        header: Option<HeaderName>,
        /// A value of the proxy's metadata: the name of the filter that sets it, then the path in
        /// its metadata.
        metadata: Option<MetadataPath>,
        /// True: the limit in the descriptor of a request to a rate limit service. Its unit must be
        /// the quota's window.
        descriptor: Option<bool>,
        /// The highest limit of a request; a request with a higher one has this.
        max: Limit,
    }
}

/// The source of a request's limit, and the highest one.
#[derive(Clone, Debug)]
pub(crate) struct LimitFromDoc {
    pub(crate) source: LimitSource,
    pub(crate) max: u64,
}

impl FromNode for LimitFromDoc {
    fn read(node: &Node, at: &At<'_>) -> Option<Self> {
        let fields = LimitFromFields::read(node, at)?;
        let LimitFromFields { claim, header, metadata, descriptor, max } = fields;
        if descriptor == Some(false) || max.0 == 0 {
            let field = if max.0 == 0 { "max" } else { "descriptor" };
            at.field(field).problem(NOTHING.into());
            return None;
        }
        let sources = [
            claim.map(LimitSource::Claim),
            header.map(LimitSource::Header),
            metadata.map(LimitSource::Metadata),
            descriptor.map(|_| LimitSource::Descriptor),
        ];
        let mut sources = sources.into_iter().flatten();
        match (sources.next(), sources.next()) {
            (Some(source), None) => Some(Self { source, max: max.0 }),
            _ => {
                at.problem(ONE_SOURCE.into());
                None
            }
        }
    }

    schema!(LimitFromFields::schema());
}

const NOTHING: &str = "leaves a request no limit of its own; leave \"limit_from\" out";
const ONE_SOURCE: &str =
    "needs one source: \"claim\", \"header\", \"metadata\" or \"descriptor\", and \"max\"";
