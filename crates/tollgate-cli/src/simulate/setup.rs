//! The input of a simulation: the policy and the traffic, from files or from flags.
//!
//! Invariant: flags become the same documents that files contain, so they have the same meaning and
//! the same code checks them. A mistake in one is reported with the name of the flag.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tollgate_core::{MAX_WINDOW, Span};
use tollgate_lab::replay::WITHOUT_ENTRIES;
use tollgate_lab::simulator::{Tenants as ByTenant, Traffic, TrafficError, unknown_facts};
use tollgate_policy::{Policy, Problems, Scope, Surface};

use crate::command;
use crate::error::CommandError;
use crate::input::{self, Input};
use crate::output::{self, Page};
use crate::simulate::args::SimulateArgs;
use crate::source::{self, Compiled, Source};
use crate::tenants::Tenants;
use tollgate_yaml::{Language, Node, Reading};

/// The policy and the traffic.
pub(super) struct Setup {
    pub(super) policy: Arc<Policy>,
    /// The file of the policy, or `None` when flags describe it.
    pub(super) policy_file: Option<String>,
    pub(super) tenants: Option<Arc<ByTenant>>,
    pub(super) traffic: Traffic,
    pub(super) traffic_file: Option<String>,
}

impl Setup {
    pub(super) fn new(args: &SimulateArgs) -> Result<Self, CommandError> {
        let is_standard = |path: &Option<std::path::PathBuf>| {
            path.as_ref().is_some_and(|path| path.as_os_str() == "-")
        };
        if is_standard(&args.policy) && is_standard(&args.traffic) {
            let message = "--policy and --traffic cannot both be -: give one of them as a file";
            return Err(CommandError::Misuse(message.to_owned()));
        }
        let (policy, policy_file) = match &args.policy {
            Some(path) => policy_of_file(path, args.surface).map(|(p, name)| (p, Some(name)))?,
            None => (policy_of_flags(args)?, None),
        };
        let (traffic, traffic_file) = match &args.traffic {
            Some(path) => traffic_of_file(path, args).map(|(t, name)| (t, Some(name)))?,
            None => (traffic_of_flags(args)?, None),
        };
        one_count(&policy, &traffic)?;
        let tenants = tenants(args, &policy, &traffic)?;
        Ok(Self { policy: Arc::new(policy), policy_file, tenants, traffic, traffic_file })
    }

    /// The facts needed to judge the figures.
    pub(super) fn notes(&self) -> Vec<String> {
        let is_without = self.policy.tenants().is_some() && self.tenants.is_none();
        let mut notes = unknown_facts(&self.policy);
        notes.extend(is_without.then(|| WITHOUT_ENTRIES.to_owned()));
        notes
    }
}

/// The entries that were given, under the policy.
fn tenants(
    args: &SimulateArgs,
    policy: &Policy,
    traffic: &Traffic,
) -> Result<Option<Arc<ByTenant>>, CommandError> {
    if args.tenants.is_empty() {
        return Ok(None);
    }
    if traffic.keeps_counts_as_envoy() {
        let message = "Envoy's table keeps no tenants: leave out --tenants, or --store envoy";
        return Err(CommandError::Misuse(message.to_owned()));
    }
    let tenants = Tenants::load(&args.tenants, &[policy])?;
    Ok(Some(Arc::new(ByTenant::under(policy, &tenants.entries))))
}

/// With a fleet count there may be one node only: the simulator has no authority that several nodes
/// could share.
fn one_count(policy: &Policy, traffic: &Traffic) -> Result<(), CommandError> {
    let mut rules = policy.rules().iter();
    match rules.find(|rule| rule.scope() == Scope::Fleet) {
        Some(rule) if traffic.nodes() > 1 => Err(CommandError::Misuse(format!(
            "rule \"{}\" has one count for the fleet, and {} nodes would each have their own here: simulate one node, \
             which is that count",
            rule.name(),
            traffic.nodes()
        ))),
        _ => Ok(()),
    }
}

fn policy_of_file(path: &Path, surface: Surface) -> Result<(Policy, String), CommandError> {
    let (file, source) = source::load(path)?;
    let document = match source {
        Source::Policy(document) => document,
        Source::Fault(fault) => {
            let failed = Compiled::failed(fault, &[surface]);
            return Err(command::refuse(&failed.problems, &file));
        }
        Source::Envoy(mut found) => match (found.filters.pop(), found.filters.is_empty()) {
            (Some(filter), true) if surface == Surface::Envoy => match filter.document {
                Ok(document) => document,
                Err(fault) => {
                    let failed = Compiled::failed(fault, &[surface]);
                    return Err(command::refuse(&failed.problems, &file));
                }
            },
            (Some(_), true) => {
                let message = format!("{file} is a configuration of Envoy: leave out --surface");
                return Err(CommandError::Misuse(message));
            }
            (None, _) => {
                return Err(CommandError::Misuse(format!(
                    "{file} has no filter of Tollgate: give a policy"
                )));
            }
            (Some(_), false) => {
                let message = format!(
                    "{file} has several policies: put the one to simulate in a file of its own"
                );
                return Err(CommandError::Misuse(message));
            }
        },
    };
    let compiled = source::compile(&document, &[surface]);
    match compiled.policies.into_iter().next() {
        Some((_, policy)) if compiled.problems.is_empty() => {
            source::refuse_reported(&policy, &file)?;
            Ok((policy, file))
        }
        _ => Err(command::refuse(&compiled.problems, &file)),
    }
}

/// One rule with one count for all requests.
fn policy_of_flags(args: &SimulateArgs) -> Result<Policy, CommandError> {
    if args.limit.is_none() {
        let message = "no limit; give --limit and --window, or --policy";
        return Err(CommandError::Misuse(message.to_owned()));
    }
    let mut quota = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            quota.insert(name.to_owned(), value);
        }
    };
    put("limit", args.limit.map(Value::from));
    put("window", Some(args.window.as_str().into()));
    put("algorithm", args.algorithm.as_deref().map(Value::from));
    put("burst", args.burst.map(Value::from));
    put("buckets", args.buckets.map(Value::from));
    put("weighted", args.weighted.then_some(true.into()));
    put("strict", args.strict.then_some(true.into()));
    let mut rule = json!({ "name": "limit", "key": [], "quotas": [quota] });
    if let (Some(most), Some(rule)) = (&args.delay, rule.as_object_mut()) {
        rule.insert("action".to_owned(), json!({ "delay": { "max": most } }));
    }
    let document = json!({ "version": 1, "rules": [rule] }).to_string();
    tollgate_language::compile(&document, args.surface).map_err(|problems| as_flags(&problems))
}

/// Problems of a policy made from flags, each with its flag.
fn as_flags(Problems(problems): &Problems) -> CommandError {
    let line = |problem: &tollgate_policy::Problem| {
        let flag = match problem.path.rsplit(['.', ']']).next().unwrap_or_default() {
            "max" | "delay" => "--delay: ".to_owned(),
            "" => String::new(),
            name => format!("--{name}: "),
        };
        format!("{flag}{}", problem.message)
    };
    CommandError::Misuse(problems.iter().map(line).collect::<Vec<_>>().join("\n       "))
}

fn traffic_of_file(path: &Path, args: &SimulateArgs) -> Result<(Traffic, String), CommandError> {
    let Input { name, text, language } = input::read(path)?;
    let wrong = |error: &TrafficError| {
        let mut page = Page::default();
        page.push_styled(output::BAD, &format!("{name}: "));
        page.push_str(&format!("{error}\n"));
        page.err();
        CommandError::Problems
    };
    let text = match language {
        Language::Json => text.trim_start_matches('\u{feff}').to_owned(),
        Language::Yaml => match Node::parse(text.trim_start_matches('\u{feff}')) {
            Ok(root) => tollgate_yaml::json(&root, Reading::Policy),
            Err(fault) => {
                return Err(command::refuse(&[fault.into()], &name));
            }
        },
    };
    Traffic::parse(&text).map_err(|error| wrong(&error))?;
    let text = with_servers(&text, args);
    let traffic = Traffic::parse(&text).map_err(|error| wrong(&error))?;
    Ok((traffic, name))
}

/// The traffic with `--nodes`, `--store`, `--latency` and `--clock` in place of its own.
fn with_servers(text: &str, args: &SimulateArgs) -> String {
    let Ok(Value::Object(mut traffic)) = serde_json::from_str(text) else { return text.to_owned() };
    let SimulateArgs { nodes, store, latency, clock, .. } = args;
    if nodes.is_none() && store.is_none() && latency.is_none() && clock.is_empty() {
        return text.to_owned();
    }
    let mut servers = match traffic.remove("servers") {
        Some(Value::Object(servers)) => servers,
        _ => Map::new(),
    };
    if let Some(nodes) = nodes {
        servers.insert("count".to_owned(), (*nodes).into());
    }
    if let Some(store) = store {
        servers.insert("store".to_owned(), store.as_str().into());
    }
    if let Some(latency) = latency {
        servers.insert("latency".to_owned(), time(*latency).into());
    }
    if !clock.is_empty() {
        let faults: Vec<Value> = clock.iter().map(|fault| fault.0.clone()).collect();
        servers.insert("clocks".to_owned(), json!([faults]));
    }
    traffic.insert("servers".to_owned(), servers.into());
    Value::Object(traffic).to_string()
}

/// Workers that send one request after the other: `requests` in total, as evenly as possible.
fn traffic_of_flags(args: &SimulateArgs) -> Result<Traffic, CommandError> {
    let SimulateArgs { requests, parallel, wait, jitter, .. } = args;
    let (each, more) = (requests.checked_div(*parallel), requests.checked_rem(*parallel));
    let (Some(each @ 1..), Some(more)) = (each, more) else {
        let message = format!(
            "--parallel {parallel} is more than --requests {requests}: use at most as many"
        );
        return Err(CommandError::Misuse(message));
    };
    let gaps = wait.saturating_add(*jitter).saturating_mul(each);
    // A second more than the last request can take.
    let length = gaps.saturating_add(Span::from_secs(1));
    if length > MAX_WINDOW {
        let message = "--requests and --wait together take more than 366 days: use less of one";
        return Err(CommandError::Misuse(message.to_owned()));
    }
    let workers = |count: u64, size: u64| {
        json!({
            "clients": { "count": count },
            "each": true,
            "arrivals": { "spaced": { "size": size, "wait": time(*wait), "jitter": time(*jitter) } },
        })
    };
    let most = workers(parallel.saturating_sub(more), each);
    let sources =
        if more > 0 { vec![workers(more, each.saturating_add(1)), most] } else { vec![most] };
    let document = json!({ "length": time(length), "sources": sources }).to_string();
    let document = with_servers(&document, args);
    Traffic::parse(&document).map_err(|error| CommandError::Misuse(error.to_string()))
}

/// In the form of the traffic document.
fn time(span: Span) -> String {
    format!("{}us", span.as_nanos().div_ceil(1_000))
}
