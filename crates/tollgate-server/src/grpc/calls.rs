//! gRPC calls over the listener of all other requests: the allowed callers, the limits of length
//! and time of a message, and how a response or a denial is sent.
//!
//! Invariant: every call ends with a gRPC status, and within the time that its caller sets. HTTP/2
//! only, where there are trailers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::messages::frame;
use crate::messages::health::Serving;
use crate::messages::status::{Code, Status};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, Version};
use tollgate_core::Span;
use tollgate_policy::grpc_content_type;
use tollgate_service::{Api, ApiResponse};

use crate::check::FOREVER;
use crate::forward;
use crate::gate::call_counts::CallMethod;
use crate::grpc::{self, Method};
use crate::http::body::Body;
use crate::http::endpoint::Endpoint;
use crate::http::{Http, NoBody, response};
use crate::listen::peer::Peer;

/// The longest message: twice what Envoy lets a client send as path and headers (60 KiB each), and
/// several descriptors of them. A longer message cannot be decided, and Envoy then decides by its
/// own setting.
const MAX_MESSAGE: usize = 1 << 20;

/// The longest message of a call that needs no token, and the time that it may take: it contains
/// the name of a service.
const MAX_STRANGERS_MESSAGE: usize = 1 << 10;
const STRANGERS_TIME: Duration = Duration::from_secs(1);

/// The path prefixes of services that Envoy and similar proxies call. Requests on other paths never
/// get a gRPC response, because the status of every gRPC response is 200.
const SERVICES: [&str; 2] = ["/envoy.service.", "/grpc."];

/// The content type of every response.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// True when a request is a call. A proxy that asks about a client's request over HTTP sends that
/// client's content type, and would take the status 200 of every gRPC response for permission.
fn is_call(request: &Request<Incoming>) -> bool {
    let path = request.uri().path();
    if forward::is_below(path) || !SERVICES.iter().any(|begin| path.starts_with(begin)) {
        return false;
    }
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    request.version() == Version::HTTP_2 && grpc_content_type(kind) == Some("application/grpc")
}

/// True unless the host is missing or given twice (RFC 9112, 3.2): then programs that read the
/// request may not agree on its host.
fn has_its_host(request: &Request<Incoming>) -> bool {
    let lines = request.headers().get_all(HOST).iter().count();
    match request.version() {
        Version::HTTP_11 => lines == 1,
        _ => lines <= 1,
    }
}

/// A response without a message: its status is in the head.
fn ended(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::whole(Bytes::new()));
    *response.headers_mut() = trailers(status);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// The name of a request in traces; `None` for a path that callers do not use: it is never traced.
fn traced(request: &Request<Incoming>) -> Option<&'static str> {
    let path = request.uri().path();
    match path {
        "/lease" => Some("POST /lease"),
        _ if forward::is_below(path) => Some("forward-auth"),
        _ => Endpoint::of(path).map(Endpoint::name).or_else(|| grpc::traced(path)),
    }
}

/// The response to any request from `peer` over HTTP.
///
/// # Errors
/// Never.
pub async fn respond(
    http: Arc<Http>,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let traces = http.gate.traces.get();
    let span = traces.and_then(|traces| traces.request(traced(&request)?, request.headers()));
    let Some(mut span) = span else { return respond_to(http, peer, request).await };
    let response = span.within(Box::pin(respond_to(http, peer, request))).await?;
    span.set_attribute("http.response.status_code", u64::from(response.status().as_u16()));
    let code = response.headers().get("grpc-status").and_then(|code| code.to_str().ok());
    if let Some(code) = code.and_then(|code| code.parse::<u64>().ok()) {
        span.set_attribute("rpc.grpc.status_code", code);
    }
    if response.status().is_server_error() || code.is_some() {
        span.fail();
    }
    Ok(response)
}

async fn respond_to(
    http: Arc<Http>,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if !has_its_host(&request) {
        let detail = "send one Host: the host that the request is for";
        let answer = ApiResponse::problem(400, "Bad Request", detail);
        return Ok(response(answer, request.method() == "HEAD"));
    }
    if !is_call(&request) {
        return http.respond(peer, request).await;
    }
    let (head, body) = request.into_parts();
    let method = Method::of(head.uri.path(), http.callers.protocols);
    let called = method.as_ref().map_or(CallMethod::Unknown, |method| method.called());
    let is_public = method.as_ref().is_ok_and(|method| method.is_public());
    let Some(_permit) = (if is_public { http.admit_stranger(peer.address) } else { http.admit() })
    else {
        http.gate.traffic.calls.add(called, Code::Unavailable);
        return Ok(ended(&grpc::overloaded()));
    };
    let timeout = head.headers.get("grpc-timeout").and_then(|it| frame::timeout(it.as_bytes()));
    let answered = async { answer(&http, peer, (method?, &head, body), timeout).await };
    let done = match timeout {
        None => answered.await,
        Some(timeout) => tokio::time::timeout(timeout, answered).await.unwrap_or_else(|_| {
            Err(Status::new(Code::DeadlineExceeded, "the time of the call is over"))
        }),
    };
    let code = done.as_ref().map_or_else(|status| status.code, |_| Code::Ok);
    http.gate.traffic.calls.add(called, code);
    Ok(done.unwrap_or_else(|status| ended(&status)))
}

async fn answer(
    http: &Http,
    peer: Peer,
    (method, head, body): (Method, &Parts, Incoming),
    timeout: Option<Duration>,
) -> Result<Response<Body>, Status> {
    if head.method != "POST" {
        return Err(Status::new(Code::Unimplemented, "a call is a POST"));
    }
    if !method.is_public() {
        may_call(http, peer, &head.headers)?;
    }
    let most = if method.is_public() { MAX_STRANGERS_MESSAGE } else { MAX_MESSAGE };
    let most_bytes = most.saturating_add(frame::PREFIX);
    let read = if method.is_public() {
        let time = http.limits.body_timeout.min(STRANGERS_TIME);
        http.read_of_stranger(body, most_bytes, time).await
    } else {
        http.read(body, most_bytes).await
    };
    let body = read.map_err(|why| match why {
        NoBody::TooLong => {
            let message = format!("a message has at most {most} bytes");
            Status::new(Code::ResourceExhausted, message)
        }
        NoBody::Broken => Status::new(Code::InvalidArgument, "the message is broken off"),
        NoBody::Late => Status::new(Code::DeadlineExceeded, "the message did not come in time"),
        NoBody::Overloaded => grpc::overloaded(),
    })?;
    let message = frame::message(&body)?;
    match method {
        Method::Health => health_now(http, message),
        Method::Watch => health_from_now(http, peer, message),
        Method::RateLimit | Method::Authorize => {
            let patience = timeout.map_or(FOREVER, patience);
            let answer = grpc::answer(&http.gate, method, message, patience).await?;
            Ok(message_of(&answer))
        }
    }
}

/// Allows the same callers as `POST /check` does.
fn may_call(http: &Http, peer: Peer, headers: &HeaderMap) -> Result<(), Status> {
    http.authorize(peer, headers).map_err(|answer| {
        http.note_refused(Api::Check, &answer, headers);
        match answer.status {
            401 => Status::new(
                Code::Unauthenticated,
                "send the metadata \"authorization: Bearer\" with the token of this service",
            ),
            _ => Status::new(
                Code::PermissionDenied,
                "a caller names the client of a request, and this caller may not: set check_token, or list \
                 its address in trusted_callers, or its certificate in tls_clients",
            ),
        }
    })
}

fn health_now(http: &Http, message: &[u8]) -> Result<Response<Body>, Status> {
    if grpc::is_known(http.callers.protocols, message)? {
        return Ok(message_of(&serving(http).write()));
    }
    Err(Status::new(Code::NotFound, "there is no such service here"))
}

/// The status of a service that is known here: the same as `/ready`.
fn serving(http: &Http) -> Serving {
    if http.unready().is_some() { Serving::NotServing } else { Serving::Serving }
}

fn health_from_now(http: &Http, peer: Peer, message: &[u8]) -> Result<Response<Body>, Status> {
    let is_known = grpc::is_known(http.callers.protocols, message)?;
    let of = |serving: Serving| {
        let serving = if is_known { serving } else { Serving::ServiceUnknown };
        Bytes::from(frame::framed(&serving.write()))
    };
    let watcher = http.watchers.watch(peer.address)?;
    let (now, last) = (of(serving(http)), of(Serving::NotServing));
    let status = Status::new(Code::Unavailable, "the server is ending");
    Ok(answered(Body::messages(now, (watcher.ended(), last), trailers(&status))))
}

/// How long a request may wait so that its response still arrives in time: seven eighths.
fn patience(timeout: Duration) -> Span {
    let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    Span::from_nanos(nanos.saturating_sub(nanos / 8))
}

fn message_of(message: &[u8]) -> Response<Body> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    answered(Body::message(Bytes::from(frame::framed(message)), trailers))
}

fn answered(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

fn trailers(status: &Status) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", HeaderValue::from(u16::from(status.code.number())));
    if let Ok(message) = HeaderValue::try_from(status.encoded_message()) {
        fields.insert("grpc-message", message);
    }
    fields
}
