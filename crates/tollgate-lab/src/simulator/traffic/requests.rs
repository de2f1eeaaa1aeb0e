//! The requests of a traffic, in order of time.
//!
//! Invariant: of requests at one instant those of an earlier source come first, then retries in the
//! order in which they were denied. Random numbers of one source come from its own streams, so
//! another source changes none of its times.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use tollgate_core::{Span, Timestamp};

use crate::simulator::node_decision::OriginResponse;
use crate::simulator::random::{Random, Zipf, mean_ns};

use super::arrivals::Pulse;
use super::clients::ClientResponse;
use super::described::{START, Traffic};
use super::document::{Actual, Source};
use super::request::{Request, RequestFacts};

/// The most requests of one traffic: later ones are left out, and [`Requests::is_cut_short`]
/// reports it.
pub const MAX_REQUESTS: u64 = 100_000_000;
/// The most clients that wait to retry at one time: others give up.
pub const MAX_PENDING: usize = 1_000_000;

/// The number before those of the streams that draw costs; the others have lower numbers.
const COST_STREAMS: u64 = 1 << 32;

/// The same for durations.
const DURATION_STREAMS: u64 = 1 << 33;

/// The number of the first new client; those of the document have lower numbers.
const FIRST_FRESH: u64 = 1 << 28;

/// The requests of a traffic, in their order.
#[derive(Debug)]
pub struct Requests {
    traffic: Traffic,
    /// One per sequence of times.
    lanes: Vec<Lane>,
    /// One per source.
    states: Vec<SourceState>,
    agenda: BinaryHeap<Reverse<(u64, u64, NextEvent)>>,
    /// The number of clients that retry, or come later.
    pending: usize,
    entered: u64,
    made: u64,
    fresh: u64,
    given_up: u64,
}

/// A sequence of times and its clients.
#[derive(Debug)]
struct Lane {
    source: usize,
    pulse: Pulse,
    random: Random,
    /// The only client; `None` when each request draws one.
    client: Option<u64>,
}

/// The state of a source's clients.
#[derive(Debug)]
struct SourceState {
    /// The number of its first one.
    first: u64,
    zipf: Option<Zipf>,
    random: Random,
    /// For the costs of its responses.
    random_costs: Random,
    /// For their durations.
    random_durations: Random,
    /// Requests so far.
    made: u64,
    /// The earliest next request of each paced client. Empty for other sources.
    not_before: Vec<u64>,
    /// Requests that such clients hold back, by how often each was denied.
    held: BTreeMap<u64, VecDeque<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NextEvent {
    /// The next request of a lane.
    Lane(usize),
    /// A client that was denied retries.
    Client { source: usize, client: u64, attempt: u64 },
    /// A client that holds requests back sends the first of them.
    Held { source: usize, client: u64 },
}

impl Requests {
    /// The requests of `traffic`, with randomness from this seed.
    #[must_use]
    pub fn new(traffic: &Traffic, seed: u64) -> Self {
        let (mut lanes, mut states, mut first) = (Vec::new(), Vec::new(), 0_u64);
        let mut stream = 0_u64;
        let mut next_random = || {
            stream = stream.saturating_add(1);
            Random::new(seed, stream)
        };
        let stream_of =
            |first: u64, index: usize| u64::try_from(index).unwrap_or(0).saturating_add(first);
        for (index, source) in traffic.all_sources().iter().enumerate() {
            let count = source.clients.count.0;
            let not_before = if source.paced { usize::try_from(count).unwrap_or(0) } else { 0 };
            states.push(SourceState {
                first,
                zipf: source.clients.zipf.map(|exponent| Zipf::new(count, exponent.value())),
                random: next_random(),
                random_costs: Random::new(seed, stream_of(COST_STREAMS, index)),
                random_durations: Random::new(seed, stream_of(DURATION_STREAMS, index)),
                made: 0,
                not_before: vec![0; not_before],
                held: BTreeMap::new(),
            });
            let end = source.to.map_or(Span::MAX, |to| to.0).min(traffic.length());
            let (from, to) = (START.saturating_add(source.from.0), START.saturating_add(end));
            let one = [None].into_iter().chain([]);
            let clients: Box<dyn Iterator<Item = Option<u64>>> =
                if source.each { Box::new((0..count).map(Some)) } else { Box::new(one) };
            lanes.extend(clients.map(|client| Lane {
                source: index,
                pulse: Pulse::new(from.as_nanos(), to.as_nanos()),
                random: next_random(),
                client,
            }));
            first = first.saturating_add(count);
        }
        let mut requests = Self {
            traffic: traffic.clone(),
            states,
            agenda: BinaryHeap::with_capacity(lanes.len()),
            lanes,
            pending: 0,
            entered: 0,
            made: 0,
            fresh: 0,
            given_up: 0,
        };
        (0..requests.lanes.len()).for_each(|lane| requests.schedule(lane));
        requests
    }

    /// The origin's response to a request of this source.
    pub(crate) fn response(&mut self, source: usize) -> OriginResponse {
        let described = self.traffic.source(source);
        let status = described.and_then(|source| u16::try_from(source.status.0.0).ok());
        let actual = described.and_then(|source| source.actual);
        let random = self.states.get_mut(source).map(|state| &mut state.random_costs);
        let cost = actual.zip(random).map(|(actual, random)| actual.draw(random));
        let lasts = described.and_then(|source| source.duration);
        let random = self.states.get_mut(source).map(|state| &mut state.random_durations);
        let millis = lasts.zip(random).map(|(lasts, random)| lasts.draw(random));
        let duration = millis.map(Span::from_millis);
        OriginResponse { status: status.unwrap_or(200), cost, duration }
    }

    /// The traffic.
    #[must_use]
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Requests so far.
    #[must_use]
    pub const fn made(&self) -> u64 {
        self.made
    }

    /// How often a client gave up a retry or a later request, because [`MAX_PENDING`] were pending.
    #[must_use]
    pub const fn given_up(&self) -> u64 {
        self.given_up
    }

    /// True when requests were left out beyond [`MAX_REQUESTS`].
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.made >= MAX_REQUESTS && !self.agenda.is_empty()
    }

    /// The earliest time of the next request; `None` when none comes, unless a response brings a
    /// client back.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        let is_over = self.made >= MAX_REQUESTS;
        let next = self.agenda.peek().filter(|_| !is_over);
        next.map(|Reverse((at, ..))| Timestamp::from_nanos(*at))
    }

    /// The next request.
    pub fn next_request(&mut self) -> Option<Request> {
        self.next_request_until(Timestamp::MAX)
    }

    /// The next request that comes by then. There may be none although [`Requests::next_at`]
    /// returned a time, because its client holds back.
    pub fn next_request_until(&mut self, until: Timestamp) -> Option<Request> {
        loop {
            self.next_at().filter(|at| *at <= until)?;
            let Reverse((at, _, due)) = self.agenda.pop()?;
            let request = match due {
                NextEvent::Lane(lane) => {
                    self.schedule(lane);
                    self.lane_asks(lane, at)
                }
                NextEvent::Client { source, client, attempt } => {
                    self.pending = self.pending.saturating_sub(1);
                    self.client_asks(source, client, attempt, at)
                }
                NextEvent::Held { source, client } => self.lets_go(source, client, at),
            };
            if request.is_some() {
                self.made = self.made.saturating_add(1);
                return request;
            }
        }
    }

    /// The facts that a policy may read of a request.
    #[must_use]
    pub fn facts(&self, request: Request) -> Option<RequestFacts<'_>> {
        let source = self.traffic.source(request.source)?;
        Some(RequestFacts { shape: &source.request, request })
    }

    /// True when clients of the request's source react to their responses.
    #[must_use]
    pub fn listens(&self, request: &Request) -> bool {
        let source = self.traffic.source(request.source);
        source.is_some_and(|source| source.paced || source.retry.is_some())
    }

    /// Delivers the response of a request to its client at `at`.
    pub fn record_response(&mut self, request: &Request, response: &ClientResponse, at: Timestamp) {
        let Self { traffic, states, .. } = self;
        let source = traffic.source(request.source);
        let (Some(source), Some(state)) = (source, states.get_mut(request.source)) else { return };
        if let (true, Some(pace)) = (source.paced, response.pace)
            && let Some(not_before) = state.not_before_mut(request.client)
        {
            *not_before = at.saturating_add(pace).as_nanos().max(*not_before);
        }
        let retry = source.retry.filter(|_| response.is_refused);
        let Some(after) = retry.and_then(|r| r.after(request.attempt, response, &mut state.random))
        else {
            return;
        };
        let attempt = request.attempt.saturating_add(1);
        let due = NextEvent::Client { source: request.source, client: request.client, attempt };
        self.come_at(at.saturating_add(after).as_nanos(), due);
    }

    fn schedule(&mut self, lane: usize) {
        let Some(row) = self.lanes.get_mut(lane) else { return };
        let Some(source) = self.traffic.source(row.source) else { return };
        if let Some(at) = row.pulse.next(&source.arrivals, &mut row.random) {
            let order = u64::try_from(lane).unwrap_or(u64::MAX);
            self.agenda.push(Reverse((at, order, NextEvent::Lane(lane))));
        }
    }

    /// The next request of a lane: from its own client, or from one that is drawn.
    fn lane_asks(&mut self, lane: usize, at: u64) -> Option<Request> {
        let row = self.lanes.get(lane)?;
        let index = row.source;
        let source = self.traffic.source(index)?;
        let state = self.states.get_mut(index)?;
        let client = if source.clients.fresh {
            self.fresh = self.fresh.saturating_add(1);
            FIRST_FRESH.saturating_add(self.fresh)
        } else {
            state.first.saturating_add(row.client.unwrap_or_else(|| state.draw(source)))
        };
        self.client_asks(index, client, 0, at)
    }

    /// The request of a client, unless it holds back for now.
    fn client_asks(&mut self, index: usize, client: u64, attempt: u64, at: u64) -> Option<Request> {
        let is_full = self.pending >= MAX_PENDING;
        let state = self.states.get_mut(index)?;
        let not_before = state.not_before_mut(client).map_or(0, |not_before| *not_before);
        let is_behind = state.held.contains_key(&client);
        if not_before <= at && !is_behind {
            return Some(state.request(index, client, attempt, at));
        }
        if is_full {
            self.given_up = self.given_up.saturating_add(1);
            return None;
        }
        state.held.entry(client).or_default().push_back(attempt);
        self.pending = self.pending.saturating_add(1);
        if !is_behind {
            self.enter(not_before, NextEvent::Held { source: index, client });
        }
        None
    }

    /// The first request that a client held back, if it no longer holds back.
    fn lets_go(&mut self, index: usize, client: u64, at: u64) -> Option<Request> {
        let state = self.states.get_mut(index)?;
        let not_before = state.not_before_mut(client).map_or(0, |not_before| *not_before);
        let due = NextEvent::Held { source: index, client };
        if not_before > at {
            self.enter(not_before, due);
            return None;
        }
        let held = state.held.get_mut(&client)?;
        let attempt = held.pop_front()?;
        let is_last = held.is_empty();
        if is_last {
            state.held.remove(&client);
        }
        let request = state.request(index, client, attempt, at);
        self.pending = self.pending.saturating_sub(1);
        if !is_last {
            self.enter(at, due); // after the client has acted on this response
        }
        Some(request)
    }

    /// Schedules a client at `at`, unless too many are pending or the traffic is over by then.
    fn come_at(&mut self, at: u64, due: NextEvent) {
        if at >= START.saturating_add(self.traffic.length()).as_nanos() {
            return;
        }
        if self.pending >= MAX_PENDING {
            self.given_up = self.given_up.saturating_add(1);
            return;
        }
        self.pending = self.pending.saturating_add(1);
        self.enter(at, due);
    }

    fn enter(&mut self, at: u64, due: NextEvent) {
        if at >= START.saturating_add(self.traffic.length()).as_nanos() {
            return;
        }
        self.entered = self.entered.saturating_add(1);
        let order = (1_u64 << 32).saturating_add(self.entered); // behind every lane
        self.agenda.push(Reverse((at, order, due)));
    }
}

impl SourceState {
    /// The next request of the source.
    const fn request(&mut self, source: usize, client: u64, attempt: u64, at: u64) -> Request {
        let number = self.made;
        self.made = number.saturating_add(1);
        Request { at: Timestamp::from_nanos(at), source, client, number, attempt }
    }

    /// The source's client that sends the next request.
    fn draw(&mut self, source: &Source) -> u64 {
        match &self.zipf {
            Some(zipf) => zipf.draw(&mut self.random),
            None => self.random.below(source.clients.count.0),
        }
    }

    /// Until when a client of the source holds back; `None` when its clients never do.
    fn not_before_mut(&mut self, client: u64) -> Option<&mut u64> {
        let index = usize::try_from(client.checked_sub(self.first)?).ok()?;
        self.not_before.get_mut(index)
    }
}

impl Actual {
    /// The cost of one response.
    fn draw(self, random: &mut Random) -> u64 {
        match self {
            Self::Always(units) => units.0,
            Self::Uniform { from, to } => {
                let width = to.0.saturating_sub(from.0).saturating_add(1);
                from.0.saturating_add(random.below(width))
            }
            Self::Exponential { mean } => random.exponential(mean_ns(1, mean.0)),
        }
    }
}
