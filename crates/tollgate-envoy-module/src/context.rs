//! What the filter of one of Envoy's threads knows of its streams and roots, and what has to be
//! done when the filter returns. Host calls read and write it.
//!
//! Invariant: nothing is borrowed while Envoy or the filter is called. Not here: the filter, and
//! when it is called.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_filter::host::reply::Reply;
use tollgate_filter::host::streams::StreamMap;

use crate::abi::{self, Stream};
use crate::by_stream::{ByStream, Numbers};
use crate::calls::Answer;
use crate::configuration::Configuration;
use crate::local_reply::LocalReply;
use crate::metrics::{Metrics, Target};

/// A configuration as this thread knows it.
pub(crate) struct Root {
    pub(crate) id: u32,
    pub(crate) configuration: Arc<Configuration>,
    /// True on Envoy's main thread.
    pub(crate) is_main: bool,
    /// False when the policy could not be put in force here.
    pub(crate) is_ready: bool,
    /// True when the configuration makes calls.
    pub(crate) makes_calls: bool,
    /// How many stored policies this root has looked at; `None` when it follows no server.
    pub(crate) stored: Option<u64>,
    /// When that was tried last.
    pub(crate) tried_at: Instant,
    /// When the filter wants to be called, and how often after that.
    pub(crate) tick: Option<(Instant, Duration)>,
}

/// A stream that lives.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) stream: Stream,
    pub(crate) root: u32,
    /// The number of its configuration.
    pub(crate) configuration: usize,
    pub(crate) since: Instant,
    /// True once its request came here.
    pub(crate) has_come: bool,
    /// True once a response was sent in the origin's place.
    pub(crate) is_answered: bool,
}

impl Open {
    /// True when it lasts: its request has come, past the filters in front, and was not answered,
    /// after which it would end at once.
    pub(crate) const fn lasts(&self) -> bool {
        self.has_come && !self.is_answered
    }
}

/// Whether the timer is set for the earliest tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Armed {
    #[default]
    No,
    Yes,
    /// Not before a stream lasts, by which it can wake this thread.
    Later,
}

/// Something to do when the filter has returned.
pub(crate) enum Action {
    Reply(u32, Box<LocalReply>),
    Resume(u32),
}

/// What host calls are about.
#[derive(Clone, Copy, Default)]
pub(crate) struct Subject {
    pub(crate) root: u32,
    pub(crate) stream: u32,
}

/// The number of one thread's worker.
pub(crate) struct Number(pub(crate) u64);

impl Default for Number {
    fn default() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// What one thread knows.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) number: Number,
    pub(crate) roots: RefCell<Vec<Root>>,
    pub(crate) streams: RefCell<ByStream<Open>>,
    pub(crate) metrics: Metrics,
    pub(crate) actions: RefCell<VecDeque<Action>>,
    /// The response that is being made; headers are set on it and not on Envoy's.
    pub(crate) reply: RefCell<Option<Box<LocalReply>>>,
    pub(crate) current: Cell<Subject>,
    /// Envoy's, while it configures on this thread.
    pub(crate) configuring: Cell<Option<abi::Configuration>>,
    /// The configuration of the main thread's hook, with its number.
    pub(crate) hook_of: Cell<Option<(abi::Configuration, usize)>>,
    /// The response that is being handed over.
    pub(crate) answer: RefCell<Option<Answer>>,
    pub(crate) armed: Cell<Armed>,
    pub(crate) numbers: RefCell<Numbers>,
    /// A response that was sent, for its memory.
    spare: Cell<Option<Box<LocalReply>>>,
}

thread_local! {
    static CONTEXT: Rc<Context> = Rc::default();
}

/// Acts on the context of this thread; `None` when the thread is ending.
pub(crate) fn with<R>(act: impl FnOnce(&Context) -> R) -> Option<R> {
    CONTEXT.try_with(|context| act(context)).ok()
}

/// The context of this thread, for its filter.
pub(crate) fn shared() -> Rc<Context> {
    CONTEXT.with(Rc::clone)
}

impl Context {
    /// Makes a stream or a root the current one; false when it is gone.
    pub(crate) fn enter(&self, id: u32) -> bool {
        let is_root = || self.roots.borrow().iter().any(|root| root.id == id);
        let subject = match self.open(id) {
            Some(open) => Subject { root: open.root, stream: id },
            None if is_root() => Subject { root: id, stream: 0 },
            None => return false,
        };
        self.current.set(subject);
        true
    }

    /// True when the current root is the main thread's.
    pub(crate) fn is_main(&self) -> bool {
        let id = self.current.get().root;
        self.roots.borrow().iter().any(|root| root.id == id && root.is_main)
    }

    /// The current stream.
    pub(crate) fn stream(&self) -> Option<Stream> {
        self.open(self.current.get().stream).map(|open| open.stream)
    }

    /// By what counts reach Envoy now, and the number of its configuration.
    pub(crate) fn counted(&self) -> Option<(Target, usize)> {
        let of = |(envoy, number)| (Target::Configuration(envoy), number);
        match self.open(self.current.get().stream) {
            Some(open) => Some((Target::Stream(open.stream), open.configuration)),
            None => self.hook_of.get().map(of),
        }
    }

    /// How long the current stream has been open.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.open(self.current.get().stream).map(|open| open.since.elapsed())
    }

    /// The configuration of the current root.
    pub(crate) fn configuration(&self) -> Option<Arc<Configuration>> {
        let id = self.current.get().root;
        let roots = self.roots.borrow();
        roots.iter().find(|root| root.id == id).map(|root| Arc::clone(&root.configuration))
    }

    /// Envoy's configuration, while it configures.
    pub(crate) fn configuring(&self) -> Option<abi::Configuration> {
        self.configuring.get()
    }

    /// Answers the current stream when the filter has returned.
    pub(crate) fn reply(&self, reply: Reply<'_>) -> bool {
        let id = self.current.get().stream;
        let is_open = self.open(id).is_some();
        if is_open {
            self.queue(id, |it| it.fill(reply));
        }
        is_open
    }

    /// Answers a stream when the filter has returned.
    pub(crate) fn queue(&self, id: u32, fill: impl FnOnce(&mut LocalReply)) {
        let mut reply = self.spare.take().unwrap_or_default();
        fill(&mut reply);
        self.actions.borrow_mut().push_back(Action::Reply(id, reply));
    }

    /// Keeps a response that was sent, for its memory.
    pub(crate) fn keep(&self, reply: Box<LocalReply>) {
        self.spare.set(Some(reply));
    }

    /// Answers a stream that a panic has left, unless it is answered already.
    pub(crate) fn fail(&self, id: u32) {
        if self.open(id).is_none_or(|open| open.is_answered) {
            return;
        }
        let is_of = |action: &Action| match action {
            Action::Reply(of, _) | Action::Resume(of) => *of == id,
        };
        self.actions.borrow_mut().retain(|action| !is_of(action));
        self.queue(id, LocalReply::fill_after_panic);
    }

    /// Resumes a stream when the filter has returned.
    pub(crate) fn resume(&self, id: u32) {
        self.actions.borrow_mut().push_back(Action::Resume(id));
    }

    /// Acts on the response that is being made, if one is.
    pub(crate) fn with_reply<R>(&self, act: impl FnOnce(&mut LocalReply) -> R) -> Option<R> {
        self.reply.borrow_mut().as_deref_mut().map(act)
    }

    /// Calls the current root every `period`, or no more.
    pub(crate) fn set_tick(&self, period: Option<Duration>) {
        let id = self.current.get().root;
        let tick = period.and_then(|period| Some((Instant::now().checked_add(period)?, period)));
        if let Some(root) = self.roots.borrow_mut().iter_mut().find(|root| root.id == id) {
            root.tick = tick;
            self.armed.set(Armed::No);
        }
    }

    /// The stream with this number.
    pub(crate) fn open(&self, id: u32) -> Option<Open> {
        self.streams.borrow().get(id).copied()
    }
}
