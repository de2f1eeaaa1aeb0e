//! One request to the service, from its head to its answer.
//!
//! Invariant: nothing is read of a body, and nothing asked of a store, before the request was found
//! to be allowed to.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use crate::admin::step::Step;
use crate::admin::{keys, metrics, policy, tenants};
use crate::answer::{Answer, JSON};
use crate::asked::{Asked, body_limit};
use crate::metrics::Format;
use crate::open_api::OPEN_API;
use crate::problem::Wrong;
use crate::routes::Operation;
use crate::service::{Call, Service};
use crate::store::{StoreCall, StoreReply};

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// This is the answer.
    Answer(Answer),
    /// Read the body, then go on with [`WantsBody::read`].
    Body(WantsBody),
    /// Ask the store, then go on with [`WantsStore::answered`].
    Store(WantsStore),
}

/// A request whose body is wanted.
#[derive(Debug)]
pub struct WantsBody {
    limit: usize,
    asked: Box<Asked>,
}

/// A request that needs an answer of the store.
#[derive(Debug)]
pub struct WantsStore {
    call: Box<StoreCall>,
    asked: Box<Asked>,
    state: State,
}

/// Where an operation goes on.
#[derive(Debug)]
enum State {
    Policy(policy::State),
    Tenants(tenants::State),
    Keys(()),
    Metrics(Format),
}

impl Service<'_> {
    /// Looks at the head of a request below `/.well-known/tollgate/`. Never fails: what is wrong is
    /// answered.
    #[must_use]
    pub fn begin(&self, call: &Call<'_>) -> Next {
        match Asked::read(self, call) {
            Err(answer) => Next::Answer(sent(answer, call.method == "HEAD")),
            Ok(asked) => match body_limit(asked.operation) {
                Some(limit) => Next::Body(WantsBody { limit, asked: Box::new(asked) }),
                None => begun(self, Box::new(asked), Vec::new()),
            },
        }
    }
}

impl WantsBody {
    /// The most bytes to read.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Goes on with the body; `None` when it is longer than the limit, or broke off.
    #[must_use]
    pub fn read(self, service: &Service<'_>, body: Option<Vec<u8>>) -> Next {
        match body.filter(|body| body.len() <= self.limit) {
            Some(body) => begun(service, self.asked, body),
            None => {
                let detail = format!("send at most {} bytes", self.limit);
                Next::Answer(Wrong::TooLarge.answer(&detail))
            }
        }
    }
}

impl WantsStore {
    /// What to ask the store.
    #[must_use]
    pub fn call(&self) -> &StoreCall {
        &self.call
    }

    /// Goes on with what the store answered.
    #[must_use]
    pub fn answered(self, service: &Service<'_>, reply: StoreReply) -> Next {
        let asked = self.asked;
        match (self.state, reply) {
            (State::Policy(state), StoreReply::Policy(reply)) => {
                let step = policy::answered(service, &asked, state, reply);
                next(asked, step, StoreCall::Policy, State::Policy)
            }
            (State::Tenants(state), StoreReply::Tenants(reply)) => {
                let step = tenants::answered(service, &asked, state, reply);
                next(asked, step, StoreCall::Tenants, State::Tenants)
            }
            (State::Keys(()), StoreReply::Keys(reply)) => {
                next(asked, keys::answered(reply), StoreCall::Keys, State::Keys)
            }
            (State::Metrics(format), StoreReply::Metrics(reply)) => {
                let step = metrics::answered(format, reply);
                next(asked, step, StoreCall::Metrics, State::Metrics)
            }
            _ => {
                let answer = Wrong::StoreUnavailable.answer("the store does not answer; try again");
                Next::Answer(sent(answer.with("retry-after", "1"), asked.is_head))
            }
        }
    }
}

fn begun(service: &Service<'_>, asked: Box<Asked>, body: Vec<u8>) -> Next {
    match asked.operation {
        Operation::ReadPolicy
        | Operation::PutPolicy
        | Operation::DeletePolicy
        | Operation::ReadHistory
        | Operation::ReadVersion
        | Operation::RollBack => {
            let step = policy::begin(service, &asked, body);
            next(asked, step, StoreCall::Policy, State::Policy)
        }
        Operation::ListTenants
        | Operation::ReadTenant
        | Operation::PutTenant
        | Operation::DeleteTenant => {
            let step = tenants::begin(service, &asked, body);
            next(asked, step, StoreCall::Tenants, State::Tenants)
        }
        Operation::Explain
        | Operation::ReadKey
        | Operation::ResetKey
        | Operation::BlockKey
        | Operation::UnblockKey => {
            let step = keys::begin(&asked, body);
            next(asked, step, StoreCall::Keys, State::Keys)
        }
        Operation::ReadMetrics => {
            let step = metrics::begin(&asked);
            next(asked, step, StoreCall::Metrics, State::Metrics)
        }
        Operation::ReadOpenApi => {
            let answer = Answer::new(200, JSON, OPEN_API);
            Next::Answer(sent(answer, asked.is_head))
        }
    }
}

/// What comes next after `step`, whose calls and states are of one kind.
fn next<C, S>(
    asked: Box<Asked>,
    step: Step<C, S>,
    call_of: impl FnOnce(C) -> StoreCall,
    state_of: impl FnOnce(S) -> State,
) -> Next {
    match step {
        Step::Answer(answer) => Next::Answer(sent(answer, asked.is_head)),
        Step::Ask(call, state) => {
            Next::Store(WantsStore { call: Box::new(call_of(call)), asked, state: state_of(state) })
        }
    }
}

/// `answer` as it is sent: to `HEAD` without its body (RFC 9110, 9.3.2).
fn sent(answer: Answer, is_head: bool) -> Answer {
    if is_head { Answer { body: "".into(), ..answer } } else { answer }
}
