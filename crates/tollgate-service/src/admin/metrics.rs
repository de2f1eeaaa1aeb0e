//! Metrics, for the scraper.
//!
//! Invariant: the text comes from the owner of the sums; this file only selects the format.

use crate::admin::step::Step;
use crate::api_response::ApiResponse;
use crate::metrics::Format;
use crate::request_head::RequestHead;
use crate::store::metrics::{MetricsCall, MetricsReply};

type Next = Step<MetricsCall, Format>;

/// Begins to read.
pub(crate) fn begin(head: &RequestHead) -> Next {
    let format = Format::accepted(head.accept.as_deref());
    Step::Ask(MetricsCall::Read(format), format)
}

/// Continues with the text.
pub(crate) fn answered(format: Format, reply: MetricsReply) -> Next {
    let MetricsReply::Text(text) = reply;
    Step::Response(ApiResponse::new(200, format.content_type(), text))
}
