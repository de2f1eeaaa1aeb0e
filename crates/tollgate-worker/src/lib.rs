//! Tollgate as a Cloudflare Worker: in front of an origin, or as the service `POST /check`.
//!
//! This file receives requests and sends replies. Decisions are made in `object`, one Durable Object
//! per partition key; what is said about them comes from `tollgate-policy`.
//!
//! Invariant: every request gets an answer: a wrong policy or setting is answered with 500 and where to
//! read why, an object or an origin that is silent is a failure with a name, and nothing here
//! panics. The types of the `worker` crate stay here, in `object` and in `js`.

mod check;
mod js;
mod limit;
mod naming;
mod object;
mod reply;
mod row;
mod settings;
mod tally;

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use tollgate_policy::{
    Answer, DescribedRequest, Facts, Outcome, Plan, Policy, Problem, Problems, Surface, decimal,
};
use wasm_bindgen::{JsCast, JsValue};
use worker::{Env, event, js_sys, web_sys};

use crate::limit::{Objects, decide, settle};
use crate::naming::told_hash_key;
use crate::reply::{Fields, HEALTH_PATH, Reply};
use crate::settings::Settings;
use crate::tally::Trouble;

/// The path of the service.
const CHECK_PATH: &str = "/check";

/// The name of the Durable Object binding in wrangler.toml.
const OBJECTS: &str = "LIMITER";

/// Everything a request needs, made once per isolate: its bindings and its policy cannot change.
struct Gate {
    policy: Rc<Result<Policy, Problems>>,
    settings: Settings,
    objects: Objects,
}

thread_local! {
    static GATE: OnceCell<Rc<Result<Gate, Problems>>> = const { OnceCell::new() };
    static POLICY: RefCell<Option<Rc<Result<Policy, Problems>>>> = const { RefCell::new(None) };
}

/// The bundled policy, compiled once per isolate.
fn policy() -> Rc<Result<Policy, Problems>> {
    with_policy(|policy| policy.clone())
}

/// The same, which from now on hashes what it tells clients about their keys with `hash_key`. Objects, which
/// tell nobody, may have compiled it before, but hold it only while they decide.
fn policy_with(hash_key: [u8; 16]) -> Rc<Result<Policy, Problems>> {
    with_policy(|policy| {
        if let Some(Ok(policy)) = Rc::get_mut(policy) {
            policy.set_hash_key(hash_key);
        }
        policy.clone()
    })
}

fn with_policy<T>(act: impl FnOnce(&mut Rc<Result<Policy, Problems>>) -> T) -> T {
    let compile = || Rc::new(Policy::compile(&js::policy_text(), Surface::Worker));
    POLICY.with_borrow_mut(|policy| act(policy.get_or_insert_with(compile)))
}

/// Answers one request. Never fails.
#[event(fetch)]
async fn fetch(
    request: web_sys::Request,
    env: Env,
    _context: worker::Context,
) -> worker::Result<web_sys::Response> {
    let url = request.url();
    let target = target(&url);
    let gate = GATE.with(|gate| gate.get_or_init(|| Rc::new(Gate::open(&env))).clone());
    if path(target) == HEALTH_PATH {
        return Ok(send(&health(&request, &gate)));
    }
    let (gate, policy) = match gate.as_ref().as_ref().map(|gate| (gate, gate.policy.as_ref())) {
        Ok((gate, Ok(policy))) => (gate, policy),
        _ => return Ok(send(&misconfigured())),
    };
    match &gate.settings.origin {
        Some(origin) => proxy(gate, policy, origin, &request, target).await,
        None => Ok(send(&service(gate, policy, &request, target).await)),
    }
}

/// Use one: the request goes on to the origin, if the policy admits it.
async fn proxy(
    gate: &Gate,
    policy: &Policy,
    origin: &str,
    request: &web_sys::Request,
    target: &str,
) -> worker::Result<web_sys::Response> {
    let headers = request.headers();
    let facts = Incoming { request, method: request.method(), target, headers: &headers };
    let facts = with_claims(policy, facts).await;
    let mut decided = decide(&gate.objects, policy, &facts).await;
    let outcome = decided.plan.outcome(policy);
    match outcome.answer_after(decided.waited) {
        Answer::Pass => {}
        Answer::Delay(delay) => js::wait(delay.as_millis_ceil()).await,
        Answer::Refuse { status } => return Ok(refuse(&outcome, status, &facts.facts)),
        Answer::Retry(_) => return Ok(refuse(&outcome, 429, &facts.facts)), // `decide` has waited long enough
    }
    let (fields, marks) = (Fields::of(&outcome), Fields::marks(&outcome));
    let forwarded = js::forwarded(request, &format!("{origin}{target}"), &marks.0).await;
    let response = match forwarded {
        Ok(response) => response,
        Err(why) => {
            let mut reply = Reply::problem(502, "Bad Gateway", "the origin does not answer");
            gate.objects.tally.borrow_mut().note(Trouble::Origin, &why);
            settle(&gate.objects, policy, &mut decided.plan, reply.status).await;
            gate.objects.tell();
            reply.fields.0.push_str(&fields.0);
            return Ok(send(&reply));
        }
    };
    if decided.plan.is_deferred() {
        settle(&gate.objects, policy, &mut decided.plan, response.status()).await;
    }
    Ok(js::extended(response, &fields.0))
}

fn refuse(outcome: &Outcome<'_>, status: u16, facts: &Incoming<'_>) -> web_sys::Response {
    let content_type = facts.text("content-type").unwrap_or_default();
    send(&Reply::refusal(outcome, status, &content_type))
}

/// Use two: somebody else forwards or refuses; we only say which.
async fn service(gate: &Gate, policy: &Policy, request: &web_sys::Request, target: &str) -> Reply {
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
    let authorization = request.headers().get("authorization").ok().flatten();
    let token = gate.settings.check_token.as_ref();
    if token.is_some_and(|token| !token.authorizes(authorization.as_deref())) {
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
                let charged = settle(&gate.objects, policy, &mut plan, status).await;
                return Reply::json(format!("{{\"charged\":{charged}}}"));
            }
            let decided = decide(&gate.objects, policy, &facts).await;
            Reply::json(check::answer(&decided.plan.outcome(policy), policy, &decided))
        }
        Err(problems) => {
            Reply::problems(400, "Bad Request", "the check request is wrong; see errors", &problems)
        }
    }
}

/// What is wrong with this deployment, if anything.
fn health(request: &web_sys::Request, gate: &Result<Gate, Problems>) -> Reply {
    if !matches!(request.method().as_str(), "GET" | "HEAD") {
        return not_allowed("GET, HEAD");
    }
    let policy = policy();
    let nothing = Problems::default();
    let settings = gate.as_ref().err().unwrap_or(&nothing);
    let rules = policy.as_ref().as_ref().err().unwrap_or(&nothing);
    let problems = Problems(settings.0.iter().chain(&rules.0).cloned().collect());
    match policy.as_ref() {
        Ok(policy) if problems.0.is_empty() => Reply::json(format!(
            "{{\"status\":\"ok\",\"rules\":{},\"policy\":\"{:016x}\"}}",
            policy.rules().len(),
            policy.fingerprint(),
        )),
        _ => {
            let detail = "every request is refused until this is corrected; see errors";
            Reply::problems(500, "Misconfigured", detail, &problems)
        }
    }
}

fn misconfigured() -> Reply {
    let detail = "the policy or a setting is wrong; see /.well-known/tollgate/health";
    Reply::problem(500, "Misconfigured", detail)
}

fn not_allowed(methods: &str) -> Reply {
    let detail = format!("use {methods}");
    Reply::problem(405, "Method Not Allowed", &detail).with("allow", methods)
}

fn send(reply: &Reply) -> web_sys::Response {
    js::respond(reply.status, &reply.fields.0, &reply.body)
}

impl Gate {
    fn open(env: &Env) -> Result<Self, Problems> {
        let settings = Settings::read(|name| js::text_binding(env, name));
        let namespace = js::binding(env, OBJECTS).filter(JsValue::is_object);
        match (settings, namespace) {
            (Ok(settings), Some(namespace)) => {
                let objects = Objects {
                    namespace,
                    hash_key: settings.hash_key.clone(),
                    timeout_ms: settings.object_timeout_ms,
                    tally: RefCell::default(),
                };
                let policy = policy_with(told_hash_key(&settings.hash_key));
                let gate = Self { policy, settings, objects };
                gate.warn();
                Ok(gate)
            }
            (settings, Some(_)) => Err(settings.err().unwrap_or_default()),
            (settings, None) => {
                let mut problems = settings.err().unwrap_or_default();
                let message = "the Durable Object binding is missing; see wrangler.toml".to_owned();
                problems.0.push(Problem { path: OBJECTS.to_owned(), message });
                Err(problems)
            }
        }
    }
}

impl Gate {
    /// Logs what is surely not meant, once per isolate. Not in the health report: everybody may read it, and
    /// a warning may say how to get round a limit.
    fn warn(&self) {
        let Ok(policy) = self.policy.as_ref() else { return };
        for warning in &policy.warnings().0 {
            js::warn(&warning.to_string());
        }
        if policy.tells_partition_keys() && self.settings.hash_key.is_empty() {
            js::warn(
                "response.partition_key: pk can be guessed without the secret HASH_KEY; set it",
            );
        }
    }
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

/// Path and query of an absolute URL; the whole `url` crate would add 78 KB to the module.
fn target(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    authority.find('/').and_then(|start| authority.get(start..)).unwrap_or("/")
}

fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_target_and_a_path() {
        for (url, expected) in [
            ("https://a.example/b/c?d=/e", "/b/c?d=/e"),
            ("http://127.0.0.1:8787/", "/"),
            ("https://a.example", "/"),
        ] {
            assert_eq!(target(url), expected, "{url}");
        }
        assert_eq!(path("/check?a=/b"), "/check");
        assert_eq!(path("/"), "/");
    }
}
