//! Tollgate as a Cloudflare Worker: in front of an origin, or as the service `POST /check`.
//!
//! This file receives requests and passes them to `proxy` (in front of an origin) or `service`
//! (`POST /check`); calls of another Worker arrive in `rpc`. Decisions are made in `object`, one
//! Durable Object per partition key; `tollgate-policy` builds the responses from them.
//!
//! Invariant: every request gets a response, and nothing here panics. For a wrong policy or setting
//! the response is 500 and names the place where the reason can be read. An object or an origin
//! that does not respond is a named failure. The types of the `worker` crate stay here, in `object`
//! and in `js`.

mod active;
mod compile;
mod counts;
mod deployment;
mod follow;
mod object;
mod operate;
mod request;
mod runtime;
mod settings;
mod tenants;

use std::rc::Rc;

use wasm_bindgen::prelude::*;
use worker::js_sys::Function;
use worker::{Env, web_sys, worker_sys};

use crate::deployment::{Deployment, RequestContext};
use crate::follow::policy;
use crate::operate::{admin, assets, background};
use crate::request::leasing;
use crate::request::proxy::proxy;
use crate::request::service::service;
use crate::request::target::{path, target};
use crate::runtime::{js, tasks};
use tollgate_service::{ApiResponse, HEALTH_PATH, health as reports, is_ours};

/// Responds to one request. Either it returns the response at once, or it returns `undefined` and
/// calls `answer` with the response later. Never fails.
#[wasm_bindgen]
pub fn fetch(
    request: web_sys::Request,
    env: Env,
    context: worker_sys::Context,
    answer: Function,
) -> JsValue {
    let context = worker::Context::new(context);
    tasks::run(async move { respond(request, env, context).await.into() }, answer)
}

async fn respond(
    request: web_sys::Request,
    env: Env,
    context: worker::Context,
) -> web_sys::Response {
    let url = request.url();
    let target = target(&url);
    let deployment = Deployment::of(&env);
    let path = path(target);
    if path == HEALTH_PATH {
        return js::send(&health(&deployment, &request, &context).await);
    }
    if let Some(assets) = deployment.assets()
        && let Some(response) =
            assets::answer(assets, &request, path, deployment.is_operated()).await
    {
        return response;
    }
    let Some(gate) = deployment.gate() else { return js::send(&reports::misconfigured()) };
    let visit = RequestContext { deployment: &deployment, gate, context: &context };
    if is_ours(path) {
        return js::send(&admin::answer(visit, &request, target).await);
    }
    let Some(active) = policy(&visit).await else {
        return js::send(&reports::misconfigured());
    };
    background::schedule(&deployment, &context);
    if leasing::is_ours(path, gate.settings.origin.is_none()) {
        gate.fleet.follow(&active);
        return match leasing::answer(visit, &request).await {
            Ok(body) => js::send_binary(&body),
            Err(problem) => js::send(&problem),
        };
    }
    if let Some(origin) = &gate.settings.origin {
        return match proxy(&visit, active, origin, &request, target).await {
            Ok(forward) => forward.run(Rc::clone(&deployment), &context).await,
            Err(refusal) => refusal,
        };
    }
    let is_authorized = deployment.authorizes(&request);
    js::send(&service(&visit, active, &request, target, is_authorized).await)
}

async fn health(
    deployment: &Rc<Deployment>,
    request: &web_sys::Request,
    context: &worker::Context,
) -> ApiResponse {
    if !matches!(request.method().as_str(), "GET" | "HEAD") {
        return ApiResponse::not_allowed("GET, HEAD");
    }
    let active = match deployment.gate() {
        Some(gate) => policy(&RequestContext { deployment, gate, context }).await,
        None => None,
    };
    deployment.health(request, active.as_deref())
}
