//! Waits for several futures at the same time, with a bound on how many run at once.
//!
//! Invariant: results come in the order of the futures, whichever is over first.
//! Deliberately absent: cancellation.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::Poll;

/// The results of `futures`, once all are over. They begin in their order, and at most `at_once` of
/// them are under way.
pub async fn all<F: Future>(futures: Vec<F>, at_once: usize) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        // A future that has begun is before those that have not, so these are the first unfinished
        // ones.
        let mut under_way = 0_usize;
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none() && under_way < at_once {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *result = Some(output),
                    Poll::Pending => under_way = under_way.saturating_add(1),
                }
            }
        }
        if under_way == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::task::{Context, Waker};

    use super::*;

    /// A future that is finished after this many polls.
    fn after(mut polls: u32, result: u32) -> impl Future<Output = u32> {
        poll_fn(move |_| {
            polls = polls.saturating_sub(1);
            if polls == 0 { Poll::Ready(result) } else { Poll::Pending }
        })
    }

    #[test]
    fn results_come_in_the_order_of_the_futures() {
        let mut context = Context::from_waker(Waker::noop());
        let mut three = Box::pin(all(vec![after(3, 1), after(1, 2), after(2, 3)], 3));
        assert!(three.as_mut().poll(&mut context).is_pending());
        assert!(three.as_mut().poll(&mut context).is_pending());
        assert_eq!(three.as_mut().poll(&mut context), Poll::Ready(vec![1, 2, 3]));
        let mut none = Box::pin(all(Vec::<core::future::Ready<u32>>::new(), 1));
        assert_eq!(none.as_mut().poll(&mut context), Poll::Ready(vec![]));
    }

    #[test]
    fn no_more_are_under_way_than_may_be() {
        use core::cell::Cell;
        let (under_way, most) = (Cell::new(0), Cell::new(0));
        let futures = (0..20_u32).map(|i| {
            let (mut polls, under_way, most) = (i % 4 + 1, &under_way, &most);
            let mut has_begun = false;
            poll_fn(move |_| {
                if !core::mem::replace(&mut has_begun, true) {
                    under_way.set(under_way.get() + 1);
                    most.set(most.get().max(under_way.get()));
                }
                polls -= 1;
                if polls == 0 {
                    under_way.set(under_way.get() - 1);
                    return Poll::Ready(i);
                }
                Poll::Pending
            })
        });
        let mut all = Box::pin(all(futures.collect(), 3));
        let mut context = Context::from_waker(Waker::noop());
        let results = loop {
            if let Poll::Ready(results) = all.as_mut().poll(&mut context) {
                break results;
            }
        };
        assert_eq!((results, most.get()), ((0..20).collect::<Vec<_>>(), 3));
    }
}
