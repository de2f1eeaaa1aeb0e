//! Whether conditions hold whenever others do.
//!
//! Invariant: a yes is certain, a no may only mean unsure.

use alloc::vec::Vec;
use core::mem::discriminant;

use crate::spec::conditions::{Condition, Conditions};
use tollgate_http_syntax::address::Cidr;
use tollgate_http_syntax::path::Pattern;

impl Conditions {
    /// True when these hold whenever `other` do; false when unsure.
    pub fn are_implied_by(&self, other: &Self) -> bool {
        self.0.iter().all(|mine| other.0.iter().any(|theirs| mine.is_implied_by(theirs)))
    }

    /// An upper bound on the number of alternatives compared to see whether `other` implies these.
    pub fn comparisons(&self, other: &Self) -> usize {
        let kinds = |all: &Self| {
            let runs = all.0.chunk_by(|a, b| discriminant(a) == discriminant(b));
            let size =
                |run: &[Condition]| run.iter().map(Condition::size).fold(0, usize::saturating_add);
            runs.filter_map(|run| Some((discriminant(run.first()?), size(run)))).collect::<Vec<_>>()
        };
        let (mine, theirs) = (kinds(self), kinds(other));
        let pairs = mine.iter().flat_map(|mine| theirs.iter().map(move |theirs| (mine, theirs)));
        let same = pairs.filter(|(mine, theirs)| mine.0 == theirs.0);
        same.map(|(mine, theirs)| mine.1.saturating_mul(theirs.1)).fold(1, usize::saturating_add)
    }
}

impl Condition {
    /// True when this holds whenever `other` does; false when unsure, which includes different
    /// kinds.
    fn is_implied_by(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Methods(mine), Self::Methods(theirs)) => {
                each_within(mine, theirs, PartialEq::eq)
            }
            (Self::Hosts(mine), Self::Hosts(theirs)) => each_within(mine, theirs, PartialEq::eq),
            (Self::Paths(mine), Self::Paths(theirs)) => each_within(mine, theirs, Pattern::covers),
            (Self::ClientCidrs(mine), Self::ClientCidrs(theirs)) => {
                each_within(mine, theirs, Cidr::covers)
            }
            (Self::Routes(mine), Self::Routes(theirs)) => each_within(mine, theirs, PartialEq::eq),
            (Self::Countries(mine), Self::Countries(theirs)) => {
                each_within(mine, theirs, PartialEq::eq)
            }
            (Self::Asns(mine), Self::Asns(theirs)) => each_within(mine, theirs, PartialEq::eq),
            (Self::Domain(mine), Self::Domain(theirs)) => each_within(mine, theirs, PartialEq::eq),
            (Self::Entries(mine), Self::Entries(theirs))
            | (Self::Beside(mine), Self::Beside(theirs)) => {
                each_within(mine, theirs, PartialEq::eq)
            }
            (Self::Header(..), Self::Header(..))
            | (Self::Query(..), Self::Query(..))
            | (Self::Descriptor(..), Self::Descriptor(..)) => self == other,
            (
                Self::Methods(..)
                | Self::Hosts(..)
                | Self::Paths(..)
                | Self::Header(..)
                | Self::Query(..)
                | Self::ClientCidrs(..)
                | Self::Routes(..)
                | Self::Countries(..)
                | Self::Asns(..)
                | Self::Domain(..)
                | Self::Descriptor(..)
                | Self::Entries(..)
                | Self::Beside(..),
                _,
            ) => false,
        }
    }

    /// The number of its alternatives; the values of one header or parameter count as one.
    fn size(&self) -> usize {
        match self {
            Self::Methods(list) => list.len(),
            Self::Hosts(list) => list.len(),
            Self::Paths(list) => list.len(),
            Self::Header(..) | Self::Query(..) | Self::Descriptor(..) => 1,
            Self::ClientCidrs(list) => list.len(),
            Self::Routes(list) => list.len(),
            Self::Countries(list) => list.len(),
            Self::Asns(list) => list.len(),
            Self::Domain(list) => list.len(),
            Self::Entries(list) | Self::Beside(list) => {
                list.iter().map(|entries| entries.0.len()).fold(0, usize::saturating_add)
            }
        }
    }
}

/// True when every one of `theirs` is within one of `mine`.
fn each_within<T>(mine: &[T], theirs: &[T], within: fn(&T, &T) -> bool) -> bool {
    theirs.iter().all(|theirs| mine.iter().any(|mine| within(mine, theirs)))
}
