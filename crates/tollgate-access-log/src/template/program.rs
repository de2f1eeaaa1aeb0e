//! A template, prepared to read the wanted fields.
//!
//! Invariant: a line is read in one pass only if it can be read in one way only. Where that is not
//! certain, or the pass fails, all ways are tried.

use crate::counts::Cause;
use crate::draft::{Action, Draft, Piece};
use crate::escape::Escape;
use crate::template::splits::Splits;
use crate::template::step::{Step, begins_with};

#[derive(Clone, Debug)]
pub(crate) struct Program {
    lead: Vec<u8>,
    steps: Vec<Step>,
    escape: Escape,
    /// Some text may look like the text after it, so that the line's end decides.
    is_whole: bool,
}

impl Program {
    /// The steps up to the last wanted one; all steps if one may end in several places.
    pub(super) fn new(lead: Vec<u8>, mut steps: Vec<Step>, escape: Escape) -> Self {
        let last = steps.iter().rposition(|step| step.action != Action::Skip);
        let wanted = last.map_or(0, |last| last.wrapping_add(1));
        let is_sure = |step: &Step| step.is_sure(escape);
        // A valid time has no room for any of the text before it.
        let mut pairs = steps.iter().take(wanted).zip(steps.iter().skip(1));
        let are_sure = pairs.all(|(step, next)| {
            is_sure(step) || (matches!(next.action, Action::Time(_)) && is_sure(next))
        });
        let is_whole = !are_sure || escape == Escape::None;
        if !is_whole {
            steps.truncate(wanted);
        }
        Self { lead, steps, escape, is_whole }
    }

    /// Reads the wanted fields of `line`.
    pub(crate) fn read(&self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        if !begins_with(line, &self.lead) {
            return Err(Cause::Form);
        }
        if self.is_whole {
            return self.read_surely(line, Cause::Form, draft);
        }
        match self.read_once(line, draft) {
            Err(cause @ (Cause::Form | Cause::Time)) => self.read_surely(line, cause, draft),
            read => read,
        }
    }

    /// Reads with every variable ending as early as possible.
    fn read_once(&self, line: &[u8], draft: &mut Draft) -> Result<(), Cause> {
        let mut rest = line.get(self.lead.len()..).unwrap_or_default();
        for step in &self.steps {
            let literal = step.literal.len();
            if step.ends_what_is_taken_at_once {
                let behind = draft.take_at_once(step.action, rest);
                if let Some(behind) = behind.filter(|behind| step.begins(behind)) {
                    rest = behind.get(literal..).unwrap_or_default();
                    continue;
                }
                draft.forget(step.action);
            }
            let end = step.end(rest, 0, self.escape).ok_or(Cause::Form)?;
            let (text, after) = rest.split_at_checked(end).ok_or(Cause::Form)?;
            if step.action != Action::Skip {
                let piece = Piece { text, from: line.len().wrapping_sub(rest.len()) };
                draft.take(step.action, piece, self.escape)?;
                draft.found_first(step.action);
            }
            rest = after.get(literal..).unwrap_or_default();
        }
        Ok(())
    }

    /// Reads if there is one way only; `cause` is the error if there is none.
    #[cold]
    fn read_surely(&self, line: &[u8], cause: Cause, draft: &mut Draft) -> Result<(), Cause> {
        let (lead, steps) = (self.lead.len(), self.steps.as_slice());
        let (escape, is_whole) = (self.escape, self.is_whole);
        let ways = Splits { line, lead, steps, escape, is_whole }.only(cause, draft)?;
        draft.clear();
        for (step, (from, to)) in steps.iter().zip(ways) {
            let text = line.get(from..to).ok_or(Cause::Form)?;
            draft.take(step.action, Piece { text, from }, escape)?;
        }
        Ok(())
    }
}
