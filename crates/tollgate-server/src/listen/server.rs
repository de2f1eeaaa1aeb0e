//! The server: listeners, signals, and its end.
//!
//! Invariant: SIGTERM first makes the server unready and notifies its clients. Then the server
//! accepts no more connections, finishes its current requests, and sends the waiting traces, within
//! a deadline. For a part of that deadline idle connections are served. A second SIGTERM ends it at
//! once. SIGHUP reads the policy file and the certificates again; mistakes in them are logged and
//! change nothing.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;

use crate::gate::Gate;
use crate::http::Http;
use crate::listen::addresses::Addresses;
use crate::listen::connection::{self, DrainPhase};
use crate::listen::operations;
use crate::listen::tls::Tls;
use crate::log::Level;

/// The time between two runs of periodic work.
const TICK: Duration = Duration::from_secs(1);
/// The time between two requests to the store for the policy in force.
const FOLLOW: Duration = Duration::from_secs(5);
/// The pause after an error of accepting, such as no more descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Connections that the kernel may have accepted when the listener is closed: the length of its
/// queue by default (net.core.somaxconn).
const QUEUE: usize = 4096;

/// How long idle connections are still served after the listener is closed, at most half of the
/// deadline: an idle connection's client may have sent a request that is on its way.
const LINGER: Duration = Duration::from_secs(5);

/// The parts of a server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) http: Arc<Http>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) listener: TcpListener,
    pub(crate) operations: TcpListener,
    pub(crate) drain: (Duration, Duration),
}

/// The signals to a server.
pub(crate) struct Signals {
    end: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    /// Takes the signals: from now on they do not end the process.
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
    /// Reloads at each signal for it until a signal asks for the end, which does not wait for a
    /// file that is read for ever.
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
    /// Serves until a signal asks for the end. `reload` reads the policy file again; `flush` runs
    /// after the last response. False when requests were cut off.
    pub(crate) async fn serve(
        self,
        mut signals: Signals,
        reload: impl AsyncFn(),
        flush: impl Future<Output = ()>,
    ) -> bool {
        let gate = Arc::clone(&self.http.gate);
        let most = self.http.limits.connections.min(Semaphore::MAX_PERMITS);
        let connections = Arc::new(Semaphore::new(most));
        let (drain, draining) = watch::channel(DrainPhase::Serving);
        tokio::spawn(operations::serve(self.operations, Arc::clone(&self.http)));
        let ticking = tokio::spawn(tick(Arc::clone(&gate)));
        let following = tokio::spawn(follow(Arc::clone(&gate)));
        let tls = self.tls.clone();
        let entrance = Acceptor {
            addresses: Arc::new(Addresses::new(self.http.limits.connections_per_address)),
            http: Arc::clone(&self.http),
            tls: self.tls,
            connections: Arc::clone(&connections),
            drain: draining,
        };
        let (close, closing) = oneshot::channel();
        let accepting = tokio::spawn(entrance.accept_until(self.listener, closing));
        signals
            .reload_until_ended(async || {
                reload_certificates(tls.clone(), &gate).await;
                reload().await;
            })
            .await;
        gate.log.event(Level::Info, "draining", &[]);
        drain.send_replace(DrainPhase::Draining);
        self.http.watchers.end();
        let (delay, deadline) = self.drain;
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = signals.ended() => {}
        }
        drop(close);
        // The listener is closed once the task is gone.
        let _ = accepting.await;
        let mut is_whole = false;
        let finish = async {
            is_whole = end_connections(&drain, &connections, (most, deadline)).await;
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

    /// The addresses of its listeners.
    pub(crate) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.listener.local_addr().ok()?, self.operations.local_addr().ok()?))
    }
}

async fn reload_certificates(tls: Option<Arc<Tls>>, gate: &Gate) {
    let Some(tls) = tls else { return };
    let reloaded = tokio::task::spawn_blocking(move || tls.reload()).await;
    match reloaded.unwrap_or_else(|why| Err(why.to_string())) {
        Ok(()) => gate.log.event(Level::Info, "certificates_reloaded", &[]),
        Err(why) => gate.log.message(Level::Error, "certificates_refused", &why),
    }
}

/// Serves idle connections for a while, then lets all `most` end. True when all have ended.
async fn end_connections(
    drain: &watch::Sender<DrainPhase>,
    connections: &Semaphore,
    (most, deadline): (usize, Duration),
) -> bool {
    let all = connections.acquire_many(u32::try_from(most).unwrap_or(u32::MAX));
    let mut all = pin!(all);
    let linger = LINGER.min(deadline.checked_div(2).unwrap_or_default());
    match timeout(linger, all.as_mut()).await {
        Ok(ended) => ended.is_ok(),
        Err(_) => {
            drain.send_replace(DrainPhase::Closing);
            all.await.is_ok()
        }
    }
}

/// The entry of connections.
struct Acceptor {
    http: Arc<Http>,
    tls: Option<Arc<Tls>>,
    connections: Arc<Semaphore>,
    addresses: Arc<Addresses>,
    drain: watch::Receiver<DrainPhase>,
}

impl Acceptor {
    /// Accepts connections until the sender of `close` is gone, then those that the kernel has
    /// accepted already: closing the listener would reset them, and lose the requests of their
    /// clients.
    async fn accept_until(self, listener: TcpListener, close: oneshot::Receiver<Infallible>) {
        tokio::select! {
            () = self.accept(&listener) => {}
            _ = close => {}
        }
        for (stream, peer) in queued(listener) {
            self.begin(stream, peer.ip());
        }
    }

    async fn accept(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.begin(stream, peer.ip()),
                Err(why) => {
                    self.http.gate.log.message(Level::Error, "accept_failed", &why.to_string());
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    /// Serves a connection, if there is a place for it.
    fn begin(&self, stream: TcpStream, address: IpAddr) {
        let traffic = &self.http.gate.traffic;
        let Some(place) = self.addresses.take(address) else {
            traffic.connections_of_one.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
            traffic.connections_refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        traffic.connections.fetch_add(1, Ordering::Relaxed);
        let (http, tls, drain) = (Arc::clone(&self.http), self.tls.clone(), self.drain.clone());
        tokio::spawn(async move {
            let open = OpenConnection(Arc::clone(&http.gate));
            connection::serve(stream, address, http, tls, drain).await;
            drop((open, permit, place));
        });
    }
}

/// The connections that the kernel has accepted for `listener` already. The kernel itself is asked,
/// because the runtime may not have been notified of them yet.
fn queued(listener: TcpListener) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
    // It stays nonblocking.
    let accepting = listener.into_std().map(|listener| {
        std::iter::from_fn(move || listener.accept().ok()).take(QUEUE).filter_map(
            |(stream, peer)| {
                stream.set_nonblocking(true).ok()?;
                Some((TcpStream::from_std(stream).ok()?, peer))
            },
        )
    });
    accepting.into_iter().flatten()
}

/// A connection that is open, for the metrics.
struct OpenConnection(Arc<Gate>);

impl Drop for OpenConnection {
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
        // An engine that does not respond is not waited for: the next check finds this one still
        // running.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn connections_are_found_of_which_the_runtime_has_not_heard() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
            let address = listener.local_addr().expect("its address");
            let connect = |_| std::net::TcpStream::connect(address).expect("connected");
            let clients: Vec<std::net::TcpStream> = (0..3).map(connect).collect();
            let addresses: Vec<SocketAddr> = queued(listener).map(|(_, peer)| peer).collect();
            let theirs = clients.iter().map(|client| client.local_addr().expect("its address"));
            assert_eq!(addresses, theirs.collect::<Vec<_>>());
        });
    }
}
