//! One request over HTTP/2 in the clear, with prior knowledge of it, as gRPC clients send theirs.
//!
//! Invariant: the answer comes back as the frames had it: whether the header fields ended the stream is told apart from a
//! body that is empty. The protocol is the `h2` crate's, not ours.

use std::net::Ipv4Addr;

use http::Request as Head;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::http::{ANSWER_WITHIN, Request, Response};

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its header fields and its body.
    pub response: Response,
    /// True when the header fields ended the stream: what gRPC calls a trailers-only response.
    pub is_trailers_only: bool,
}

/// Sends `request` to `port` on a connection of its own; a failed test when no answer comes in time.
pub fn send(port: u16, request: &Request) -> Answer {
    let runtime = Builder::new_current_thread().enable_all().build().expect("no runtime");
    let answer = runtime.block_on(async { timeout(ANSWER_WITHIN, exchange(port, request)).await });
    answer
        .unwrap_or_else(|_| panic!("no answer from port {port} within {ANSWER_WITHIN:?}"))
        .unwrap_or_else(|e| panic!("no answer from port {port}: {e}"))
}

async fn exchange(port: u16, request: &Request) -> Result<Answer, Box<dyn std::error::Error>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (mut sender, connection) = h2::client::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let uri = format!("http://localhost{}", request.target);
    let mut head = Head::builder().method(request.method.as_str()).uri(uri);
    for (name, value) in &request.headers {
        head = head.header(name.as_slice(), value.as_slice());
    }
    let (answer, mut body) = sender.send_request(head.body(())?, false)?;
    body.send_data(request.body.clone().into(), true)?;
    let (head, mut body) = answer.await?.into_parts();
    let is_trailers_only = body.is_end_stream();
    let fields = head.headers.iter();
    let headers = fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    let mut response =
        Response { status: head.status.as_u16(), headers: headers.collect(), body: vec![] };
    while let Some(piece) = body.data().await {
        response.body.extend_from_slice(&piece?);
    }
    connection.abort();
    Ok(Answer { response, is_trailers_only })
}
