//! Work that runs to its end even if its caller leaves.
//!
//! Invariant: work that has begun runs to its end: when its future is dropped before that, a
//! separate task runs the rest. A caller that stays causes no task. Work that was never polled is
//! not done. Deliberately absent: handling of a result that no caller waits for. The result is
//! dropped, and its own `Drop` handles that.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// See the module.
pub(crate) struct RunToCompletion<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    has_begun: bool,
}

/// Runs `work` to its end, whether or not a caller waits for it.
pub(crate) fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> RunToCompletion<T> {
    RunToCompletion { work: Some(Box::pin(work)), has_begun: false }
}

/// Runs this in its own task. Without a runtime the process is ending, and nothing is left to do.
pub(crate) fn alone(work: impl Future<Output: Send + 'static> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.has_begun = true;
        let Some(work) = &mut self.work else { return Poll::Pending };
        let done = ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        if let (Some(work), true) = (self.work.take(), self.has_begun) {
            alone(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    // Guards: charges of a client that left, which are never refunded.
    #[tokio::test(start_paused = true)]
    async fn what_has_begun_ends_and_what_has_not_is_never_done() {
        let done = Arc::new(AtomicU32::new(0));
        let work = || {
            let done = Arc::clone(&done);
            to_its_end(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                done.fetch_add(1, Ordering::Relaxed)
            })
        };
        assert_eq!(work().await, 0, "who stays has the result");
        drop(work());
        let left = tokio::time::timeout(Duration::from_millis(500), work()).await;
        assert!(left.is_err() && done.load(Ordering::Relaxed) == 1);
        tokio::time::sleep(Duration::from_millis(501)).await;
        assert_eq!(done.load(Ordering::Relaxed), 2);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(done.load(Ordering::Relaxed), 2, "once, and what nobody began not at all");
    }
}
