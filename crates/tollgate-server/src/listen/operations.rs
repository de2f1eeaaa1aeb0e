//! Probes: `/live` and `/ready`, on an address of their own.
//!
//! Invariant: a probe gets a response whatever traffic does: it needs no TLS and no token, and no
//! limit of requests or connections applies. The response contains only yes or no. Live means that
//! the process responds. Ready means that requests should be sent here. It ends with SIGTERM before
//! anything else does, and, if the setting `ready` asks for it, while the shared store does not
//! respond. A policy that cannot be replaced makes no server unready: the last good one is
//! enforced.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tollgate_service::ApiResponse;

use crate::http::{Http, response};

/// Probes at a time: more connections than this are not probes.
const MAX_PROBES: usize = 64;
/// The time for a probe, from its first byte to its end.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Responds to probes for as long as the process lives.
pub(crate) async fn serve(listener: TcpListener, http: Arc<Http>) {
    let probes = Arc::new(Semaphore::new(MAX_PROBES));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(probe) = Arc::clone(&probes).try_acquire_owned() else { continue };
        let http = Arc::clone(&http);
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let answer = answer(request.uri().path(), http.unready());
                let mut response: Response<_> = response(answer, request.method() == "HEAD");
                let close = hyper::header::HeaderValue::from_static("close");
                response.headers_mut().insert(hyper::header::CONNECTION, close);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), answer);
            let _ = tokio::time::timeout(TIMEOUT, connection).await;
            drop(probe);
        });
    }
}

fn answer(path: &str, unready: Option<&str>) -> ApiResponse {
    match (path, unready) {
        ("/live", _) => ApiResponse::json("{\"status\":\"live\"}".to_owned()),
        ("/ready", None) => ApiResponse::json("{\"status\":\"ready\"}".to_owned()),
        ("/ready", Some(why)) => ApiResponse::problem(503, "Service Unavailable", why),
        _ => ApiResponse::problem(404, "Not Found", "use /live or /ready"),
    }
}
