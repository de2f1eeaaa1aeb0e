//! Requests that wait: turns the value of a promise into a future, and passes on the value of a
//! future.
//!
//! Invariant: a request that has its response without waiting makes no promise. A request that
//! waits continues in the very turn in which the awaited value arrives. A place receives its value
//! once, and no number of one is used twice, in an instance of this wasm or the next: a value that
//! arrives late has no receiver. Nothing here cancels work of JavaScript.
//!
//! `js_sys` does the same with two closures for each promise and an extra turn, registered for
//! their finalisation each time; that took a tenth of a request.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use wasm_bindgen::prelude::*;
use worker::js_sys::{Function, Promise};

#[wasm_bindgen(module = "/src/host.mjs")]
extern "C" {
    /// Calls `settled` with the value or the error of `promise`, and with the number that this
    /// returns.
    #[wasm_bindgen(js_name = whenSettled)]
    fn when_settled(promise: &Promise) -> f64;
}

thread_local! {
    /// The awaited values. Not borrowed while other code runs.
    static PLACES: RefCell<BTreeMap<u64, Place>> = const { RefCell::new(BTreeMap::new()) };
    /// The tasks that wait. Not borrowed while other code runs.
    static TASKS: RefCell<BTreeMap<u64, Task>> = const { RefCell::new(BTreeMap::new()) };
    static LAST_TASK: Cell<u64> = const { Cell::new(0) };
}

/// Where one promise's value arrives.
#[derive(Default)]
struct Place {
    value: Option<JsValue>,
    waker: Option<Waker>,
}

/// The result of a promise: its value, or why it was rejected.
pub(crate) struct Settled(u64);

impl Settled {
    /// Waits for `promise`.
    pub(crate) fn of(promise: &Promise) -> Self {
        let place = number(when_settled(promise));
        PLACES.with_borrow_mut(|places| places.insert(place, Place::default()));
        Self(place)
    }
}

impl Future for Settled {
    type Output = JsValue;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<JsValue> {
        PLACES.with_borrow_mut(|places| {
            let place = places.entry(self.0).or_default();
            match place.value.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    place.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        let left = PLACES.with_borrow_mut(|places| places.remove(&self.0));
        drop(left);
    }
}

/// Receives the result of the promise of `place`. Called by `host.mjs`.
#[wasm_bindgen]
pub fn settled(place: f64, value: JsValue) {
    let settle = |place: &mut Place| {
        place.value = Some(value);
        place.waker.take()
    };
    let waker = PLACES.with_borrow_mut(|places| places.get_mut(&number(place)).and_then(settle));
    if let Some(waker) = waker {
        waker.wake();
    }
}

type Running = Pin<Box<dyn Future<Output = JsValue>>>;

/// A future that has waited at least once, or runs.
struct Task {
    /// `None` while it runs.
    waiting: Option<Running>,
    /// The awaited value came while it ran.
    is_woken: bool,
    /// Is called with the value of the future.
    answer: Function,
}

/// Wakes the task of this number.
struct TaskWaker(u64);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let Some(future) = TASKS.with_borrow_mut(|tasks| {
            let task = tasks.get_mut(&self.0)?;
            task.is_woken = true;
            task.waiting.take()
        }) else {
            return;
        };
        if let Some((value, answer)) = advance(self.0, &Waker::from(self), future) {
            let _ = answer.call1(&JsValue::UNDEFINED, &value); // it only settles a promise
        }
    }
}

/// The value of `future`, if it is ready without waiting; else `undefined`, and `answer` is called
/// with it later.
pub(crate) fn run(future: impl Future<Output = JsValue> + 'static, answer: Function) -> JsValue {
    let number = LAST_TASK.get().wrapping_add(1);
    LAST_TASK.set(number);
    let task = Task { waiting: None, is_woken: false, answer };
    TASKS.with_borrow_mut(|tasks| tasks.insert(number, task));
    let waker = Waker::from(Arc::new(TaskWaker(number)));
    advance(number, &waker, Box::pin(future)).map_or(JsValue::UNDEFINED, |(value, _)| value)
}

/// Runs `future` as far as possible; if it is finished, returns its value and the function that
/// must receive it.
fn advance(number: u64, waker: &Waker, mut future: Running) -> Option<(JsValue, Function)> {
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            let task = TASKS.with_borrow_mut(|tasks| tasks.remove(&number));
            return task.map(|task| (value, task.answer));
        }
        let again = TASKS.with_borrow_mut(|tasks| {
            let task = tasks.get_mut(&number)?;
            if std::mem::take(&mut task.is_woken) {
                return Some(future);
            }
            task.waiting = Some(future);
            None
        });
        future = again?;
    }
}

/// A whole number of JavaScript.
#[expect(clippy::as_conversions, reason = "a float to integer cast saturates: it cannot fail")]
const fn number(number: f64) -> u64 {
    number as u64
}
