//! Tenants' entries in an isolate: asked of their objects, remembered, and planned with.
//!
//! Invariant: a request is planned with the entry that its tenant had at most five seconds ago, or
//! with what was last known, for ten minutes at most, when the tenant's object does not answer. Of
//! a tenant of whom nothing is known then the rules of the policy decide, counted as ever; but who
//! wants a rule to refuse when its state cannot be read (`on_failure`) is refused, because nobody
//! knows which quotas hold. Either is counted and logged. One question about a tenant is under way
//! in an isolate; the others wait for it.
//!
//! No request is planned with entries where the policy has no tenants, and none is asked for where
//! no rule applies.

use std::cell::RefCell;
use std::rc::Rc;

use tollgate_core::Span;
use tollgate_policy::{Facts, Failure, Plan, Policy, TenantEntry};
use tollgate_service::metrics::Event;
use tollgate_service::{StoreReply, TenantCall};
use wasm_bindgen::JsValue;

use crate::js::{self, Bell, Call, NoReply};
use crate::object_name::object_name;
use crate::objects::Objects;
use crate::tally::Trouble;
use crate::tenant_cache::{Entry, Look, TenantCache};
use crate::tenant_wire::{Kept, Request};

/// The object that lists all entries. No tenant has a name that begins so: see [`Tenants::object`].
const LIST: &[u8] = b"list";

/// The entries, as an isolate knows them.
pub(crate) struct Tenants {
    objects: JsValue,
    hash_key: Vec<u8>,
    timeout_ms: u32,
    cache: RefCell<TenantCache>,
    bell: Bell,
}

impl Tenants {
    pub(crate) fn new(objects: JsValue, hash_key: &[u8], timeout_ms: u32) -> Self {
        let cache = RefCell::new(TenantCache::new([js::random(), js::random()]));
        Self { objects, hash_key: hash_key.to_vec(), timeout_ms, cache, bell: js::bell() }
    }

    /// The name of the object that has the entry of the tenant `name`. It tells nothing of the
    /// name.
    fn object(&self, name: &str) -> String {
        object_name(&self.hash_key, &[b"tenant ", name.as_bytes()].concat())
    }

    /// What is known of the tenant `id`, asked for if need be: [`Look::Known`] or
    /// [`Look::Unknown`].
    async fn find(&self, id: &[u8], name: &str, objects: &Objects) -> Look {
        let patience = Span::from_millis(self.timeout_ms.into());
        // Of those who wait for one that fails each asks in its turn, at most once.
        for _ in 0..2 {
            let look = self.cache.borrow_mut().look(id, js::now(), patience);
            match look {
                Look::Known(_) | Look::Unknown => return look,
                Look::Wait => self.bell.wait(self.timeout_ms.into()).await,
                Look::Ask => {
                    self.ask(id, name, objects).await;
                    self.bell.ring();
                }
            }
        }
        let mut cache = self.cache.borrow_mut();
        cache.last(id, js::now())
    }

    /// Asks the tenant's object for its entry, and remembers what it says.
    async fn ask(&self, id: &[u8], name: &str, objects: &Objects) {
        let asked_at = js::now();
        objects.counters.add(Event::ReadTenant);
        let call =
            Call::object(&self.objects, &self.object(name), Request::get(), self.timeout_ms, true);
        let reply = call.reply().await;
        let mut cache = self.cache.borrow_mut();
        match reply.map(|bytes| Kept::read(&bytes)) {
            Ok(Some(Kept { entry, .. })) => {
                // What was put is an entry; what a later version of this code put may be none.
                let read = entry.map(|entry| TenantEntry::read(entry.as_bytes()));
                if let Some(Err(_)) = &read {
                    objects.note(Trouble::Misread, "a tenant's entry cannot be read");
                    cache.fail(id, js::now());
                    return;
                }
                let entry = read.and_then(Result::ok);
                cache.answer(id, asked_at, entry.map(|entry| Rc::new(Entry::new(entry))));
                return;
            }
            Ok(None) => objects.note(Trouble::Misread, "a tenant's object gave no entry"),
            Err(NoReply::Late) => objects.note(Trouble::Late, ""),
            Err(NoReply::Failed(why)) => objects.note(Trouble::Failed, &why),
        }
        cache.fail(id, js::now());
    }

    /// Carries out `call` for an operator. What was written is in its tenant's object when this
    /// answers; where that did not answer it is a failure, and the list hands it on by itself.
    pub(crate) async fn carry_out(&self, call: &TenantCall, timeout_ms: u32) -> StoreReply {
        let (name, is_idempotent) = match call {
            TenantCall::Get { id } => (id.as_str(), true),
            TenantCall::Put { id, .. } | TenantCall::Delete { id, .. } => (id.as_str(), false),
            TenantCall::List { .. } => ("", true),
        };
        let request = Request::of(call, &self.object(name));
        let list = object_name(&self.hash_key, LIST);
        let call = Call::object(&self.objects, &list, &request, timeout_ms, is_idempotent);
        match call.reply().await {
            Ok(reply) => StoreReply::from_json(&reply),
            Err(NoReply::Late) => StoreReply::Failed("it does not answer in time".to_owned()),
            Err(NoReply::Failed(why)) => StoreReply::Failed(why),
        }
    }
}

/// Plans a request with its tenant's entry, where it has one. What cannot be known has failed in
/// the plan: its rules' `on_failure` refuses it, and no object is to be asked.
pub(crate) async fn plan(
    tenants: Option<&Tenants>,
    objects: &Objects,
    policy: &Policy,
    facts: &impl Facts,
    plan: &mut Plan,
) {
    policy.plan(facts, plan);
    let Some(tenants) = tenants else { return };
    let Some(id) = plan.tenant().map(<[u8]>::to_vec) else { return };
    let Some(name) = policy.name_of_tenant(&id) else { return };
    match tenants.find(&id, &name, objects).await {
        Look::Known(Some(entry)) => {
            let tenant = entry.under(policy, &id);
            if tenant.is_in_force(js::now()) {
                policy.plan_for(facts, &tenant, plan);
            }
        }
        Look::Known(None) => {}
        Look::Ask | Look::Wait | Look::Unknown => {
            objects.note(Trouble::Tenant, "");
            if plan.fails_closed(policy) {
                plan.each_partition(|partition| partition.fail(Failure::Unreachable));
            }
        }
    }
}
