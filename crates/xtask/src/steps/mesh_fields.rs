//! The fields of the objects that meshes take, as far as `envoy/` has such objects.
//!
//! Invariant: names, types and values of Istio's definitions of July 2026 and Envoy Gateway's of
//! August 2026. A field that is not here is a mistake, so that a misspelled one is found; what
//! Envoy itself reads is not looked into.

use serde_json::Value;
use std::fmt::Write as _;

/// One kind of object.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    version: &'static str,
    fields: &'static [(&'static str, Field)],
    required: &'static [&'static str],
}

/// The permitted content of a field.
#[derive(Debug)]
enum Field {
    Text,
    Flag,
    Whole,
    /// Other fields, each in the table.
    Fields,
    /// A list whose elements the path with `[]` describes.
    List,
    /// Texts by names that are free.
    Labels,
    Of(&'static [&'static str]),
    /// Checked by other judges.
    Elsewhere,
}

use Field::{Elsewhere, Fields, Flag, Labels, List, Of, Text, Whole};

pub const WASM_PLUGIN: Kind = Kind {
    name: "WasmPlugin",
    version: "extensions.istio.io/v1alpha1",
    required: &["url", "pluginConfig"],
    fields: &[
        ("failStrategy", Of(&["FAIL_CLOSE", "FAIL_OPEN", "FAIL_RELOAD"])),
        ("imagePullPolicy", Of(&["IfNotPresent", "Always"])),
        ("imagePullSecret", Text),
        ("match", List),
        ("match[]", Fields),
        ("match[].mode", Of(&["CLIENT", "SERVER", "CLIENT_AND_SERVER"])),
        ("match[].ports", List),
        ("match[].ports[]", Fields),
        ("match[].ports[].number", Whole),
        ("phase", Of(&["AUTHN", "AUTHZ", "STATS"])),
        ("pluginConfig", Elsewhere),
        ("pluginName", Text),
        ("priority", Whole),
        ("selector", Fields),
        ("selector.matchLabels", Labels),
        ("sha256", Text),
        ("targetRefs", List),
        ("targetRefs[]", Fields),
        ("targetRefs[].group", Text),
        ("targetRefs[].kind", Text),
        ("targetRefs[].name", Text),
        ("type", Of(&["HTTP"])),
        ("url", Text),
    ],
};

pub const ENVOY_FILTER: Kind = Kind {
    name: "EnvoyFilter",
    version: "networking.istio.io/v1alpha3",
    required: &["configPatches"],
    fields: &[
        ("configPatches", List),
        ("configPatches[]", Fields),
        ("configPatches[].applyTo", Of(&["HTTP_FILTER"])),
        ("configPatches[].match", Fields),
        (
            "configPatches[].match.context",
            Of(&["ANY", "SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY"]),
        ),
        ("configPatches[].match.listener", Fields),
        ("configPatches[].match.listener.portNumber", Whole),
        ("configPatches[].match.listener.filterChain", Fields),
        ("configPatches[].match.listener.filterChain.filter", Fields),
        ("configPatches[].match.listener.filterChain.filter.name", Text),
        ("configPatches[].match.listener.filterChain.filter.subFilter", Fields),
        ("configPatches[].match.listener.filterChain.filter.subFilter.name", Text),
        ("configPatches[].patch", Fields),
        ("configPatches[].patch.filterClass", Of(&["AUTHN", "AUTHZ", "STATS"])),
        (
            "configPatches[].patch.operation",
            Of(&["ADD", "INSERT_BEFORE", "INSERT_AFTER", "INSERT_FIRST", "REPLACE"]),
        ),
        ("configPatches[].patch.value", Elsewhere),
        ("priority", Whole),
        ("workloadSelector", Fields),
        ("workloadSelector.labels", Labels),
    ],
};

pub const EXTENSION_POLICY: Kind = Kind {
    name: "EnvoyExtensionPolicy",
    version: "gateway.envoyproxy.io/v1alpha1",
    required: &["targetRefs", "wasm"],
    fields: &[
        ("targetRefs", List),
        ("targetRefs[]", Fields),
        ("targetRefs[].group", Of(&["gateway.networking.k8s.io"])),
        ("targetRefs[].kind", Of(&["Gateway", "ListenerSet", "HTTPRoute", "GRPCRoute"])),
        ("targetRefs[].name", Text),
        ("targetRefs[].sectionName", Text),
        ("wasm", List),
        ("wasm[]", Fields),
        ("wasm[].name", Text),
        ("wasm[].rootID", Text),
        ("wasm[].code", Fields),
        ("wasm[].code.type", Of(&["HTTP", "Image"])),
        ("wasm[].code.pullPolicy", Of(&["IfNotPresent", "Always"])),
        ("wasm[].code.http", Fields),
        ("wasm[].code.http.url", Text),
        ("wasm[].code.http.sha256", Text),
        ("wasm[].code.image", Fields),
        ("wasm[].code.image.url", Text),
        ("wasm[].code.image.sha256", Text),
        ("wasm[].config", Elsewhere),
        ("wasm[].failOpen", Flag),
    ],
};

impl Kind {
    /// All mistakes in an object of this kind, except those that other judges find.
    pub fn mistakes(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let members = object.as_object().into_iter().flatten();
        for (name, value) in members {
            let is_right = match name.as_str() {
                "apiVersion" => value == self.version,
                "kind" => value == self.name,
                "metadata" => is_about(value),
                "spec" => true,
                _ => false,
            };
            if !is_right {
                found.push(format!("{name}: {value}"));
            }
        }
        for name in ["apiVersion", "kind", "metadata", "spec"] {
            if object.get(name).is_none() {
                found.push(format!("{name} is missing"));
            }
        }
        let spec = &object["spec"];
        found.extend(
            self.required
                .iter()
                .filter(|name| spec.get(name).is_none())
                .map(|name| format!("spec.{name} is missing")),
        );
        self.members("", spec, &mut found);
        found
    }

    fn members(&self, path: &str, value: &Value, found: &mut Vec<String>) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let mut path = path.to_owned();
            if !path.is_empty() {
                path.push('.');
            }
            let _ = write!(path, "{name}");
            self.field(&path, value, found);
        }
    }

    fn field(&self, path: &str, value: &Value, found: &mut Vec<String>) {
        let known = self.fields.iter().find(|(known, _)| *known == path).map(|(_, field)| field);
        let is_right = match known {
            None => false,
            Some(Text) => value.as_str().is_some_and(|text| !text.is_empty()),
            Some(Flag) => value.is_boolean(),
            Some(Whole) => value.is_i64(),
            Some(Of(values)) => value.as_str().is_some_and(|text| values.contains(&text)),
            Some(Labels) => {
                value.as_object().is_some_and(|labels| labels.values().all(Value::is_string))
            }
            Some(Elsewhere) => value.is_object(),
            Some(Fields) => {
                self.members(path, value, found);
                value.is_object()
            }
            Some(List) => {
                let element = format!("{path}[]");
                let elements = value.as_array().into_iter().flatten();
                elements.for_each(|value| self.field(&element, value, found));
                value.as_array().is_some_and(|list| !list.is_empty())
            }
        };
        if !is_right {
            found.push(match known {
                None => format!("spec.{path} is not a field of {}", self.name),
                Some(field) => format!("spec.{path}: {value} is not a {field:?}"),
            });
        }
    }
}

fn is_about(metadata: &Value) -> bool {
    let is_name = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    metadata.as_object().is_some_and(|members| {
        members.contains_key("name")
            && members.iter().all(|(name, value)| {
                ["name", "namespace"].contains(&name.as_str())
                    && value.as_str().is_some_and(is_name)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plugin(spec: Value) -> Vec<String> {
        WASM_PLUGIN.mistakes(&json!({
            "apiVersion": "extensions.istio.io/v1alpha1", "kind": "WasmPlugin",
            "metadata": {"name": "tollgate", "namespace": "istio-system"}, "spec": spec,
        }))
    }

    #[test]
    fn finds_every_mistake() {
        let good = json!({"url": "oci://a", "pluginConfig": {"rules": [1]}, "match": [{"ports": [{"number": 80}]}]});
        assert_eq!(plugin(good), Vec::<String>::new());
        let bad = json!({"url": 7, "match": [{"port": 80}], "phase": "FIRST"});
        assert_eq!(
            plugin(bad),
            [
                "spec.pluginConfig is missing",
                "spec.match[].port is not a field of WasmPlugin",
                r#"spec.phase: "FIRST" is not a Of(["AUTHN", "AUTHZ", "STATS"])"#,
                "spec.url: 7 is not a Text",
            ]
        );
        assert_eq!(WASM_PLUGIN.mistakes(&json!({})).len(), 6);
    }

    /// A path of the table that no walk can reach would never be compared.
    #[test]
    fn every_field_has_its_parents() {
        for kind in [&WASM_PLUGIN, &ENVOY_FILTER, &EXTENSION_POLICY] {
            let is_there = |path: &str| kind.fields.iter().any(|(known, _)| *known == path);
            for (path, _) in kind.fields {
                let parent =
                    path.strip_suffix("[]").or(path.rsplit_once('.').map(|(parent, _)| parent));
                assert!(parent.is_none_or(is_there), "{path}");
            }
        }
    }
}
