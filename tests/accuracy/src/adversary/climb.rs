//! Improves traces at any nanosecond, starting from random ones: simulated annealing.
//!
//! An attacker has only its own clock, and knows only the responses. It waits some time, or as long
//! as a response requires, and sends a number of requests at once. A change of a trace is kept when
//! one window allows as much or more of it, and in the early steps sometimes when it allows less.
//!
//! Invariant: the same seed finds the same trace. The result is a lower bound. That no trace
//! exceeds the documented bound is proved by `grid` on small limits, and is only not refuted here.

use super::{Attack, Goal};
use crate::trace::{RequestGroup, departures, most_in_window};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tollgate_core::{Limiter, Span, Timestamp};

/// The start of a search.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// When the first request can be sent.
    pub start_at: Timestamp,
    /// The seed of all randomness.
    pub seed: u64,
}

/// One step of an attacker: it waits, then sends.
#[derive(Clone, Copy, Debug)]
struct Gene {
    wait: Wait,
    units: u64,
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    /// As long as one more unit is denied, less this time; zero when it is allowed.
    AsTold {
        early: Span,
    },
    For(Span),
}

/// The best trace that climbing finds for `limiter` with `changes` changes per trace.
#[must_use]
pub fn search(limiter: &Limiter, goal: Goal, from: Start, changes: u64) -> Attack {
    let random = Pcg64Mcg::seed_from_u64(from.seed);
    let mut climber = Climber { limiter, goal, start_at: from.start_at, random };
    Attack::of(limiter, goal, &climber.climb(changes))
}

struct Climber<'l> {
    limiter: &'l Limiter,
    goal: Goal,
    start_at: Timestamp,
    random: Pcg64Mcg,
}

impl Climber<'_> {
    /// The volleys of the best trace of one search.
    fn climb(&mut self, changes: u64) -> Vec<RequestGroup> {
        let mut genes: Vec<Gene> = (0..self.length()).map(|_| self.gene()).collect();
        let mut volleys = self.play(&genes);
        let mut score = self.score(&volleys);
        let mut best = (score, volleys.clone());
        for change in 0..changes {
            let changed = self.changed(&genes);
            volleys = self.play(&changed);
            let reached = self.score(&volleys);
            // Losses are accepted in the first half, less and less often.
            let is_early = self.below(changes) > 2 * change;
            if reached >= score || (is_early && reached + 1 >= score && self.below(20) == 0) {
                (genes, score) = (changed, reached);
                if score > best.0 {
                    best = (score, volleys.clone());
                }
            }
        }
        best.1
    }

    /// As many steps as a window allows single units, and some before.
    fn length(&self) -> u64 {
        2 * self.limiter.limit() + 8
    }

    fn gene(&mut self) -> Gene {
        Gene { wait: self.wait(), units: self.units() }
    }

    fn wait(&mut self) -> Wait {
        match self.below(16) {
            0..4 => return Wait::AsTold { early: Span::ZERO },
            4 => return Wait::AsTold { early: Span::from_nanos(1) },
            _ => {}
        }
        // From a nanosecond to two windows, with equal probability for each order of magnitude.
        let longest = 2 * self.limiter.window().as_nanos();
        let bits = u64::from(longest.ilog2());
        let most = 1 << self.below(bits + 1);
        Wait::For(Span::from_nanos(self.below(most) + most))
    }

    fn units(&mut self) -> u64 {
        match self.below(3) {
            0 => 1,
            1 => 1 + self.below(self.limiter.capacity()),
            _ => self.limiter.capacity(),
        }
    }

    fn changed(&mut self, genes: &[Gene]) -> Vec<Gene> {
        let mut genes = genes.to_vec();
        let place = self.place(genes.len());
        match self.below(7) {
            0 => genes[place].wait = self.wait(),
            1 => genes[place].units = self.units(),
            2 => genes[place] = genes[self.place(genes.len())],
            3 => {
                let gene = genes.remove(place);
                let to = self.place(genes.len() + 1);
                genes.insert(to, gene);
            }
            4 => {
                genes.remove(place);
                let to = self.place(genes.len() + 1);
                let gene = self.gene();
                genes.insert(to, gene);
            }
            5 => {
                // A good change is mostly good for a while.
                let end = (place + self.place(genes.len())).min(genes.len());
                let gene = genes[place];
                genes[place..end].fill(gene);
            }
            _ => {
                if let Wait::For(span) = genes[place].wait {
                    let part = span.as_nanos() / 8 + 2;
                    let span = span.saturating_add(Span::from_nanos(self.below(part)));
                    let span = span.saturating_sub(Span::from_nanos(self.below(part)));
                    genes[place].wait = Wait::For(span);
                }
            }
        }
        genes
    }

    /// The part of a trace that is allowed.
    fn play(&self, genes: &[Gene]) -> Vec<RequestGroup> {
        let mut state = vec![0; self.limiter.state_len()];
        let mut now = self.start_at;
        let mut volleys = Vec::with_capacity(genes.len());
        for gene in genes {
            let wait = match gene.wait {
                Wait::AsTold { early } => {
                    let told = self.limiter.peek(&state, now, 1).retry_after;
                    told.unwrap_or(Span::ZERO).saturating_sub(early)
                }
                Wait::For(span) => span,
            };
            now = now.saturating_add(wait);
            let units = gene.units.min(self.limiter.peek(&state, now, 0).remaining);
            self.limiter.check(&mut state, now, units);
            volleys.push(RequestGroup { at: now, units });
        }
        volleys
    }

    fn score(&self, volleys: &[RequestGroup]) -> u64 {
        let window = self.limiter.window();
        match self.goal {
            Goal::Admissions => most_in_window(volleys, window),
            Goal::Departures => most_in_window(&departures(self.limiter, volleys), window),
        }
    }

    fn place(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).expect("a length");
        usize::try_from(self.below(length)).expect("an index")
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.random.next_u64()) * u128::from(end);
        u64::try_from(wide >> 64).expect("below `end`")
    }
}
