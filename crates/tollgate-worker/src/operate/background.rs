//! Work after a response: counts are sent to the sums.
//!
//! Invariant: a request never waits for this. The first request after a flush lets the platform
//! wait for the next one (`waitUntil`), so that counts arrive also when no other request comes: an
//! isolate has a timer only within a request.

use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use worker::Context;

use crate::deployment::Deployment;
use crate::follow::best;
use crate::operate::flush::flush;
use crate::runtime::js;

/// The platform ends a `waitUntil` task after 30 s. A task that has been silent for longer is gone.
const TASK_ENDS_AFTER: Span = Span::from_secs(60);

/// Lets the platform wait for the next flush, unless it does already.
pub(crate) fn schedule(deployment: &Rc<Deployment>, context: &Context) {
    let Some(gate) = deployment.gate().filter(|gate| !gate.flush.is_off()) else { return };
    let (now, begun_at) = (js::now(), &gate.flush.state.begun_at);
    let is_under_way = |at: Timestamp| at <= now && now < at.saturating_add(TASK_ENDS_AFTER);
    if begun_at.get().is_some_and(is_under_way) {
        return;
    }
    begun_at.set(Some(now));
    let deployment = Rc::clone(deployment);
    context.wait_until(async move {
        let Some(gate) = deployment.gate() else { return };
        js::wait(gate.flush.interval.as_millis_ceil()).await;
        // From here on a request begins the next task: its counts may not be in this one.
        gate.flush.state.begun_at.set(None);
        if let Some(active) = best(gate) {
            flush(&gate.flush, &gate.objects, &active).await;
        }
    });
}
