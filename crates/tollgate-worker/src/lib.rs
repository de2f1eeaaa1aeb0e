//! Tollgate as a Cloudflare Worker: in front of an origin, or as the service `POST /check`.
//!
//! This file receives requests and sends replies. Decisions are made in `object`, one Durable Object
//! per partition key; what is said about them comes from `tollgate-policy`.
//!
//! Invariant: every request gets an answer: a wrong policy or setting is answered with 500 and where to
//! read why, an object or an origin that is silent is a failure with a name, and nothing here
//! panics. The types of the `worker` crate stay here, in `object` and in `js`.

mod check;
mod deployment;
mod forward;
mod health;
mod js;
mod limit;
mod naming;
mod object;
mod reply;
mod row;
mod settings;
mod tally;
mod target;
mod wait;

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;

use tollgate_policy::{Answer, DescribedRequest, Facts, Outcome, Plan, Policy, decimal};
use wasm_bindgen::{JsCast, JsValue};
use worker::{Env, event, js_sys, web_sys};

use crate::deployment::{Deployment, Gate};
use crate::forward::Forward;
use crate::limit::{decide, settle};
use crate::reply::{Fields, HEALTH_PATH, Reply};
use crate::target::{leaves, path, target};

/// The path of the service.
const CHECK_PATH: &str = "/check";

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
        return Ok(send(&health(&deployment, &request)));
    }
    let Some((gate, policy)) = deployment.opened() else {
        return Ok(send(&health::misconfigured()));
    };
    if let Some(origin) = &gate.settings.origin {
        return match proxy(gate, policy, origin, &request, target).await {
            Ok(forward) => forward.run(Rc::clone(&deployment), &context).await,
            Err(refusal) => Ok(refusal),
        };
    }
    let is_authorized = deployment.authorizes(&request);
    Ok(send(&service(gate, policy, &request, target, is_authorized).await))
}

/// Use one: the request goes on to the origin, if the policy admits it; else it is answered here.
async fn proxy(
    gate: &Gate,
    policy: &Policy,
    origin: &str,
    request: &web_sys::Request,
    target: &str,
) -> Result<Forward, web_sys::Response> {
    if leaves(origin, target) {
        let detail = "the path leads out of the folder that is served";
        return Err(send(&Reply::problem(400, "Bad Request", detail)));
    }
    let headers = request.headers();
    let facts = Incoming { request, method: request.method(), target, headers: &headers };
    let facts = with_claims(policy, facts).await;
    let decided = decide(&gate.objects, policy, &facts, true).await;
    let outcome = decided.plan.outcome(policy);
    match outcome.answer_after(decided.waited) {
        Answer::Pass | Answer::Delay(_) => {} // it has waited
        Answer::Refuse { status } => return Err(refuse(&outcome, status, &facts.facts)),
        Answer::Retry(_) => return Err(refuse(&outcome, 429, &facts.facts)), // `decide` has waited long enough
    }
    Ok(Forward {
        request: Clone::clone(request), // the handle; `Request.clone` would read the body twice
        url: format!("{origin}{target}"),
        fields: Fields::of(&outcome),
        marks: Fields::marks(&outcome),
        plan: decided.plan,
    })
}

fn refuse(outcome: &Outcome<'_>, status: u16, facts: &Incoming<'_>) -> web_sys::Response {
    let content_type = facts.text("content-type").unwrap_or_default();
    send(&Reply::refusal(outcome, status, &content_type))
}

/// Use two: somebody else forwards or refuses; we only say which.
async fn service(
    gate: &Gate,
    policy: &Policy,
    request: &web_sys::Request,
    target: &str,
    is_authorized: bool,
) -> Reply {
    if path(target) != CHECK_PATH {
        return Reply::problem(
            404,
            "Not Found",
            "use POST /check or GET /.well-known/tollgate/health",
        );
    }
    if request.method() != "POST" {
        return not_allowed("POST");
    }
    if !is_authorized {
        let detail = "send \"authorization: Bearer\" with the token of this service";
        return Reply::problem(401, "Unauthorized", detail).with("www-authenticate", "Bearer");
    }
    let Some(body) = js::body(request, check::MAX_BODY).await else {
        return Reply::problem(413, "Content Too Large", "send at most 65536 bytes");
    };
    match DescribedRequest::parse(&body) {
        Ok(facts) => {
            let status = facts.response_status();
            let facts = with_claims(policy, facts).await;
            if let Some(status) = status {
                let mut plan = Plan::new();
                policy.plan(&facts, &mut plan);
                let charged = settle(&gate.objects, policy, &mut plan, Some(status)).await;
                return Reply::json(format!("{{\"charged\":{charged}}}"));
            }
            let decided = decide(&gate.objects, policy, &facts, false).await;
            let content_type = facts.header("content-type").unwrap_or_default();
            let outcome = decided.plan.outcome(policy);
            Reply::json(check::answer(&outcome, policy, &decided, &content_type))
        }
        Err(problems) => {
            Reply::problems(400, "Bad Request", "the check request is wrong; see errors", &problems)
        }
    }
}

fn health(deployment: &Deployment, request: &web_sys::Request) -> Reply {
    if matches!(request.method().as_str(), "GET" | "HEAD") {
        deployment.health(request)
    } else {
        not_allowed("GET, HEAD")
    }
}

fn not_allowed(methods: &str) -> Reply {
    let detail = format!("use {methods}");
    Reply::problem(405, "Method Not Allowed", &detail).with("allow", methods)
}

fn send(reply: &Reply) -> web_sys::Response {
    js::respond(reply.status, &reply.fields.0, &reply.body)
}

/// The facts of a request in front of an origin. The platform sets CF-Connecting-IP and removes what
/// a client sends under that name.
struct Incoming<'r> {
    request: &'r web_sys::Request,
    method: String,
    target: &'r str,
    headers: &'r web_sys::Headers,
}

impl Incoming<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.headers.get(name).ok().flatten()
    }

    fn edge_fact(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        js::edge_fact(self.request, name).map(|fact| fact.into_bytes().into())
    }
}

impl Facts for Incoming<'_> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.method.as_bytes().into()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.target.as_bytes().into()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.text(name).map(|value| value.into_bytes().into())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.text("cf-connecting-ip")?.trim().parse().ok()
    }

    fn country(&self) -> Option<Cow<'_, [u8]>> {
        self.edge_fact("country")
    }

    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        self.edge_fact("asn")
    }
}

/// Facts and the claims of a token that was verified before anything was asked.
struct WithClaims<F> {
    facts: F,
    claims: Option<JsValue>,
}

/// Verifies the request's token, if any rule counts by what it claims.
async fn with_claims<F: Facts>(policy: &Policy, facts: F) -> WithClaims<F> {
    let Some(jwt) = policy.jwt() else { return WithClaims { facts, claims: None } };
    let token = policy.token(&facts).and_then(|token| String::from_utf8(token).ok());
    let claims = match token {
        Some(token) => js::verified(jwt, &token).await,
        None => None,
    };
    WithClaims { facts, claims }
}

impl<F: Facts> Facts for WithClaims<F> {
    fn method(&self) -> Cow<'_, [u8]> {
        self.facts.method()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        self.facts.target()
    }

    fn host(&self) -> Cow<'_, [u8]> {
        self.facts.host()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.facts.header(name)
    }

    fn peer(&self) -> Option<IpAddr> {
        self.facts.peer()
    }

    fn country(&self) -> Option<Cow<'_, [u8]>> {
        self.facts.country()
    }

    fn asn(&self) -> Option<Cow<'_, [u8]>> {
        self.facts.asn()
    }

    fn claim(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let value = js_sys::Reflect::get(self.claims.as_ref()?, &JsValue::from_str(name)).ok()?;
        let text = match (value.dyn_ref::<js_sys::JsString>(), value.as_f64(), value.as_bool()) {
            // Half a surrogate pair is no text: all of them would be one key.
            (Some(text), ..) => text.is_valid_utf16().then(|| String::from(text))?,
            (_, Some(number), _) => decimal(number)?,
            (.., Some(truth)) => truth.to_string(),
            _ => return None,
        };
        Some(text.into_bytes().into())
    }
}
