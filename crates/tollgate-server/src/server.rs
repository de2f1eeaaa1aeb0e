//! The server: listeners, signals, and its end.
//!
//! Invariant: SIGTERM first makes the server unready, then it takes no more connections, then what
//! is under way is answered, and traces that wait are sent, within a deadline; a second one ends it
//! at once. SIGHUP reads the
//! policy file and the certificates again; what is wrong with them is logged and changes nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};

use crate::addresses::Addresses;
use crate::connection;
use crate::gate::Gate;
use crate::http::Http;
use crate::log::Level;
use crate::operations;
use crate::tls::Tls;

/// Between two times that something is done without being asked.
const TICK: Duration = Duration::from_secs(1);
/// Between two times that the store is asked which policy is in force.
const FOLLOW: Duration = Duration::from_secs(5);
/// After an error of accepting, such as no more descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// What is served.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) http: Arc<Http>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) listener: TcpListener,
    pub(crate) operations: TcpListener,
    pub(crate) drain: (Duration, Duration),
}

/// What can be told to a server.
pub(crate) struct Signals {
    end: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    /// From now on they do not end the process.
    pub(crate) fn take() -> std::io::Result<Self> {
        Ok(Self {
            end: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            reload: signal(SignalKind::hangup())?,
        })
    }

    async fn ended(&mut self) {
        tokio::select! {
            _ = self.end.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl Signals {
    /// Reloads at each signal for it until one asks for the end, which does not wait for a file
    /// that is read for ever.
    async fn reload_until_ended(&mut self, reload: impl AsyncFn()) {
        let Self { end, interrupt, reload: hangup } = self;
        let reloading = async {
            while hangup.recv().await.is_some() {
                reload().await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = end.recv() => {}
            _ = interrupt.recv() => {}
            () = reloading => {}
        }
    }
}

impl Server {
    /// Serves until it is told to end; `reload` reads the policy file again, `flush` is what is
    /// done when all is answered. False when requests were cut off.
    pub(crate) async fn serve(
        self,
        mut signals: Signals,
        reload: impl AsyncFn(),
        flush: impl Future<Output = ()>,
    ) -> bool {
        let gate = Arc::clone(&self.http.gate);
        let most = self.http.limits.connections.min(Semaphore::MAX_PERMITS);
        let connections = Arc::new(Semaphore::new(most));
        let (drain, draining) = watch::channel(false);
        tokio::spawn(operations::serve(self.operations, Arc::clone(&self.http)));
        let ticking = tokio::spawn(tick(Arc::clone(&gate)));
        let following = tokio::spawn(follow(Arc::clone(&gate)));
        let tls = self.tls.clone();
        let accepting = tokio::spawn(accept(
            self.listener,
            Arc::clone(&self.http),
            self.tls,
            Arc::clone(&connections),
            draining,
        ));
        signals
            .reload_until_ended(async || {
                reload_certificates(tls.clone(), &gate).await;
                reload().await;
            })
            .await;
        gate.log.event(Level::Info, "draining", &[]);
        self.http.watchers.end();
        let (delay, deadline) = self.drain;
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = signals.ended() => {}
        }
        accepting.abort();
        // The listener is closed once the task is gone.
        let _ = accepting.await;
        drain.send_replace(true);
        let all = u32::try_from(most).unwrap_or(u32::MAX);
        let mut is_whole = false;
        let finish = async {
            is_whole = connections.acquire_many(all).await.is_ok();
            flush.await;
        };
        tokio::select! {
            () = finish => {}
            () = tokio::time::sleep(deadline) => {}
            () = signals.ended() => {}
        }
        ticking.abort();
        following.abort();
        let left = most.saturating_sub(connections.available_permits());
        gate.log.event(Level::Info, "ended", &[("connections_cut", left.into())]);
        is_whole
    }

    /// Where it listens.
    pub(crate) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.listener.local_addr().ok()?, self.operations.local_addr().ok()?))
    }
}

async fn reload_certificates(tls: Option<Arc<Tls>>, gate: &Gate) {
    let Some(tls) = tls else { return };
    let reloaded = tokio::task::spawn_blocking(move || tls.reload()).await;
    match reloaded.unwrap_or_else(|why| Err(why.to_string())) {
        Ok(()) => gate.log.event(Level::Info, "certificates_reloaded", &[]),
        Err(why) => gate.log.say(Level::Error, "certificates_refused", &why),
    }
}

async fn accept(
    listener: TcpListener,
    http: Arc<Http>,
    tls: Option<Arc<Tls>>,
    connections: Arc<Semaphore>,
    drain: watch::Receiver<bool>,
) {
    let addresses = Arc::new(Addresses::new(http.limits.connections_per_address));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(why) => {
                http.gate.log.say(Level::Error, "accept_failed", &why.to_string());
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let traffic = &http.gate.traffic;
        let Some(place) = addresses.take(peer.ip()) else {
            traffic.connections_of_one.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            traffic.connections_refused.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        traffic.connections.fetch_add(1, Ordering::Relaxed);
        let (http, tls, drain) = (Arc::clone(&http), tls.clone(), drain.clone());
        tokio::spawn(async move {
            let open = Open(Arc::clone(&http.gate));
            connection::serve(stream, peer.ip(), http, tls, drain).await;
            drop((open, permit, place));
        });
    }
}

/// A connection that is open, for the metrics.
struct Open(Arc<Gate>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.traffic.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn tick(gate: Arc<Gate>) {
    let mut number = 0_usize;
    let mut interval = tokio::time::interval(TICK);
    loop {
        interval.tick().await;
        gate.tick(number);
        // An engine that does not answer is not waited for: the next look finds this one under way.
        let watched = Arc::clone(&gate);
        tokio::spawn(async move { watched.watch().await });
        number = number.wrapping_add(1);
    }
}

async fn follow(gate: Arc<Gate>) {
    let mut interval = tokio::time::interval(FOLLOW);
    loop {
        interval.tick().await;
        gate.follow(0).await;
    }
}
