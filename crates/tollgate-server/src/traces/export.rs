//! Sending spans to a collector.
//!
//! Invariant: whatever the collector does, the cost is one task and bounded memory. A batch has a
//! time limit for all of it, a response is read up to a limit, and there is a pause after a
//! failure. Every recorded span is counted once, when it is sent or dropped. Spans that the
//! collector does not take are not sent again: a second try would hold up more than a span is
//! worth.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::messages::wire::{Malformed, each};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::message::{Record, message};
use super::options::Options;

/// The most spans of a message.
const MAX_BATCH: usize = 512;
/// How long a batch is gathered.
const GATHER: Duration = Duration::from_secs(1);
/// The time for a message to be taken, including the connection.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes that are read of a response.
const MAX_ANSWER: usize = 1 << 16;
/// The pause after a failure, twice as long after each further failure, and its maximum.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Sends spans.
#[derive(Debug)]
pub(crate) struct Exporter {
    records: mpsc::Receiver<Record>,
    options: Options,
    tally: Arc<Tally>,
}

/// The number of spans that a collector took, and of those that were dropped.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Tally {
    pub(super) fn add_sent(&self, count: usize) {
        add(&self.sent, count);
    }

    pub(super) fn add_dropped(&self, count: usize) {
        add(&self.dropped, count);
    }

    /// Taken, and dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }
}

impl Exporter {
    pub(super) const fn new(
        records: mpsc::Receiver<Record>,
        options: Options,
        tally: Arc<Tally>,
    ) -> Self {
        Self { records, options, tally }
    }

    /// Sends spans until the server ends, and then those that have arrived by then, without a
    /// pause; a failure after that is the last one. `report` gets failures, at most once for each
    /// pause.
    pub(crate) async fn run(mut self, mut end: watch::Receiver<bool>, report: impl Fn(&str)) {
        let mut pause = PAUSE;
        loop {
            let batch = self.gather(&mut end).await;
            if batch.is_empty() {
                return;
            }
            match self.send(&batch).await {
                Ok(rejected) => {
                    let rejected = rejected.min(batch.len());
                    self.tally.add_sent(batch.len().saturating_sub(rejected));
                    self.tally.add_dropped(rejected);
                    pause = PAUSE;
                }
                Err(why) => {
                    self.tally.add_dropped(batch.len());
                    report(&why);
                    if *end.borrow() {
                        return self.tally.add_dropped(self.records.len());
                    }
                    let _ = timeout(pause, ended(&mut end)).await;
                    pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// A batch; empty when there is none at the end.
    async fn gather(&mut self, end: &mut watch::Receiver<bool>) -> Vec<Record> {
        let mut batch = Vec::new();
        tokio::select! {
            _ = self.records.recv_many(&mut batch, MAX_BATCH) => {}
            () = ended(end) => {}
        }
        let more = async {
            while !batch.is_empty() && batch.len() < MAX_BATCH {
                let room = MAX_BATCH.saturating_sub(batch.len());
                if self.records.recv_many(&mut batch, room).await == 0 {
                    break;
                }
            }
        };
        // A time-out is as good: the spans so far are a batch.
        tokio::select! {
            _ = timeout(GATHER, more) => {}
            () = ended(end) => {}
        }
        while *end.borrow()
            && batch.len() < MAX_BATCH
            && let Ok(record) = self.records.try_recv()
        {
            batch.push(record);
        }
        batch
    }

    /// Sends a message; returns how many of its spans the collector rejected.
    async fn send(&self, batch: &[Record]) -> Result<usize, String> {
        let body = Bytes::from(message(&self.options, batch));
        match timeout(TIMEOUT, self.exchange(body)).await {
            Ok(answer) => answer,
            Err(_) => Err("the collector does not respond in time".to_owned()),
        }
    }

    async fn exchange(&self, body: Bytes) -> Result<usize, String> {
        let collector = &self.options.collector;
        let failure =
            |why: &dyn std::fmt::Display| format!("the collector cannot be reached: {why}");
        let stream = TcpStream::connect(&collector.authority).await.map_err(|why| failure(&why))?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_ANSWER);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|why| failure(&why))?;
        let mut request = Request::post(collector.path.as_str())
            .header(HOST, collector.authority.as_str())
            .header(CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in &collector.fields {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(|why| failure(&why))?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(|why| failure(&why))?;
            let status = answer.status();
            if !status.is_success() {
                return Err(format!("the collector answers {}", status.as_u16()));
            }
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            Ok(body.map_or(0, |body| rejected(&body.to_bytes())))
        };
        let mut answer = pin!(answer);
        // The connection is driven as long as its response is waited for, and closed then. One that
        // the collector closes with its response may end before the response was looked at.
        tokio::select! {
            answered = &mut answer => answered,
            _ = connection => answer.await,
        }
    }
}

fn add(to: &AtomicU64, count: usize) {
    to.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Until the server ends.
async fn ended(end: &mut watch::Receiver<bool>) {
    let _ = end.wait_for(|is_ending| *is_ending).await;
}

/// The number of spans that a response rejects (`ExportTracePartialSuccess.rejected_spans`); an
/// invalid response rejects none.
fn rejected(answer: &[u8]) -> usize {
    let mut count = 0;
    let read = each::<Malformed>(answer, 1, |partial| {
        each(partial.bytes()?, 1, |number| {
            count = number.number()?;
            Ok(())
        })
    });
    match read {
        // Spans that were never sent are not rejected.
        Ok(()) => usize::try_from(count.cast_signed().max(0)).unwrap_or(0),
        Err(Malformed) => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use tollgate_service::log::Share;

    use super::super::options::Collector;
    use super::*;

    // A response that is there together with the end of its connection, as a busy machine sees it:
    // the runtime is held up between any two polls.
    #[tokio::test]
    async fn an_answer_that_comes_with_the_end_is_taken() {
        const ROUNDS: usize = 20;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten().take(ROUNDS) {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\x0a\x02\x08\x03");
            }
        });
        let busy = tokio::spawn(async {
            loop {
                std::thread::sleep(Duration::from_millis(5));
                tokio::task::yield_now().await;
            }
        });
        let collector = Collector::parse(&format!("http://{address}"), false);
        let options = Options {
            collector: collector.expect("an address"),
            share: Share::DEFAULT,
            service: String::new(),
            attributes: Vec::new(),
        };
        let exporter = Exporter::new(mpsc::channel(1).1, options, Arc::default());
        for _ in 0..ROUNDS {
            assert_eq!(exporter.send(&[]).await, Ok(3));
        }
        busy.abort();
    }
}
