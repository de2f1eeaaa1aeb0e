//! A connection whose first bytes were read, to detect its version of HTTP.
//!
//! Invariant: the bytes that were read come again, before all others. A connection that sends a
//! part of them and stops costs nothing while no more bytes arrive.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The first bytes of HTTP/2 (RFC 9113, 3.4) that no method of HTTP/1 has.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// The connection.
#[derive(Debug)]
pub(crate) struct Begun<S> {
    /// The bytes that were read and are not yet returned again.
    first: Vec<u8>,
    stream: S,
}

impl<S: AsyncRead + Unpin> Begun<S> {
    /// Reads the first bytes, and whether they begin HTTP/2; `None` when the connection ends before
    /// that is known.
    pub(crate) async fn begin(mut stream: S) -> Option<(Self, bool)> {
        let mut first = Vec::new();
        loop {
            let mut some = [0; PREFACE.len()];
            let missing = PREFACE.len().checked_sub(first.len())?;
            let read = stream.read(some.get_mut(..missing)?).await.ok().filter(|read| *read > 0)?;
            first.extend_from_slice(some.get(..read)?);
            if first == PREFACE || !PREFACE.starts_with(&first) {
                let is_h2 = first == PREFACE;
                return Some((Self { first, stream }, is_h2));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let len = self.first.len().min(buf.remaining());
        let rest = self.first.split_off(len);
        buf.put_slice(&self.first);
        self.first = rest;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use std::time::Duration;
    use tokio::io::AsyncWriteExt;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().expect("a runtime").block_on(test);
    }

    // Guards: connections that send PRI and stop, each of which woke the server 200 times a second.
    #[test]
    fn a_connection_that_stops_half_way_wakes_nothing() {
        run(async {
            let (mut client, server) = tokio::io::duplex(64);
            client.write_all(b"PRI").await.expect("sent");
            let wakes = Arc::new(Wakes::default());
            let (waker, mut begin) = (Waker::from(Arc::clone(&wakes)), pin!(Begun::begin(server)));
            let mut cx = Context::from_waker(&waker);
            assert!(begin.as_mut().poll(&mut cx).is_pending());
            tokio::time::advance(Duration::from_secs(60)).await;
            assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
            client.write_all(b" * HTTP/2.0 and more").await.expect("sent");
            assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
            let Poll::Ready(Some((mut begun, true))) = begin.as_mut().poll(&mut cx) else {
                panic!("it is HTTP/2")
            };
            drop(client);
            let mut all = Vec::new();
            begun.read_to_end(&mut all).await.expect("read");
            assert_eq!(all, b"PRI * HTTP/2.0 and more");
        });
    }

    #[test]
    fn the_first_bytes_come_again_however_they_are_cut() {
        run(async {
            for (text, is_h2) in [("POST / HTTP/1.1", false), ("PRI * HTTP/2.0\r\n", true)] {
                let (mut client, server) = tokio::io::duplex(1);
                let sent = async move { client.write_all(text.as_bytes()).await.expect("sent") };
                let read = async {
                    let (mut begun, found) = Begun::begin(server).await.expect("enough");
                    assert_eq!(found, is_h2, "{text}");
                    let (mut all, mut byte) = (Vec::new(), [0]);
                    while begun.read(&mut byte).await.expect("read") > 0 {
                        all.push(byte[0]);
                    }
                    assert_eq!(all, text.as_bytes());
                };
                tokio::join!(sent, read);
            }
            let (client, server) = tokio::io::duplex(8);
            drop(client);
            assert!(Begun::begin(server).await.is_none());
        });
    }
}
