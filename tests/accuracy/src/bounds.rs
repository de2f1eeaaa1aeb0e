//! The documented bound of every algorithm with every option, beside what the adversary finds.
//!
//! Invariant: what is searched is said in the result: a limit, a window, the instants, how many
//! states; and a search is the same on every machine.

use crate::adversary::{
    Attack, Goal,
    climb::{self, Start},
    grid::{self, Grid},
};
use crate::subject::{Subject, subjects};
use tollgate_core::{Limiter, Span, Timestamp};

/// The window of small limits: each of them divides it into whole seconds.
pub const SMALL_WINDOW: Span = Span::from_secs(12);
/// The highest of the small limits.
pub const HIGHEST_SMALL: u64 = 4;
/// The limit that is too high to try everything, per [`MINUTE`].
pub const SIXTY: u64 = 60;
/// Its window.
pub const MINUTE: Span = Span::from_secs(60);

/// A time that no window starts at, in the year 2026: where the epoch is must not matter.
const LATER: Timestamp = Timestamp::from_nanos(1_790_000_000_123_456_789);

/// Searches by climbing of each limiter.
const STARTS: u64 = 8;

/// One bound, and what was found.
#[derive(Debug)]
pub struct Searched {
    /// Of which limiter.
    pub subject: Subject,
    /// What is counted.
    pub goal: Goal,
    /// What the documents say is the most.
    pub bound: u64,
    /// The best trace that was found.
    pub attack: Attack,
    /// States that were told apart, at all instants of all grids; 0 where not everything was tried.
    pub states: usize,
}

impl Searched {
    /// True when the bound is what was found: reached, and not passed.
    #[must_use]
    pub const fn is_met(&self) -> bool {
        self.attack.most == self.bound
    }
}

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// In every test run: instants a twelfth of a window apart.
    Quick,
    /// In the bench, too: also a 24th, and a nanosecond beside each twelfth.
    Deep,
}

/// Tries everything on the grids, for limits 1 to [`HIGHEST_SMALL`].
#[must_use]
pub fn exhaustive(depth: Depth) -> Vec<Searched> {
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

/// Climbs at [`SIXTY`] per [`MINUTE`], and where nothing is a whole number of nanoseconds.
#[must_use]
pub fn climbed(depth: Depth) -> Vec<Searched> {
    let mut all = subjects(SIXTY, MINUTE, &[1, 10, 30, 120], &[2, 7, 60, 360]);
    all.extend(subjects(7, Span::from_secs(10), &[1, 2, 30], &[3, 7]));
    if depth == Depth::Quick {
        all.retain(|subject| subject.limiter.state_len() < 1_000);
    }
    let climb = |subject: &Subject, goal: Goal| climbed_to(subject, goal, depth);
    all.iter().flat_map(|subject| goals(subject).map(move |goal| climb(subject, goal))).collect()
}

/// From several starts; a quick search takes ever more time, and ends with the first start that
/// reaches the bound.
fn climbed_to(subject: &Subject, goal: Goal, depth: Depth) -> Searched {
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

/// Admissions; and departures of what lets requests wait.
fn goals(subject: &Subject) -> impl Iterator<Item = Goal> + use<> {
    let waits = matches!(subject.limiter, Limiter::LeakyQueue(_));
    [Goal::Admissions].into_iter().chain(waits.then_some(Goal::Departures))
}

fn everything(subject: &Subject, goal: Goal, depth: Depth) -> Searched {
    let found = grids(&subject.limiter, depth);
    let found = found.iter().map(|grid| grid::search(&subject.limiter, goal, grid));
    let found: Vec<grid::Searched> = found.collect();
    let states = found.iter().map(|found| found.states).sum();
    // The first of the best: the one that is easiest to read.
    let attacks = found.into_iter().map(|found| found.attack);
    let best = attacks.reduce(|best, next| if next.most > best.most { next } else { best });
    searched(subject, goal, best.expect("at least one grid"), states)
}

/// The clocks on which everything is tried.
fn grids(limiter: &Limiter, depth: Depth) -> Vec<Grid> {
    let (window, limit) = (limiter.window(), limiter.limit());
    let parts = limiter.algorithm().buckets().map_or(1, u64::from);
    let twelfths = Grid::even(Timestamp::ZERO, window, 12, 4);
    let mut grids =
        vec![twelfths.clone(), Grid::of_parts(window, parts, limit).to_the_nanosecond()];
    if depth == Depth::Deep {
        grids.push(Grid::even(LATER, window, 12, 4));
        // A ring remembers every unit: with more of them these are too many states.
        let is_small = limiter.state_len() <= 24;
        let edges = if is_small { HIGHEST_SMALL } else { 1 };
        grids.extend((limit <= edges).then(|| twelfths.to_the_nanosecond()));
        let halves = if is_small { HIGHEST_SMALL } else { 2 };
        grids.extend((limit <= halves).then(|| Grid::even(Timestamp::ZERO, window, 24, 4)));
    }
    grids
}

fn searched(subject: &Subject, goal: Goal, attack: Attack, states: usize) -> Searched {
    let bound = goal.bound(&subject.limiter);
    Searched { subject: subject.clone(), goal, bound, attack, states }
}
