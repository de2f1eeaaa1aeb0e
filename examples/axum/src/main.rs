//! The example as a service: `cargo run -p example-axum`, then `curl -i http://127.0.0.1:3000/`.
//!
//! Invariant: a policy with a mistake ends the program, with every mistake on standard error,
//! before it listens.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{get, post};
use example_axum::{Gate, limited};
use tokio::net::TcpListener;

/// A limiter bounds the number of requests, not their length.
const LONGEST_BODY: usize = 64 * 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let gate = Arc::new(Gate::new(include_str!("../policy.json"))?);
    for warning in &gate.policy().warnings().0 {
        eprintln!("warning: {warning}"); // legal, but probably a mistake
    }
    let service = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/login", post(login))
        .layer(DefaultBodyLimit::max(LONGEST_BODY));
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}/", listener.local_addr()?);
    let service = limited(service, gate).into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

/// Accepts only one password.
async fn login(password: Bytes) -> StatusCode {
    if password == "open sesame" { StatusCode::NO_CONTENT } else { StatusCode::UNAUTHORIZED }
}
