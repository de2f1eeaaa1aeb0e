//! The store in an engine that several servers share: Valkey or Redis.
//!
//! Invariant: counts are one value for each key, replaced by compare-and-swap (`tollgate-redis`).
//! Rules are a log. Every change is an entry, which is appended only if no other server appended
//! meanwhile, and every server replays it, so that all of them have the same versions. A log that
//! is shorter than a server's own state was lost with the engine's data. The server then keeps its
//! state, and changes fail until it is restarted, because two histories with the same numbers would
//! contradict each other.

use std::time::Duration;

use tokio::sync::Mutex;
use tollgate_core::Span;
use tollgate_redis::{Engine, Failed, Fault, KeyRequest};
use tollgate_service::settle::Sealer;
use tollgate_service::{MemoryLimits, MemoryStore, StoreCall, StoreReply};
use tollgate_storage::Counts;

use crate::store::request::{Name, NoReply, StoreRequest};
use crate::traces::{self, ActiveSpan, Kind};

/// The name of the log, after the prefix.
const LOG: &str = "rules";
/// The most entries of the log. Only an operator with the admin token adds any.
const MAX_ENTRIES: u64 = 100_000;
/// Tries to append before the change fails: this many servers can change rules at the same time.
const MAX_TRIES: u32 = 8;

/// The store.
pub struct Redis {
    engine: Engine,
    timeout: Span,
    /// Derived from the secret that all servers of the engine share; `None` without one.
    sealer: Option<Sealer>,
    rules: Mutex<Rules>,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("under_way", &self.engine.under_way()).finish_non_exhaustive()
    }
}

/// The rules after this many entries.
#[derive(Debug)]
struct Rules {
    store: MemoryStore,
    entries: u64,
}

impl Redis {
    /// The store in `engine`, a call of which takes at most `timeout`; it sends nothing yet.
    /// `secret` is shared by all servers of the
    /// engine, or empty.
    #[must_use]
    pub fn new(engine: Engine, timeout: Duration, secret: &[u8]) -> Self {
        let timeout = Span::from_nanos(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let sealer = Sealer::new(secret, b"redis");
        Self { engine, timeout, sealer, rules: Mutex::new(Rules::default()) }
    }

    pub(super) fn name_of(&self, key: &[u8]) -> Name {
        *self.engine.name(key).bytes()
    }

    pub(super) const fn sealer(&self) -> Option<&Sealer> {
        self.sealer.as_ref()
    }

    pub(super) const fn timeout(&self) -> Span {
        self.timeout
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) async fn ask(&self, name: &Name, ask: StoreRequest<'_>) -> Result<Vec<u8>, NoReply> {
        let ask = match ask {
            StoreRequest::Check(request) => KeyRequest::Check(request.to_vec()),
            StoreRequest::Refund { request, reply } => {
                KeyRequest::Refund { request: request.to_vec(), reply: reply.to_vec() }
            }
            StoreRequest::Operate(request) => KeyRequest::Operate(request.to_vec()),
            StoreRequest::InFlight(request) => KeyRequest::InFlight(request.to_vec()),
        };
        let span = traces::child("store", Kind::Internal);
        let tag = span.as_ref().map(ActiveSpan::tag);
        let name = tollgate_redis::Name::new(*name);
        let look = match &ask {
            KeyRequest::Check(request) => Counts::look_of(request).zip(Some(request.clone())),
            KeyRequest::Refund { .. } | KeyRequest::Operate(_) | KeyRequest::InFlight(_) => None,
        };
        let unreadable = |what| {
            NoReply::Unreadable(format!("the engine's key {} {what}", self.engine.key_of(&name)))
        };
        let mut answer = self.engine.ask_as(name, ask, tag).await;
        // An engine that takes no writes cannot start a penalty; the denial stands without it.
        if let (Err(Failed::Engine(fault)), Some((look, request))) = (&answer, look)
            && fault.refuses_writes()
            && let Ok(reply) = self.engine.ask_as(name, KeyRequest::Check(look), tag).await
            && Counts::denies(&request, &reply)
        {
            answer = Ok(reply);
        }
        match answer {
            Err(Failed::Corrupt) => Err(unreadable("is damaged and starts again")),
            Err(Failed::Engine(Fault::Foreign)) => Err(unreadable(
                "contains a value that this version does not write; delete it, unless newer servers use it",
            )),
            Err(Failed::Overloaded) => Err(NoReply::Overloaded),
            Err(Failed::Engine(Fault::Late)) => Err(NoReply::Late),
            Err(Failed::Engine(fault)) => Err(NoReply::Failed(message(fault))),
            Err(Failed::Open) => {
                Err(NoReply::Failed("the engine has not responded recently".into()))
            }
            Err(Failed::Malformed) => Err(NoReply::Failed("malformed request or reply".into())),
            Ok(reply) => Ok(reply),
        }
    }

    pub(super) async fn rules(&self, call: &StoreCall) -> StoreReply {
        let mut rules = self.rules.lock().await;
        for _ in 0..MAX_TRIES {
            if let Err(why) = rules.catch_up(&self.engine).await {
                return StoreReply::Failed(why);
            }
            if rules.store.would_change(call) {
                match rules.append(&self.engine, call).await {
                    Ok(true) => {}
                    // Another server appended meanwhile.
                    Ok(false) => continue,
                    // The entry may exist all the same: the next call finds it.
                    Err(fault) => return StoreReply::Failed(message(fault)),
                }
            }
            let failed = || StoreReply::Failed("it is not a matter of rules".to_owned());
            return rules.store.answer(call).unwrap_or_else(failed);
        }
        StoreReply::Failed("others change the rules all the time".to_owned())
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self { store: MemoryStore::new(MemoryLimits::default()), entries: 0 }
    }
}

impl Rules {
    /// Appends a change, which must be made when this is true; false when another server appended
    /// first.
    async fn append(&mut self, engine: &Engine, call: &StoreCall) -> Result<bool, Fault> {
        if self.entries >= MAX_ENTRIES {
            return Err(Fault::OutOfMemory);
        }
        let is_appended = engine.append(LOG, self.entries, call.to_json().as_bytes()).await?;
        self.entries = self.entries.saturating_add(u64::from(is_appended));
        Ok(is_appended)
    }

    /// Replays the entries of other servers.
    async fn catch_up(&mut self, engine: &Engine) -> Result<(), String> {
        let length = engine.length(LOG).await.map_err(message)?;
        if length < self.entries {
            return Err("the engine has lost rules; restart the servers and put them again".into());
        }
        while self.entries < length {
            let entries = engine.entries(LOG, self.entries).await.map_err(message)?;
            if entries.is_empty() {
                return Err(message(Fault::Nonsense));
            }
            for entry in entries {
                let number = self.entries;
                if let Err(why) = self.store.replay(&entry) {
                    return Err(format!("entry {number} of the rules in the engine {why}"));
                }
                self.entries = number.saturating_add(1);
            }
        }
        Ok(())
    }
}

fn message(fault: Fault) -> String {
    format!("the engine failed: {}", fault.label())
}
