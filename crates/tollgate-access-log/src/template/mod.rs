//! Lines with variables and literal text between them: what `log_format` and its kin describe.
//!
//! Invariant: a variable ends where the literal behind it begins, and a quote that is escaped ends
//! nothing. Behind the last variable that somebody wants a line is not looked at.

pub(crate) mod nginx;

use memchr::memchr;

use crate::counts::Cause;
use crate::draft::{Action, Draft, Piece, TimeForm};
use crate::escape::Escape;
use crate::field::{Field, Wanted, fixed_place};

/// What a variable tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nothing that a limiter knows.
    Other,
    Time(TimeForm),
    Status,
    /// A whole request line.
    Request,
    /// A path without its query.
    Path,
    /// A query without its question mark.
    Query,
    /// A text that is this field.
    Text(Field),
}

impl Source {
    /// Whether a line with this tells `field`.
    pub(crate) fn tells(&self, field: &Field) -> bool {
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

/// A variable, and the literal text behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) source: Source,
    /// Among several that tell the same the one with the greatest rank is taken, then the first.
    pub(crate) rank: u8,
    pub(crate) literal: Vec<u8>,
}

/// What a line looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The literal text before the first variable.
    pub(crate) lead: Vec<u8>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) escape: Escape,
}

impl Template {
    pub(crate) fn tells(&self, field: &Field) -> bool {
        self.best(field).is_some()
    }

    /// The variable that `field` is taken from.
    fn best(&self, field: &Field) -> Option<usize> {
        let telling = self.variables.iter().enumerate().filter(|(_, v)| v.source.tells(field));
        // `max_by_key` gives the last of equals, and the first is wanted.
        telling.rev().max_by_key(|(_, variable)| variable.rank).map(|(at, _)| at)
    }

    /// The steps that find what is wanted.
    pub(crate) fn program(&self, wanted: &Wanted) -> Program {
        let mut steps: Vec<Step> = Vec::new();
        let from = |field: &Field| self.best(field).filter(|_| wanted.has(field));
        let target_from = from(&Field::Target);
        let is_path =
            |at: usize| matches!(self.variables.get(at), Some(v) if v.source == Source::Path);
        let joins = target_from.is_some_and(is_path);
        for (at, variable) in self.variables.iter().enumerate() {
            let action = match &variable.source {
                Source::Other => Action::Skip,
                Source::Time(form) if from(&Field::Time) == Some(at) => Action::Time(*form),
                Source::Status if from(&Field::Status) == Some(at) => Action::Status,
                Source::Request => {
                    let method = from(&Field::Method) == Some(at);
                    let target = target_from == Some(at);
                    if method || target { Action::Request { method, target } } else { Action::Skip }
                }
                Source::Path if target_from == Some(at) => Action::Path,
                Source::Query if joins => Action::Query,
                Source::Text(field) if from(field) == Some(at) => {
                    let place = wanted.place(field).or(fixed_place(field));
                    place.map_or(Action::Skip, Action::Text)
                }
                Source::Time(_) | Source::Status | Source::Path | Source::Query => Action::Skip,
                Source::Text(_) => Action::Skip,
            };
            steps.push(Step { action, literal: variable.literal.clone() });
        }
        let last = steps.iter().rposition(|step| step.action != Action::Skip);
        steps.truncate(last.map_or(0, |last| last.wrapping_add(1)));
        Program { lead: self.lead.clone(), steps, escape: self.escape }
    }
}

/// A template that knows what is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    lead: Vec<u8>,
    steps: Vec<Step>,
    escape: Escape,
}

#[derive(Clone, Debug)]
struct Step {
    action: Action,
    literal: Vec<u8>,
}

impl Program {
    /// Finds in `line` what is wanted.
    pub(crate) fn read(&self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        if !begins_with(line, &self.lead) {
            return Err(Cause::Form);
        }
        let mut rest = line.get(self.lead.len()..).unwrap_or_default();
        for step in &self.steps {
            let end = self.end(rest, &step.literal).ok_or(Cause::Form)?;
            let (text, after) = rest.split_at_checked(end).ok_or(Cause::Form)?;
            let piece = Piece { text, from: line.len().wrapping_sub(rest.len()) };
            draft.take(step.action, piece, self.escape)?;
            rest = after.get(step.literal.len()..).unwrap_or_default();
        }
        Ok(())
    }

    /// Where in `rest` the variable before `literal` ends.
    fn end(&self, rest: &[u8], literal: &[u8]) -> Option<usize> {
        let Some(first) = literal.first() else { return Some(rest.len()) };
        let mut searched = 0_usize;
        loop {
            let found = memchr(*first, rest.get(searched..)?)?;
            let at = searched.wrapping_add(found);
            let is_escaped = *first == b'"' && self.is_escaped(rest.get(..at)?);
            if !is_escaped && begins_with(rest.get(at..)?, literal) {
                return Some(at);
            }
            searched = at.wrapping_add(1);
        }
    }

    /// Whether what stands behind `before` is escaped by it: an odd number of backslashes.
    fn is_escaped(&self, before: &[u8]) -> bool {
        if self.escape == Escape::None || before.last() != Some(&b'\\') {
            return false;
        }
        let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        !backslashes.is_multiple_of(2)
    }
}

/// `text.starts_with(literal)`, for literals of a few bytes: a call costs more than they do. With
/// none at all it costs most, since `memcmp` then looks at what is no memory, by a mask.
#[inline]
fn begins_with(text: &[u8], literal: &[u8]) -> bool {
    text.len() >= literal.len() && text.iter().zip(literal).all(|(one, other)| one == other)
}
