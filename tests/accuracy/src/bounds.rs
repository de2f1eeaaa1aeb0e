//! The documented bound of every algorithm with every option, compared with the adversary's result.
//!
//! Invariant: the result contains the extent of the search: a limit, a window, the instants, and
//! the number of states. A search is the same on every machine.

use crate::adversary::{
    Attack, Goal,
    climb::{self, Start},
    grid::{self, Grid},
};
use crate::subject::{Subject, subjects};
use tollgate_core::{Algorithm, Limiter, Span, Timestamp};

/// The window of small limits: each of them divides it into whole seconds.
pub const SMALL_WINDOW: Span = Span::from_secs(12);
/// The highest of the small limits.
pub const HIGHEST_SMALL: u64 = 4;
/// The limit that is too high for a full search, per [`MINUTE`].
pub const SIXTY: u64 = 60;
/// Its window.
pub const MINUTE: Span = Span::from_secs(60);

/// A time in the year 2026 at which no window starts: the position of the epoch must not matter.
const LATER: Timestamp = Timestamp::from_nanos(1_790_000_000_123_456_789);

/// Climbing searches per limiter.
const STARTS: u64 = 8;

/// One bound, and the search result.
#[derive(Debug)]
pub struct BoundSearch {
    /// The limiter.
    pub subject: Subject,
    /// The units that are counted.
    pub goal: Goal,
    /// The documented maximum.
    pub bound: u64,
    /// The best trace that was found.
    pub attack: Attack,
    /// The number of distinct states, at all instants of all grids; 0 without a full search.
    pub states: usize,
}

impl BoundSearch {
    /// True when the result equals the bound: reached, and not exceeded.
    #[must_use]
    pub const fn is_met(&self) -> bool {
        self.attack.most == self.bound
    }
}

/// The extent of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// In every test run: instants a twelfth of a window apart.
    Quick,
    /// In the bench: also a 24th, and the nanoseconds next to each twelfth.
    Deep,
}

/// Tries every trace on the grids, for limits 1 to [`HIGHEST_SMALL`].
#[must_use]
pub fn exhaustive(depth: Depth) -> Vec<BoundSearch> {
    let (bursts, parts): (&[u64], &[u16]) = match depth {
        Depth::Quick => (&[1, 2, 8], &[2, 5]),
        Depth::Deep => (&[1, 2, 3, 8], &[2, 3, 7, 60]),
    };
    let limits = 1..=HIGHEST_SMALL;
    let all = limits.flat_map(|limit| subjects(limit, SMALL_WINDOW, bursts, parts));
    all.flat_map(|subject| {
        goals(&subject).map(|goal| everything(&subject, goal, depth)).collect::<Vec<_>>()
    })
    .collect()
}

/// Climbs at [`SIXTY`] per [`MINUTE`], and where no value is a whole number of nanoseconds.
#[must_use]
pub fn climbed(depth: Depth) -> Vec<BoundSearch> {
    let mut all = subjects(SIXTY, MINUTE, &[1, 10, 30, 120], &[2, 7, 60, 360]);
    all.extend(subjects(7, Span::from_secs(10), &[1, 2, 30], &[3, 7]));
    if depth == Depth::Quick {
        all.retain(|subject| subject.limiter.state_len() < 1_000);
    }
    let climb = |subject: &Subject, goal: Goal| climbed_to(subject, goal, depth);
    all.iter().flat_map(|subject| goals(subject).map(move |goal| climb(subject, goal))).collect()
}

/// Searches from several starts. A quick search takes more time with each start, and ends with the
/// first one that reaches the bound.
fn climbed_to(subject: &Subject, goal: Goal, depth: Depth) -> BoundSearch {
    let mut best = searched(subject, goal, Attack::of(&subject.limiter, goal, &[]), 0);
    for seed in 0..STARTS {
        let start_at = if seed % 2 == 0 { Timestamp::ZERO } else { LATER };
        let start = Start { start_at, seed };
        let changes = match depth {
            Depth::Quick => 500 << seed,
            Depth::Deep => 10_000,
        };
        let attack = climb::search(&subject.limiter, goal, start, changes);
        if attack.most > best.attack.most {
            best.attack = attack;
        }
        if depth == Depth::Quick && best.attack.most >= best.bound {
            break;
        }
    }
    best
}

/// Admissions, and also departures for a limiter that lets requests wait.
fn goals(subject: &Subject) -> impl Iterator<Item = Goal> + use<> {
    let waits = subject.limiter.algorithm() == Algorithm::LeakyQueue;
    [Goal::Admissions].into_iter().chain(waits.then_some(Goal::Departures))
}

fn everything(subject: &Subject, goal: Goal, depth: Depth) -> BoundSearch {
    let found = grids(&subject.limiter, depth);
    let found = found.iter().map(|grid| grid::search(&subject.limiter, goal, grid));
    let found: Vec<grid::SearchResult> = found.collect();
    let states = found.iter().map(|found| found.states).sum();
    // The first of the best traces, which is the easiest to read.
    let attacks = found.into_iter().map(|found| found.attack);
    let best = attacks.reduce(|best, next| if next.most > best.most { next } else { best });
    searched(subject, goal, best.expect("at least one grid"), states)
}

/// The clocks of a full search.
fn grids(limiter: &Limiter, depth: Depth) -> Vec<Grid> {
    let (window, limit) = (limiter.window(), limiter.limit());
    let parts = limiter.algorithm().buckets().map_or(1, u64::from);
    let twelfths = Grid::even(Timestamp::ZERO, window, 12, 4);
    let mut grids =
        vec![twelfths.clone(), Grid::of_parts(window, parts, limit).to_the_nanosecond()];
    if depth == Depth::Deep {
        grids.push(Grid::even(LATER, window, 12, 4));
        // A ring stores every unit: with more units there are too many states.
        let is_small = limiter.state_len() <= 24;
        let edges = if is_small { HIGHEST_SMALL } else { 1 };
        grids.extend((limit <= edges).then(|| twelfths.to_the_nanosecond()));
        let halves = if is_small { HIGHEST_SMALL } else { 2 };
        grids.extend((limit <= halves).then(|| Grid::even(Timestamp::ZERO, window, 24, 4)));
    }
    grids
}

fn searched(subject: &Subject, goal: Goal, attack: Attack, states: usize) -> BoundSearch {
    let bound = goal.bound(&subject.limiter);
    BoundSearch { subject: subject.clone(), goal, bound, attack, states }
}
