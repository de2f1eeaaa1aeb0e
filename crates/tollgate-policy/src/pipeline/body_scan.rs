//! The body of a response whose cost is in its JSON, read while it passes.
//!
//! Invariant: a body is never held; what is kept is the place in it. Whatever its bytes are, a body
//! has no numbers if it is compressed, of a type that is not read, or a part that a client chose.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tollgate_http_syntax::json_body::{JsonBody, JsonFormat};
use tollgate_http_syntax::json_pointer::Found;

use crate::pipeline::applied::AppliedRule;
use crate::pipeline::settlement::Settlement;
use crate::policy::compiled::Policy;
use crate::spec::json_cost::JsonCost;
use crate::spec::settled_cost::{ActualUnits, ResponseFacts, UnknownCost};

/// A body in progress.
pub struct BodyScan {
    /// The reason when it is not read.
    body: Result<JsonBody, UnknownCost>,
    has_ended: bool,
}

impl Settlement<'_> {
    /// Begins to read the body of the response with this head, after
    /// [`Plan::settle`](crate::Plan::settle) at the head; `None` when no rule needs it.
    #[must_use]
    pub fn body_scan(&self, head: &dyn ResponseFacts) -> Option<Box<BodyScan>> {
        let mut pointers: Vec<&str> = Vec::new();
        let awaited = self.plan.awaited.rules.iter();
        for cost in awaited.filter_map(|applied| json_cost(self.policy, applied)) {
            for number in &cost.numbers {
                if !pointers.contains(&number.pointer.as_str()) {
                    pointers.push(&number.pointer);
                }
            }
        }
        if pointers.is_empty() {
            return None;
        }
        let body = format(head).map(|format| JsonBody::new(format, pointers.into_iter()));
        Some(Box::new(BodyScan { body, has_ended: false }))
    }
}

/// How the rule's cost is in the body of the response, if it is.
fn json_cost<'p>(policy: &'p Policy, applied: &AppliedRule) -> Option<&'p JsonCost> {
    policy.rules.get(usize::from(applied.rule))?.settled_cost()?.actual.json()
}

/// The form of a body with this head.
fn format(head: &dyn ResponseFacts) -> Result<JsonFormat, UnknownCost> {
    let encoding = head.header("content-encoding").unwrap_or_default();
    let is_plain = |coding: &[u8]| {
        let coding = coding.trim_ascii();
        coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
    };
    if !encoding.split(|byte| *byte == b',').all(is_plain) {
        return Err(UnknownCost::Compressed);
    }
    // A part of a stream with growing numbers would show an early one as the last.
    if head.header("content-range").is_some() {
        return Err(UnknownCost::Incomplete);
    }
    let content_type = head.header("content-type").unwrap_or_default();
    JsonFormat::of(&content_type).ok_or(UnknownCost::ContentType)
}

impl BodyScan {
    /// True when its bytes are needed.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.body.is_ok() && !self.has_ended
    }

    /// The next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        if let (Ok(body), false) = (&mut self.body, self.has_ended) {
            body.push(bytes);
        }
    }

    /// Bytes of the body are missing: nothing of it counts.
    pub fn fail(&mut self) {
        self.body = Err(UnknownCost::Incomplete);
    }

    /// The body has ended; `is_whole` is false where it broke off. Only the first call counts.
    pub fn end(&mut self, is_whole: bool) {
        if let (Ok(body), false) = (&mut self.body, self.has_ended) {
            body.end(is_whole);
        }
        self.has_ended = true;
    }

    /// The units of a cost, each number times its weight; `None` before the body's end.
    #[must_use]
    pub fn units(&self, cost: &JsonCost) -> Option<ActualUnits> {
        if !self.has_ended {
            return None;
        }
        let read = |body: &JsonBody, pointer: &str| match body.found(pointer) {
            Found::Number(number) => Ok(number),
            Found::Absent => Err(UnknownCost::Absent),
            Found::Unreadable => Err(UnknownCost::Unreadable),
            Found::Conflicting => Err(UnknownCost::Conflicting),
            Found::Incomplete => Err(UnknownCost::Incomplete),
        };
        Some(
            self.body
                .as_ref()
                .map_err(|why| *why)
                .and_then(|body| cost.sum(|pointer| read(body, pointer))),
        )
    }
}
