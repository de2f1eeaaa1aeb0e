//! The configuration of a wasm plugin or of a dynamic module's filter, and the policy in each of
//! its forms.
//!
//! Invariant: the policy read here is the policy that the filter gets, and a form that Envoy or the
//! filter rejects is a fault. Deliberately not here: finding the filters; `envoy` does that.

use base64ct::{Base64, Base64Unpadded, Base64Url, Base64UrlUnpadded, Encoding as _};
use tollgate_policy::plugin::NamedPolicy;
use tollgate_policy::{Plugin, Problems, Surface};
use tollgate_yaml::{Document, Fault, Form, Kind, Node, Reading, Tree, Value, json};

/// The deepest nesting that the filter reads in a `Struct`.
const MAX_STRUCT_DEPTH: usize = 32;
/// The fields of a configuration that contains more than a policy.
const MORE: [&str; 5] = ["policy", "policies", "policy_from", "fleet", "hash_key"];

/// What loads a filter into Envoy, by the message that configures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Wasm,
    DynamicModule,
}

impl Host {
    pub(crate) const ALL: [Self; 2] = [Self::Wasm, Self::DynamicModule];

    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::Wasm => "envoy.extensions.filters.http.wasm.v3.Wasm",
            Self::DynamicModule => {
                "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter"
            }
        }
    }

    /// The field with the filter's own configuration.
    pub(crate) const fn configuration(self) -> &'static str {
        match self {
            Self::Wasm => "configuration",
            Self::DynamicModule => "filter_config",
        }
    }

    /// The fields that may name the filter.
    pub(crate) const fn names(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Wasm => &[
                &["name"],
                &["root_id"],
                &["vm_config", "vm_id"],
                &["vm_config", "code", "local", "filename"],
                &["vm_config", "code", "remote", "http_uri", "uri"],
            ],
            Self::DynamicModule => &[
                &["filter_name"],
                &["dynamic_module_config", "name"],
                &["dynamic_module_config", "module", "local", "filename"],
                &["dynamic_module_config", "module", "remote", "http_uri", "uri"],
            ],
        }
    }
}

/// The field with the policy of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// The line on which its name begins, counted from 1.
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) holds: Holds,
}

/// The content of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A policy and nothing else.
    Policy,
    /// A policy and more: `fleet`, `hash_key`, policies of routes.
    More,
    /// A form that is not read here, such as a compiled policy.
    Unread,
}

/// The policies of a filter: its own, and those of routes that name one.
pub(crate) struct Policies {
    pub(crate) document: Document,
    pub(crate) holds: Holds,
    pub(crate) named: Vec<NamedPolicy>,
    pub(crate) hash_key: Option<[u8; 16]>,
    /// Later policies come from a server.
    pub(crate) follows_server: bool,
}

/// Reads the policies in a filter's own configuration, which is an `Any` in its JSON form.
pub(crate) fn policies(config: &Node, host: Host, reading: Reading) -> Result<Policies, Fault> {
    const NONE: &str = "the plugin has no configuration; put the policy there";
    let Some(any) = config.get(host.configuration()).filter(|any| !any.is_null(reading)) else {
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
        let message = "Envoy rejects fields other than \"@type\" and \"value\"; put the policy under \"value\"";
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

/// Reads a configuration that contains more than one policy.
fn alone(document: Document) -> Result<Policies, Fault> {
    let parsed = if document.tree.is_none() { Node::parse(&document.json).ok() } else { None };
    let root = document.tree.as_ref().map(|tree| &tree.root).or(parsed.as_ref());
    let has_more = root.is_some_and(|root| MORE.iter().any(|name| root.get(name).is_some()));
    let holds = if has_more { Holds::More } else { Holds::Policy };
    let Some(policy) = root.and_then(|root| root.get("policy")) else {
        return Ok(Policies {
            document,
            holds,
            named: Vec::new(),
            hash_key: None,
            follows_server: false,
        });
    };
    let follows_server = root.is_some_and(|root| root.get("policy_from").is_some());
    let (named, hash_key) = match tollgate_language::compile_plugin(&document.json, Surface::Envoy)
    {
        Ok(plugin) => (plugin.named, plugin.policy.hash_key()),
        Err(problems) => {
            only_of_policy(&document, &problems)?;
            (Vec::new(), None)
        }
    };
    let Some(Tree { reading, lines_before, .. }) = document.tree else {
        let document = Document { json: json(policy, Reading::Json), ..document };
        return Ok(Policies { document, holds, named, hash_key, follows_server });
    };
    let (root, begins) = (policy.clone(), Some(policy.line.saturating_add(lines_before)));
    let tree = Some(Tree { root, reading, lines_before });
    let document = Document { tree, begins, ..Document::from_json(json(policy, reading)) };
    Ok(Policies { document, holds, named, hash_key, follows_server })
}

/// A fault if anything other than the policy is wrong; mistakes of the policy are reported with the
/// policy.
fn only_of_policy(document: &Document, Problems(problems): &Problems) -> Result<(), Fault> {
    let is_of_policy = |path: &str| path == "policy" || path.starts_with("policy.");
    let others: Vec<_> = problems.iter().filter(|it| !is_of_policy(&it.path)).collect();
    let Some(first) = others.first() else { return Ok(()) };
    let line = document.line(&first.path).unwrap_or_default();
    let messages: Vec<_> = others.iter().map(ToString::to_string).collect();
    fault(line, &messages.join("; "))
}

/// True for an object that contains only a compiled policy, as text.
fn is_compiled_field(value: &Node, reading: Reading) -> bool {
    let [field] = value.fields() else { return false };
    let Kind::Scalar(scalar) = &field.value.kind else { return false };
    field.name == "compiled" && matches!(reading.value(scalar), Value::Text(_))
}

/// The fault for a compiled policy: it was checked when it was compiled.
fn compiled<T>(line: usize) -> Result<T, Fault> {
    let message = "this is a compiled policy, which cannot be checked; check the document from which it was compiled";
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
            "Envoy refuses a google.protobuf.Struct that is not an object; a text with JSON is a \
            google.protobuf.StringValue",
        ),
    }
}

fn from_text(value: &Node, reading: Reading) -> Result<Document, Fault> {
    let Kind::Scalar(scalar) = &value.kind else {
        return fault(
            value.line,
            "Envoy refuses a google.protobuf.StringValue that is not text; a policy in YAML is a \
            google.protobuf.Struct",
        );
    };
    let Value::Text(text) = reading.value(scalar) else {
        return fault(
            value.line,
            "Envoy refuses a google.protobuf.StringValue that is not text: quote it",
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
    // The parser's position is the first line that is not empty.
    let empty = text.bytes().take_while(|byte| *byte == b'\n').count();
    let lines_before = value.line.saturating_sub(1).saturating_sub(empty);
    let tree = root.map(|root| Tree { root, reading: Reading::Json, lines_before });
    from_json(text.to_owned(), value.line, tree)
}

/// The filter reads control characters other than white space as a serialised `Struct`.
fn from_json(json: String, line: usize, tree: Option<Tree>) -> Result<Document, Fault> {
    if json.bytes().any(|byte| byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')) {
        return fault(line, "not JSON: it contains control characters");
    }
    Ok(Document { tree, begins: Some(line), ..Document::from_json(json) })
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
        Err(_) => {
            fault(value.line, "Envoy refuses a google.protobuf.BytesValue that is not base64")
        }
    }
}

fn fault<T>(line: usize, message: &str) -> Result<T, Fault> {
    Err(Fault { line, column: 1, message: message.to_owned() })
}

/// The name of a message: the part of its type URL after the host.
pub(crate) fn message_type<'n>(node: &'n Node, field: &str) -> Option<&'n str> {
    let url = node.get(field)?.text()?;
    Some(url.rsplit_once('/').map_or(url, |(_, name)| name))
}
