//! Several things that are waited for at the same time.
//!
//! Invariant: results come in the order of what was waited for, whichever is over first.
//! Deliberately absent: cancellation.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// What each of `futures` gives, once all are over. They begin in their order.
pub(crate) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_over = true;
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *result = Some(output),
                    Poll::Pending => is_over = false,
                }
            }
        }
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// Is over after it was asked so often.
    fn after(mut polls: u32, result: u32) -> impl Future<Output = u32> {
        poll_fn(move |_| {
            polls = polls.saturating_sub(1);
            if polls == 0 { Poll::Ready(result) } else { Poll::Pending }
        })
    }

    #[test]
    fn results_come_in_the_order_of_the_futures() {
        let mut context = Context::from_waker(Waker::noop());
        let mut three = Box::pin(all(vec![after(3, 1), after(1, 2), after(2, 3)]));
        assert!(three.as_mut().poll(&mut context).is_pending());
        assert!(three.as_mut().poll(&mut context).is_pending());
        assert_eq!(three.as_mut().poll(&mut context), Poll::Ready(vec![1, 2, 3]));
        let mut none = Box::pin(all(Vec::<std::future::Ready<u32>>::new()));
        assert_eq!(none.as_mut().poll(&mut context), Poll::Ready(vec![]));
    }
}
