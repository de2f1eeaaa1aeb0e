//! The meaning of a variable, a column or a key of a log, and the choice between several.
//!
//! Invariant: a field is read from one place of a line: the one with the greatest rank, and of
//! equals the first. A rank expresses how close the text is to the data that the client sent.

use crate::draft::{Action, TimeForm};
use crate::field::{Field, Wanted, fixed_place};

/// The content of a piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nothing that a limiter uses.
    Other,
    Time(TimeForm),
    Status,
    /// A whole request line.
    Request,
    /// A path without its query.
    Path,
    /// A query without its question mark.
    Query,
    /// The text of this field.
    Text(Field),
}

/// The rank of a source that the user has mapped.
pub(crate) const MAPPED: u8 = u8::MAX;

/// A source, and its rank among those with the same field.
pub(crate) type Ranked = (Source, u8);

impl Source {
    /// The source with the name `words` in a map: a field, or `request`, `path` or `query`.
    pub(crate) fn parse(words: &str) -> Option<Self> {
        Some(match words {
            "time" => Self::Time(TimeForm::Any),
            "status" => Self::Status,
            "request" => Self::Request,
            "path" => Self::Path,
            "query" => Self::Query,
            _ => Self::Text(Field::parse(words)?),
        })
    }

    fn contains(&self, field: &Field) -> bool {
        match self {
            Self::Other | Self::Query => false,
            Self::Time(_) => *field == Field::Time,
            Self::Status => *field == Field::Status,
            Self::Request => matches!(field, Field::Method | Field::Target),
            Self::Path => *field == Field::Target,
            Self::Text(text) => field == text,
        }
    }
}

/// The best of `sources` for `field`.
pub(crate) fn best<'s>(
    sources: impl IntoIterator<Item = &'s Ranked>,
    field: &Field,
) -> Option<usize> {
    let mut best: Option<(usize, u8)> = None;
    for (at, (source, rank)) in sources.into_iter().enumerate() {
        if source.contains(field) && best.is_none_or(|(_, before)| *rank > before) {
            best = Some((at, *rank));
        }
    }
    best.map(|(at, _)| at)
}

/// True when one of `sources` contains `field`. A target with its query contains every parameter.
pub(crate) fn contains(sources: &[Ranked], field: &Field) -> bool {
    let target = || best(sources, &Field::Target).and_then(|at| sources.get(at));
    let is_query = |(source, _): &Ranked| *source == Source::Query;
    best(sources, field).is_some()
        || matches!(field, Field::Query(_))
            && match target() {
                Some((Source::Path, _)) => sources.iter().any(is_query),
                Some(_) => true,
                None => false,
            }
}

/// The action for each of `sources`, so that every wanted field is read from one of them.
pub(crate) fn actions(sources: &[Ranked], wanted: &Wanted) -> Vec<Action> {
    let from = |field: &Field| best(sources, field).filter(|_| wanted.has(field));
    let target_from = from(&Field::Target);
    let is_path = |at| sources.get(at).is_some_and(|(source, _)| *source == Source::Path);
    let joins = target_from.is_some_and(is_path);
    let action = |(at, (source, _)): (usize, &Ranked)| match source {
        Source::Time(form) if from(&Field::Time) == Some(at) => Action::Time(*form),
        Source::Status if from(&Field::Status) == Some(at) => Action::Status,
        Source::Path if target_from == Some(at) => Action::Path,
        Source::Query if joins => Action::Query,
        Source::Request => {
            let method = from(&Field::Method) == Some(at);
            match (method, target_from == Some(at)) {
                (false, false) => Action::Skip,
                (method, target) => Action::Request { method, target },
            }
        }
        Source::Text(field) if from(field) == Some(at) => {
            wanted.place(field).or(fixed_place(field)).map_or(Action::Skip, Action::Text)
        }
        Source::Other | Source::Time(_) | Source::Status | Source::Path => Action::Skip,
        Source::Query | Source::Text(_) => Action::Skip,
    };
    sources.iter().enumerate().map(action).collect()
}
