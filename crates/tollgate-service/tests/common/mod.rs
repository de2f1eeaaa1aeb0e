//! A service on a store in memory, called as over HTTP.
//!
//! Invariant: nothing here decides; it loops as every surface does.

pub mod open_api;

use std::cell::RefCell;
use std::rc::Rc;

use tollgate_policy::{Policy, Problems, Surface};
use tollgate_service::{
    Allowed, ApiResponse, Call, DeployedFile, MemoryLimits, MemoryStore, Next, Service, StoreCall,
    StoreReply, Token, Tokens,
};

pub const ADMIN: &str = "admin-t0ken";
pub const READ: &str = "read-t0ken";
pub const METRICS: &str = "metrics-t0ken";
pub const FOLLOW: &str = "follow-t0ken";
pub const P: &str = "/.well-known/tollgate/";

/// The deployed file.
pub const DEPLOYED: &str = r#"{"version": 1, "rules": [
  {"name": "each", "key": ["client_ip"], "quotas": [{"name": "q", "limit": 10, "window": "1m"}]}
]}
"#;

/// One request.
#[derive(Clone, Default)]
pub struct Ask {
    pub method: String,
    pub target: String,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Ask {
    /// With the admin's token.
    pub fn new(method: &str, path: &str) -> Self {
        let ask = Self { method: method.into(), target: format!("{P}{path}"), ..Self::default() };
        ask.with("authorization", &format!("Bearer {ADMIN}"))
    }

    /// Replaces a field; empty: without it.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.retain(|(other, _)| other != name);
        if !value.is_empty() {
            self.fields.push((name.into(), value.into()));
        }
        self
    }

    pub fn json(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self.with("content-type", "application/json") }
    }
}

/// The replies to calls on keys and metrics, which a store of rules does not handle.
pub type Others = dyn Fn(&StoreCall) -> StoreReply;

/// A deployment.
pub struct Deployment {
    pub tokens: Tokens,
    pub store: Rc<RefCell<MemoryStore>>,
    pub file: String,
    pub fingerprint: u64,
    pub now_ms: u64,
    pub others: Box<Others>,
    /// Calls of the store so far.
    pub calls: RefCell<usize>,
}

impl Deployment {
    pub fn new() -> Self {
        Self::with(DEPLOYED, MemoryLimits::default())
    }

    pub fn with(file: &str, limits: MemoryLimits) -> Self {
        let token = |text: &str| Some(Token::new(text.as_bytes()));
        Self {
            tokens: Tokens {
                admin: token(ADMIN),
                read: token(READ),
                metrics: token(METRICS),
                follow: token(FOLLOW),
            },
            store: Rc::new(RefCell::new(MemoryStore::new(limits))),
            file: file.into(),
            fingerprint: 1,
            now_ms: 1_700_000_000_000,
            others: Box::new(|_| StoreReply::Failed("not here".into())),
            calls: RefCell::new(0),
        }
    }

    /// The response to `ask`, which the OpenAPI document must list.
    pub fn ask(&self, ask: &Ask) -> ApiResponse {
        let mut next = self.begin(ask);
        loop {
            next = match next {
                Next::Response(answer) => {
                    open_api::check(&ask.method, &ask.target, &answer);
                    return answer;
                }
                other => self.step(other, ask),
            };
        }
    }

    pub fn begin(&self, ask: &Ask) -> Next {
        let field = |name: &str| {
            let lines = ask.fields.iter().filter(|(other, _)| other == name);
            let values: Vec<&str> = lines.map(|(_, value)| value.as_str()).collect();
            (!values.is_empty()).then(|| values.join(", "))
        };
        let call =
            Call { method: &ask.method, target: &ask.target, field: &field, now_ms: self.now_ms };
        match Allowed::read(&self.tokens, Some("cf-access-authenticated-user-email"), &call) {
            Ok(allowed) => self.serve(|service| service.begin(allowed)),
            Err(answer) => Next::Response(answer),
        }
    }

    /// One more step.
    pub fn step(&self, next: Next, ask: &Ask) -> Next {
        match next {
            Next::Response(answer) => Next::Response(answer),
            Next::Body(wants) => {
                let fits = ask.body.len() <= wants.limit();
                let body = fits.then(|| ask.body.clone());
                self.serve(|service| wants.read(service, body))
            }
            Next::Store(wants) => {
                self.calls.replace_with(|calls| calls.saturating_add(1));
                if matches!(wants.call(), StoreCall::Usage(_)) {
                    let reply = (self.others)(wants.call());
                    return self.serve(|service| wants.answered(service, reply));
                }
                // As it goes over the wire.
                let call = wants.call().to_json();
                let call = StoreCall::from_json(call.as_bytes()).expect("a call");
                assert_eq!(&call, wants.call());
                let reply = self.store.borrow_mut().answer(&call);
                let reply = reply.unwrap_or_else(|| (self.others)(&call));
                let reply = StoreReply::from_json(reply.to_json().as_bytes());
                self.serve(|service| wants.answered(service, reply))
            }
        }
    }

    /// Continues with `reply`, whatever the store would return.
    pub fn answered(&self, wants: tollgate_service::WantsStore, reply: StoreReply) -> Next {
        self.serve(|service| wants.answered(service, reply))
    }

    fn serve<T>(&self, act: impl FnOnce(&Service<'_>) -> T) -> T {
        act(&Service {
            surface: Surface::Worker,
            deployed: DeployedFile { text: &self.file, fingerprint: self.fingerprint },
            policy: tollgate_language::compile(&self.file, Surface::Worker).ok().as_ref(),
            to_json: &Ok,
            objections: &|policy: &Policy| {
                let all = policy.rules().iter().filter(|rule| rule.name() == "objected");
                let problem = |_| tollgate_policy::Problem::new("rules", "is objected".into());
                Problems(all.map(problem).collect())
            },
        })
    }

    /// The tag of the policy in force.
    pub fn tag(&self) -> String {
        let answer = self.ask(&Ask::new("GET", "admin/policy"));
        answer.fields.get("etag").expect("a tag").to_owned()
    }

    /// Puts a policy in force.
    pub fn put(&self, document: &str) -> ApiResponse {
        let ask = Ask::new("PUT", "admin/policy").with("if-match", &self.tag());
        self.ask(&ask.json(document))
    }
}

/// A policy of one rule, with that limit.
pub fn policy(limit: u32) -> String {
    DEPLOYED.replace("\"limit\": 10", &format!("\"limit\": {limit}"))
}
