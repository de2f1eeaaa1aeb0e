//! Every trace on a coarse clock: all numbers of units at all of its instants.
//!
//! Traces that leave a limiter in the same state are the same from then on. So the search goes from
//! instant to instant over the reachable states. For each state and each window that is then open,
//! it keeps the most units that any trace to this state has in that window. A window that starts
//! between two instants holds no more than the one that starts at the later of them.
//!
//! Invariant: no trace on the grid is left out. Costs above one add no traces: `n` units at once
//! leave the same state as a cost of `n`, which is asserted at every step.

use super::{Attack, Goal};
use crate::trace::RequestGroup;
use std::{collections::HashMap, ops::Range};
use tollgate_core::{Algorithm, Limiter, Span, Timestamp};

/// The instants at which requests may be sent, and at which a window may start.
#[derive(Clone, Debug)]
pub struct Grid(Vec<Timestamp>);

/// The extent of a search, and its best result.
#[derive(Debug)]
pub struct SearchResult {
    /// The best trace.
    pub attack: Attack,
    /// The number of distinct states, at all instants together.
    pub states: usize,
}

/// Tries every trace on `grid`.
#[must_use]
pub fn search(limiter: &Limiter, goal: Goal, grid: &Grid) -> SearchResult {
    let Grid(instants) = grid;
    let mut search = Search { limiter, goal, instants, layers: Vec::new(), best: None };
    let mut layer = vec![Node { state: vec![0; limiter.state_len()], best: Vec::new() }];
    for index in 0..search.instants.len() {
        let next = search.advance(index, &layer);
        search.layers.push(layer);
        layer = next;
    }
    search.layers.push(layer);
    let states = search.layers.iter().map(Vec::len).sum();
    SearchResult { attack: Attack::of(limiter, goal, &search.witness()), states }
}

impl Grid {
    /// `per_window` instants in each window, from `start_at` on.
    #[must_use]
    pub fn even(start_at: Timestamp, window: Span, per_window: u64, windows: u64) -> Self {
        let step = Span::from_nanos(window.as_nanos() / per_window);
        let steps = 0..per_window * windows;
        Self(steps.map(|index| start_at.saturating_add(step.saturating_mul(index))).collect())
    }

    /// The start and end of the parts of `window`, for the first two and the last part of each of
    /// the first three windows; and the points that divide each part into as many steps as the
    /// limit. At these a fading share reaches a whole unit, and a unit grows back.
    #[must_use]
    pub fn of_parts(window: Span, parts: u64, limit: u64) -> Self {
        let part = Span::from_nanos(window.as_nanos().div_ceil(parts));
        let mut chosen: Vec<u64> =
            (0..3).flat_map(|k| [k * parts, k * parts + 1, (k + 1) * parts - 1]).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let starts = chosen
            .into_iter()
            .map(|index| Timestamp::ZERO.saturating_add(part.saturating_mul(index)));
        let step = |k: u64| Span::from_nanos(part.as_nanos() * k / limit);
        Self(starts.flat_map(|at| (0..limit).map(move |k| at.saturating_add(step(k)))).collect())
    }

    /// Also a nanosecond before and after each instant: this reveals an interval that is closed at
    /// the wrong end.
    #[must_use]
    pub fn to_the_nanosecond(&self) -> Self {
        let nanosecond = Span::from_nanos(1);
        let near =
            |at: &Timestamp| [at.saturating_sub(nanosecond), *at, at.saturating_add(nanosecond)];
        let mut instants: Vec<Timestamp> = self.0.iter().flat_map(near).collect();
        instants.sort_unstable();
        instants.dedup();
        Self(instants)
    }
}

/// A reachable state, and the best ways to it.
struct Node {
    state: Vec<u8>,
    /// For each open window, from the earliest on: the way with the most units in it. For windows
    /// that open later any way is as good; the last entry covers them, too.
    best: Vec<Best>,
}

/// The units in one window, and the last step of the way that reaches them.
#[derive(Clone, Copy)]
struct Best {
    most: u64,
    /// The index of the previous state, among those of the previous instant.
    from: usize,
    /// The units allowed at this instant.
    units: u64,
}

/// The end of a way: the instant, the state, and the window with the most units.
#[derive(Clone, Copy)]
struct Way {
    most: u64,
    layer: usize,
    place: usize,
    window: usize,
}

struct Search<'l> {
    limiter: &'l Limiter,
    goal: Goal,
    /// When requests can be sent, and where a window can start.
    instants: &'l [Timestamp],
    /// The states before each instant.
    layers: Vec<Vec<Node>>,
    best: Option<Way>,
}

/// The future behaviour of a limiter: two states with the same behaviour are one.
#[derive(PartialEq, Eq, Hash)]
enum Counting {
    Bytes(Vec<u8>),
    /// The remaining units now and at the later instants.
    Remaining(Vec<u64>),
}

impl Search<'_> {
    /// The windows, by the instants at which they start, in which a unit decided at the `index`-th
    /// instant can count.
    fn open(&self, index: usize) -> Range<usize> {
        let now = self.instants[index];
        let window = self.limiter.window();
        let latest = now.saturating_add(self.goal.reach(self.limiter));
        let first = self.instants.partition_point(|start| start.saturating_add(window) <= now);
        let end = self.instants.partition_point(|start| *start <= latest);
        first..end
    }

    /// The states after every number of units at one instant.
    fn advance(&mut self, index: usize, before: &[Node]) -> Vec<Node> {
        let (now, open) = (self.instants[index], self.open(index));
        let was_open = index.checked_sub(1).map_or(0..0, |last| self.open(last));
        let mut nodes: Vec<Node> = Vec::new();
        let mut places = HashMap::new();
        for (from, node) in before.iter().enumerate() {
            let mut state = node.state.clone();
            let mut counts: Vec<u64> = open
                .clone()
                .map(|start| match start.checked_sub(was_open.start) {
                    Some(k) => node.best.get(k).map_or(0, |best| best.most),
                    None => 0,
                })
                .collect();
            for units in 0.. {
                let place = *places.entry(self.meaning(index, &state)).or_insert_with(|| {
                    let best = vec![Best { most: 0, from, units }; open.len()];
                    nodes.push(Node { state: state.clone(), best });
                    nodes.len() - 1
                });
                for (best, most) in nodes[place].best.iter_mut().zip(&counts) {
                    if *most > best.most {
                        *best = Best { most: *most, from, units };
                    }
                }
                let decision = self.limiter.check(&mut state, now, 1);
                self.assert_cost(now, node, &state, units + 1, decision.is_admitted());
                let Some(counts_at) = self.goal.counts_at(&decision, now) else { break };
                for (start, count) in open.clone().zip(&mut counts) {
                    let after = counts_at.checked_since(self.instants[start]);
                    *count += u64::from(after.is_some_and(|after| after < self.limiter.window()));
                }
            }
        }
        self.keep_best(index, &open, &nodes);
        nodes
    }

    /// A cost is allowed when as many single units are, and leaves the same state.
    fn assert_cost(
        &self,
        now: Timestamp,
        before: &Node,
        after: &[u8],
        cost: u64,
        is_admitted: bool,
    ) {
        let mut state = before.state.clone();
        let decision = self.limiter.check(&mut state, now, cost);
        assert_eq!(decision.is_admitted(), is_admitted, "{cost} at {now:?} by {:?}", self.limiter);
        assert!(!is_admitted || state == after, "{cost} at {now:?} by {:?}", self.limiter);
    }

    /// The bytes identify a state. In a log and in buckets they also contain units that have left,
    /// so there the later remaining units identify it. For a log these are taken at each instant,
    /// which is when its units leave. For buckets they are taken at each instant of this part,
    /// during which the oldest fades, and just before and at the start of each later part. This
    /// gives the units of every part that can still fade.
    fn meaning(&self, index: usize, state: &[u8]) -> Counting {
        let (limiter, now) = (self.limiter, self.instants[index]);
        let remaining = |at: &Timestamp| limiter.peek(state, *at, 0).remaining;
        let is_used = |units: &u64| *units < limiter.limit();
        match limiter.algorithm() {
            Algorithm::SlidingLog => {
                let later = &self.instants[index..];
                Counting::Remaining(later.iter().map(remaining).take_while(is_used).collect())
            }
            Algorithm::SlidingBuckets { buckets, .. } => {
                let part = limiter.window().as_nanos().div_ceil(buckets.into());
                let next = now.as_nanos() / part + 1;
                let starts = (next..).map(|index| Timestamp::from_nanos(index * part));
                let nanosecond = Span::from_nanos(1);
                let later = starts.flat_map(|at| [at.saturating_sub(nanosecond), at]);
                let now_on = self.instants[index..].iter().copied();
                let now_on = now_on.take_while(|at| at.as_nanos() / part < next);
                let probes = now_on.chain(later);
                Counting::Remaining(probes.map(|at| remaining(&at)).take_while(is_used).collect())
            }
            Algorithm::Gcra
            | Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::LeakyQueue
            | Algorithm::FixedWindow
            | Algorithm::SlidingWindow => {
                let is_idle = limiter.idle_at(state) <= now;
                Counting::Bytes(if is_idle { Vec::new() } else { state.to_vec() })
            }
        }
    }

    fn keep_best(&mut self, index: usize, open: &Range<usize>, nodes: &[Node]) {
        for (place, node) in nodes.iter().enumerate() {
            for (window, best) in open.clone().zip(&node.best) {
                if self.best.is_none_or(|way| best.most > way.most) {
                    self.best = Some(Way { most: best.most, layer: index + 1, place, window });
                }
            }
        }
    }

    /// The best way, from the first instant on.
    fn witness(&self) -> Vec<RequestGroup> {
        let mut volleys = Vec::new();
        let Some(Way { mut layer, mut place, window, .. }) = self.best else { return volleys };
        while let Some(index) = layer.checked_sub(1) {
            let node = &self.layers[layer][place];
            // Before the window opens any way is as good.
            let k = window.saturating_sub(self.open(index).start).min(node.best.len() - 1);
            let Best { from, units, .. } = node.best[k];
            volleys.push(RequestGroup { at: self.instants[index], units });
            (layer, place) = (index, from);
        }
        volleys.reverse();
        volleys
    }
}
