//! Lines with variables and literal text between them: what `log_format` and its kin describe.
//!
//! Invariant: a variable ends where the literal behind it begins, and a quote that is escaped ends
//! nothing. Behind the last variable that somebody wants a line is not looked at.

pub(crate) mod envoy;
pub(crate) mod nginx;

use memchr::memchr;

use crate::counts::Cause;
use crate::draft::{Action, Draft, Piece};
use crate::escape::Escape;
use crate::field::{Field, Wanted};
use crate::names::Map;
use crate::source::{Ranked, Source, actions, best};
use crate::strftime::Strftime;

/// A variable, and the literal text behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) source: Ranked,
    pub(crate) literal: Vec<u8>,
}

/// What a line looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The literal text before the first variable.
    pub(crate) lead: Vec<u8>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) escape: Escape,
    /// Forms of times that the format has of its own.
    pub(crate) times: Vec<Strftime>,
}

/// Adds text that stands as it is.
pub(crate) fn push_literal(template: &mut Template, literal: &str) {
    match template.variables.last_mut() {
        None => template.lead.extend_from_slice(literal.as_bytes()),
        Some(variable) => variable.literal.extend_from_slice(literal.as_bytes()),
    }
}

/// Adds a variable; two that touch are one if neither tells anything.
pub(crate) fn push_variable(template: &mut Template, variable: Variable) -> Result<(), String> {
    let touched = template.variables.last().filter(|before| before.literal.is_empty());
    let Some(before) = touched else {
        template.variables.push(variable);
        return Ok(());
    };
    if before.source.0 == Source::Other && variable.source.0 == Source::Other {
        return Ok(());
    }
    let (before, name) = (&before.name, &variable.name);
    Err(format!("has nothing between {before} and {name}, so nobody can tell where one ends"))
}

impl Template {
    pub(crate) fn tells(&self, field: &Field) -> bool {
        best(&self.sources(), field).is_some()
    }

    /// Gives the variables of `map` another meaning.
    pub(crate) fn map(&mut self, map: &Map) -> Result<(), String> {
        let names: Vec<String> = self.variables.iter().map(|v| v.name.clone()).collect();
        if let Some(name) = map.unknown(&names) {
            return Err(format!("has no variable {name:?}, but {}", names.join(", ")));
        }
        for variable in &mut self.variables {
            if let Some(mapped) = map.get(&variable.name) {
                variable.source = mapped;
            }
        }
        Ok(())
    }

    fn sources(&self) -> Vec<Ranked> {
        self.variables.iter().map(|variable| variable.source.clone()).collect()
    }

    /// The steps that find what is wanted.
    pub(crate) fn program(&self, wanted: &Wanted) -> Program {
        let actions = actions(&self.sources(), wanted);
        let steps = actions.into_iter().zip(&self.variables);
        let step =
            |(action, variable): (_, &Variable)| Step { action, literal: variable.literal.clone() };
        let mut steps: Vec<Step> = steps.map(step).collect();
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
        let has_backslashes = matches!(self.escape, Escape::Backslash | Escape::Json);
        if !has_backslashes || before.last() != Some(&b'\\') {
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
