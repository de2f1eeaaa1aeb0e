//! Tollgate as a Cloudflare Worker: in front of an origin, or as the service `POST /check`.
//!
//! This file receives requests and hands them to `proxy` (in front of an origin) or `service`
//! (`POST /check`). Decisions are made in `object`, one Durable Object per partition key; what is
//! said about them comes from `tollgate-policy`.
//!
//! Invariant: every request gets an answer: a wrong policy or setting is answered with 500 and
//! where to read why, an object or an origin that is silent is a failure with a name, and nothing
//! here panics. The types of the `worker` crate stay here, in `object` and in `js`.

mod assets;
mod background;
mod counters;
mod decide;
mod denials;
mod deployment;
mod events;
mod facts;
mod flush;
mod forward;
mod js;
mod lines;
mod metrics_object;
mod namespaces;
mod object;
mod object_name;
mod objects;
mod placement;
mod points;
mod proxy;
mod row;
mod service;
mod settings;
mod tally;
mod target;
mod together;
mod wait;

use std::rc::Rc;

use worker::{Env, event, web_sys};

use crate::deployment::Deployment;
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
    if path(target) == HEALTH_PATH {
        return Ok(js::send(&health(&deployment, &request)));
    }
    if let Some(assets) = deployment.assets()
        && let Some(response) = assets::answer(assets, &request, path(target)).await
    {
        return Ok(response);
    }
    let Some((gate, policy)) = deployment.opened() else {
        return Ok(js::send(&reports::misconfigured()));
    };
    background::schedule(&deployment, &context);
    if let Some(origin) = &gate.settings.origin {
        return match proxy(gate, policy, origin, &request, target).await {
            Ok(forward) => forward.run(Rc::clone(&deployment), &context).await,
            Err(refusal) => Ok(refusal),
        };
    }
    let is_authorized = deployment.authorizes(&request);
    Ok(js::send(&service(gate, policy, &request, target, is_authorized).await))
}

fn health(deployment: &Deployment, request: &web_sys::Request) -> Reply {
    if matches!(request.method().as_str(), "GET" | "HEAD") {
        deployment.health(request)
    } else {
        Reply::not_allowed("GET, HEAD")
    }
}
