//! The body of a response: ready bytes, a gRPC message with its trailers, or a message now and
//! another one when the server ends.
//!
//! Invariant: a gRPC response always ends with its status.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::HeaderMap;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};

/// The body of a response.
pub struct Body {
    /// The first bytes; empty for none.
    first: Bytes,
    /// The bytes after the end of this future, if any.
    then: Option<(Last, Bytes)>,
    trailers: Option<HeaderMap>,
}

/// The future that the last message waits for.
type Last = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Body {
    /// A body of these bytes.
    #[must_use]
    pub const fn whole(bytes: Bytes) -> Self {
        Self { first: bytes, then: None, trailers: None }
    }

    /// A message and its trailers.
    #[must_use]
    pub const fn message(bytes: Bytes, trailers: HeaderMap) -> Self {
        Self { first: bytes, then: None, trailers: Some(trailers) }
    }

    /// A message now, another one after `over`, and the trailers.
    pub fn messages(
        bytes: Bytes,
        (over, last): (impl Future<Output = ()> + Send + 'static, Bytes),
        trailers: HeaderMap,
    ) -> Self {
        Self { first: bytes, then: Some((Box::pin(over), last)), trailers: Some(trailers) }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Some((over, _)) = &mut self.then {
            std::task::ready!(over.as_mut().poll(cx));
            let last = self.then.take().map(|(_, last)| last).unwrap_or_default();
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.then.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.then, &self.trailers) {
            (None, None) => SizeHint::with_exact(u64::try_from(self.first.len()).unwrap_or(0)),
            _ => SizeHint::default(),
        }
    }
}
