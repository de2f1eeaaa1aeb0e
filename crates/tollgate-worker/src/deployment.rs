//! What an isolate runs: its policy and its bindings, looked at once.
//!
//! Invariant: a wrong policy or setting is never half used. It is in the log, one line each, once
//! an isolate, and in the health report; what is only certainly not meant is in the log. Nothing
//! here decides about a request.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use tollgate_policy::{Policy, Problem, Problems, Surface};
use tollgate_service::log::Sampler;
use tollgate_service::{Answer as Reply, Token, health};
use worker::wasm_bindgen::JsValue;
use worker::{Env, web_sys};

use crate::assets::ASSETS;
use crate::counters::Counters;
use crate::denials::Remembered;
use crate::flush::Flush;
use crate::js;
use crate::lines::Lines;
use crate::namespaces::objects;
use crate::object_name::pk_hash_key;
use crate::objects::Objects;
use crate::settings::{self, Settings};

/// The name of the Durable Object binding in wrangler.toml.
const OBJECTS: &str = "LIMITER";
const METRICS: &str = "METRICS";
const ANALYTICS: &str = "ANALYTICS";

/// What this isolate found when it started: its bindings and its policy cannot change.
pub(crate) struct Deployment {
    /// Who has it may ask `/check`, and read in the health report what is wrong.
    check_token: Option<Token>,
    /// The files of the playground, when it is served.
    assets: Option<JsValue>,
    gate: Result<Gate, Problems>,
}

/// Everything a request needs.
pub(crate) struct Gate {
    pub(crate) policy: Rc<Result<Policy, Problems>>,
    pub(crate) settings: Settings,
    pub(crate) objects: Objects,
    pub(crate) flush: Flush,
}

thread_local! {
    static DEPLOYMENT: OnceCell<Rc<Deployment>> = const { OnceCell::new() };
    static POLICY: RefCell<Option<Rc<Result<Policy, Problems>>>> = const { RefCell::new(None) };
}

/// The bundled policy, compiled once per isolate.
pub(crate) fn policy() -> Rc<Result<Policy, Problems>> {
    with_policy(|policy| policy.clone())
}

/// The same, which from now on hashes with `hash_key` what it tells clients about their keys, and
/// chooses by it the keys that rules are enforced for. Objects, which do neither, may have compiled
/// it before, but hold it only while they decide.
fn policy_with(hash_key: [u8; 16]) -> Rc<Result<Policy, Problems>> {
    with_policy(|policy| {
        if let Some(Ok(policy)) = Rc::get_mut(policy) {
            policy.set_hash_key(hash_key);
        }
        policy.clone()
    })
}

fn with_policy<T>(act: impl FnOnce(&mut Rc<Result<Policy, Problems>>) -> T) -> T {
    let compile = || {
        let text = js::policy_text();
        if text.is_empty() {
            let message =
                "the policy is missing; policy.json is bundled as a text module, see wrangler.toml";
            return Rc::new(Err(Problems(vec![Problem::new("", message.to_owned())])));
        }
        Rc::new(Policy::compile(&text, Surface::Worker))
    };
    POLICY.with_borrow_mut(|policy| act(policy.get_or_insert_with(compile)))
}

impl Deployment {
    /// The one of this isolate.
    pub(crate) fn of(env: &Env) -> Rc<Self> {
        DEPLOYMENT.with(|it| it.get_or_init(|| Rc::new(Self::new(env))).clone())
    }

    /// Looks at the bindings and the policy, and logs what is wrong and what is certainly not
    /// meant.
    fn new(env: &Env) -> Self {
        let binding = |name: &str| js::text_binding(env, name);
        let check_token = settings::check_token(binding);
        let gate = Gate::open(env, Settings::read(binding));
        let nothing = Problems::default();
        health::log(gate.as_ref().err().unwrap_or(&nothing), &policy(), js::fail);
        if let Ok(gate) = &gate {
            gate.warn(check_token.is_some());
        }
        let assets = js::binding(env, ASSETS).filter(js::is_fetcher);
        Self { check_token, assets, gate }
    }

    /// The files of the playground, when this deployment serves it.
    pub(crate) const fn assets(&self) -> Option<&JsValue> {
        self.assets.as_ref()
    }

    /// The gate and its policy, if nothing is wrong.
    pub(crate) fn opened(&self) -> Option<(&Gate, &Policy)> {
        let gate = self.gate.as_ref().ok()?;
        Some((gate, gate.policy.as_ref().as_ref().ok()?))
    }

    /// True when the request's token is this deployment's, or none is wanted.
    pub(crate) fn authorizes(&self, request: &web_sys::Request) -> bool {
        self.check_token.is_none() || self.trusts(request)
    }

    /// True when the request has this deployment's token.
    fn trusts(&self, request: &web_sys::Request) -> bool {
        let authorization = request.headers().get("authorization").ok().flatten();
        let token = self.check_token.as_ref();
        token.is_some_and(|token| token.authorizes(authorization.as_deref()))
    }

    /// What is wrong with this deployment, if anything.
    pub(crate) fn health(&self, request: &web_sys::Request) -> Reply {
        let nothing = Problems::default();
        let settings = self.gate.as_ref().err().unwrap_or(&nothing);
        health::report(settings, &policy(), self.trusts(request))
    }
}

impl Gate {
    fn open(env: &Env, settings: Result<Settings, Problems>) -> Result<Self, Problems> {
        let (settings, mut problems) = match settings {
            Ok(settings) => (settings, Problems::default()),
            Err(problems) => (Settings::default(), problems),
        };
        if settings.origin.as_deref().is_some_and(|origin| !js::is_url(origin)) {
            problems.0.push(Problem::new(settings::ORIGIN, settings::NO_ORIGIN.to_owned()));
        }
        let namespace = objects(env, settings.placement, OBJECTS).and_then(|bound| {
            let message = "the Durable Object binding is missing; see wrangler.toml".to_owned();
            bound.ok_or_else(|| Problem::new(OBJECTS, message))
        });
        let namespace = namespace.map_err(|problem| problems.0.push(problem)).unwrap_or_default();
        if js::binding(env, ASSETS).is_some_and(|assets| !js::is_fetcher(&assets)) {
            let message = "is bound to no assets; see [assets] in wrangler.toml".to_owned();
            problems.0.push(Problem::new(ASSETS, message));
        }
        let metrics = objects(env, settings.placement, METRICS);
        let metrics = metrics.map_err(|problem| problems.0.push(problem)).ok().flatten();
        let analytics = js::binding(env, ANALYTICS);
        if analytics.as_ref().is_some_and(|dataset| !js::is_dataset(dataset)) {
            let message =
                "is bound to no dataset of Analytics Engine; see wrangler.toml".to_owned();
            problems.0.push(Problem::new(ANALYTICS, message));
        }
        if !problems.0.is_empty() {
            return Err(problems);
        }
        // Without a token nobody reads the sums, and nothing is paid for them.
        let binding = |name: &str| js::text_binding(env, name);
        let flush = Flush {
            metrics: metrics.filter(|_| settings::has_operator(binding)),
            analytics,
            interval: settings.metrics_interval,
            state: Default::default(),
        };
        let policy = policy_with(pk_hash_key(&settings.hash_key));
        let limits = policy.as_ref().as_ref().map(Policy::waiting).unwrap_or_default();
        let objects = Objects {
            namespace,
            hash_key: settings.hash_key.clone(),
            timeout_ms: settings.object_timeout_ms,
            tally: RefCell::default(),
            denials: Remembered::new(),
            lines: Lines::new(limits),
            counters: Counters::new(flush.is_off()),
            sampler: RefCell::new(Sampler::new(settings.log_share)),
        };
        let gate = Self { policy, settings, objects, flush };
        let problems = gate.unreturned_places();
        if problems.0.is_empty() { Ok(gate) } else { Err(problems) }
    }

    /// Rules that hold places which nobody would give back: a caller of `POST /check` reports a
    /// status, and nothing knows any more what the request was charged.
    fn unreturned_places(&self) -> Problems {
        let rules = self.policy.as_ref().as_ref().map_or(&[][..], Policy::rules).iter().enumerate();
        let is_service = self.settings.origin.is_none();
        let held = rules.filter(|(_, rule)| is_service && rule.gives_back());
        let problem = |(i, _)| {
            let message = "needs ORIGIN, POST /check gives no place back; leave it out".to_owned();
            Problem::new(&format!("rules[{i}].charge.reserve"), message)
        };
        Problems(held.map(problem).collect())
    }

    /// Logs what is certainly not meant, once per isolate. Not in the health report: everybody may
    /// read it, and a warning may say how to get round a limit.
    fn warn(&self, has_token: bool) {
        let Ok(policy) = self.policy.as_ref() else { return };
        health::log_each(policy.warnings(), "", &mut js::warn);
        if policy.reports_partition_keys() && self.settings.hash_key.is_empty() {
            js::warn(
                "response.partition_key: pk can be guessed without the secret HASH_KEY; set it",
            );
        }
        if policy.chooses_keys() && self.settings.hash_key.is_empty() {
            js::warn(
                "enforce_percent: without a salt or the secret HASH_KEY clients can compute which keys are not \
                 enforced; set one",
            );
        }
        if self.settings.origin.is_none() && !has_token {
            js::warn(
                "CHECK_TOKEN: is not set, so whoever reaches POST /check can spend anybody's quota; set it, \
                 or let only a service binding reach this Worker",
            );
        }
    }
}
