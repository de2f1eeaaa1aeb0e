//! Sending spans to a collector.
//!
//! Invariant: whatever the collector does, or does not, costs a task of its own and bounded memory:
//! a batch has a time for all of it, an answer is read to a limit, and after a failure there is a
//! pause. What is not taken is counted and not sent again: a span is worth less than what a second
//! try would hold up.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tollgate_grpc::wire::{Malformed, each};

use super::message::{Record, message};
use super::options::Options;
use super::tally::Tally;

/// The most spans of a message.
const MAX_BATCH: usize = 512;
/// So long a batch is waited for.
const GATHER: Duration = Duration::from_secs(1);
/// For a message to be taken, connection and all.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What is read of an answer.
const MAX_ANSWER: usize = 1 << 16;
/// After a failure, twice as long after each that follows, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Sends spans.
#[derive(Debug)]
pub(crate) struct Exporter {
    records: mpsc::Receiver<Record>,
    options: Options,
    tally: Arc<Tally>,
}

impl Exporter {
    pub(super) const fn new(
        records: mpsc::Receiver<Record>,
        options: Options,
        tally: Arc<Tally>,
    ) -> Self {
        Self { records, options, tally }
    }

    /// Sends what comes, until the server ends: then what has come by then, without a pause; a
    /// failure after that is the last one. `say` is told of failures, at most once for each pause.
    pub(crate) async fn run(mut self, mut end: watch::Receiver<bool>, say: impl Fn(&str)) {
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
                    say(&why);
                    if *end.borrow() {
                        return self.tally.add_dropped(self.records.len());
                    }
                    let _ = timeout(pause, ended(&mut end)).await;
                    pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// A batch; nothing when there is none at the end.
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
        // Late is as good: what came until then is a batch.
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

    /// Sends a message: how many of its spans the collector did not want.
    async fn send(&self, batch: &[Record]) -> Result<usize, String> {
        let body = Bytes::from(message(&self.options, batch));
        match timeout(TIMEOUT, self.exchange(body)).await {
            Ok(answer) => answer,
            Err(_) => Err("the collector does not answer in time".to_owned()),
        }
    }

    async fn exchange(&self, body: Bytes) -> Result<usize, String> {
        let collector = &self.options.collector;
        let told = |why: &dyn std::fmt::Display| format!("the collector cannot be reached: {why}");
        let stream = TcpStream::connect(&collector.authority).await.map_err(|why| told(&why))?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_ANSWER);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|why| told(&why))?;
        let mut request = Request::post(collector.path.as_str())
            .header(HOST, collector.authority.as_str())
            .header(CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in &collector.fields {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(|why| told(&why))?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(|why| told(&why))?;
            let status = answer.status();
            if !status.is_success() {
                return Err(format!("the collector answers {}", status.as_u16()));
            }
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            Ok(body.map_or(0, |body| rejected(&body.to_bytes())))
        };
        let mut answer = pin!(answer);
        // The connection is driven as long as its answer is waited for, and closed then. One that
        // the collector closes with its answer may end before the answer was looked at.
        tokio::select! {
            answered = &mut answer => answered,
            _ = connection => answer.await,
        }
    }
}

/// Until the server ends.
async fn ended(end: &mut watch::Receiver<bool>) {
    let _ = end.wait_for(|is_ending| *is_ending).await;
}

/// How many spans an answer says were not wanted (`ExportTracePartialSuccess.rejected_spans`); what
/// is no answer rejects nothing.
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

    // An answer that is there together with the end of its connection, as a busy machine sees it:
    // the runtime is held up between any two looks.
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
