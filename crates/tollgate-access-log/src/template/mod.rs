//! Lines with variables and literal text between them, as `log_format` and similar options
//! describe.
//!
//! Invariant: a variable ends where the literal after it begins. The line after the last wanted
//! variable is not read, unless its end is needed to find the end of another variable.

pub(crate) mod envoy;
pub(crate) mod nginx;
mod program;
mod splits;
mod step;

pub(crate) use program::Program;
use step::Step;

use crate::escape::Escape;
use crate::field::{Field, Wanted};
use crate::names::Map;
use crate::source::{Ranked, Source, actions, contains};
use crate::strftime::Strftime;

/// A variable, and the literal text after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) source: Ranked,
    /// Its text has no spaces, whatever a client sends.
    pub(crate) is_word: bool,
    pub(crate) literal: Vec<u8>,
}

/// The form of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The literal text before the first variable.
    pub(crate) lead: Vec<u8>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) escape: Escape,
    /// The format's own forms of times.
    pub(crate) times: Vec<Strftime>,
}

/// Adds literal text.
pub(crate) fn push_literal(template: &mut Template, literal: &str) {
    match template.variables.last_mut() {
        None => template.lead.extend_from_slice(literal.as_bytes()),
        Some(variable) => variable.literal.extend_from_slice(literal.as_bytes()),
    }
}

/// Adds a variable; two without text between them are one if neither has a field.
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
    Err(format!("has no text between {before} and {name}, so the end of each is unknown"))
}

impl Template {
    pub(crate) fn contains(&self, field: &Field) -> bool {
        contains(&self.sources(), field)
    }

    /// Gives another meaning to the variables of `map`.
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

    /// The steps that find the wanted fields.
    pub(crate) fn program(&self, wanted: &Wanted) -> Program {
        let actions = actions(&self.sources(), wanted);
        let step = |(action, variable): (_, &Variable)| {
            Step::new(action, variable.is_word, variable.literal.clone())
        };
        let steps = actions.into_iter().zip(&self.variables).map(step).collect();
        Program::new(self.lead.clone(), steps, self.escape)
    }
}
