//! The configurations of the process: what Envoy's main thread reads, and all workers use.
//!
//! Invariant: a configuration is known by its number from `config_new` until its `destroy`, when no
//! stream of it lives any more; numbers are never used again. Its `destroy` comes on the thread
//! that has used it last. Not here: the policy, which each worker reads for itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

use crate::abi::{self, MetricKind};
use crate::calls;
use crate::timer::{self, Sleeper};

/// One configuration.
pub(crate) struct Configuration {
    pub(crate) number: usize,
    /// The operator's `filter_name`.
    pub(crate) name: Vec<u8>,
    /// The operator's `filter_config`.
    pub(crate) text: Vec<u8>,
    /// The number of the worker of Envoy's main thread, which read it.
    pub(crate) main: u64,
    /// Envoy's numbers of the metrics. Envoy takes definitions while it configures, and none later.
    metrics: RwLock<HashMap<(MetricKind, String), usize>>,
}

type All = HashMap<usize, Arc<Configuration>>;

static ALL: LazyLock<Mutex<All>> = LazyLock::new(Mutex::default);
static LAST: AtomicUsize = AtomicUsize::new(0);
/// How many have ended.
static ENDED: AtomicUsize = AtomicUsize::new(0);

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Configuration {
    /// Enters a configuration.
    pub(crate) fn enter(name: &[u8], text: &[u8], main: u64) -> Arc<Self> {
        let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let (name, text, metrics) = (name.to_vec(), text.to_vec(), RwLock::default());
        let configuration = Arc::new(Self { number, name, text, main, metrics });
        all().insert(number, Arc::clone(&configuration));
        calls::begin(number);
        configuration
    }

    /// The configuration with this number.
    pub(crate) fn find(number: usize) -> Option<Arc<Self>> {
        all().get(&number).cloned()
    }

    /// It ends, on the thread of this worker; `None` for one of the timer's or of no thread.
    pub(crate) fn end(number: usize, on: Option<u64>) {
        timer::unregister(Sleeper::Main(number));
        let Some(configuration) = all().remove(&number) else { return };
        ENDED.fetch_add(1, Ordering::Release);
        calls::end(number, on != Some(configuration.main));
    }

    /// How many have ended so far.
    pub(crate) fn ended() -> usize {
        ENDED.load(Ordering::Acquire)
    }

    /// Envoy's number of a metric, which is defined while Envoy configures (`envoy`).
    pub(crate) fn metric(
        &self,
        kind: MetricKind,
        name: &str,
        envoy: Option<abi::Configuration>,
    ) -> Option<usize> {
        let key = (kind, name.to_owned());
        let known = self.metrics.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        known.or_else(|| {
            let defined = envoy?.define(kind, name)?;
            let mut metrics = self.metrics.write().unwrap_or_else(PoisonError::into_inner);
            Some(*metrics.entry(key).or_insert(defined))
        })
    }
}
