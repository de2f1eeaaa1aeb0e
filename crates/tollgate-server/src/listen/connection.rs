//! One connection: TLS, its version of HTTP, its requests, and its end.
//!
//! Invariant: no client holds a connection by sending nothing. TLS and the first bytes have a
//! deadline, and so does every head. A connection without a request is closed after a while, and a
//! connection that does not read its last response soon after that. When the server ends, a client
//! that keeps an HTTP/1 connection learns that from a response, and has some time to send a request
//! that gets one: a connection that is closed while a request is on its way is reset.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::grpc::calls;
use crate::http::Http;
use crate::listen::begun::Begun;
use crate::listen::peer::{CertifiedName, Peer};
use crate::listen::tls::{Tls, is_of_certificate};

/// Concurrent requests of one HTTP/2 connection.
const MAX_STREAMS: u32 = 100;
/// Lines of a head.
const MAX_FIELDS: usize = 100;
/// The bytes that one HTTP/2 stream, and all of a connection, may send before they are read.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// The time between two checks whether a connection is idle.
const LOOK: Duration = Duration::from_secs(1);
/// How long a connection that was asked to end may still take to send its responses.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The connection ends after this response (RFC 9112, 9.6).
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// The phase of the server's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DrainPhase {
    /// It does not end.
    Serving,
    /// Clients are notified: HTTP/1 by `Connection: close` in each response, HTTP/2 by GOAWAY.
    Draining,
    /// Every connection ends after its current requests.
    Closing,
}

impl DrainPhase {
    /// The phase in which an HTTP/2 connection that begins in this one gets GOAWAY. A connection
    /// that comes after the signal stays until the listener is closed: its client would only open
    /// the next one.
    const fn until_goaway(self) -> Self {
        match self {
            Self::Serving => Self::Draining,
            Self::Draining | Self::Closing => Self::Closing,
        }
    }
}

/// Requests of a connection, and when one last began or ended.
#[derive(Debug)]
struct Activity {
    since: Instant,
    under_way: AtomicUsize,
    last_ms: AtomicU64,
    /// True when the next response is the last one.
    is_ending: AtomicBool,
}

impl Activity {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            under_way: AtomicUsize::new(0),
            last_ms: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
        }
    }

    fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        ActiveRequest(Arc::clone(self))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// For how long there was no request; `None` while there is one.
    fn idle(&self) -> Option<Duration> {
        if self.under_way.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let idle_ms = self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed));
        Some(Duration::from_millis(idle_ms))
    }
}

/// A current request; it ends when this is dropped, as it is when the client leaves.
struct ActiveRequest(Arc<Activity>);

impl ActiveRequest {
    fn is_last(&self) -> bool {
        self.0.is_ending.load(Ordering::Relaxed)
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.last_ms.store(self.0.now_ms(), Ordering::Relaxed);
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection until it ends, or until the phase of `drain` ends it.
pub(crate) async fn serve(
    stream: TcpStream,
    address: IpAddr,
    http: Arc<Http>,
    tls: Option<Arc<Tls>>,
    drain: watch::Receiver<DrainPhase>,
) {
    // A response is one packet, which must not wait for another.
    let _ = stream.set_nodelay(true);
    let patience = http.limits.header_timeout;
    match tls {
        Some(tls) => {
            let stream = match timeout(patience, tls.acceptor().accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(why)) if is_of_certificate(&why) => return http.gate.note_certificate(&why),
                Ok(Err(_)) | Err(_) => {
                    http.gate.traffic.handshakes_failed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            };
            let session = stream.get_ref().1;
            let is_h2 = session.alpn_protocol() == Some(b"h2");
            let own = session.peer_certificates().and_then(|chain| chain.first());
            let is_named =
                own.is_some_and(|own| CertifiedName::is_one_of(&http.callers.names, own));
            speak(stream, is_h2, Peer { address, is_named }, http, drain).await;
        }
        None => {
            let begun = timeout(patience, Begun::begin(stream)).await;
            let Ok(Some((stream, is_h2))) = begun else { return };
            speak(stream, is_h2, Peer { address, is_named: false }, http, drain).await;
        }
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_h2: bool,
    peer: Peer,
    http: Arc<Http>,
    mut drain: watch::Receiver<DrainPhase>,
) {
    let activity = Arc::new(Activity::new());
    let limits = http.limits;
    let service = {
        let activity = Arc::clone(&activity);
        service_fn(move |request| {
            let under_way = activity.begin();
            let answer = calls::respond(Arc::clone(&http), peer, request);
            async move {
                let Ok(mut answer) = answer.await;
                // HTTP/2 has no such field (RFC 9113, 8.2.2).
                if !is_h2 && under_way.is_last() {
                    answer.headers_mut().insert(CONNECTION, CLOSE);
                }
                drop(under_way);
                Ok::<_, Infallible>(answer)
            }
        })
    };
    let io = TokioIo::new(stream);
    if is_h2 {
        let until = drain.borrow().until_goaway();
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        if run(connection.as_mut(), &activity, limits.idle_timeout, &mut drain, until).await {
            connection.as_mut().graceful_shutdown();
            finish(connection, &activity).await;
        }
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(limits.header_bytes)
            .max_headers(MAX_FIELDS)
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        if run(connection.as_mut(), &activity, limits.idle_timeout, &mut drain, DrainPhase::Closing)
            .await
        {
            connection.as_mut().graceful_shutdown();
            finish(connection, &activity).await;
        }
    }
}

/// Runs a connection until it ends (false), or must be ended (true): it was idle for too long, or
/// the server has come to the phase `until`.
async fn run<C: Future>(
    mut connection: std::pin::Pin<&mut C>,
    activity: &Activity,
    idle_timeout: Duration,
    drain: &mut watch::Receiver<DrainPhase>,
    until: DrainPhase,
) -> bool {
    let mut look = tokio::time::interval(LOOK);
    let mut seen = DrainPhase::Serving;
    loop {
        tokio::select! {
            // A request that comes after the server is unready gets a response that ends the
            // connection.
            biased;
            // An error means that the server has ended.
            phase = drain.wait_for(|phase| *phase > seen) => {
                seen = phase.map_or(DrainPhase::Closing, |phase| *phase);
                activity.is_ending.store(true, Ordering::Relaxed);
                if seen >= until {
                    return true;
                }
            }
            _ = connection.as_mut() => return false,
            _ = look.tick() => {
                if activity.idle().is_some_and(|idle| idle >= idle_timeout) {
                    return true;
                }
            }
        }
    }
}

/// Ends a connection that was asked to end: current requests get their responses, and then there is
/// little time left.
async fn finish<C: Future>(mut connection: std::pin::Pin<&mut C>, activity: &Activity) {
    let mut look = tokio::time::interval(LOOK);
    let since = Instant::now();
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = look.tick() => {
                let is_over = activity.idle().is_some_and(|idle| idle.min(since.elapsed()) >= LAST_WORDS);
                if is_over {
                    return;
                }
            }
        }
    }
}
