//! One connection: TLS, which HTTP it speaks, its requests, and its end.
//!
//! Invariant: nobody holds a connection by saying nothing. TLS and the first bytes have a deadline,
//! so has every head; a connection without a request is closed after a while, and one that does not
//! read its last answer soon after that.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::begun::Begun;
use crate::calls;
use crate::http::Http;
use crate::peer::{CertifiedName, Peer};
use crate::tls::{Tls, is_of_certificate};

/// Requests of one HTTP/2 connection at a time.
const MAX_STREAMS: u32 = 100;
/// Lines of a head.
const MAX_FIELDS: usize = 100;
/// What may come of one HTTP/2 stream, and of all of a connection, before it is read.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// How often it is looked whether a connection is idle.
const LOOK: Duration = Duration::from_secs(1);
/// How long a connection that was told to end may still take to send what it owes.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Requests of a connection, and when one last began or ended.
#[derive(Debug)]
struct Activity {
    since: Instant,
    under_way: AtomicUsize,
    last_ms: AtomicU64,
}

impl Activity {
    fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
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

/// A request that is under way; it is not any more when this is dropped, as it is when the client
/// leaves.
struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.last_ms.store(self.0.now_ms(), Ordering::Relaxed);
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection until it ends, or `drain` says that it is to.
pub(crate) async fn serve(
    stream: TcpStream,
    address: IpAddr,
    http: Arc<Http>,
    tls: Option<Arc<Tls>>,
    drain: watch::Receiver<bool>,
) {
    // Answers are one packet, which is not to wait for another.
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
    mut drain: watch::Receiver<bool>,
) {
    let (under_way, last_ms) = (AtomicUsize::new(0), AtomicU64::new(0));
    let activity = Arc::new(Activity { since: Instant::now(), under_way, last_ms });
    let limits = http.limits;
    let service = {
        let activity = Arc::clone(&activity);
        service_fn(move |request| {
            let under_way = activity.begin();
            let answer = calls::respond(Arc::clone(&http), peer, request);
            async move {
                let answer = answer.await;
                drop(under_way);
                answer
            }
        })
    };
    let io = TokioIo::new(stream);
    if is_h2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .serve_connection(io, service);
        let mut connection = pin!(connection);
        if run(connection.as_mut(), &activity, limits.idle_timeout, &mut drain).await {
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
        if run(connection.as_mut(), &activity, limits.idle_timeout, &mut drain).await {
            connection.as_mut().graceful_shutdown();
            finish(connection, &activity).await;
        }
    }
}

/// Runs a connection until it ends (false), or is to be told to end (true).
async fn run<C: Future>(
    mut connection: std::pin::Pin<&mut C>,
    activity: &Activity,
    idle_timeout: Duration,
    drain: &mut watch::Receiver<bool>,
) -> bool {
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = connection.as_mut() => return false,
            // An error says that nobody is left to say it: the server ends.
            _ = drain.wait_for(|is_draining| *is_draining) => return true,
            _ = look.tick() => {
                if activity.idle().is_some_and(|idle| idle >= idle_timeout) {
                    return true;
                }
            }
        }
    }
}

/// Lets a connection that was told to end do so: what is under way is answered, and then there is
/// little time left.
async fn finish<C: Future>(mut connection: std::pin::Pin<&mut C>, activity: &Activity) {
    let mut look = tokio::time::interval(LOOK);
    let told = Instant::now();
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            _ = look.tick() => {
                let is_over = activity.idle().is_some_and(|idle| idle.min(told.elapsed()) >= LAST_WORDS);
                if is_over {
                    return;
                }
            }
        }
    }
}
