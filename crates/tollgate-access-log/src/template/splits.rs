//! All the ways in which a line can match a template.
//!
//! A text that a client chose may look like the text after it in the template. Where no escape
//! prevents that, a line is therefore cut twice: with every variable ending as early as possible,
//! and as late as possible. If both give the same result, there is no other way. If not, ways are
//! tried one after the other, and one is accepted only if no other is valid.
//!
//! Invariant: a text never decides what another field is. The work on a line is bounded.

use crate::counts::Cause;
use crate::draft::{Action, Draft, Piece};
use crate::escape::Escape;
use crate::template::step::{Step, begins_with};

/// Positions of literals that are tried on one line, some microseconds of work.
const MOST_TRIES: u32 = 256;

/// A line and the template that it should match.
#[derive(Clone, Copy)]
pub(super) struct Splits<'a> {
    pub(super) line: &'a [u8],
    pub(super) lead: usize,
    pub(super) steps: &'a [Step],
    pub(super) escape: Escape,
    /// The last literal is the line's end; else more may follow.
    pub(super) is_whole: bool,
}

/// The range of each variable: start and end.
type Ways = Vec<(usize, usize)>;

impl Splits<'_> {
    /// The only way in which the line can be read.
    ///
    /// # Errors
    /// There is none (then the error is `cause`), or more than one.
    pub(super) fn only(self, cause: Cause, draft: &mut Draft) -> Result<Ways, Cause> {
        if self.is_whole {
            let (earliest, latest) = (self.earliest(), self.latest());
            let (Some(earliest), Some(latest)) = (earliest, latest) else { return Err(cause) };
            if self.is_same(&earliest, &latest) {
                return Ok(earliest);
            }
        }
        let mut search = Search { tries: 0, way: Vec::new(), found: None };
        match self.search(self.lead, &mut search, draft) {
            Ok(()) => search.found.ok_or(cause),
            Err(Several) => Err(Cause::Ambiguous),
        }
    }

    /// Every variable ends as early as possible, except the last, which ends with the line.
    fn earliest(self) -> Option<Ways> {
        let (last, before) = self.steps.split_last()?;
        let (mut ways, mut from) = (Vec::with_capacity(self.steps.len()), self.lead);
        for step in before {
            let end = from.checked_add(step.end(self.line.get(from..)?, 0, self.escape)?)?;
            ways.push((from, end));
            from = end.checked_add(step.literal.len())?;
        }
        let end = self.line.len().checked_sub(last.literal.len())?;
        let is_end = end >= from && begins_with(self.line.get(end..)?, &last.literal);
        ways.push((from, end));
        is_end.then_some(ways)
    }

    /// Every variable begins as late as possible, except the first.
    fn latest(self) -> Option<Ways> {
        let (last, before) = self.steps.split_last()?;
        let mut ways = Vec::with_capacity(self.steps.len());
        let mut to = self.line.len().checked_sub(last.literal.len())?;
        for step in before.iter().rev() {
            let end = step.last_end(self.line, to, self.escape)?;
            ways.push((end.checked_add(step.literal.len())?, to));
            to = end;
        }
        ways.push((self.lead, to));
        ways.reverse();
        (to >= self.lead).then_some(ways)
    }

    /// Whether two ways agree in all wanted fields.
    fn is_same(self, one: &Ways, other: &Ways) -> bool {
        let wanted = |(step, _): &(&Step, _)| step.action != Action::Skip;
        let mut pairs = self.steps.iter().zip(one.iter().zip(other)).filter(wanted);
        pairs.all(|(_, (one, other))| one == other)
    }

    /// Tries every end of the variable that begins at `from`, and then the following variables.
    fn search(self, from: usize, search: &mut Search, draft: &mut Draft) -> Result<(), Several> {
        let Some(step) = self.steps.get(search.way.len()) else {
            return match &search.found {
                Some(found) if !self.is_same(found, &search.way) => Err(Several),
                Some(_) => Ok(()),
                None => {
                    search.found = Some(search.way.clone());
                    Ok(())
                }
            };
        };
        let is_last = search.way.len().wrapping_add(1) == self.steps.len();
        let rest = self.line.get(from..).unwrap_or_default();
        let mut searched = match (is_last && self.is_whole).then_some(step.literal.len()) {
            Some(literal) => rest.len().saturating_sub(literal),
            None => 0,
        };
        while let Some(end) = step.end(rest, searched, self.escape) {
            search.tries = search.tries.wrapping_add(1);
            if search.tries > MOST_TRIES {
                return Err(Several);
            }
            let text = rest.get(..end).unwrap_or_default();
            if step.is_word && text.contains(&b' ') {
                return Ok(());
            }
            let to = from.wrapping_add(end);
            if draft.accepts(step.action, Piece { text, from }, self.escape) {
                search.way.push((from, to));
                let result = self.search(to.wrapping_add(step.literal.len()), search, draft);
                search.way.pop();
                result?;
            }
            if step.literal.is_empty() || (!self.is_whole && step.is_sure(self.escape)) {
                return Ok(());
            }
            searched = end.wrapping_add(1);
        }
        Ok(())
    }
}

/// More than one way is valid, or there are too many to try.
struct Several;

struct Search {
    tries: u32,
    way: Ways,
    found: Option<Ways>,
}
