//! A filter of its own that limits with Tollgate: it looks up the plan of an API key, and the
//! policy limits by that plan.
//!
//! A request with a key that is not listed gets 401. Every other one goes on with the header
//! `x-plan`, which a client cannot set, and then to the limiter. The keys are in the configuration
//! of the virtual machine, one line each: `a-key gold`; the policy is that of the plugin.
#![cfg(target_arch = "wasm32")]
#![allow(missing_docs, reason = "the SDK's macro exports a function")]

use std::collections::HashMap;
use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};
use tollgate_proxy_wasm::{CountingAllocator, Limiter, Request, Verdict};

/// Lets the limiter deny requests before there is no memory left for them.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

proxy_wasm::main! {{
    proxy_wasm::set_root_context(|id| {
        Box::new(Root { limiter: Limiter::new(id), plans: Rc::default() })
    });
}}

type Plans = HashMap<Vec<u8>, String>;

struct Root {
    limiter: Limiter,
    plans: Rc<Plans>,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_vm_start(&mut self, _len: usize) -> bool {
        let lines = self.get_vm_configuration().unwrap_or_default();
        let lines = String::from_utf8_lossy(&lines).into_owned();
        let plan = |line: &str| {
            let (key, plan) = line.split_once(' ')?;
            Some((key.as_bytes().to_vec(), plan.to_owned()))
        };
        self.plans = Rc::new(lines.lines().filter_map(plan).collect());
        true
    }

    fn on_configure(&mut self, _len: usize) -> bool {
        let configuration = self.get_plugin_configuration().unwrap_or_default();
        let configured = self.limiter.configure(&configuration);
        for problem in configured.as_ref().err().into_iter().flatten() {
            let _ = hostcalls::log(LogLevel::Error, &format!("tollgate: {problem}"));
        }
        configured.is_ok()
    }

    fn on_tick(&mut self) {
        self.limiter.on_tick();
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let (request, plans) = (self.limiter.request(id), Rc::clone(&self.plans));
        Some(Box::new(Stream { request, plans }))
    }
}

struct Stream {
    request: Request,
    plans: Rc<Plans>,
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, _is_last: bool) -> Action {
        let key = self.get_http_request_header_bytes("x-api-key");
        let plan = key.as_ref().map(|key| self.plans.get(key).map(String::as_str));
        if plan == Some(None) {
            self.send_http_response(401, vec![], Some(b"unknown API key\n"));
            return Action::Pause;
        }
        self.set_http_request_header("x-plan", plan.flatten());
        match self.request.on_request_headers() {
            Verdict::Pass => Action::Continue,
            Verdict::Answered => Action::Pause,
        }
    }

    fn on_http_response_headers(&mut self, _count: usize, _is_last: bool) -> Action {
        self.request.on_response_headers();
        Action::Continue
    }
}
