//! The replay: every request of a log, in the order of time, through one or two policies.
//!
//! Invariant: time does not go back. A request that is older than the one before it is decided at
//! that one's time, and counted as late. Both policies see the same requests at the same times. A
//! request whose fate is open, because it waits in a queue, is held in a few bytes until it is
//! known.

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use tollgate_access_log::{Batch, Client, Record};
use tollgate_core::Timestamp;
use tollgate_policy::Policy;

use crate::replay::assumed::{AssumedClient, AssumedValues, duration, units};
use crate::replay::clients::{ClientTable, Marks};
use crate::replay::facts::Request;
use crate::replay::label::Label;
use crate::replay::lane::{DELAYED, DENIED, Lane, MARKED, Reading, SHADOWED, UNREADABLE};
use crate::replay::names::Names;
use crate::replay::observer::{CountedRequest, Observer};
use crate::replay::observer::{label_keys, report_counts};
use crate::replay::options::{Options, REFUSED};
use crate::replay::shortcuts::{Hint, Shortcuts};
use crate::replay::summary::{ChangeCounts, Example};
use crate::replay::time::Moment;
use crate::replay::timeline::{Bins, Counts};
use crate::simulator::{Fate, OriginResponse};

/// Bits of a client's marks that belong to one policy.
pub(crate) const BITS: u32 = 8;
/// The marks of a limited request.
pub(crate) const LIMITED: Marks = DENIED | DELAYED | UNREADABLE;

/// A replay under way.
#[derive(Debug)]
pub struct Replay<O = ()> {
    pub(crate) options: Options,
    pub(crate) assumed: AssumedValues,
    /// The policy, and the one it is compared with.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) names: Names,
    /// Present when the policy is one quota of all clients, and no other part of a request is read.
    shortcuts: Option<Shortcuts>,
    /// The hints of a batch, in memory that is reused.
    hints: Vec<Hint>,
    pub(crate) clients: ClientTable,
    pub(crate) without_client: u64,
    pub(crate) bins: Bins,
    /// Requests that wait in a queue, by their numbers.
    open: HashMap<u64, PendingRequest>,
    request_count: u64,
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) now: Timestamp,
    pub(crate) already_refused: u64,
    pub(crate) outside: u64,
    pub(crate) late: u64,
    pub(crate) changed: ChangeCounts,
    pub(crate) newly_limited: Vec<Example>,
    pub(crate) no_longer_limited: Vec<Example>,
    observer: O,
}

/// The record of a request whose fate is open.
#[derive(Debug)]
struct PendingRequest {
    /// The client by which it is counted, and the keyed hash of it.
    counted_client: Option<(IpAddr, u64)>,
    name: Option<Box<[u8]>>,
    at: Timestamp,
    marks: Marks,
    /// The policies under which it waits, one bit each.
    waits: u8,
    /// Its text as an example, when there is room for one.
    request: Option<String>,
}

impl Replay {
    /// A replay of `policy` without an observer.
    #[must_use]
    pub fn new(policy: Arc<Policy>, assumed: AssumedValues, options: Options) -> Self {
        Self::observed(policy, assumed, options, ())
    }
}

impl<O: Observer> Replay<O> {
    /// A replay of `policy` with `observer`.
    #[must_use]
    pub fn observed(
        policy: Arc<Policy>,
        assumed: AssumedValues,
        options: Options,
        observer: O,
    ) -> Self {
        let lane = Lane::new(policy, &assumed, &options);
        let is_short = lane.counts_by_log_client() && assumed.uses_log_client();
        Self {
            lanes: vec![lane],
            shortcuts: is_short.then(|| Shortcuts::new(options.secret)),
            hints: Vec::new(),
            names: Names::new(options.secret, options.max_clients),
            clients: ClientTable::new(options.max_clients),
            without_client: 0,
            bins: Bins::default(),
            open: HashMap::new(),
            request_count: 0,
            first_at: None,
            now: Timestamp::ZERO,
            already_refused: 0,
            outside: 0,
            late: 0,
            changed: ChangeCounts::default(),
            newly_limited: Vec::new(),
            no_longer_limited: Vec::new(),
            assumed,
            options,
            observer,
        }
    }

    /// Also replays the log through `other`, and reports the differences. Call it before the first
    /// request.
    #[must_use]
    pub fn against(mut self, other: Arc<Policy>) -> Self {
        self.lanes.truncate(1);
        self.lanes.push(Lane::new(other, &self.assumed, &self.options));
        self.shortcuts = None;
        self
    }

    /// The observer of the replay.
    pub const fn observer(&self) -> &O {
        &self.observer
    }

    /// Replays the requests of a batch, one after the other, and empties it.
    ///
    /// All known clients are looked up first, in loops so short that a processor continues with the
    /// next ones while it waits for the memory of one.
    pub fn push_all(&mut self, batch: &mut Batch) {
        let mut hints = std::mem::take(&mut self.hints);
        if let (Some(shortcuts), Some(lane)) = (&self.shortcuts, self.lanes.first()) {
            batch.each(|record| hints.push(shortcuts.hint(record.client)));
            shortcuts.find_all(&mut hints);
            for hint in &mut hints {
                hint.known = hint.known.filter(|known| lane.node.holds(*known));
            }
        }
        let mut hint = hints.drain(..);
        batch.each(|record| self.push_with(record, hint.next().unwrap_or_default()));
        drop(hint);
        batch.clear();
        self.hints = hints;
    }

    /// Replays one request, at its own time.
    pub fn push(&mut self, record: &Record<'_>) {
        let hint = self.shortcuts.as_ref().map(|shortcuts| shortcuts.hint(record.client));
        self.push_with(record, hint.unwrap_or_default());
    }

    fn push_with(&mut self, record: &Record<'_>, hint: Hint) {
        let at = Timestamp::from_nanos(record.time.unix_ns);
        let is_before = self.options.since.is_some_and(|since| at < since);
        if is_before || self.options.until.is_some_and(|until| at >= until) {
            self.outside = self.outside.saturating_add(1);
            return;
        }
        let status = self.assumed.status.or(record.status);
        if !self.options.include_refused && status.is_some_and(|status| REFUSED.contains(&status)) {
            self.already_refused = self.already_refused.saturating_add(1);
            return;
        }
        self.late = self.late.saturating_add(u64::from(at < self.now));
        self.now = self.now.max(at);
        self.first_at.get_or_insert(at);
        self.resume();
        let logged = || record.actual().and_then(units);
        let cost = self.assumed.actual.unwrap_or_else(logged);
        let duration = self.assumed.duration.or_else(|| record.duration().and_then(duration));
        let status = status.unwrap_or(200);
        self.decide(record, OriginResponse { status, cost, duration }, hint);
    }

    /// Ends the replay: decides every request that still waits.
    pub(crate) fn end(&mut self) {
        let last = self.now;
        self.now = Timestamp::MAX;
        self.resume();
        self.now = last;
        debug_assert!(self.open.is_empty(), "every client is served in turn");
    }

    /// Takes the observer out, at the end.
    pub fn into_observer(self) -> O {
        self.observer
    }

    fn decide(&mut self, record: &Record<'_>, response: OriginResponse, hint: Hint) {
        if self.admits_shortly(hint) {
            return;
        }
        let (now, number) = (self.now, self.request_count);
        self.request_count = self.request_count.saturating_add(1);
        let name = match record.client {
            Some(Client::Name(name)) => Some(name),
            Some(Client::Address(_)) | None => None,
        };
        let client = match self.assumed.client {
            AssumedClient::Address(address) => Some(address),
            AssumedClient::OfLog | AssumedClient::ByPolicy => {
                record.client.map(|client| self.names.address(client))
            }
        };
        let (mut marks, mut waits) = (0, 0_u8);
        let mut counted_client = None;
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            let (node, Reading { hidden, columns, policy }, mut ledger) = lane.parts();
            // Behind a proxy the policy reads the client from a header, and trusts the peer.
            let reads_header = hidden.is_none() && policy.explain().client_header().is_some();
            let peer = record.peer.filter(|_| reads_header).or(client);
            let facts = Request { record, assumed: &self.assumed, peer, hidden, columns };
            if i == 0 {
                let network = policy.explain().client_network(&facts);
                counted_client = network.map(|client| (client, hash(&self.options.secret, client)));
            }
            let decided = node.decide(&facts, now, response);
            if i == 0 {
                report_counts(&mut self.observer, &decided, response);
                let label = Label { is_private: self.options.is_private };
                label_keys(&mut self.observer, &decided, label, name);
            }
            match decided.fate() {
                Fate::Waiting => waits |= bit(i),
                _ => marks |= shifted(ledger.count(&decided, name), i),
            }
        }
        if let (Some(client), Some(lane)) = (hint.client, self.lanes.first())
            && let Some((shortcuts, known)) = self.shortcuts.as_mut().zip(lane.node.known())
        {
            shortcuts.learn(client, known);
        }
        let request = || (self.lanes.len() > 1).then(|| self.example(record)).flatten();
        if waits == 0 {
            let request = if self.is_change(marks) { request() } else { None };
            self.conclude(counted_client, name, now, marks, request);
        } else {
            let (request, name) = (request(), name.map(Box::from));
            self.open.insert(
                number,
                PendingRequest { counted_client, name, at: now, marks, waits, request },
            );
        }
    }

    /// Allows and counts the request of a client that was seen before, if nothing else affects it;
    /// otherwise does nothing.
    fn admits_shortly(&mut self, hint: Hint) -> bool {
        let Self { shortcuts: Some(shortcuts), lanes, now, .. } = self else { return false };
        let known = hint.known.or_else(|| shortcuts.find(hint.client?));
        let (Some(known), [lane]) = (known, &mut **lanes) else { return false };
        if !lane.node.admit(known, *now) {
            return false;
        }
        self.request_count = self.request_count.saturating_add(1);
        if let Some(lone) = lane.count_lone() {
            let (rule, quota_set, cost) = (lone.rule, lone.quota_set, lone.cost);
            let (key, at, is_over) = (known.key_hash(), *now, false);
            self.observer.counted(CountedRequest { rule, quota_set, key, at, cost, is_over });
        }
        self.bins.add(*now, &Counts { total: 1, ..Counts::default() });
        true
    }

    /// Handles the waiting requests whose turn has come until now.
    fn resume(&mut self) {
        for i in 0..self.lanes.len() {
            while let Some(lane) = self.lanes.get_mut(i) {
                if lane.node.next_at().is_none_or(|at| at > self.now) {
                    break;
                }
                let (node, _, mut ledger) = lane.parts();
                let Some(decided) = node.resume(self.now) else { break };
                if decided.fate() == Fate::Waiting {
                    continue;
                }
                let number = decided.arrival().number;
                let Some(open) = self.open.get_mut(&number) else { continue };
                open.marks |= shifted(ledger.count(&decided, open.name.as_deref()), i);
                open.waits &= !bit(i);
                if open.waits == 0
                    && let Some(open) = self.open.remove(&number)
                {
                    let PendingRequest { counted_client, name, at, marks, request, .. } = open;
                    self.conclude(counted_client, name.as_deref(), at, marks, request);
                }
            }
        }
    }

    /// Counts a request that is finished under every policy.
    fn conclude(
        &mut self,
        counted_client: Option<(IpAddr, u64)>,
        name: Option<&[u8]>,
        at: Timestamp,
        marks: Marks,
        request: Option<String>,
    ) {
        match counted_client {
            Some((_, hash)) => self.clients.mark(hash, marks),
            None => self.without_client = self.without_client.saturating_add(1),
        }
        let one = |mark: Marks| u64::from(marks & mark != 0);
        let counts = Counts {
            total: 1,
            denied: one(DENIED | UNREADABLE),
            delayed: one(DELAYED),
            over: one(MARKED | SHADOWED),
        };
        self.bins.add(at, &counts);
        if self.lanes.len() > 1 {
            self.compare(counted_client, name, at, marks, request);
        }
    }

    fn compare(
        &mut self,
        counted_client: Option<(IpAddr, u64)>,
        name: Option<&[u8]>,
        at: Timestamp,
        marks: Marks,
        request: Option<String>,
    ) {
        let (here, there) = limited(marks);
        let (count, examples) = match (here, there) {
            (false, false) => return,
            (true, true) => {
                self.changed.both = self.changed.both.saturating_add(1);
                return;
            }
            (true, false) => (&mut self.changed.newly_limited, &mut self.newly_limited),
            (false, true) => (&mut self.changed.no_longer_limited, &mut self.no_longer_limited),
        };
        *count = count.saturating_add(1);
        if examples.len() < self.options.top
            && let Some(request) = request
        {
            let label = Label { is_private: self.options.is_private };
            let client = counted_client.map(|(client, hash)| label.client(client, hash, name));
            let (at, client) = (Moment(at), client.unwrap_or_default());
            examples.push(Example { at, client, request });
        }
    }

    /// True when exactly one of the two policies limits it.
    fn is_change(&self, marks: Marks) -> bool {
        let (here, there) = limited(marks);
        self.lanes.len() > 1 && here != there
    }

    /// The method and target of a request, while there is room for an example.
    fn example(&self, record: &Record<'_>) -> Option<String> {
        let shown = self.newly_limited.len().min(self.no_longer_limited.len());
        let label = Label { is_private: self.options.is_private };
        let text = || {
            label.request(record.method().unwrap_or_default(), record.target().unwrap_or_default())
        };
        (shown < self.options.top).then(text)
    }
}

/// True, for each of the two policies, when it limits the request.
pub(crate) const fn limited(marks: Marks) -> (bool, bool) {
    (marks & LIMITED != 0, marks >> BITS & LIMITED != 0)
}

fn shifted(marks: Marks, lane: usize) -> Marks {
    if lane == 0 { marks } else { marks << BITS }
}

fn bit(lane: usize) -> u8 {
    if lane == 0 { 1 } else { 2 }
}

/// The keyed hash by which a client is counted.
fn hash(secret: &[u8; 16], client: IpAddr) -> u64 {
    let mut hasher = SipHasher13::new_with_key(secret);
    match client {
        IpAddr::V4(v4) => hasher.write(&v4.octets()),
        IpAddr::V6(v6) => hasher.write(&v6.octets()),
    }
    hasher.finish()
}

#[cfg(test)]
mod tests;
