//! The configuration of an isolate: its policy and its bindings, read once.
//!
//! Invariant: a wrong policy or setting is never half used. It is logged once per isolate, one line
//! each, and is in the health report; a warning about something certainly not intended is only
//! logged. Nothing here decides about a request.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tollgate_core::{Span, Timestamp};
use tollgate_policy::waiting::Limits;
use tollgate_policy::{Policy, Problem, Problems};
use tollgate_service::deployment::fingerprint;
use tollgate_service::log::Sampler;
use tollgate_service::metrics::Counters;
use tollgate_service::settle::Sealer;
use tollgate_service::{Access, ApiResponse, Source, Token, health};
use worker::wasm_bindgen::JsValue;
use worker::{Context, Env, web_sys};

use crate::active::{self, Active};
use crate::counts::denials::CachedDenials;
use crate::counts::lines::Lines;
use crate::counts::objects::Objects;
use crate::follow::fleet::Fleet;
use crate::follow::follower::Follower;
use crate::operate::assets::ASSETS;
use crate::operate::flush::Flush;
use crate::runtime::js;
use crate::settings::namespaces::{OBJECTS, TENANTS, objects};
use crate::settings::operator::ADMIN_TOKEN;
use crate::settings::{self, Settings};
use crate::tenants::Tenants;

/// The names of Durable Object bindings in wrangler.toml.
const METRICS: &str = "METRICS";
const ANALYTICS: &str = "ANALYTICS";
const POLICIES: &str = "POLICIES";

/// The bindings and the deployed policy that this isolate found when it started; they cannot
/// change.
pub(crate) struct Deployment {
    /// Its bearer may call `/check` and read in the health report what is wrong.
    check_token: Option<Token>,
    /// The files of the pages, when they are served.
    assets: Option<JsValue>,
    gate: Result<Gate, Problems>,
}

/// The parts of a deployment that a request needs in addition to a policy.
pub(crate) struct Gate {
    pub(crate) settings: Settings,
    pub(crate) objects: Objects,
    pub(crate) flush: Flush,
    /// The policy object, when it is bound.
    pub(crate) policies: Option<JsValue>,
    /// Present when the objects of tenants are bound.
    pub(crate) tenants: Option<Tenants>,
    /// Present when the policy may be changed at run time.
    pub(crate) follower: Option<Follower>,
    /// Seals the ids of requests; created when first needed.
    pub(crate) sealer: OnceCell<Option<Sealer>>,
    deployed: OnceCell<Result<Rc<Active>, Problems>>,
    /// The policies under which nodes of a fleet get responses.
    pub(crate) fleet: Fleet,
}

/// The context of one request in a deployment.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub(crate) deployment: &'a Rc<Deployment>,
    pub(crate) gate: &'a Gate,
    pub(crate) context: &'a Context,
}

thread_local! {
    static DEPLOYMENT: OnceCell<Rc<Deployment>> = const { OnceCell::new() };
}

impl Deployment {
    /// The deployment of this isolate.
    pub(crate) fn of(env: &Env) -> Rc<Self> {
        DEPLOYMENT.with(|it| it.get_or_init(|| Rc::new(Self::new(env))).clone())
    }

    /// Reads the bindings and the policy, and logs what is wrong and what is certainly not
    /// intended.
    fn new(env: &Env) -> Self {
        let binding = |name: &str| js::text_binding(env, name);
        let check_token = settings::check_token(binding);
        let mut gate = Gate::open(env, Settings::read(binding));
        match &mut gate {
            Ok(gate) => {
                // Where the policy may be changed, the one in force is not known yet.
                if gate.follower.is_some() || gate.deployed().is_ok() {
                    gate.warn(check_token.is_some());
                }
            }
            Err(problems) => {
                problems.0.extend(active::deployed().err().unwrap_or_default().0);
                health::log(problems, js::fail);
            }
        }
        let assets = js::binding(env, ASSETS).filter(js::is_fetcher);
        Self { check_token, assets, gate }
    }

    /// The files of the pages, when this deployment serves them.
    pub(crate) const fn assets(&self) -> Option<&JsValue> {
        self.assets.as_ref()
    }

    /// True when an operator can sign in to the operator's page.
    pub(crate) fn is_operated(&self) -> bool {
        let tokens = self.gate().map(|gate| &gate.settings.operator.tokens);
        // READ_TOKEN alone is misconfigured: there is nothing to read.
        tokens.is_some_and(|tokens| tokens.admin.is_some())
    }

    /// The parts that a request needs, if nothing is wrong with the settings.
    pub(crate) fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref().ok()
    }

    /// True when the request has this deployment's token, or none is required.
    pub(crate) fn authorizes(&self, request: &web_sys::Request) -> bool {
        self.check_token.is_none() || self.has_check_token(authorization(request).as_deref())
    }

    fn has_check_token(&self, authorization: Option<&str>) -> bool {
        self.check_token.as_ref().is_some_and(|token| token.authorizes(authorization))
    }

    /// True when the request has a token of the operator of this deployment.
    fn trusts(&self, request: &web_sys::Request) -> bool {
        let authorization = authorization(request);
        let access = self
            .gate()
            .and_then(|gate| gate.settings.operator.tokens.access(authorization.as_deref()));
        matches!(access, Some(Access::Admin | Access::Read))
            || self.has_check_token(authorization.as_deref())
    }

    /// The health report: what is wrong with this deployment, if anything, and the policy in force,
    /// `active`.
    pub(crate) fn health(
        &self,
        request: &web_sys::Request,
        active: Option<&Active>,
    ) -> ApiResponse {
        let is_trusted = self.trusts(request);
        let gate = match &self.gate {
            Ok(gate) => gate,
            Err(problems) => return health::report(problems, None, is_trusted),
        };
        let policy = active.map(|active| &*active.policy);
        let nothing = Problems::default();
        let Some(follower) = &gate.follower else {
            let problems = gate.deployed().as_ref().err().unwrap_or(&nothing);
            let enforced = policy.map(|policy| enforced(policy, None));
            return health::report(problems, enforced.as_ref(), is_trusted);
        };
        let following = follower.following.borrow();
        let problems = match (following.refused(), policy) {
            (Some(problems), _) => problems,
            (None, None) => gate.deployed().as_ref().err().unwrap_or(&nothing),
            (None, Some(_)) => &nothing,
        };
        let followed = following.followed(active);
        let enforced = policy.map(|policy| enforced(policy, Some(followed)));
        health::report(problems, enforced.as_ref(), is_trusted)
    }
}

/// The report on `policy`. Each object fails separately, so no store is unavailable as a whole.
const fn enforced<'a>(
    policy: &'a Policy,
    followed: Option<health::Followed<'a>>,
) -> health::Enforced<'a> {
    health::Enforced { policy, followed, status: health::Status::Ok }
}

fn wrong_assets(env: &Env) -> Option<Problem> {
    let is_wrong = js::binding(env, ASSETS).is_some_and(|assets| !js::is_fetcher(&assets));
    let message = "is bound to no assets; see [assets] in wrangler.toml";
    is_wrong.then(|| Problem::new(ASSETS, message.to_owned()))
}

fn remembered(env: &Env, settings: &Settings) -> CachedDenials {
    let is_operated = js::binding(env, ADMIN_TOKEN).is_some();
    let (settles, leases) = (!settings.hash_key.is_empty(), settings.fleet_secret.is_some());
    let timeout = Span::from_millis(settings.object_timeout_ms.into());
    CachedDenials::new(is_operated, settles, leases, timeout)
}

fn authorization(request: &web_sys::Request) -> Option<String> {
    request.headers().get("authorization").ok().flatten()
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
        let mut bound = |name: &str, is_needed: bool| {
            let missing = "the Durable Object binding is missing; see wrangler.toml";
            match objects(env, settings.placement, name) {
                Ok(None) if is_needed => problems.0.push(Problem::new(name, missing.to_owned())),
                Ok(objects) => return objects,
                Err(problem) => problems.0.push(problem),
            }
            None
        };
        let namespace = bound(OBJECTS, true);
        let policies = bound(POLICIES, false);
        let metrics = bound(METRICS, false);
        let tenants = bound(TENANTS, false);
        let is_operated = settings.operator.tokens.admin.is_some();
        if is_operated && policies.is_none() {
            let message = "needs the Durable Object binding POLICIES; see wrangler.toml".to_owned();
            problems.0.push(Problem::new(ADMIN_TOKEN, message));
        }
        problems.0.extend(wrong_assets(env));
        let analytics = js::binding(env, ANALYTICS);
        if analytics.as_ref().is_some_and(|dataset| !js::is_dataset(dataset)) {
            let message =
                "is bound to no dataset of Analytics Engine; see wrangler.toml".to_owned();
            problems.0.push(Problem::new(ANALYTICS, message));
        }
        let (Some(namespace), true) = (namespace, problems.0.is_empty()) else {
            return Err(problems);
        };
        // Without a token the sums cannot be read, so nothing is spent on them.
        let flush = Flush {
            metrics: metrics.filter(|_| settings.operator.tokens.read_metrics()),
            analytics,
            interval: settings.metrics_interval,
            state: Default::default(),
        };
        let objects = Objects {
            namespace,
            hash_key: settings.hash_key.clone(),
            fleet_secret: settings.fleet_secret,
            timeout_ms: settings.object_timeout_ms,
            tally: RefCell::default(),
            denials: remembered(env, &settings),
            lines: Lines::new(Limits::default()),
            counters: Counters::new(flush.is_off()),
            sampler: RefCell::new(Sampler::new(settings.log_share)),
        };
        let follower = is_operated.then(|| Follower::new(fingerprint(&js::policy_text())));
        let tenants = tenants.map(|objects| Tenants::new(objects, &settings));
        let (sealer, deployed, fleet) = (OnceCell::new(), OnceCell::new(), Fleet::default());
        Ok(Self { settings, objects, flush, policies, tenants, follower, sealer, deployed, fleet })
    }

    /// The deployed policy, compiled when it is first needed. Its problems and warnings are logged
    /// at that time.
    pub(crate) fn deployed(&self) -> &Result<Rc<Active>, Problems> {
        self.deployed.get_or_init(|| {
            let compiled =
                active::deployed().and_then(|policy| active::enforced(policy, &self.settings));
            match &compiled {
                Ok(policy) => {
                    let warnings = active::warnings(policy, &self.settings);
                    health::log_each(&warnings, "", &mut js::warn);
                    self.objects.lines.set_limits(policy.waiting());
                }
                Err(problems) => health::log(problems, js::fail),
            }
            let active =
                |policy| Active { policy: Arc::new(policy), version: 0, source: Source::Deployed };
            compiled.map(|policy| Rc::new(active(policy)))
        })
    }

    /// The number of the last relief of a key, if it is currently known. Without an operator it is
    /// not requested.
    pub(crate) fn relieved(&self, now: Timestamp) -> Option<u64> {
        self.follower.as_ref()?.following.borrow().relieved(now)
    }

    /// Logs what is certainly not intended in the settings, once per isolate.
    fn warn(&self, has_token: bool) {
        for name in &self.settings.operator.short {
            js::warn(&format!(
                "{name}: is so short that it can be found by trying; use 16 characters or more"
            ));
        }
        if self.settings.origin.is_none() && !has_token {
            js::warn(
                "CHECK_TOKEN: is not set, so every caller that reaches POST /check can spend the quota of any client; set it, \
                 or let only a service binding reach this Worker",
            );
        }
    }
}
