//! The filter of one of Envoy's threads: its roots, its streams, and what it has to do when the
//! filter returns.
//!
//! Envoy answers and resumes a stream at once, and may call other hooks of it meanwhile, its last
//! one too. The filter expects that both happen after it has returned, so they wait in a list.
//! Invariant: nothing is borrowed while Envoy or the filter is called. Not here: the filter's host
//! calls.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_filter::filter::{Filter, Flow};
use tollgate_filter::host::reply::Reply;

use crate::abi::{self, HeaderKind, Stream};
use crate::configuration::Configuration;
use crate::host::Host;
use crate::metrics::Metrics;
use crate::timer;

/// A configuration as this thread knows it.
struct Root {
    id: u32,
    configuration: Arc<Configuration>,
    /// False when the policy could not be put in force here.
    is_ready: bool,
    /// When the filter wants to be called, and how often after that.
    tick: Option<(Instant, Duration)>,
}

/// A stream that lives.
#[derive(Clone, Copy)]
struct Open {
    stream: Stream,
    root: u32,
    /// The number of its configuration.
    configuration: usize,
    since: Instant,
}

/// Something to do when the filter has returned.
enum Action {
    Reply(u32, Box<LocalReply>),
    Resume(u32),
}

/// A response in the origin's place, as Envoy takes it.
pub(crate) struct LocalReply {
    pub(crate) status: u16,
    pub(crate) details: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) is_grpc: bool,
}

thread_local! {
    static WORKER: Worker = Worker::new();
}

/// The filter of this thread.
pub(crate) struct Worker {
    /// For the timer.
    number: u64,
    filter: Filter<Host>,
    roots: RefCell<Vec<Root>>,
    streams: RefCell<HashMap<u32, Open>>,
    pub(crate) metrics: Metrics,
    actions: RefCell<VecDeque<Action>>,
    /// The response that is being made; headers are set on it and not on Envoy's.
    reply: RefCell<Option<Box<LocalReply>>>,
    current: Cell<Context>,
    /// How many hooks are in progress, one inside the other.
    depth: Cell<u32>,
    last_id: Cell<u32>,
    /// The stream by which the timer wakes this thread.
    carrier: Cell<Option<u32>>,
    /// How many configurations had ended when this thread last looked.
    ended: Cell<usize>,
    /// Envoy's, while it configures on this thread.
    configuring: Cell<Option<abi::Configuration>>,
}

/// What host calls are about.
#[derive(Clone, Copy, Default)]
struct Context {
    root: u32,
    stream: u32,
}

static WORKERS: AtomicU64 = AtomicU64::new(0);

/// Acts on the worker of this thread; `None` when the thread is ending.
pub(crate) fn with<R>(act: impl FnOnce(&Worker) -> R) -> Option<R> {
    WORKER.try_with(act).ok()
}

impl Worker {
    fn new() -> Self {
        Self {
            number: WORKERS.fetch_add(1, Ordering::Relaxed),
            filter: Filter::new(Host),
            roots: RefCell::default(),
            streams: RefCell::default(),
            metrics: Metrics::default(),
            actions: RefCell::default(),
            reply: RefCell::default(),
            current: Cell::default(),
            depth: Cell::new(0),
            last_id: Cell::new(0),
            carrier: Cell::new(None),
            ended: Cell::new(0),
            configuring: Cell::new(None),
        }
    }

    /// Runs one hook about a stream, and then everything that had to wait for it.
    fn run<T>(&self, stream: u32, act: impl FnOnce(&Filter<Host>) -> T) -> T {
        let outer = self.current.get();
        self.enter(stream);
        self.depth.set(self.depth.get().saturating_add(1));
        let result = act(&self.filter);
        if self.depth.get() == 1 {
            self.act();
            self.arm();
        }
        self.depth.set(self.depth.get().saturating_sub(1));
        self.current.set(outer);
        result
    }

    /// The hook was left by a panic: the next one starts as if there had been none.
    pub(crate) fn recover(&self) {
        self.depth.set(0);
        self.current.set(Context::default());
        self.reply.take();
        self.configuring.set(None);
    }

    /// Checks a configuration on Envoy's main thread, and defines its metrics.
    pub(crate) fn check(
        &self,
        configuration: &Arc<Configuration>,
        envoy: abi::Configuration,
    ) -> bool {
        self.configuring.set(Some(envoy));
        let id = self.add_root(Arc::clone(configuration));
        self.remove_root(id);
        self.configuring.set(None);
        let is_ready = |root: &Root| root.id == id && root.is_ready;
        let mut roots = self.roots.borrow_mut();
        let was_ready = roots.iter().any(is_ready);
        roots.retain(|root| root.id != id);
        was_ready
    }

    /// A stream of the configuration with this number begins; returns its id, which is not 0.
    pub(crate) fn begin(&self, configuration: usize, stream: Stream) -> u32 {
        self.end_roots();
        let root = self.root_of(configuration);
        let id = self.new_id();
        let open = Open { stream, root, configuration, since: Instant::now() };
        self.streams.borrow_mut().insert(id, open);
        self.run(id, |filter| filter.on_context_create(id, root));
        self.tick();
        id
    }

    /// Decides a request.
    pub(crate) fn request(&self, id: u32) -> Flow {
        let Some(open) = self.open(id) else { return Flow::Continue };
        self.metrics.hand_over(open.stream, open.configuration);
        if !self.roots.borrow().iter().any(|root| root.id == open.root && root.is_ready) {
            self.run(id, |_| Self::queue(self, id, &Reply::overloaded()));
            return Flow::Stop;
        }
        self.run(id, |filter| filter.on_request_headers(id))
    }

    /// Hands a call about a stream to the filter.
    pub(crate) fn call(&self, id: u32, call: impl FnOnce(&Filter<Host>, Stream)) {
        if let Some(open) = self.open(id) {
            self.run(id, |filter| call(filter, open.stream));
        }
    }

    /// A stream ends, and is still there for the last host calls.
    pub(crate) fn end(&self, id: u32) {
        let Some(open) = self.open(id) else { return };
        self.run(id, |filter| filter.on_delete(id));
        self.metrics.hand_over(open.stream, open.configuration);
        self.streams.borrow_mut().remove(&id);
        if self.carrier.get() == Some(id) {
            self.carrier.set(None);
            timer::unregister(self.number);
            self.arm();
        }
    }

    /// Calls the roots that want to be called by now.
    pub(crate) fn tick(&self) {
        let now = Instant::now();
        loop {
            let due = self.roots.borrow_mut().iter_mut().find_map(|root| {
                let (at, period) = root.tick.filter(|(at, _)| *at <= now)?;
                root.tick = Some((at.max(now).checked_add(period)?, period));
                Some(root.id)
            });
            let Some(root) = due else { break };
            let outer = self.current.replace(Context { root, stream: 0 });
            self.depth.set(self.depth.get().saturating_add(1));
            self.filter.on_tick(root);
            self.depth.set(self.depth.get().saturating_sub(1));
            self.current.set(outer);
        }
        if self.depth.get() == 0 {
            self.run(0, |_| ());
        }
    }

    /// The root of a configuration on this thread; a new one reads the policy.
    fn root_of(&self, configuration: usize) -> u32 {
        let is_it = |root: &&Root| root.configuration.number == configuration;
        let known = self.roots.borrow().iter().find(is_it).map(|root| root.id);
        known
            .unwrap_or_else(|| Configuration::find(configuration).map_or(0, |it| self.add_root(it)))
    }

    fn add_root(&self, configuration: Arc<Configuration>) -> u32 {
        let (id, len) = (self.new_id(), configuration.text.len());
        self.roots.borrow_mut().push(Root { id, configuration, is_ready: false, tick: None });
        let outer = self.current.replace(Context { root: id, stream: 0 });
        self.filter.on_context_create(id, 0);
        let is_ready = self.filter.on_configure(id, len);
        self.current.set(outer);
        if let Some(root) = self.roots.borrow_mut().iter_mut().find(|root| root.id == id) {
            root.is_ready = is_ready;
        }
        id
    }

    fn remove_root(&self, id: u32) {
        let outer = self.current.replace(Context { root: id, stream: 0 });
        self.filter.on_delete(id);
        self.current.set(outer);
    }

    /// Ends the roots of configurations that have ended.
    fn end_roots(&self) {
        let ended = Configuration::ended();
        if self.ended.replace(ended) == ended {
            return;
        }
        let has_ended = |root: &Root| Configuration::find(root.configuration.number).is_none();
        let of = |root: &Root| (root.id, root.configuration.number);
        let gone: Vec<_> =
            self.roots.borrow().iter().filter(|root| has_ended(root)).map(of).collect();
        for (id, configuration) in gone {
            self.remove_root(id);
            self.roots.borrow_mut().retain(|root| root.id != id);
            self.metrics.forget(configuration);
        }
    }

    /// Answers and resumes what waits for that. Envoy's calls may add to it.
    fn act(&self) {
        loop {
            let next = self.actions.borrow_mut().pop_front();
            match next {
                None => break,
                Some(Action::Resume(id)) => {
                    if let Some(open) = self.open(id) {
                        open.stream.resume();
                    }
                }
                Some(Action::Reply(id, reply)) => self.answer(id, reply),
            }
        }
    }

    /// Answers a request. Envoy calls no hook for the response, so the filter is called first.
    fn answer(&self, id: u32, reply: Box<LocalReply>) {
        let Some(open) = self.open(id) else { return };
        self.reply.replace(Some(reply));
        let outer = self.current.get();
        self.enter(id);
        self.filter.on_response_headers(id);
        self.current.set(outer);
        if let Some(reply) = self.reply.take() {
            reply.send(open.stream);
        }
    }

    /// Tells the timer when this thread wants to be called.
    fn arm(&self) {
        let at = self.roots.borrow().iter().filter_map(|root| Some(root.tick?.0)).min();
        if at.is_some() && self.carrier.get().is_none() {
            let any = self.streams.borrow().iter().next().map(|(id, open)| (*id, open.stream));
            let Some((id, stream)) = any else { return };
            self.carrier.set(Some(id));
            timer::register(self.number, stream.scheduler());
        }
        if self.carrier.get().is_some() {
            timer::wake_at(self.number, at);
        }
    }

    fn new_id(&self) -> u32 {
        loop {
            let id = self.last_id.get().wrapping_add(1);
            self.last_id.set(id);
            let is_root = self.roots.borrow().iter().any(|root| root.id == id);
            if id != 0 && !is_root && !self.streams.borrow().contains_key(&id) {
                return id;
            }
        }
    }

    fn open(&self, id: u32) -> Option<Open> {
        self.streams.borrow().get(&id).copied()
    }
}

/// For host calls.
impl Worker {
    /// Makes a stream the current one; false when it is gone.
    pub(crate) fn enter(&self, id: u32) -> bool {
        let Some(open) = self.open(id) else { return false };
        self.current.set(Context { root: open.root, stream: id });
        true
    }

    /// The current stream.
    pub(crate) fn stream(&self) -> Option<Stream> {
        self.open(self.current.get().stream).map(|open| open.stream)
    }

    /// The current stream with the number of its configuration.
    pub(crate) fn counted_stream(&self) -> Option<(Stream, usize)> {
        self.open(self.current.get().stream).map(|open| (open.stream, open.configuration))
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
    pub(crate) fn reply(&self, reply: &Reply) -> bool {
        let id = self.current.get().stream;
        let is_open = self.open(id).is_some();
        if is_open {
            self.queue(id, reply);
        }
        is_open
    }

    fn queue(&self, id: u32, reply: &Reply) {
        let reply = Box::new(LocalReply::from(reply));
        self.actions.borrow_mut().push_back(Action::Reply(id, reply));
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
        }
    }
}

/// True for what Envoy's own responses take for gRPC.
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"+"))
}

impl LocalReply {
    /// Replaces a header, or appends it.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.headers.retain(|(other, _)| other != name);
        self.add(name, value);
    }

    /// Appends a header line.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    /// Envoy makes a response to gRPC of a request with one of two content types alone; for any
    /// other the headers are sent as they are, without `details`.
    fn send(mut self, stream: Stream) {
        if self.is_grpc
            && !stream.header(HeaderKind::Request, "content-type", is_grpc).unwrap_or(false)
        {
            self.headers.insert(0, (":status".to_owned(), self.status.to_string()));
            return stream.respond_with_headers(&self.headers);
        }
        stream.respond(self.status, &self.headers, &self.body, &self.details);
    }
}
