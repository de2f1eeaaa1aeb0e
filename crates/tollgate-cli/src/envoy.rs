//! The Tollgate filters in an Envoy configuration, and the policy that each of them gets.
//!
//! Invariant: a filter's policy is the one that Envoy passes to it, and a configuration that Envoy
//! itself would reject is a problem. Every position is searched: listeners, filter chains,
//! fragments, xDS responses. A duplicate name is also a problem, because Envoy silently takes the
//! last one.

use std::collections::BTreeSet;

use serde::Serialize;
use tollgate_yaml::{Document, Fault, Field, Node, Reading};

use crate::client_certificates::ClientCertificates;
use crate::configuration::{Configuration, Holds, Host, Policies, message_type, policies};
use crate::manager::{FilterContext, Manager};

const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TYPED_STRUCTS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];
/// Fields that only an Envoy configuration begins with.
const OUTERMOST: [&str; 8] = [
    "static_resources",
    "dynamic_resources",
    "resources",
    "admin",
    "node",
    "listeners",
    "filter_chains",
    "http_filters",
];

/// A Tollgate filter.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) place: FilterPlace,
    pub(crate) host: Host,
    /// Its policy, or why Envoy or the filter gets none.
    pub(crate) document: Result<Document, Fault>,
    pub(crate) around: FilterContext,
    pub(crate) configuration: Option<Configuration>,
}

/// The position of a filter.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FilterPlace {
    pub(crate) line: usize,
    pub(crate) listener: Option<String>,
    pub(crate) filter: Option<String>,
}

/// The result of searching a configuration.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    pub(crate) filters: Vec<Filter>,
    /// Duplicate names outside of the policies.
    pub(crate) twice: Vec<Fault>,
    /// Wasm filters and dynamic modules that are not Tollgate.
    others: usize,
}

/// The surroundings of a value.
#[derive(Clone, Copy, Default)]
struct ValueContext<'n> {
    listener: Option<&'n str>,
    /// The innermost object with a name: a filter, when the value is its configuration.
    named: Option<(usize, &'n str)>,
    manager: Option<&'n Node>,
    /// The filter chain.
    chain: Option<&'n Node>,
}

impl FilterPlace {
    /// `listener "ingress", filter "tollgate"`
    pub(crate) fn words(&self) -> String {
        let name = |kind, name: &Option<String>| {
            name.as_ref().map(|name| format!("{kind} \"{name}\"")).unwrap_or_default()
        };
        let (listener, filter) = (name("listener", &self.listener), name("filter", &self.filter));
        let separator = if listener.is_empty() || filter.is_empty() { "" } else { ", " };
        let words = format!("{listener}{separator}{filter}");
        if words.is_empty() { "filter".to_owned() } else { words }
    }
}

/// True for a configuration of Envoy or a part of one, rather than a policy.
pub(crate) fn is_envoy(root: &Node) -> bool {
    let names: BTreeSet<&str> = root.fields().iter().map(|field| field.name.as_str()).collect();
    if ["version", "rules"].iter().any(|name| names.contains(name)) {
        return false;
    }
    OUTERMOST.iter().any(|name| names.contains(name)) || holds_filter(root)
}

/// The same check on a text, by approximation.
pub(crate) fn looks_like_envoy(text: &str) -> bool {
    text.contains("\"static_resources\"")
        || Host::ALL.iter().any(|host| text.contains(host.message()))
}

fn holds_filter(node: &Node) -> bool {
    hosted(node).is_some()
        || node.items().iter().any(holds_filter)
        || node.fields().iter().any(|field| holds_filter(&field.value))
}

impl Filters {
    /// Finds all Tollgate filters of a configuration, in its order.
    pub(crate) fn find(root: &Node, reading: Reading) -> Self {
        let mut found = Self::default();
        found.look(root, ValueContext::default(), reading);
        found
    }

    /// Why there is no policy to check.
    pub(crate) fn none(&self) -> Option<String> {
        let others = match self.others {
            _ if !self.filters.is_empty() => return None,
            0 => String::new(),
            _ => {
                "; a filter of wasm or of a dynamic module is one when its name, vm_id or module is \
                  called tollgate, or its configuration has rules"
                    .to_owned()
            }
        };
        Some(format!("no Tollgate filter found{others}"))
    }

    fn look<'n>(&mut self, node: &'n Node, around: ValueContext<'n>, reading: Reading) {
        if let Some((host, config)) = hosted(node) {
            let name = around.named.map(|(_, name)| name);
            if is_tollgate(host, config, name, reading) {
                let place = FilterPlace {
                    line: around.named.map_or(node.line, |(line, _)| line),
                    listener: around.listener.map(str::to_owned),
                    filter: name.map(str::to_owned),
                };
                let later = around.manager.map_or_else(Vec::new, |it| later(it, &place));
                let certificates = around.chain.map(|chain| ClientCertificates::of(chain, reading));
                let manager = around.manager.map(|manager| Manager::new(manager, reading));
                let mut around = FilterContext {
                    manager,
                    certificates,
                    later,
                    in_dynamic_module: host == Host::DynamicModule,
                    ..FilterContext::default()
                };
                let (document, holds) = match policies(config, host, reading) {
                    Ok(Policies { document, holds, named, hash_key, follows_server }) => {
                        (around.named, around.hash_key) = (named, hash_key);
                        around.follows_server = follows_server;
                        (Ok(document), holds)
                    }
                    Err(fault) => (Err(fault), Holds::Unread),
                };
                let mut fields = config.fields().iter().rev();
                let field = fields.find(|field| field.name == host.configuration());
                let configuration =
                    field.map(|&Field { line, column, .. }| Configuration { line, column, holds });
                self.filters.push(Filter { place, host, document, around, configuration });
            } else {
                self.others = self.others.saturating_add(1);
            }
            self.look_round_policy(host, node);
            return;
        }
        self.note_twice(node);
        let mut inner = around;
        inner.manager = config_of(node, MANAGER).or(around.manager);
        inner.chain = node.get("filters").map_or(around.chain, |_| Some(node));
        if let Some(name) = node.get("name").and_then(Node::text) {
            inner.named = Some((node.line, name));
            if ["filter_chains", "api_listener"].iter().any(|field| node.get(field).is_some()) {
                inner.listener = Some(name);
            }
        }
        node.items().iter().for_each(|item| self.look(item, inner, reading));
        node.fields().iter().for_each(|field| self.look(&field.value, inner, reading));
    }

    /// Looks for duplicate names outside of the policy; the policy's own reader reports those
    /// inside.
    fn look_round_policy(&mut self, host: Host, node: &Node) {
        self.note_twice(node);
        for Field { name, value, .. } in node.fields() {
            if name == host.configuration() {
                self.note_twice(value);
            } else {
                self.look_round_policy(host, value);
            }
        }
    }

    fn note_twice(&mut self, node: &Node) {
        let mut names = BTreeSet::new();
        for field in node.fields() {
            if !names.insert(field.name.as_str()) {
                let name = &field.name;
                let message = format!("\"{name}\" is given twice, and Envoy takes the last");
                self.twice.push(Fault { line: field.line, column: field.column, message });
            }
        }
    }
}

/// The host of the filter of which `node` is the typed configuration, and the object with the
/// filter's own configuration in it.
fn hosted(node: &Node) -> Option<(Host, &Node)> {
    Host::ALL.into_iter().find_map(|host| {
        let filter = config_of(node, host.message())?;
        Some((
            host,
            match host {
                Host::Wasm => filter.get("config").unwrap_or(node),
                Host::DynamicModule => filter,
            },
        ))
    })
}

/// The message of this type, if `node` is the typed configuration that contains it.
fn config_of<'n>(node: &'n Node, message: &str) -> Option<&'n Node> {
    match message_type(node, "@type")? {
        name if name == message => Some(node),
        name if TYPED_STRUCTS.contains(&name) && message_type(node, "type_url")? == message => {
            Some(node.get("value").unwrap_or(node))
        }
        _ => None,
    }
}

/// The names of the filters that `manager` runs only after this one.
fn later(manager: &Node, own: &FilterPlace) -> Vec<String> {
    let filters = manager.get("http_filters").or(manager.get("httpFilters"));
    let filters = filters.map_or(&[][..], Node::items);
    let name = |filter: &Node| filter.get("name").and_then(Node::text).map(str::to_owned);
    let is_own = |filter: &Node| filter.line == own.line && name(filter) == own.filter;
    let own = filters.iter().position(is_own).unwrap_or(filters.len());
    let (earlier, later) = filters.split_at_checked(own).unwrap_or_default();
    let earlier: Vec<String> = earlier.iter().filter_map(name).collect();
    later.iter().skip(1).filter_map(name).filter(|name| !earlier.contains(name)).collect()
}

fn is_tollgate(host: Host, config: &Node, filter: Option<&str>, reading: Reading) -> bool {
    let at = |path: &&[&str]| path.iter().try_fold(config, |node, name| node.get(name))?.text();
    let mut names = filter.into_iter().chain(host.names().iter().filter_map(at));
    let is_named = |name: &str| name.to_ascii_lowercase().contains("tollgate");
    let has_rules = || {
        let policies = policies(config, host, reading).ok();
        let tree = policies.and_then(|policies| Node::parse(&policies.document.json).ok());
        tree.is_some_and(|tree| tree.get("rules").is_some())
    };
    names.any(is_named) || has_rules()
}
