//! A model server that streams, and the policy in front of it: a recipe of docs/recipes.md, which
//! every surface that reads bodies enforces.

use std::collections::HashMap;

use serde_json::Value;

use crate::body_costs::STREAM;
use crate::http::{Client, Request, Response};
use crate::process::{READY_WITHIN, wait_until};
use crate::scripted::{Part, Scripted, answer};

const RECIPES: &str = include_str!("../../docs/recipes.md");
const RECIPE: &str = "A model server: a budget, four at once, and no guessed keys";

/// The tokens of one whole answer.
const TOKENS: u64 = 5_000;
/// The estimate of the recipe, its budget and its places.
const ESTIMATE: u64 = 1_000;
const BUDGET: u64 = 1_000_000;
const PLACES: usize = 4;

/// The policy of the recipe.
///
/// # Panics
/// The page has no such recipe.
pub fn policy() -> Value {
    let (_, rest) = RECIPES.split_once(&format!("\n## {RECIPE}\n")).expect("the recipe");
    let (_, rest) = rest.split_once("```json\n").expect("its policy");
    serde_json::from_str(rest.split_once("```").expect("its end").0).expect("JSON")
}

/// The server: `/v1/chat` streams a whole answer and then its usage, `/v1/long` streams until its
/// client has left, `/v1/empty` costs nothing, and `/v1/wrong` is for a wrong key.
pub fn start() -> Scripted {
    let events = b"data: {\"choices\": [{\"delta\": {\"content\": \"Hi\"}}], \"usage\": null}\n\n\
        data: {\"choices\": [], \"usage\": {\"total_tokens\": 5000}}\n\ndata: [DONE]\n\n";
    let head = format!("HTTP/1.1 200 OK\r\n{STREAM}\r\nconnection: close\r\n\r\n");
    let empty = b"data: {\"usage\": {\"total_tokens\": 0}}\n\ndata: [DONE]\n\n";
    let wrong = "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let delta = b"data: {\"choices\": [{\"delta\": {\"content\": \"Hi\"}}], \"usage\": null}\n\n";
    Scripted::start(HashMap::from([
        ("/v1/chat".to_owned(), answer(&[STREAM], events, 7)),
        ("/v1/long".to_owned(), vec![Part::Bytes(head.into()), Part::Endless(delta.into())]),
        ("/v1/empty".to_owned(), answer(&[STREAM], empty, 7)),
        ("/v1/wrong".to_owned(), vec![Part::Bytes(wrong.into())]),
    ]))
}

fn post(path: &str) -> Request {
    Request::post(path, "{}").header("x-user", "ann").header("cf-connecting-ip", "192.0.2.1")
}

/// The tokens that the user had left before an allowed request, whose estimate is taken off.
fn left_before(response: &Response) -> u64 {
    let field = response.header("ratelimit").expect("the field");
    let (_, rest) = field.split_once("\"tokens\";r=").expect("the tokens");
    let left: u64 = rest.split(';').next().expect("a number").parse().expect("a number");
    left + ESTIMATE
}

/// Sends requests of one user to `origin` through a limiter with the [`policy`].
///
/// # Panics
/// The limiter does not what the recipe promises.
pub fn budget_and_places(origin: &Scripted, client: impl Fn() -> Client) {
    let send = |path: &str| client().send(&post(path));
    let left_is = |tokens: u64| {
        wait_until("all is settled", READY_WITHIN, || {
            let response = send("/v1/empty");
            (response.status == 200 && left_before(&response) == tokens).then_some(())
        });
    };
    assert_eq!(left_before(&send("/v1/chat")), BUDGET);
    left_is(BUDGET - TOKENS);

    let requests = origin.heads().len();
    let mut streams: Vec<Client> = (0..PLACES).map(|_| client()).collect();
    for stream in &mut streams {
        stream.start(&post("/v1/long")).expect("taken");
    }
    wait_until("four streams run", READY_WITHIN, || {
        (origin.heads().len() == requests + PLACES).then_some(())
    });
    let denied = send("/v1/chat");
    assert_eq!((denied.status, denied.header("retry-after")), (429, None));
    assert!(denied.text().contains("tokens.concurrency"), "{}", denied.text());
    drop(streams);
    // The four clients that left pay the estimate: their streams showed no usage.
    left_is(BUDGET - TOKENS - 4 * ESTIMATE);

    for _ in 0..20 {
        assert_eq!(send("/v1/wrong").status, 401);
    }
    let out = send("/v1/chat");
    let wait: u64 = out.header("retry-after").and_then(|it| it.parse().ok()).expect("a wait");
    assert!(out.status == 429 && wait.abs_diff(600) <= 1, "{} {wait}", out.status);
}
