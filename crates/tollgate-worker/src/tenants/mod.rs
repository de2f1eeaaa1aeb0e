//! Tenants' entries in an isolate: fetched from their objects, and remembered.
//!
//! Invariant: one call for a tenant is under way in an isolate; other requests wait for it. An
//! entry that cannot be read or fetched is counted as a failure, and fetched again after a second.
//! Deliberately absent: the plan of a request with that entry; that is in `planning`.

pub(crate) mod entry_location;
pub(crate) mod tenant_cache;

use std::cell::RefCell;
use std::rc::Rc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::Policy;
use tollgate_service::lease::key_name;
use tollgate_service::metrics::Event;
use tollgate_service::{StoreReply, TenantCall};
use wasm_bindgen::JsValue;

use crate::counts::object_name::object_name;
use crate::counts::objects::Objects;
use crate::object::tenant_wire::{Places, Request, TenantRecord};
use crate::operate::tally::FailureKind;
use crate::runtime::js::{self, Bell, Call, NoReply};
use crate::settings::Settings;
use crate::tenants::entry_location::EntryLocation;
use crate::tenants::tenant_cache::{Entry, Look, TenantCache};

/// The object that lists all entries. No tenant has a name that begins so: see [`Tenants::object`].
const LIST: &[u8] = b"list";

/// The entries, as an isolate knows them.
pub(crate) struct Tenants {
    objects: JsValue,
    hash_key: Vec<u8>,
    fleet_secret: Option<[u8; 16]>,
    timeout_ms: u32,
    /// Not borrowed across an await.
    pub(crate) cache: RefCell<TenantCache>,
    /// Rung when a call got its reply.
    pub(crate) bell: Bell,
    /// Whether the entries are stored next to the counts. Not borrowed across an await.
    pub(crate) entry_location: RefCell<EntryLocation>,
}

impl Tenants {
    pub(crate) fn new(objects: JsValue, settings: &Settings) -> Self {
        let cache = RefCell::new(TenantCache::new([js::random(), js::random()]));
        let (hash_key, fleet_secret) = (settings.hash_key.clone(), settings.fleet_secret);
        let (timeout_ms, bell, entry_location) =
            (settings.object_timeout_ms, js::bell(), RefCell::default());
        Self { objects, hash_key, fleet_secret, timeout_ms, cache, bell, entry_location }
    }

    /// The name of the object that has the entry of the tenant `name`. It reveals nothing of the
    /// name.
    fn object(&self, name: &str) -> String {
        object_name(&self.hash_key, &[b"tenant ", name.as_bytes()].concat())
    }

    /// The known state of the tenant `id`: [`Look::Known`], [`Look::Unknown`], or [`Look::Ask`] for
    /// the one request that must fetch it.
    pub(crate) async fn look(&self, id: &[u8]) -> Look {
        let patience = Span::from_millis(self.timeout_ms.into());
        // If a call fails, each request that waits for it asks in its turn, at most once.
        for _ in 0..2 {
            let look = self.cache.borrow_mut().set(id).look(id, js::now(), patience);
            match look {
                Look::Known(_) | Look::Unknown | Look::Ask => return look,
                Look::Wait => self.bell.wait(self.timeout_ms.into()).await,
            }
        }
        let mut cache = self.cache.borrow_mut();
        cache.set(id).last(id, js::now())
    }

    /// The same, fetched if necessary: [`Look::Known`] or [`Look::Unknown`].
    pub(crate) async fn find(&self, id: &[u8], name: &str, objects: &Objects) -> Look {
        for _ in 0..2 {
            match self.look(id).await {
                Look::Ask => {
                    self.ask(id, name, objects).await;
                    self.bell.ring();
                }
                look => return look,
            }
        }
        let mut cache = self.cache.borrow_mut();
        cache.set(id).last(id, js::now())
    }

    /// Asks the tenant's object for its entry, and remembers the reply.
    pub(crate) async fn ask(&self, id: &[u8], name: &str, objects: &Objects) {
        let asked_at = js::now();
        objects.counters.add(Event::ReadTenant);
        let call =
            Call::object(&self.objects, &self.object(name), Request::get(), self.timeout_ms, true);
        let reply = call.reply().await;
        match reply {
            Ok(bytes) => return self.hear(id, asked_at, &bytes, objects),
            Err(NoReply::Late) => objects.note(FailureKind::Late, ""),
            Err(NoReply::Failed(why)) => objects.note(FailureKind::Failed, &why),
        }
        self.cache.borrow_mut().set(id).fail(id, js::now());
    }

    /// Remembers an object's reply about the tenant's entry, requested at `asked_at`.
    pub(crate) fn hear(&self, id: &[u8], asked_at: Timestamp, kept: &[u8], objects: &Objects) {
        let mut cache = self.cache.borrow_mut();
        let set = cache.set(id);
        let Some(TenantRecord { revision, entry }) = TenantRecord::read(kept) else {
            objects.note(FailureKind::Misread, "a tenant's object gave no entry");
            return set.fail(id, js::now());
        };
        // An object accepts only entries; one that a later version of this code wrote may not be
        // readable.
        match entry.map(|entry| tollgate_language::tenant_entry(entry.as_bytes())) {
            Some(Err(_)) => {
                objects.note(FailureKind::Misread, "a tenant's entry cannot be read");
                set.fail(id, js::now());
            }
            Some(Ok(entry)) => {
                set.answer(id, asked_at, Some(Rc::new(Entry::new(entry, revision))));
            }
            None => set.answer(id, asked_at, None),
        }
    }

    /// Carries out `call` for an operator, under the policy in force. When this returns, the change
    /// is in all objects that have the entry. Where one did not reply it is a failure, and the list
    /// delivers the change later.
    pub(crate) async fn carry_out(
        &self,
        call: &TenantCall,
        policy: Option<&Policy>,
        timeout_ms: u32,
    ) -> StoreReply {
        let (name, is_idempotent) = match call {
            TenantCall::Get { id } => (id.as_str(), true),
            TenantCall::Put { id, .. } | TenantCall::Delete { id, .. } => (id.as_str(), false),
            TenantCall::List { .. } => ("", true),
        };
        let request = Request::of(call, &self.places(name, policy));
        match self.ask_list(&request, timeout_ms, is_idempotent).await {
            Ok(reply) => StoreReply::from_json(&reply),
            Err(NoReply::Late) => StoreReply::Failed("it does not respond in time".to_owned()),
            Err(NoReply::Failed(why)) => StoreReply::Failed(why),
        }
    }

    /// Where the entry of the tenant `name` must be stored.
    fn places(&self, name: &str, policy: Option<&Policy>) -> Places {
        let tenants = policy.and_then(Policy::tenants);
        let of_policy = tenants.and_then(|tenants| Some((tenants, tenants.id(name)?)));
        let (tenancy, keys) = of_policy.map_or_else(Default::default, |(tenants, id)| {
            (tenants.identity(), tenants.keys_of(&id))
        });
        let of_key = |key: &Vec<u8>| {
            let name = policy.map(|policy| key_name(policy, self.fleet_secret, key));
            object_name(&self.hash_key, &name.unwrap_or_default())
        };
        let counts = keys.iter().map(of_key).collect();
        Places { object: self.object(name), tenancy, counts }
    }

    /// Learns whether every entry is stored next to the counts of `tenancy`.
    pub(crate) async fn learn_beside(&self, tenancy: u64) {
        let asked_at = js::now();
        let reply = self.ask_list(&Request::are_beside(tenancy), self.timeout_ms, true).await;
        let are_beside = reply.is_ok_and(|reply| reply == [1]);
        self.entry_location.borrow_mut().answer(tenancy, are_beside, asked_at);
    }

    async fn ask_list(
        &self,
        request: &[u8],
        timeout_ms: u32,
        is_idempotent: bool,
    ) -> Result<Vec<u8>, NoReply> {
        let list = object_name(&self.hash_key, LIST);
        Call::object(&self.objects, &list, request, timeout_ms, is_idempotent).reply().await
    }
}
