//! The clients with the greatest usage in any one window, whether they were limited or not.
//!
//! Invariant: the list depends only on a client's greatest count, not on the effect of any limit.
//! The client is named where the log was read a second time; otherwise its keyed hash is shown.

use serde::Serialize;

use super::counts::Key;
use crate::replay::label::hidden;
use crate::replay::observer::CountedRequest;

/// The most clients in the list.
const MOST: usize = 10;

/// One of the clients with the greatest usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeavyClient {
    /// The client's key.
    pub key: String,
    /// The greatest number of quota units that it used in any one window.
    pub greatest: u64,
    /// Its requests, if the log was read a second time.
    pub requests: Option<u64>,
    /// The requests that the present rule limits.
    pub limited: Option<u64>,
}

/// The list; the second pass completes it.
#[derive(Debug)]
pub(super) struct Heaviest(Vec<Client>);

#[derive(Debug)]
struct Client {
    hash: u64,
    greatest: u64,
    label: Option<String>,
    requests: u64,
    limited: u64,
}

impl Heaviest {
    /// The clients of `keys` with the greatest counts; of equal ones the first.
    pub(super) fn new(keys: &[Key]) -> Self {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        let rank = |i: &usize| (std::cmp::Reverse(keys.get(*i).map_or(0, |key| key.peak)), *i);
        if order.len() > MOST {
            order.select_nth_unstable_by_key(MOST, rank);
            order.truncate(MOST);
        }
        order.sort_unstable_by_key(rank);
        let client = |key: &Key| Client {
            hash: key.hash,
            greatest: key.peak,
            label: None,
            requests: 0,
            limited: 0,
        };
        Self(order.into_iter().filter_map(|i| keys.get(i)).map(client).collect())
    }

    /// One request of the second pass.
    pub(super) fn push(&mut self, request: &CountedRequest) {
        if let Some(client) = self.find(request.key) {
            client.requests = client.requests.saturating_add(1);
            client.limited = client.limited.saturating_add(request.is_over.into());
        }
    }

    /// True for a client of the list that has no label yet.
    pub(super) fn wants_label(&self, key: u64) -> bool {
        self.0.iter().any(|client| client.hash == key && client.label.is_none())
    }

    pub(super) fn label(&mut self, key: u64, label: String) {
        if let Some(client) = self.find(key) {
            client.label = Some(label);
        }
    }

    /// The list; without the counts of the second pass if there was none.
    pub(super) fn clients(&self, was_read_again: Option<()>) -> Vec<HeavyClient> {
        let of = |client: &Client| HeavyClient {
            key: client.label.clone().unwrap_or_else(|| hidden(client.hash)),
            greatest: client.greatest,
            requests: was_read_again.map(|()| client.requests),
            limited: was_read_again.map(|()| client.limited),
        };
        self.0.iter().map(of).collect()
    }

    fn find(&mut self, key: u64) -> Option<&mut Client> {
        self.0.iter_mut().find(|client| client.hash == key)
    }
}
