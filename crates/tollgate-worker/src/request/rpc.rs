//! Calls from another Worker through a service binding: `check` and `settle`.
//!
//! Invariant: arguments and results are the JSON of `POST /check` and `POST /check/settle`, so
//! there is one contract. A Worker with the binding is trusted like this deployment itself, and
//! needs no token: no HTTP request gets here. It makes no difference whether this Worker is in
//! front of an origin. Deliberately absent: the conversion of a JavaScript value to that JSON; that
//! is in `entry.mjs`.

use tollgate_service::{ApiResponse, check, health as reports};
use tollgate_storage::InFlightReport;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::js_sys::{Array, Function};
use worker::worker_sys;
use worker::{Context, Env};

use crate::deployment::{Deployment, RequestContext};
use crate::follow::policy;
use crate::operate::background;
use crate::request::in_flight::reported;
use crate::request::service::decided;
use crate::request::settle::settled;
use crate::runtime::tasks;

/// The response that `POST /check` would give, its status and its body. Either it returns them at
/// once, or it returns `undefined` and calls `tell` with them later. Never fails.
#[wasm_bindgen]
pub fn check(body: String, env: Env, context: worker_sys::Context, tell: Function) -> JsValue {
    asked(Call::Check, body, (env, context), tell)
}

/// The same of `POST /check/settle`.
#[wasm_bindgen]
pub fn settle(body: String, env: Env, context: worker_sys::Context, tell: Function) -> JsValue {
    asked(Call::Settle, body, (env, context), tell)
}

/// The same of `POST /check/renew`.
#[wasm_bindgen]
pub fn renew(body: String, env: Env, context: worker_sys::Context, tell: Function) -> JsValue {
    asked(Call::Report(InFlightReport::Runs), body, (env, context), tell)
}

/// The same of `POST /check/done`.
#[wasm_bindgen]
pub fn done(body: String, env: Env, context: worker_sys::Context, tell: Function) -> JsValue {
    asked(Call::Report(InFlightReport::Ended), body, (env, context), tell)
}

/// The function that is called.
#[derive(Clone, Copy)]
enum Call {
    Check,
    Settle,
    Report(InFlightReport),
}

fn asked(
    call: Call,
    body: String,
    (env, context): (Env, worker_sys::Context),
    tell: Function,
) -> JsValue {
    let asked = async move {
        let answer = answer(call, &body, &env, &Context::new(context)).await;
        let (status, body) = (JsValue::from(answer.status), JsValue::from_str(&answer.body));
        Array::of2(&status, &body).into()
    };
    tasks::run(asked, tell)
}

async fn answer(call: Call, body: &str, env: &Env, context: &Context) -> ApiResponse {
    if body.len() > check::MAX_BODY {
        return check::too_long();
    }
    let deployment = Deployment::of(env);
    let Some(gate) = deployment.gate() else { return reports::misconfigured() };
    let visit = RequestContext { deployment: &deployment, gate, context };
    let Some(active) = policy(&visit).await else { return reports::misconfigured() };
    background::schedule(&deployment, context);
    match call {
        Call::Check => decided(&visit, active, body.as_bytes()).await,
        Call::Settle => settled(&visit, body.as_bytes()).await,
        Call::Report(report) => reported(gate, report, body.as_bytes()).await,
    }
}
