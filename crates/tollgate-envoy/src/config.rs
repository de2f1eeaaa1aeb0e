//! A plugin's configuration: from the bytes that Envoy hands over to a compiled policy and its
//! tables.
//!
//! Invariant: a configuration either compiles as a whole or is refused with every problem, one line
//! each; nothing is corrected silently. Deliberately absent: host calls.

use tollgate_core::Algorithm;
use tollgate_policy::{CompiledQuota, Group, Policy, Surface, metric_label};
use tollgate_table::Table;

use crate::directories::Directories;
use crate::wire::structpb;

/// A policy in force.
pub struct Config {
    /// The compiled policy.
    pub policy: Policy,
    /// One table for each of the policy's groups, in their order.
    pub tables: Vec<Table>,
    /// What quotas the records of each may be of.
    pub directories: Directories,
    /// What the plugin is called in the metrics.
    pub plugin: String,
    /// True when nobody is admitted between a denial and its `retry_after`.
    pub has_final_denials: bool,
}

impl Config {
    /// Compiles a plugin configuration: JSON text (`StringValue`, `BytesValue`) or a serialised
    /// `google.protobuf.Struct` (YAML inside the Envoy configuration). `scope` is the plugin's own
    /// name, see [`Table::new`].
    ///
    /// # Errors
    /// Every problem, one line each.
    pub fn compile(configuration: &[u8], scope: &[u8]) -> Result<Self, Vec<String>> {
        let text = document(configuration).map_err(|problem| vec![problem])?;
        let policy = Policy::compile(&text, Surface::Envoy);
        let policy =
            policy.map_err(|all| all.0.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let table = |group: &Group| Table::new(scope, group.identity(), group.table_size());
        let tables = policy.groups().iter().map(table).collect();
        let has_final_denials = has_final_denials(&policy);
        let (directories, plugin) = (Directories::default(), plugin_label(scope));
        Ok(Self { policy, tables, directories, plugin, has_final_denials })
    }
}

/// True for one rule whose requests cost the same and that takes no place back, neither because of
/// a response nor because whoever waits for it (`leaky-queue`) leaves.
fn has_final_denials(policy: &Policy) -> bool {
    let [rule] = policy.rules() else { return false };
    let mut quotas = policy.quota_sets().iter().flat_map(|set| set.quotas());
    let is_queue = |quota: &CompiledQuota| quota.limiter().algorithm() == Algorithm::LeakyQueue;
    rule.has_fixed_cost() && !rule.gives_back() && !quotas.any(is_queue)
}

/// The plugin's name, or else its `root_id`, as a part of a metric's name; `tollgate` when it has
/// neither.
fn plugin_label(scope: &[u8]) -> String {
    let mut names = scope.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .next()
        .map_or_else(|| "tollgate".into(), |name| metric_label(&String::from_utf8_lossy(name)))
}

/// The policy's JSON text.
///
/// JSON holds no control characters but white space. A serialised `Struct` with at least one field
/// always holds others (the tag of a map entry's value is 0x12), although it may begin like white
/// space.
fn document(configuration: &[u8]) -> Result<String, String> {
    if configuration.is_empty() {
        return Err("the plugin has no configuration; put the policy there".into());
    }
    if configuration.iter().any(|byte| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')) {
        return structpb::to_json(configuration).map_err(|error| error.message().into());
    }
    let text = core::str::from_utf8(configuration);
    text.map(Into::into).map_err(|_| "the policy is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_called_by_its_name() {
        let scopes: [(&[u8], &str); 5] = [
            (b"edge.v2\0r", "edge_v2"),
            (b"\0r", "r"),
            (b"\0", "tollgate"),
            (b"", "tollgate"),
            (b"a", "a"),
        ];
        for (scope, label) in scopes {
            assert_eq!(plugin_label(scope), label, "{scope:?}");
        }
    }

    #[test]
    fn text_is_taken_as_it_is() {
        for text in ["{}", " \r\n\t{\"a\":\n1}", "not json"] {
            assert_eq!(document(text.as_bytes()), Ok(text.into()));
        }
    }

    #[test]
    fn a_struct_is_known_by_its_control_bytes() {
        // {"version": 1}: it begins with a line feed, like an indented text might.
        let bytes = b"\n\x14\n\x07version\x12\x09\x11\0\0\0\0\0\0\xf0\x3f";
        assert_eq!(document(bytes), Ok("{\"version\":1}".into()));
        assert!(document(b"\n\x14\n\x07version").is_err());
    }

    #[test]
    fn nothing_and_no_text_are_refused() {
        assert!(document(b"").is_err());
        assert_eq!(document(b"{\"\xff\"}"), Err("the policy is not UTF-8".into()));
    }
}
