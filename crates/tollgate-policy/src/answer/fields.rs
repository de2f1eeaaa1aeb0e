//! The header fields of each generation.
//!
//! Invariant: each value is a canonical structured field (RFC 9651) whose numbers a client may rely
//! on: a client that spreads `r` units over `t` seconds is never denied, and one that waits
//! `Retry-After` is allowed. `Retry-After` rounds up; `t` rounds down, except for a lease; neither
//! is 0. Jitter only ever makes a wait longer.

use base64ct::{Base64, Encoding};
use tollgate_core::{Algorithm, Decision, Span, Timestamp, Verdict};

use crate::answer::text::Text;
use crate::pipeline::in_flight::PLACE_LOOK;
use crate::policy::field_template::{FieldTemplate, quoted, whole_seconds};
use crate::policy::quota::CompiledQuota;
use crate::policy::settings::Response;
use crate::spec::response::HeaderGeneration;

/// The receiver of fields: name in lower case, value.
type Sink<'s> = &'s mut dyn FnMut(&'static str, &str);

/// Whole seconds of a wait: rounded up, at least 1.
pub(crate) fn seconds(span: Span) -> u64 {
    span.as_secs_ceil().max(1)
}

/// One quota that was decided, and its decision.
#[derive(Clone, Copy)]
pub(crate) struct Reported<'a> {
    pub(crate) quota: &'a CompiledQuota,
    /// The name of its unit, where the document gives one.
    pub(crate) unit: Option<&'a str>,
    pub(crate) decision: &'a Decision,
    /// The time of the decision.
    pub(crate) at: Timestamp,
    /// Where it is counted; `None` where everything is denied.
    pub(crate) partition: Option<usize>,
    /// The request would have to wait for its rule and may not.
    pub(crate) rejected_waiting: bool,
    /// The remaining units are those that a node holds, for as long as it holds them.
    pub(crate) is_leased: bool,
}

impl Reported<'_> {
    /// True when it denies, when its place was returned because the request may not wait, and when
    /// the request waited for a place in vain.
    pub(crate) fn is_violated(&self) -> bool {
        let gave_place = || self.quota.limiter.algorithm() == Algorithm::LeakyQueue;
        !self.decision.is_admitted()
            || (self.rejected_waiting && (gave_place() || self.is_in_flight()))
    }

    /// True when it limits requests in flight: it has no window, and no time when it allows again.
    pub(crate) const fn is_in_flight(&self) -> bool {
        self.quota.limiter.max_age().is_some()
    }

    /// The wait of a denied request before it is decided again, if it may still wait for `left`:
    /// the end of a request in flight is not known, so it is looked for.
    pub(crate) fn next_look(&self, left: Span) -> Option<Span> {
        let denies = !self.decision.is_admitted();
        let looks = denies && self.is_in_flight() && left > Span::ZERO;
        self.decision.retry_after.or_else(|| looks.then(|| PLACE_LOOK.min(left)))
    }

    /// True when a penalty denies.
    pub(crate) fn is_in_penalty(&self) -> bool {
        self.decision.verdict == Verdict::Penalty
    }

    /// The member of `RateLimit-Policy`, where it is the usual one of its quota.
    fn template(&self) -> Option<&FieldTemplate> {
        let template = self.quota.template.as_deref().filter(|_| self.unit.is_none());
        template.filter(|template| template.limit == self.decision.limit)
    }

    /// The window that was decided in: by a calendar months differ in length.
    fn window(&self) -> Span {
        match self.quota.limiter.calendar() {
            Some(calendar) => calendar.span_of(self.at).len(),
            None => self.quota.window,
        }
    }
}

/// The quota of a decided request that is nearest to exhaustion: the least available, and of equals
/// the one with the longest effective window. For protocols that report a single quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearestQuota<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its limit, in quota units.
    pub limit: u64,
    /// Its window.
    pub window: Span,
    /// The units that may be used now; 0 while it denies.
    pub remaining: u64,
    /// The effective window (`t`), in whole seconds; 0 where no wait helps, because the limit is 0.
    pub reset_seconds: u64,
}

/// Writes the fields that are reported to the client.
#[derive(Clone, Copy)]
pub(crate) struct FieldWriter<'a> {
    pub(crate) response: &'a Response,
    /// Added to every wait until a quota allows again.
    pub(crate) jitter: Span,
}

impl<'a> FieldWriter<'a> {
    /// The fields of every denial. It is for one client and one moment, so no cache may store it
    /// (RFC 6585, 4).
    pub(crate) fn refusal(
        self,
        content_type: Option<&'static str>,
        retry_after: Option<Span>,
        text: &mut Text,
        sink: Sink<'_>,
    ) {
        if let Some(content_type) = content_type {
            sink("content-type", content_type);
        }
        sink("cache-control", "no-store");
        if let Some(wait) = retry_after {
            let seconds = seconds(wait.saturating_add(self.jitter));
            send_numbers(&["retry-after"], &[seconds], text, sink);
        }
    }

    /// The rate limit fields for the quotas that were decided; none when none was. `pk` returns the
    /// hash of a partition's key.
    pub(crate) fn fields<I>(
        self,
        reported: impl Fn() -> I,
        pk: impl Fn(usize) -> u64,
        text: &mut Text,
        sink: Sink<'_>,
    ) where
        I: Iterator<Item = Reported<'a>>,
    {
        let nearest = || {
            let nearest = self.nearest(reported())?;
            Some([nearest.limit, nearest.remaining, nearest.reset_seconds])
        };
        match self.response.spec.headers {
            HeaderGeneration::Off => {}
            HeaderGeneration::Draft11 => self.draft_11(reported(), pk, text, sink),
            HeaderGeneration::Draft7 => {
                let Some(numbers) = nearest() else { return };
                self.plain_policy(reported(), text, sink);
                text.clear();
                let names = ["limit=", ", remaining=", ", reset="];
                for (name, number) in names.into_iter().zip(without_reset(&numbers)) {
                    text.push(name);
                    text.push_number(*number);
                }
                sink("ratelimit", text.as_str());
            }
            HeaderGeneration::Draft6 => {
                let Some(numbers) = nearest() else { return };
                self.plain_policy(reported(), text, sink);
                let names = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
                send_numbers(&names, without_reset(&numbers), text, sink);
            }
            HeaderGeneration::XRateLimit => {
                let Some(numbers) = nearest() else { return };
                let names = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
                send_numbers(&names, without_reset(&numbers), text, sink);
            }
        }
    }

    /// The quota that is nearest to exhaustion; `None` when none was decided.
    pub(crate) fn nearest(
        self,
        reported: impl Iterator<Item = Reported<'a>>,
    ) -> Option<NearestQuota<'a>> {
        // These fields cannot describe what has no window.
        let of_windows = reported.filter(|reported| !reported.is_in_flight());
        let nearest = of_windows.min_by_key(|reported| self.exhaustion(reported))?;
        Some(NearestQuota {
            name: &nearest.quota.name,
            limit: nearest.decision.limit,
            window: nearest.window(),
            remaining: available(&nearest),
            reset_seconds: self.effective_window(&nearest),
        })
    }

    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11, one member
    /// per quota.
    fn draft_11(
        self,
        reported: impl Iterator<Item = Reported<'a>>,
        pk: impl Fn(usize) -> u64,
        text: &mut Text,
        sink: Sink<'_>,
    ) {
        text.clear();
        let mut policy = Text::new();
        for reported in reported {
            if self.response.spec.policy {
                begin_member(&mut policy);
                match reported.template() {
                    Some(template) => policy.push(&template.policy),
                    None => push_policy(&reported, &mut policy),
                }
                self.push_partition_key(reported.partition, &pk, &mut policy);
            }
            begin_member(text);
            match &reported.quota.template {
                Some(template) => text.push(&template.remaining),
                None => {
                    push_quoted(&reported.quota.name, text);
                    text.push(";r=");
                }
            }
            text.push_number(available(&reported));
            let window = self.effective_window(&reported);
            if window > 0 && !reported.is_in_flight() {
                text.push(";t=");
                text.push_number(window);
            }
            self.push_partition_key(reported.partition, &pk, text);
        }
        if text.is_empty() {
            return; // none was decided
        }
        if self.response.spec.policy {
            sink("ratelimit-policy", policy.as_str());
        }
        sink("ratelimit", text.as_str());
    }

    /// `RateLimit-Policy` of drafts 6 and 7: `100;w=60, 1000;w=86400`.
    fn plain_policy(
        self,
        reported: impl Iterator<Item = Reported<'a>>,
        text: &mut Text,
        sink: Sink<'_>,
    ) {
        if !self.response.spec.policy {
            return;
        }
        text.clear();
        for reported in reported.filter(|reported| !reported.is_in_flight()) {
            begin_member(text);
            text.push_number(reported.decision.limit);
            push_window(reported.window(), text);
        }
        sink("ratelimit-policy", text.as_str());
    }

    /// `;pk=:...:`.
    fn push_partition_key(
        self,
        partition: Option<usize>,
        pk: &impl Fn(usize) -> u64,
        text: &mut Text,
    ) {
        let Some(partition) = partition.filter(|_| self.response.spec.partition_key) else {
            return;
        };
        let mut buffer = [0; 12];
        if let Ok(encoded) = Base64::encode(&pk(partition).to_be_bytes(), &mut buffer) {
            text.push(";pk=:");
            text.push(encoded);
            text.push(":");
        }
    }

    /// `t`: the effective window. While nothing may be used, it is a wait like any other. While `r`
    /// may be used, it is the time in which `r` grow back, or the time until the quota returns any
    /// units if that is sooner, rounded down: `r` may be used at once, so a short `t` costs no
    /// client a 429, and a long one wastes units that the client was granted. Nothing grows in a
    /// fixed window: there `t` is the rest of the window. For a lease it is the rest of the lease,
    /// rounded up.
    fn effective_window(self, reported: &Reported<'_>) -> u64 {
        let (decision, r) = (reported.decision, available(reported));
        if decision.limit == 0 {
            return 0; // nothing ever comes back
        }
        let wait = decision.retry_after.or((r == 0).then_some(decision.reset_after));
        if let Some(wait) = wait {
            return seconds(wait.saturating_add(self.jitter));
        }
        if reported.is_leased {
            return seconds(decision.reset_after);
        }
        let window = match reported.quota.limiter.algorithm() {
            Algorithm::FixedWindow => decision.reset_after,
            Algorithm::Gcra
            | Algorithm::TokenBucket
            | Algorithm::LeakyBucket
            | Algorithm::LeakyQueue
            | Algorithm::SlidingWindow
            | Algorithm::SlidingLog
            | Algorithm::SlidingBuckets { .. } => {
                decision.reset_after.min(regrown_after(r, decision.limit, reported.quota.window))
            }
        };
        window.as_secs_floor().max(1)
    }

    /// Orders quotas by how close they are to exhaustion: least available first, then longest
    /// window.
    fn exhaustion(self, reported: &Reported<'_>) -> (u64, core::cmp::Reverse<u64>) {
        (available(reported), core::cmp::Reverse(self.effective_window(reported)))
    }
}

/// The time in which `units` of `limit` per `window` grow back: floor(units x window / limit).
fn regrown_after(units: u64, limit: u64, window: Span) -> Span {
    let product = u128::from(units).saturating_mul(u128::from(window.as_nanos()));
    let nanos = product.checked_div(u128::from(limit)).unwrap_or(0);
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// `r`: the units that may be used now; 0 while the quota denies.
fn available(reported: &Reported<'_>) -> u64 {
    match reported.decision.retry_after {
        Some(_) => 0,
        None => reported.decision.remaining,
    }
}

fn begin_member(text: &mut Text) {
    if !text.is_empty() {
        text.push(", ");
    }
}

/// A member of `RateLimit-Policy`, without the key.
fn push_policy(reported: &Reported<'_>, text: &mut Text) {
    push_quoted(&reported.quota.name, text);
    text.push(";q=");
    text.push_number(reported.decision.limit);
    if let Some(unit) = reported.unit {
        text.push(";qu=");
        push_quoted(unit, text);
    }
    if !reported.is_in_flight() {
        push_window(reported.window(), text);
    }
}

/// `;w=60`, if there is one.
fn push_window(window: Span, text: &mut Text) {
    if let Some(seconds) = whole_seconds(window) {
        text.push(";w=");
        text.push_number(seconds);
    }
}

fn push_quoted(name: &str, text: &mut Text) {
    text.push(&quoted(name));
}

/// The limit, the remaining units and the reset, which is left out where no wait helps.
fn without_reset(numbers: &[u64; 3]) -> &[u64] {
    if let [numbers @ .., 0] = numbers { numbers } else { numbers }
}

/// Each number as a separate field.
fn send_numbers(names: &[&'static str], numbers: &[u64], text: &mut Text, sink: Sink<'_>) {
    for (name, number) in names.iter().zip(numbers) {
        text.clear();
        text.push_number(*number);
        sink(name, text.as_str());
    }
}
