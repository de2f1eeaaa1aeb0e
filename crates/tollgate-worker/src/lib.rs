//! Tollgate as a Cloudflare Worker: in front of an origin, or as the service `POST /check`.
//!
//! This file receives requests and hands them to `proxy` (in front of an origin) or `service`
//! (`POST /check`); what another Worker asks by a call comes in by `rpc`. Decisions are made in
//! `object`, one Durable Object per partition key; what is said about them comes from
//! `tollgate-policy`.
//!
//! Invariant: every request gets an answer: a wrong policy or setting is answered with 500 and
//! where to read why, an object or an origin that is silent is a failure with a name, and nothing
//! here panics. The types of the `worker` crate stay here, in `object` and in `js`.

mod active;
mod admin;
mod assets;
mod background;
mod counters;
mod decide;
mod denials;
mod deployment;
mod events;
mod facts;
mod flush;
mod follow;
mod following;
mod forward;
mod js;
mod keys;
mod lines;
mod metrics_object;
mod namespaces;
mod object;
mod object_name;
mod objects;
mod operator;
mod placement;
mod points;
mod policy_object;
mod proxy;
mod row;
mod rpc;
mod service;
mod settings;
mod sql;
mod store;
mod tally;
mod target;
mod tenant_cache;
mod tenant_object;
mod tenant_wire;
mod tenants;
mod together;
mod versions;
mod wait;

use std::rc::Rc;

use worker::{Env, event, web_sys};

use crate::deployment::{Deployment, Visit};
use crate::follow::policy;
use crate::proxy::proxy;
use crate::service::service;
use crate::target::{path, target};
use tollgate_service::{Answer as Reply, HEALTH_PATH, health as reports};

/// Answers one request. Never fails.
#[event(fetch)]
async fn fetch(
    request: web_sys::Request,
    env: Env,
    context: worker::Context,
) -> worker::Result<web_sys::Response> {
    let url = request.url();
    let target = target(&url);
    let deployment = Deployment::of(&env);
    let path = path(target);
    if path == HEALTH_PATH {
        return Ok(js::send(&health(&deployment, &request, &context).await));
    }
    if let Some(assets) = deployment.assets()
        && let Some(response) =
            assets::answer(assets, &request, path, deployment.is_operated()).await
    {
        return Ok(response);
    }
    let Some(gate) = deployment.gate() else { return Ok(js::send(&reports::misconfigured())) };
    let visit = Visit { deployment: &deployment, gate, context: &context };
    if admin::is_ours(path) {
        return Ok(js::send(&admin::answer(&visit, &request, target).await));
    }
    let Some(active) = policy(&visit).await else {
        return Ok(js::send(&reports::misconfigured()));
    };
    background::schedule(&deployment, &context);
    if let Some(origin) = &gate.settings.origin {
        return match proxy(&visit, active, origin, &request, target).await {
            Ok(forward) => forward.run(Rc::clone(&deployment), &context).await,
            Err(refusal) => Ok(refusal),
        };
    }
    let is_authorized = deployment.authorizes(&request);
    Ok(js::send(&service(&visit, active, &request, target, is_authorized).await))
}

async fn health(
    deployment: &Rc<Deployment>,
    request: &web_sys::Request,
    context: &worker::Context,
) -> Reply {
    if !matches!(request.method().as_str(), "GET" | "HEAD") {
        return Reply::not_allowed("GET, HEAD");
    }
    let active = match deployment.gate() {
        Some(gate) => policy(&Visit { deployment, gate, context }).await,
        None => None,
    };
    deployment.health(request, active.as_deref())
}
