//! The filter of one of Envoy's threads: when it is called, and what follows.
//!
//! Envoy answers and resumes a stream at once, and may call other hooks of it meanwhile, its last
//! one too. The filter expects that both happen after it has returned, so they wait in a list.
//! Invariant: nothing is borrowed while Envoy or the filter is called. Not here: what host
//! calls read, which is `context`'s.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_filter::filter::{Filter, Flow};
use tollgate_filter::host::reply::Reply;
use tollgate_filter::host::streams::StreamMap;

use crate::abi::{self, Level, Stream};
use crate::configuration::Configuration;
use crate::context::{self, Action, Armed, Context, Open, Root, Subject};
use crate::host::Host;
use crate::local_reply::LocalReply;
use crate::metrics::Target;
use crate::stored_policy;
use crate::timer::{self, Sleeper};

mod carrier;
mod exchange;

thread_local! {
    static WORKER: Worker = Worker::new();
}

/// The filter of this thread.
pub(crate) struct Worker {
    filter: Filter<Host>,
    context: Rc<Context>,
    /// How many hooks are in progress, one inside the other.
    depth: Cell<u32>,
    /// The stream by which the timer wakes this thread.
    carrier: Cell<Option<u32>>,
    /// How many configurations had ended when this thread last looked.
    ended: Cell<usize>,
}

/// Acts on the worker of this thread; `None` when the thread is ending.
pub(crate) fn with<R>(act: impl FnOnce(&Worker) -> R) -> Option<R> {
    WORKER.try_with(act).ok()
}

impl Worker {
    fn new() -> Self {
        Self {
            filter: Filter::new(Host),
            context: context::shared(),
            depth: Cell::new(0),
            carrier: Cell::new(None),
            ended: Cell::new(0),
        }
    }

    /// Its number, which no other thread has.
    pub(crate) fn number(&self) -> u64 {
        self.context.number.0
    }

    fn sleeper(&self) -> Sleeper {
        Sleeper::Worker(self.number())
    }

    /// Runs one hook about a stream, and then everything that had to wait for it.
    fn run<T>(&self, stream: u32, act: impl FnOnce(&Filter<Host>) -> T) -> T {
        let root = self.context.open(stream).map(|open| open.root);
        let subject = root.map_or(self.context.current.get(), |root| Subject { root, stream });
        self.about(subject, || {
            self.depth.set(self.depth.get().saturating_add(1));
            let result = act(&self.filter);
            let is_outermost = self.depth.get() == 1;
            if is_outermost {
                self.act();
                if self.context.streams.borrow().is_empty() {
                    self.sleep();
                }
            }
            self.may_carry(stream);
            if is_outermost {
                self.arm();
            }
            self.depth.set(self.depth.get().saturating_sub(1));
            result
        })
    }

    /// Makes host calls be about this subject for the time of `act`.
    fn about<T>(&self, subject: Subject, act: impl FnOnce() -> T) -> T {
        let outer = self.context.current.replace(subject);
        let result = act();
        self.context.current.set(outer);
        result
    }

    /// What a hook may leave behind: how deep the hooks are, and what the host calls are about.
    pub(crate) fn state(&self) -> (u32, Subject) {
        (self.depth.get(), self.context.current.get())
    }

    /// The hook was left by a panic: the next one starts as if there had been none. The
    /// request `fails` is answered, and the one that host calls were about.
    pub(crate) fn recover(&self, (depth, current): (u32, Subject), fails: Option<u32>) {
        let subject = self.context.current.replace(current);
        self.depth.set(depth);
        self.context.reply.take();
        self.context.answer.take();
        self.context.configuring.set(None);
        self.context.hook_of.set(None);
        if let Some(id) = fails {
            self.context.fail(id);
            self.context.fail(subject.stream);
        }
    }

    /// True while something waits for the end of the outermost hook.
    pub(crate) fn has_actions(&self) -> bool {
        !self.context.actions.borrow().is_empty()
    }

    /// Does what waits for the end of the outermost hook.
    pub(crate) fn finish(&self) {
        if self.depth.get() == 0 {
            self.run(0, |_| ());
        }
    }

    /// Checks a configuration on Envoy's main thread, and defines its metrics. The root stays
    /// there if it makes calls.
    pub(crate) fn check(
        &self,
        configuration: &Arc<Configuration>,
        envoy: abi::Configuration,
    ) -> bool {
        self.context.configuring.set(Some(envoy));
        let id = self.add_root(Arc::clone(configuration), true);
        self.context.configuring.set(None);
        let is_it = |root: &&Root| root.id == id;
        let of = |root: &Root| (root.is_ready, root.makes_calls);
        let (is_ready, makes_calls) =
            self.context.roots.borrow().iter().find(is_it).map(of).unwrap_or_default();
        let scheduler = if is_ready && makes_calls { envoy.scheduler() } else { None };
        if let Some(scheduler) = scheduler {
            timer::register(Sleeper::Main(configuration.number), scheduler);
            self.context.armed.set(Armed::No);
            self.finish();
            return true;
        }
        self.remove_root(id);
        self.context.roots.borrow_mut().retain(|root| root.id != id);
        self.context.metrics.forget(configuration.number);
        if is_ready && makes_calls {
            abi::log(Level::Error, "tollgate: Envoy gives no scheduler for the configuration");
        }
        is_ready && !makes_calls
    }

    /// A stream of the configuration with this number is there; returns its id, which is not 0. It
    /// has no root yet. `None` when there are too many streams.
    pub(crate) fn admit(&self, configuration: usize, stream: Stream) -> Option<u32> {
        let id = self.context.numbers.borrow_mut().take()?;
        let since = Instant::now();
        let open =
            Open { stream, root: 0, configuration, since, has_come: false, is_answered: false };
        self.context.streams.borrow_mut().insert_new(id, open);
        Some(id)
    }

    /// The stream begins.
    pub(crate) fn begin(&self, id: u32, configuration: usize) {
        self.end_roots();
        let root = self.root_of(configuration);
        if let Some(open) = self.context.streams.borrow_mut().get_mut(id) {
            open.root = root;
        }
        // Nothing that is overdue is done here: Envoy is still making this stream.
        self.run(id, |filter| filter.on_context_create(id, root));
    }

    /// Decides a request.
    pub(crate) fn request(&self, id: u32) -> Flow {
        let Some(open) = self.context.open(id) else { return Flow::Continue };
        if let Some(open) = self.context.streams.borrow_mut().get_mut(id) {
            open.has_come = true;
        }
        self.context.metrics.hand_over(Target::Stream(open.stream), open.configuration);
        if self.is_overdue(open.since) {
            self.tick();
        }
        self.take_stored(open.root);
        if !self.context.roots.borrow().iter().any(|root| root.id == open.root && root.is_ready) {
            self.run(id, |_| self.context.queue(id, |it| it.fill(Reply::overloaded())));
            return Flow::Stop;
        }
        self.run(id, |filter| filter.on_request_headers(id))
    }

    /// Hands a call about a stream to the filter.
    pub(crate) fn call(&self, id: u32, call: impl FnOnce(&Filter<Host>, Stream)) {
        if let Some(open) = self.context.open(id) {
            self.run(id, |filter| call(filter, open.stream));
        }
    }

    /// True for a stream that needs the body of its response.
    pub(crate) fn reads_body(&self, id: u32) -> bool {
        self.filter.reads_body(id)
    }

    /// A stream ends, and is still there for the last host calls.
    pub(crate) fn end(&self, id: u32) {
        let Some(open) = self.context.open(id) else { return };
        self.run(id, |filter| {
            filter.on_delete(id);
            self.context.metrics.hand_over(Target::Stream(open.stream), open.configuration);
            // Envoy's calls that wait may be about others, and end them; none is about this one.
            self.context.streams.borrow_mut().remove(id);
            self.hand_carrier_on(id);
        });
    }

    /// A stream is gone, perhaps without having ended before: no host call can be about it.
    pub(crate) fn forget(&self, id: u32) {
        let open = self.context.streams.borrow_mut().remove(id);
        if let Some(open) = open {
            self.hand_carrier_on(id);
            self.about(Subject { root: open.root, stream: 0 }, || {
                self.run(0, |filter| filter.on_delete(id));
            });
        }
        self.context.numbers.borrow_mut().give_back(id);
    }

    /// Calls the roots that want to be called by now.
    pub(crate) fn tick(&self) {
        let now = Instant::now();
        loop {
            let due = self.context.roots.borrow_mut().iter_mut().find_map(|root| {
                let (at, period) = root.tick.filter(|(at, _)| *at <= now)?;
                root.tick = Some((at.max(now).checked_add(period)?, period));
                Some(root.id)
            });
            self.context.armed.set(Armed::No);
            let Some(root) = due else { break };
            self.depth.set(self.depth.get().saturating_add(1));
            self.about(Subject { root, stream: 0 }, || self.filter.on_tick(root));
            self.depth.set(self.depth.get().saturating_sub(1));
        }
        self.finish();
    }

    /// The root of a configuration on this thread; a new one reads the policy.
    fn root_of(&self, configuration: usize) -> u32 {
        let is_it = |root: &&Root| root.configuration.number == configuration;
        let known = self.context.roots.borrow().iter().find(is_it).map(|root| root.id);
        if let Some(id) = known {
            self.configure_again(id);
        }
        known.unwrap_or_else(|| {
            Configuration::find(configuration).map_or(0, |it| self.add_root(it, false))
        })
    }

    fn add_root(&self, configuration: Arc<Configuration>, is_main: bool) -> u32 {
        let id = self.context.numbers.borrow_mut().take_root();
        let len = configuration.text.len();
        self.context.roots.borrow_mut().push(Root {
            id,
            configuration,
            is_main,
            is_ready: false,
            makes_calls: false,
            stored: None,
            tried_at: Instant::now(),
            tick: None,
        });
        self.about(Subject { root: id, stream: 0 }, || self.filter.on_context_create(id, 0));
        self.configure(id, len);
        id
    }

    fn configure(&self, id: u32, len: usize) {
        let (subject, stored) = (Subject { root: id, stream: 0 }, stored_policy::number());
        let is_ready = self.about(subject, || self.filter.on_configure(id, len));
        if let Some(root) = self.context.roots.borrow_mut().iter_mut().find(|root| root.id == id) {
            (root.is_ready, root.tried_at) = (is_ready, Instant::now());
            root.makes_calls = self.filter.makes_calls(id);
            root.stored = self.filter.follows(id).then_some(stored);
        }
    }

    /// Puts the policy in force after all, once a second, where that failed.
    fn configure_again(&self, id: u32) {
        const AGAIN_AFTER: Duration = Duration::from_secs(1);
        let is_due = |root: &&Root| {
            root.id == id && !root.is_ready && root.tried_at.elapsed() >= AGAIN_AFTER
        };
        let of = |root: &Root| root.configuration.text.len();
        let due = self.context.roots.borrow().iter().find(is_due).map(of);
        if let Some(len) = due {
            self.configure(id, len);
        }
    }

    fn remove_root(&self, id: u32) {
        self.about(Subject { root: id, stream: 0 }, || self.filter.on_delete(id));
    }

    /// Ends the roots of configurations that have ended.
    pub(crate) fn end_roots(&self) {
        let ended = Configuration::ended();
        if self.ended.replace(ended) == ended {
            return;
        }
        let has_ended = |root: &Root| Configuration::find(root.configuration.number).is_none();
        let of = |root: &Root| (root.id, root.configuration.number);
        let gone: Vec<_> =
            self.context.roots.borrow().iter().filter(|root| has_ended(root)).map(of).collect();
        for (id, configuration) in gone {
            self.remove_root(id);
            self.context.roots.borrow_mut().retain(|root| root.id != id);
            self.context.metrics.forget(configuration);
            self.context.armed.set(Armed::No);
        }
    }

    /// Answers and resumes what waits for that. Envoy's calls may add to it.
    fn act(&self) {
        loop {
            let next = self.context.actions.borrow_mut().pop_front();
            match next {
                None => break,
                Some(Action::Resume(id)) => {
                    if let Some(open) = self.context.open(id) {
                        open.stream.resume();
                    }
                }
                Some(Action::Reply(id, reply)) => self.answer(id, reply),
            }
        }
    }

    /// Answers a request. Envoy calls no hook for the response, so the filter is called first.
    fn answer(&self, id: u32, reply: Box<LocalReply>) {
        let Some(open) = self.context.open(id) else { return };
        self.context.reply.replace(Some(reply));
        let subject = Subject { root: open.root, stream: id };
        self.about(subject, || self.filter.on_response_headers(id));
        if let Some(mut reply) = self.context.reply.take() {
            if let Some(open) = self.context.streams.borrow_mut().get_mut(id) {
                open.is_answered = true;
            }
            reply.send(open.stream);
            self.context.keep(reply);
        }
    }
}
