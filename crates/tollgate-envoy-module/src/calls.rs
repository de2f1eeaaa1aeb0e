//! Requests to clusters, for all threads: a worker asks for one, Envoy's main thread sends it, and
//! the response goes to the worker that asked.
//!
//! Invariant: at most [`MOST_CALLS`] are queued or in flight; each has one response, or none when
//! its configuration ends. A cluster whose circuit breaker has no room while others of this process
//! are in flight there is full until one of them ends. Nothing of Envoy is called under the lock.
//! Not here: what is asked, and when threads are called.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate_filter::filter::LeaseWork;
use tollgate_filter::host::calls::{ANSWER_HEADERS, HttpCall, NotSent};
use tollgate_filter::wire::header_map::HeaderMap;

use crate::abi::{self, NotCalled};

/// As many as the circuit breakers of Envoy's clusters take by default.
const MOST_CALLS: usize = 1_024;

/// The longest wait of a thread that ends a configuration for its calls in flight, beyond their
/// timeouts.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// The parts of a response that are read.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    headers: Vec<(&'static str, Vec<u8>)>,
    /// The length of the whole body.
    pub(crate) len: usize,
    body: Vec<u8>,
}

impl Answer {
    fn read(response: &Response<'_>, most_body: usize) -> Self {
        let header = |name: &'static str| {
            let mut lines = response.headers.iter();
            let (_, value) = lines.find(|(it, _)| *it == name.as_bytes())?;
            Some((name, value.to_vec()))
        };
        let len = response.body.iter().fold(0_usize, |sum, it| sum.saturating_add(it.len()));
        let body = if len > most_body { Vec::new() } else { response.body.concat() };
        Self { headers: ANSWER_HEADERS.into_iter().filter_map(header).collect(), len, body }
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.headers.iter().find(|(it, _)| *it == name).map(|(_, value)| value.clone())
    }

    /// The first bytes of the body; none of one that is longer than the call reads.
    pub(crate) fn body(&self, len: usize) -> Vec<u8> {
        self.body.get(..len.min(self.body.len())).unwrap_or_default().to_vec()
    }
}

/// A response of Envoy, which lends it.
pub(crate) struct Response<'a> {
    pub(crate) headers: Vec<(&'a [u8], &'a [u8])>,
    pub(crate) body: Vec<&'a [u8]>,
}

/// Something for the filter of one thread, about one configuration.
pub(crate) struct Mail {
    pub(crate) configuration: usize,
    pub(crate) content: Content,
}

/// What it is.
pub(crate) enum Content {
    /// The response to the call of this number, `None` without one, or why it was not sent.
    Answer(u32, Result<Option<Answer>, NotSent>),
    /// Work of another thread.
    Work(LeaseWork),
}

/// A call that waits for the main thread.
struct Queued {
    call: Call,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// A call.
#[derive(Clone)]
struct Call {
    number: u32,
    /// The worker that gets the response.
    worker: u64,
    configuration: usize,
    cluster: Box<str>,
    most_body: usize,
    until: Instant,
}

#[derive(Default)]
struct Calls {
    /// Configurations that have not ended. The main thread is not woken for any other one.
    open: HashSet<usize>,
    queued: VecDeque<Queued>,
    /// By their numbers: those that are handed to Envoy, without the lock. Their worker may change.
    sending: HashMap<u32, Call>,
    /// By the configuration and Envoy's number.
    in_flight: HashMap<(usize, u64), Call>,
    /// Clusters with calls in flight that had no room for another one.
    full: HashSet<Box<str>>,
    /// By the number of the worker.
    mail: HashMap<u64, VecDeque<Mail>>,
}

static CALLS: LazyLock<Mutex<Calls>> = LazyLock::new(Mutex::default);
static DONE: Condvar = Condvar::new();
static NUMBERS: AtomicU32 = AtomicU32::new(0);

fn calls() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A configuration begins: it may make calls until it ends.
pub(crate) fn begin(configuration: usize) {
    calls().open.insert(configuration);
}

/// Queues a call of a worker's root; returns its number.
///
/// # Errors
/// There is no room for it, or its configuration has ended, which the worker has not seen yet.
pub(crate) fn ask(worker: u64, configuration: usize, it: &HttpCall<'_>) -> Result<u32, NotSent> {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let timeout = Duration::from_millis(it.timeout_ms.into());
    let until = Instant::now().checked_add(timeout).ok_or(NotSent::Refused)?;
    let (cluster, most_body) = (it.cluster.into(), it.most_body);
    let (headers, body) = (HeaderMap::new(it.headers.to_vec()), it.body.to_vec());
    let call = Call { number, worker, configuration, cluster, most_body, until };
    let mut calls = calls();
    if !calls.open.contains(&configuration) {
        return Err(NotSent::Refused);
    }
    let sent = calls.sending.len().saturating_add(calls.in_flight.len());
    let count = calls.queued.len().saturating_add(sent);
    if count >= MOST_CALLS || calls.full.contains(&call.cluster) {
        return Err(NotSent::Full);
    }
    calls.queued.push_back(Queued { call, headers, body });
    Ok(number)
}

/// Sends what is queued for a configuration, on the main thread during a hook about it, in order.
pub(crate) fn send(configuration: usize, envoy: abi::Configuration) {
    while let Some(queued) = next(configuration) {
        end_sending(queued.call.number, send_one(&queued, envoy));
    }
}

fn next(configuration: usize) -> Option<Queued> {
    let mut calls = calls();
    let place = calls.queued.iter().position(|it| it.call.configuration == configuration)?;
    let queued = calls.queued.remove(place)?;
    calls.sending.insert(queued.call.number, queued.call.clone());
    Some(queued)
}

/// Hands it to Envoy; returns Envoy's number.
fn send_one(queued: &Queued, envoy: abi::Configuration) -> Result<u64, NotSent> {
    let Queued { call, headers, body } = queued;
    let left = call.until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(NotSent::Full);
    }
    let timeout_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
    envoy.call(&call.cluster, headers.pairs(), body, timeout_ms).map_err(|why| match why {
        NotCalled::Refused => NotSent::Refused,
        NotCalled::Failed => NotSent::Failed,
    })
}

/// It is in flight, or its worker gets the reason why not.
fn end_sending(number: u32, sent: Result<u64, NotSent>) {
    let mut calls = calls();
    let Some(call) = calls.sending.remove(&number) else { return };
    let why = match sent {
        Ok(number) => {
            calls.in_flight.insert((call.configuration, number), call);
            return;
        }
        Err(NotSent::Failed) if calls.in_flight.values().any(|it| it.cluster == call.cluster) => {
            calls.full.insert(call.cluster);
            NotSent::Full
        }
        Err(why) => why,
    };
    let content = Content::Answer(call.number, Err(why));
    let mail = Mail { configuration: call.configuration, content };
    calls.mail.entry(call.worker).or_default().push_back(mail);
}

/// The response to a call has come, or none will. The call is in flight until [`end_call`].
pub(crate) fn done(configuration: usize, envoys_number: u64, response: Option<&Response<'_>>) {
    let mut calls = calls();
    let Some(call) = calls.in_flight.get(&(configuration, envoys_number)) else { return };
    let most_body = call.most_body;
    let content = response.map(|response| Answer::read(response, most_body));
    let (worker, number, cluster) = (call.worker, call.number, call.cluster.clone());
    calls.full.remove(&cluster);
    let content = Content::Answer(number, Ok(content));
    calls.mail.entry(worker).or_default().push_back(Mail { configuration, content });
}

/// The last hook about a call returns: Envoy does nothing more for it.
pub(crate) fn end_call(configuration: usize, envoys_number: u64) {
    calls().in_flight.remove(&(configuration, envoys_number));
    DONE.notify_all();
}

/// The next mail of a worker.
pub(crate) fn take_mail(worker: u64) -> Option<Mail> {
    let mut calls = calls();
    let all = calls.mail.get_mut(&worker)?;
    let mail = all.pop_front();
    if all.is_empty() {
        calls.mail.remove(&worker);
    }
    mail
}

/// True when a worker has mail.
pub(crate) fn has_mail(worker: u64) -> bool {
    calls().mail.contains_key(&worker)
}

/// The workers that have mail.
pub(crate) fn with_mail() -> Vec<u64> {
    calls().mail.keys().copied().collect()
}

/// Hands the work of one worker over to another: it gets the work, and then the responses. Work of
/// a configuration that has ended is dropped.
pub(crate) fn hand_over((from, to): (u64, u64), configuration: usize, work: LeaseWork) {
    let numbers: HashSet<u32> = work.calls().collect();
    let mut calls = calls();
    if !calls.open.contains(&configuration) {
        return;
    }
    let is_its = |call: &Call| call.worker == from && numbers.contains(&call.number);
    let Calls { queued, sending, in_flight, .. } = &mut *calls;
    let queued = queued.iter_mut().map(|it| &mut it.call);
    let all = queued.chain(sending.values_mut()).chain(in_flight.values_mut());
    all.filter(|it| is_its(it)).for_each(|call| call.worker = to);
    let mut mail = calls.mail.remove(&from).unwrap_or_default();
    let of_work =
        |mail: &Mail| matches!(mail.content, Content::Answer(it, _) if numbers.contains(&it));
    let (moved, kept): (VecDeque<_>, VecDeque<_>) = mail.drain(..).partition(of_work);
    if !kept.is_empty() {
        calls.mail.insert(from, kept);
    }
    let content = Content::Work(work);
    let of_other = calls.mail.entry(to).or_default();
    of_other.push_back(Mail { configuration, content });
    of_other.extend(moved);
}

/// A configuration ends: its calls have no response. Envoy cancels those in flight on this thread,
/// which must be its main thread. On another one (`waits`) this waits until the main thread has
/// none in flight.
pub(crate) fn end(configuration: usize, waits: bool) {
    let mut calls = calls();
    calls.open.remove(&configuration);
    calls.queued.retain(|it| it.call.configuration != configuration);
    let is_its = |(of, _): &(usize, u64)| *of == configuration;
    if waits {
        let of_it = calls.in_flight.iter().filter(|(key, _)| is_its(key));
        let last = of_it.map(|(_, call)| call.until).max();
        let wait = last.map(|until| until.saturating_duration_since(Instant::now()));
        let wait = wait.map_or(Duration::ZERO, |wait| wait.saturating_add(LATE_AFTER));
        let has_calls = |calls: &mut Calls| calls.in_flight.keys().any(is_its);
        let waited = DONE.wait_timeout_while(calls, wait, has_calls);
        calls = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    calls.in_flight.retain(|key, _| !is_its(key));
    for mail in calls.mail.values_mut() {
        mail.retain(|mail| mail.configuration != configuration);
    }
    calls.mail.retain(|_, mail| !mail.is_empty());
    let Calls { in_flight, full, .. } = &mut *calls;
    full.retain(|cluster| in_flight.values().any(|call| call.cluster == *cluster));
}
