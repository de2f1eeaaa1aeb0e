//! A response of the service as hyper sends it.
//!
//! Invariant: the names and values of most responses are not parsed or copied.

use std::borrow::Cow;

use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, InvalidHeaderName, InvalidHeaderValue,
};
use hyper::{Response, StatusCode};
use tollgate_service::ApiResponse;

use crate::http::body::Body;

/// Those of the response to a decision, with those that hyper adds.
const USUAL_FIELDS: usize = 4;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A response as it is sent.
pub(crate) fn response(answer: ApiResponse, is_head: bool) -> Response<Body> {
    let body = match (is_head, answer.body) {
        (true, _) => Bytes::new(),
        (false, Cow::Borrowed(text)) => Bytes::from_static(text.as_bytes()),
        (false, Cow::Owned(text)) => Bytes::from(text),
    };
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.reserve(USUAL_FIELDS);
    for (name, value) in answer.fields.lines().lines().filter_map(|line| line.split_once(':')) {
        let value = value_of(value.strip_prefix(' ').unwrap_or(value));
        if let (Ok(name), Ok(value)) = (name_of(name), value) {
            headers.append(name, value);
        }
    }
    response
}

/// A name; those of most responses without looking it up.
fn name_of(name: &str) -> Result<HeaderName, InvalidHeaderName> {
    match name {
        "content-type" => Ok(CONTENT_TYPE),
        "cache-control" => Ok(CACHE_CONTROL),
        _ => HeaderName::try_from(name),
    }
}

/// A value; those of most responses without a copy.
fn value_of(value: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    match value {
        "application/json" => Ok(JSON),
        "no-store" => Ok(NO_STORE),
        _ => HeaderValue::try_from(value),
    }
}
