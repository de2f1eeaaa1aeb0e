//! Requests and responses: the paths, the allowed callers, and the limits of a body and its time.
//!
//! Invariant: every request gets a response. Everything that a client can make grow is bounded:
//! concurrent requests, heads, bodies and the time they take. Clients that send bodies slowly
//! compete with each other, not with whole requests. A caller of `/check` names the client of the
//! request. So only a caller with the token or a listed certificate is allowed, or, where neither
//! is configured, a caller from a listed network.

pub mod body;
mod callers;
pub(crate) mod endpoint;
mod page;
pub mod protocols;
mod sending;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use tokio::sync::{Semaphore, SemaphorePermit};
use tollgate_service::{
    Access, Api, ApiResponse, Call, HEALTH_PATH, check as service, health as reports, is_ours,
    lease,
};

use crate::check::{self, leasing};
use crate::config::{Callers, Limits, Readiness};
use crate::forward::Shape;
use crate::gate::Gate;
use crate::grpc::Watchers;
use crate::http::body::Body;
use crate::http::endpoint::Endpoint;
use crate::listen::addresses::{Addresses, ConnectionSlot};
use crate::listen::peer::Peer;
use crate::operate::admin::{self, Operators};

pub use self::page::Page;
pub(crate) use self::sending::response;

/// The path of the nodes of a fleet.
const LEASE_PATH: &str = "/lease";

/// How many messages of callers that need no token are read at a time, and of one address.
const MAX_STRANGERS: usize = 256;
const MAX_STRANGERS_OF_ONE: usize = 32;

/// A body that is incomplete after this time takes one of the places for unfinished bodies, which
/// are half of `max_requests`.
const UNFINISHED_AFTER: Duration = Duration::from_millis(100);

/// The HTTP service.
#[derive(Debug)]
pub struct Http {
    /// The gate that decides requests.
    pub gate: Arc<Gate>,
    /// The allowed callers.
    pub callers: Callers,
    /// The allowed operators.
    pub operators: Operators,
    /// The limits of connections and requests.
    pub limits: Limits,
    /// The operator's page, if it is served.
    pub page: Page,
    /// The watchers of the server's end.
    pub watchers: Watchers,
    /// The condition of `/ready` in addition to a server that is not ending.
    pub readiness: Readiness,
    under_way: Semaphore,
    /// Places of requests whose bodies are unfinished.
    unfinished: Semaphore,
    /// Places of callers that need no token.
    strangers: Semaphore,
    addresses: Arc<Addresses>,
}

/// Room for one request, until its response is made.
pub(crate) struct Room<'a> {
    _permit: SemaphorePermit<'a>,
    _of_one: Option<ConnectionSlot>,
}

impl Http {
    /// An HTTP service without requests.
    #[must_use]
    pub fn new(
        gate: Arc<Gate>,
        callers: Callers,
        operators: Operators,
        limits: Limits,
        page: Page,
    ) -> Self {
        let under_way = Semaphore::new(limits.requests.min(Semaphore::MAX_PERMITS));
        let unfinished = Semaphore::new(under_way.available_permits().div_ceil(2));
        let (watchers, strangers) = (Watchers::default(), Semaphore::new(MAX_STRANGERS));
        let addresses = Arc::new(Addresses::new(MAX_STRANGERS_OF_ONE));
        Self {
            gate,
            callers,
            operators,
            limits,
            page,
            watchers,
            readiness: Readiness::Always,
            under_way,
            unfinished,
            strangers,
            addresses,
        }
    }

    /// The reason why requests should not be sent here now; `None` when they should.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        if self.watchers.is_ending() {
            return Some("the server is ending");
        }
        let is_away = self.readiness == Readiness::WithStore && !self.gate.store.is_reachable();
        is_away.then_some("the store does not answer")
    }

    /// The response to a request from `peer`.
    ///
    /// # Errors
    /// Never.
    pub async fn respond(
        self: Arc<Self>,
        peer: Peer,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let is_head = request.method() == "HEAD";
        let Some(_permit) = self.admit() else {
            // A proxy gets a denial in its protocol: a failure might make it allow the request.
            let shape = request.uri().path_and_query().and_then(|it| Shape::of(it.as_str()));
            let answer = match shape {
                Some((shape, _)) => shape.says(check::overloaded()),
                None => check::overloaded(),
            };
            return Ok(response(answer, is_head));
        };
        let (head, body) = request.into_parts();
        if head.uri.path() == LEASE_PATH {
            let answer = self.lease(peer, &head, body).await;
            return Ok(answer.unwrap_or_else(|problem| response(problem, is_head)));
        }
        Ok(response(self.answer(peer, &head, body).await, is_head))
    }

    /// Room for one more request; `None`, which is counted, when the limit is reached.
    pub(crate) fn admit(&self) -> Option<Room<'_>> {
        self.admit_to(&self.under_way, || Some(None))
    }

    /// The same for a message of a caller that needs no token. Slow senders delay only others of
    /// their own address, and no caller that is allowed to ask for decisions.
    pub(crate) fn admit_stranger(&self, address: IpAddr) -> Option<Room<'_>> {
        self.admit_to(&self.strangers, || self.addresses.take(address).map(Some))
    }

    fn admit_to<'a>(
        &self,
        places: &'a Semaphore,
        of_one: impl FnOnce() -> Option<Option<ConnectionSlot>>,
    ) -> Option<Room<'a>> {
        let permit = places.try_acquire().ok();
        let room = permit.and_then(|permit| Some(Room { _permit: permit, _of_one: of_one()? }));
        if room.is_none() {
            self.gate.traffic.overloaded.fetch_add(1, Ordering::Relaxed);
        }
        room
    }

    async fn answer(&self, peer: Peer, head: &Parts, body: Incoming) -> ApiResponse {
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let path = target.split('?').next().unwrap_or_default();
        let method = head.method.as_str();
        if let Some((shape, behind)) = Shape::of(target) {
            return self.forward(peer, head, shape, behind).await;
        }
        if path == HEALTH_PATH {
            return self.health(method, &head.headers);
        }
        if self.operators.has_page()
            && let Some(answer) = self.page.answer(method, path)
        {
            return answer;
        }
        if is_ours(path) {
            // Boxed: requests that are decided would move this future, which is longer than theirs.
            return Box::pin(self.operate(head, target, body)).await;
        }
        let Some(endpoint) = Endpoint::of(path) else {
            let detail = "use POST /check, POST /check/settle, POST /check/renew, POST /check/done, \
                          POST /lease or GET /.well-known/tollgate/health";
            return ApiResponse::problem(404, "Not Found", detail);
        };
        if method != "POST" {
            return ApiResponse::not_allowed("POST");
        }
        let allowed = self.authorize(peer, &head.headers);
        if let Err(answer) = allowed.and_then(|()| self.is_json(peer, &head.headers)) {
            self.note_refused(Api::Check, &answer, &head.headers);
            return answer;
        }
        match self.read(body, service::MAX_BODY).await {
            Ok(body) => endpoint.answer(&self.gate, &body).await,
            Err(why) => why.answer(service::too_long),
        }
    }

    /// Responds to the nodes of a fleet; the response is binary.
    async fn lease(
        &self,
        peer: Peer,
        head: &Parts,
        body: Incoming,
    ) -> Result<Response<Body>, ApiResponse> {
        if head.method != "POST" {
            return Err(ApiResponse::not_allowed("POST"));
        }
        if let Err(answer) = self.authorize(peer, &head.headers) {
            self.note_refused(Api::Check, &answer, &head.headers);
            return Err(answer);
        }
        let read = self.read(body, lease::MAX_BODY).await;
        let body = read.map_err(|why| why.answer(lease::too_long))?;
        let content_type = field(&head.headers, "content-type");
        let answer = leasing::answer(&self.gate, content_type.as_deref(), &body).await?;
        let mut response = Response::new(Body::whole(Bytes::from(answer)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(lease::CONTENT_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    async fn operate(&self, head: &Parts, target: &str, body: Incoming) -> ApiResponse {
        let method = head.method.as_str();
        let allowed = {
            let field = |name: &str| field(&head.headers, name);
            let now_ms = self.gate.clock.now_ms();
            admin::allowed(&self.operators, &Call { method, target, field: &field, now_ms })
        };
        if let Err(answer) = &allowed {
            self.note_refused(Api::Admin, answer, &head.headers);
        }
        let allowed = match allowed {
            Ok(allowed) => allowed,
            Err(answer) => return answer,
        };
        let mut broken = None;
        let read = async |most| match self.read(body, most).await {
            Ok(body) => Some(body.into()),
            Err(NoBody::TooLong) => None,
            Err(why) => {
                broken = Some(why);
                None
            }
        };
        let answer = admin::answer(&self.gate, allowed, (method, target), read).await;
        // Without a body nothing was done, and the service takes it for one that is too long.
        broken.map_or(answer, |why| why.answer(service::too_long))
    }

    /// The body, if it has at most `most` bytes and arrives within its time.
    pub(crate) async fn read(&self, body: Incoming, most: usize) -> Result<Bytes, NoBody> {
        self.read_within(body, most, self.limits.body_timeout, Some(&self.unfinished)).await
    }

    /// The same, within `time`, for a caller that has a place
    /// [among strangers](Self::admit_stranger).
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) async fn read_of_stranger(
        &self,
        body: Incoming,
        most: usize,
        time: Duration,
    ) -> Result<Bytes, NoBody> {
        self.read_within(body, most, time, None).await
    }

    async fn read_within(
        &self,
        body: Incoming,
        most: usize,
        time: Duration,
        places: Option<&Semaphore>,
    ) -> Result<Bytes, NoBody> {
        let most_bytes = u64::try_from(most).unwrap_or(u64::MAX);
        if body.size_hint().lower() > most_bytes {
            return Err(NoBody::TooLong);
        }
        let mut read = pin!(Limited::new(body, most).collect());
        // A body that came with its head needs no timer.
        let read = match poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await {
            Poll::Ready(read) => read,
            Poll::Pending => self.wait_for(read, time, places).await?,
        };
        match read {
            Ok(body) => Ok(body.to_bytes()),
            Err(why) if why.is::<LengthLimitError>() => Err(NoBody::TooLong),
            Err(_) => Err(NoBody::Broken),
        }
    }

    /// The result of a `read` that has not all of its body yet.
    async fn wait_for<T>(
        &self,
        mut read: Pin<&mut impl Future<Output = T>>,
        time: Duration,
        places: Option<&Semaphore>,
    ) -> Result<T, NoBody> {
        let soon = time.min(UNFINISHED_AFTER);
        if let Ok(read) = tokio::time::timeout(soon, &mut read).await {
            return Ok(read);
        }
        let place = places.map(|places| self.admit_to(places, || Some(None)));
        let _place = place.map(|place| place.ok_or(NoBody::Overloaded)).transpose()?;
        let rest = tokio::time::timeout(time.saturating_sub(soon), read).await;
        rest.map_err(|_| {
            self.gate.traffic.timed_out.fetch_add(1, Ordering::Relaxed);
            NoBody::Late
        })
    }

    fn health(&self, method: &str, headers: &HeaderMap) -> ApiResponse {
        if !matches!(method, "GET" | "HEAD") {
            return ApiResponse::not_allowed("GET, HEAD");
        }
        let authorization = field(headers, "authorization");
        let access = self.operators.tokens.access(authorization.as_deref());
        let has_token =
            |token: &tollgate_service::Token| token.authorizes(authorization.as_deref());
        let is_trusted = matches!(access, Some(Access::Admin | Access::Read))
            || self.callers.token.as_ref().is_some_and(has_token);
        let known = self.gate.following.known();
        let nothing = tollgate_policy::Problems::default();
        let problems = known.refused().unwrap_or(&nothing);
        let is_on = self.gate.following.is_on();
        let status = match self.gate.store.is_reachable() {
            true => reports::Status::Ok,
            false => reports::Status::StoreUnreachable,
        };
        let enforced = known.active().map(|active| {
            let followed = is_on.then(|| known.followed(Some(active)));
            reports::Enforced { policy: &active.policy, followed, status }
        });
        reports::report(problems, enforced.as_ref(), is_trusted)
    }
}

/// The reason that there is no body.
pub(crate) enum NoBody {
    TooLong,
    Broken,
    Late,
    /// Too many bodies are unfinished.
    Overloaded,
}

impl NoBody {
    fn answer(self, too_long: fn() -> ApiResponse) -> ApiResponse {
        let (status, title, detail) = match self {
            Self::TooLong => return too_long(),
            Self::Broken => (400, "Bad Request", "the body is broken off or malformed"),
            Self::Late => (408, "Request Timeout", "the body did not come in time"),
            Self::Overloaded => return check::overloaded().with("connection", "close"),
        };
        ApiResponse::problem(status, title, detail).with("connection", "close")
    }
}

/// The value of a field; lines of one name joined by commas (RFC 9110, 5.3). Bytes that are not
/// text are read as `?`, so that the value never equals a token.
fn field(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(name).iter();
    let text = |line: &HeaderValue| match line.to_str() {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(line.as_bytes()).replace('\u{fffd}', "?"),
    };
    lines.map(text).reduce(|mut joined, line| {
        joined.push_str(", ");
        joined.push_str(&line);
        joined
    })
}
