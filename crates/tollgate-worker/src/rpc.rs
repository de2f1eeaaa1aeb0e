//! The Worker asked by another Worker, through a service binding: the call `check`.
//!
//! Invariant: what is asked and answered is the JSON of `POST /check`, so there is one contract.
//! Who has the binding is trusted as its deployment is, and needs no token: nothing that comes over
//! HTTP gets here. An origin in front of which the Worker stands changes nothing. Deliberately
//! absent: how a value of JavaScript becomes that JSON; that is `entry.mjs`'s.

use tollgate_service::{Answer, check, health as reports};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use worker::js_sys::futures::future_to_promise;
use worker::js_sys::{Array, Promise};
use worker::worker_sys;
use worker::{Context, Env};

use crate::background;
use crate::deployment::{Deployment, Visit};
use crate::follow::policy;
use crate::service::decided;

/// The answer to `body`: its status and its body. Never fails.
#[wasm_bindgen]
pub fn check(body: String, env: Env, context: worker_sys::Context) -> Promise {
    future_to_promise(async move {
        let answer = answer(&body, &env, &Context::new(context)).await;
        let (status, body) = (JsValue::from(answer.status), JsValue::from_str(&answer.body));
        Ok(Array::of2(&status, &body).into())
    })
}

async fn answer(body: &str, env: &Env, context: &Context) -> Answer {
    if body.len() > check::MAX_BODY {
        return check::too_long();
    }
    let deployment = Deployment::of(env);
    let Some(gate) = deployment.gate() else { return reports::misconfigured() };
    let visit = Visit { deployment: &deployment, gate, context };
    let Some(active) = policy(&visit).await else { return reports::misconfigured() };
    background::schedule(&deployment, context);
    decided(&visit, active, body.as_bytes()).await
}
