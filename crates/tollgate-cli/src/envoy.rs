//! The Tollgate filters in an Envoy configuration, and the policy that each of them gets.
//!
//! Invariant: a filter's policy is the one that Envoy hands over, and what Envoy itself would
//! refuse is a problem. Every place is looked at: listeners, filter chains, fragments, deliveries
//! of xDS. What is refused besides is a name that is given twice, of which Envoy takes the last
//! without a word.

use std::collections::BTreeSet;

use base64ct::{Base64, Base64Unpadded, Base64Url, Base64UrlUnpadded, Encoding as _};
use serde::Serialize;
use tollgate_policy::{NamedPolicy, Plugin, Problems, Surface};

use tollgate_yaml::{Document, Tree, json};
use crate::manager::{Manager, Surroundings};
use tollgate_yaml::{Field, Form, Kind, Node, Reading, Value};

/// The deepest nesting that the filter reads in a `Struct`.
const MAX_STRUCT_DEPTH: usize = 32;
const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";
const MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TYPED_STRUCTS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];
/// What only an Envoy configuration begins with.
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
    /// Its policy, or why Envoy or the filter gets none.
    pub(crate) document: Result<Document, Fault>,
    pub(crate) around: Surroundings,
}

/// What a configuration gives a filter: a policy, and those of routes that name one.
struct Policies {
    document: Document,
    named: Vec<NamedPolicy>,
    hash_key: Option<[u8; 16]>,
}

/// Where a filter stands.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FilterPlace {
    pub(crate) line: usize,
    pub(crate) listener: Option<String>,
    pub(crate) filter: Option<String>,
}

pub(crate) use tollgate_yaml::Fault;

/// What is found in a configuration.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    pub(crate) filters: Vec<Filter>,
    /// Names that are given twice, outside of the policies.
    pub(crate) twice: Vec<Fault>,
    /// Wasm filters that are not Tollgate.
    others: usize,
}

/// What lies around a value.
#[derive(Clone, Copy, Default)]
struct Around<'n> {
    listener: Option<&'n str>,
    /// The innermost object with a name: a filter, when the value is its configuration.
    named: Option<(usize, &'n str)>,
    manager: Option<&'n Node>,
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
    OUTERMOST.iter().any(|name| names.contains(name)) || holds_wasm(root)
}

/// The same of a text, roughly.
pub(crate) fn looks_like_envoy(text: &str) -> bool {
    text.contains("\"static_resources\"") || text.contains(WASM)
}

fn holds_wasm(node: &Node) -> bool {
    wasm(node).is_some()
        || node.items().iter().any(holds_wasm)
        || node.fields().iter().any(|field| holds_wasm(&field.value))
}

impl Filters {
    /// All Tollgate filters of a configuration, in its order.
    pub(crate) fn find(root: &Node, reading: Reading) -> Self {
        let mut found = Self::default();
        found.look(root, Around::default(), reading);
        found
    }

    /// Why there is nothing to judge.
    pub(crate) fn none(&self) -> Option<String> {
        let others = match self.others {
            _ if !self.filters.is_empty() => return None,
            0 => String::new(),
            _ => {
                "; a wasm filter is one when its name, vm_id or module is called tollgate, or its \
                  configuration has rules"
                    .to_owned()
            }
        };
        Some(format!("no Tollgate filter found{others}"))
    }

    fn look<'n>(&mut self, node: &'n Node, around: Around<'n>, reading: Reading) {
        if let Some(config) = wasm(node) {
            let name = around.named.map(|(_, name)| name);
            if is_tollgate(config, name, reading) {
                let place = FilterPlace {
                    line: around.named.map_or(node.line, |(line, _)| line),
                    listener: around.listener.map(str::to_owned),
                    filter: name.map(str::to_owned),
                };
                let manager = around.manager.map(|manager| Manager::new(manager, reading));
                let (document, named, hash_key) = match policies(config, reading) {
                    Ok(Policies { document, named, hash_key }) => (Ok(document), named, hash_key),
                    Err(fault) => (Err(fault), Vec::new(), None),
                };
                let around = Surroundings { manager, named, hash_key };
                self.filters.push(Filter { place, document, around });
            } else {
                self.others = self.others.saturating_add(1);
            }
            self.look_round_policy(node);
            return;
        }
        self.note_twice(node);
        let mut inner = around;
        inner.manager = config_of(node, MANAGER).or(around.manager);
        if let Some(name) = node.get("name").and_then(Node::text) {
            inner.named = Some((node.line, name));
            if ["filter_chains", "api_listener"].iter().any(|field| node.get(field).is_some()) {
                inner.listener = Some(name);
            }
        }
        node.items().iter().for_each(|item| self.look(item, inner, reading));
        node.fields().iter().for_each(|field| self.look(&field.value, inner, reading));
    }

    /// Looks for names that are given twice, but in the policy, whose own reader tells them.
    fn look_round_policy(&mut self, node: &Node) {
        self.note_twice(node);
        for Field { name, value, .. } in node.fields() {
            if name == "configuration" {
                self.note_twice(value);
            } else {
                self.look_round_policy(value);
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

/// The name of a message behind the host of its type URL.
fn message_type<'n>(node: &'n Node, field: &str) -> Option<&'n str> {
    let url = node.get(field)?.text()?;
    Some(url.rsplit_once('/').map_or(url, |(_, name)| name))
}

/// The `config` of a wasm filter's typed configuration.
fn wasm(node: &Node) -> Option<&Node> {
    config_of(node, WASM).map(|filter| filter.get("config").unwrap_or(node))
}

/// The message of this type, where `node` is the typed configuration that holds it.
fn config_of<'n>(node: &'n Node, message: &str) -> Option<&'n Node> {
    match message_type(node, "@type")? {
        name if name == message => Some(node),
        name if TYPED_STRUCTS.contains(&name) && message_type(node, "type_url")? == message => {
            Some(node.get("value").unwrap_or(node))
        }
        _ => None,
    }
}

fn is_tollgate(config: &Node, filter: Option<&str>, reading: Reading) -> bool {
    let at = |path: &[&str]| path.iter().try_fold(config, |node, name| node.get(name))?.text();
    let names = [
        filter,
        at(&["name"]),
        at(&["root_id"]),
        at(&["vm_config", "vm_id"]),
        at(&["vm_config", "code", "local", "filename"]),
        at(&["vm_config", "code", "remote", "http_uri", "uri"]),
    ];
    let is_named = |name: &str| name.to_ascii_lowercase().contains("tollgate");
    let has_rules = || {
        let policies = policies(config, reading).ok();
        let tree = policies.and_then(|policies| Node::parse(&policies.document.json).ok());
        tree.is_some_and(|tree| tree.get("rules").is_some())
    };
    names.into_iter().flatten().any(is_named) || has_rules()
}

/// The policies in a filter's `configuration`: an `Any`, in JSON's way of writing one.
fn policies(config: &Node, reading: Reading) -> Result<Policies, Fault> {
    const NONE: &str = "the plugin has no configuration; put the policy there";
    let Some(any) = config.get("configuration").filter(|any| !any.is_null(reading)) else {
        return fault(config.line, NONE);
    };
    let value = any.get("value").filter(|value| !value.is_null(reading));
    let Some(name) = message_type(any, "@type") else {
        return fault(
            any.line,
            "Envoy refuses a configuration without \"@type\"; give \
            \"@type\": type.googleapis.com/google.protobuf.Struct and the policy under \"value\"",
        );
    };
    let is_other = |name: &str| name != "@type" && name != "value";
    if let Some(field) = any.fields().iter().find(|field| is_other(&field.name)) {
        let message = "Envoy refuses fields beside \"@type\" and \"value\"; the policy stands under \"value\"";
        return fault(field.line, message);
    }
    let line = value.map_or(any.line, |value| value.line);
    let document = match (name, value) {
        (
            "google.protobuf.Struct" | "google.protobuf.StringValue" | "google.protobuf.BytesValue",
            None,
        ) => fault(line, NONE),
        ("google.protobuf.Struct", Some(value)) if is_compiled_field(value, reading) => {
            compiled(value.line)
        }
        ("google.protobuf.Struct", Some(value)) => from_struct(value, reading),
        ("google.protobuf.StringValue", Some(value)) => from_text(value, reading),
        ("google.protobuf.BytesValue", Some(value)) => from_bytes(value),
        _ => fault(line, "the filter reads a google.protobuf.Struct or a StringValue only"),
    };
    document.and_then(alone)
}

/// The policies of a configuration that has something besides the one.
fn alone(document: Document) -> Result<Policies, Fault> {
    let parsed = if document.tree.is_none() { Node::parse(&document.json).ok() } else { None };
    let root = document.tree.as_ref().map(|tree| &tree.root).or(parsed.as_ref());
    let Some(policy) = root.and_then(|root| root.get("policy")) else {
        return Ok(Policies { document, named: Vec::new(), hash_key: None });
    };
    let (named, hash_key) = match Plugin::compile(&document.json, Surface::Envoy) {
        Ok(plugin) => (plugin.named, plugin.policy.hash_key()),
        Err(problems) => {
            only_of_policy(&document, &problems)?;
            (Vec::new(), None)
        }
    };
    let Some(Tree { reading, lines_before, .. }) = document.tree else {
        let document = Document { json: json(policy, Reading::Json), ..document };
        return Ok(Policies { document, named, hash_key });
    };
    let (root, begins) = (policy.clone(), Some(policy.line.saturating_add(lines_before)));
    let tree = Some(Tree { root, reading, lines_before });
    let document = Document { json: json(policy, reading), tree, begins };
    Ok(Policies { document, named, hash_key })
}

/// A fault, if something else than the policy is wrong: that is found with the policy by itself.
fn only_of_policy(document: &Document, Problems(problems): &Problems) -> Result<(), Fault> {
    let is_of_policy = |path: &str| path == "policy" || path.starts_with("policy.");
    let beside: Vec<_> = problems.iter().filter(|it| !is_of_policy(&it.path)).collect();
    let Some(first) = beside.first() else { return Ok(()) };
    let line = document.line(&first.path).unwrap_or_default();
    let said: Vec<_> = beside.iter().map(ToString::to_string).collect();
    fault(line, &said.join("; "))
}

/// True for an object that is nothing but a compiled policy, as text.
fn is_compiled_field(value: &Node, reading: Reading) -> bool {
    let [field] = value.fields() else { return false };
    let Kind::Scalar(scalar) = &field.value.kind else { return false };
    field.name == "compiled" && matches!(reading.value(scalar), Value::Text(_))
}

/// What was compiled was checked then.
fn compiled<T>(line: usize) -> Result<T, Fault> {
    let message = "a compiled policy stands here, which no person reads; check the document that it was made of";
    fault(line, message)
}

fn from_struct(value: &Node, reading: Reading) -> Result<Document, Fault> {
    match &value.kind {
        Kind::Object(fields) if fields.is_empty() => {
            fault(value.line, "the plugin has no configuration; put the policy there")
        }
        Kind::Object(_) if value.depth() > MAX_STRUCT_DEPTH => {
            fault(value.line, "the google.protobuf.Struct is nested more than 32 levels deep")
        }
        Kind::Object(_) => Ok(Document::from_tree(value.clone(), reading)),
        _ => fault(
            value.line,
            "Envoy refuses a google.protobuf.Struct that is no object; a text with JSON is a \
            google.protobuf.StringValue",
        ),
    }
}

fn from_text(value: &Node, reading: Reading) -> Result<Document, Fault> {
    let Kind::Scalar(scalar) = &value.kind else {
        return fault(
            value.line,
            "Envoy refuses a google.protobuf.StringValue that is no text; a policy in YAML is a \
            google.protobuf.Struct",
        );
    };
    let Value::Text(text) = reading.value(scalar) else {
        return fault(
            value.line,
            "Envoy refuses a google.protobuf.StringValue that is no text: quote it",
        );
    };
    if text.is_empty() {
        return fault(value.line, "the plugin has no configuration; put the policy there");
    }
    if Plugin::is_compiled(text.as_bytes()) {
        return compiled(value.line);
    }
    let tree = || Node::parse(text).ok();
    let is_yaml = || tree().is_some_and(|root| !root.fields().is_empty());
    if !text.trim_ascii_start().starts_with('{') && is_yaml() {
        return fault(
            value.line,
            "not JSON: YAML is given as a google.protobuf.Struct, not as a StringValue",
        );
    }
    let root = (scalar.form == Form::Literal).then(tree).flatten();
    // The parser's mark is the first line that is not empty.
    let empty = text.bytes().take_while(|byte| *byte == b'\n').count();
    let lines_before = value.line.saturating_sub(1).saturating_sub(empty);
    let tree = root.map(|root| Tree { root, reading: Reading::Json, lines_before });
    from_json(text.to_owned(), value.line, tree)
}

/// The filter takes other control characters than white space for a serialised `Struct`.
fn from_json(json: String, line: usize, tree: Option<Tree>) -> Result<Document, Fault> {
    if json.bytes().any(|byte| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')) {
        return fault(line, "not JSON: it holds control characters");
    }
    Ok(Document { json, tree, begins: Some(line) })
}

fn from_bytes(value: &Node) -> Result<Document, Fault> {
    let text = value.text().unwrap_or_default();
    let decoded = Base64::decode_vec(text)
        .or_else(|_| Base64Unpadded::decode_vec(text))
        .or_else(|_| Base64Url::decode_vec(text))
        .or_else(|_| Base64UrlUnpadded::decode_vec(text));
    if decoded.as_ref().is_ok_and(|bytes| Plugin::is_compiled(bytes)) {
        return compiled(value.line);
    }
    match decoded.map(String::from_utf8) {
        Ok(Ok(json)) => from_json(json, value.line, None),
        Ok(Err(_)) => fault(value.line, "the policy is not UTF-8"),
        Err(_) => fault(value.line, "Envoy refuses a google.protobuf.BytesValue that is no base64"),
    }
}

fn fault<T>(line: usize, message: &str) -> Result<T, Fault> {
    Err(Fault { line, column: 1, message: message.to_owned() })
}
