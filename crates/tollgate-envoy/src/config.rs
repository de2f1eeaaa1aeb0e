//! A plugin's configuration: from the bytes that Envoy hands over to a compiled policy and its
//! tables.
//!
//! Invariant: a configuration either compiles as a whole or is refused with every problem, one line
//! each; nothing is corrected silently. Deliberately absent: host calls.

use tollgate_core::Algorithm;
use tollgate_policy::{
    CompiledQuota, Fleet, Group, Plugin, Policy, PolicyFrom, Problems, Scope, Surface, metric_label,
};
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
    /// Whom to ask for the counts of a fleet.
    pub fleet: Option<Fleet>,
    /// Whom to ask for later policies.
    pub policy_from: Option<PolicyFrom>,
    /// True when rules count for a fleet.
    pub has_fleet: bool,
    /// What the plugin is called in the metrics.
    pub plugin: String,
    /// True when nobody is admitted between a denial and its `retry_after`.
    pub has_final_denials: bool,
}

impl Config {
    /// Compiles a plugin configuration, a policy or one and whom to ask beside it: JSON text
    /// (`StringValue`, `BytesValue`) or a serialised `google.protobuf.Struct` (YAML inside the
    /// Envoy configuration). `scope` is the plugin's own name, see [`Table::new`].
    ///
    /// # Errors
    /// Every problem, one line each.
    pub fn compile(configuration: &[u8], scope: &[u8]) -> Result<Self, Vec<String>> {
        let text = document(configuration).map_err(|problem| vec![problem])?;
        let Plugin { policy, fleet, policy_from } =
            Plugin::compile(&text, Surface::Envoy).map_err(|problems| lines(&problems))?;
        Ok(Self { policy_from, ..Self::of(policy, fleet, scope)? })
    }

    /// Compiles a policy that a server gave, for a plugin that is otherwise configured as before.
    ///
    /// # Errors
    /// Every problem, one line each.
    pub fn followed(text: &str, fleet: Option<Fleet>, scope: &[u8]) -> Result<Self, Vec<String>> {
        let policy = Policy::compile(text, Surface::Envoy).map_err(|problems| lines(&problems))?;
        Self::of(policy, fleet, scope)
    }

    fn of(policy: Policy, fleet: Option<Fleet>, scope: &[u8]) -> Result<Self, Vec<String>> {
        let has_fleet = policy.has_fleet();
        let unkept = unkept(&policy, fleet.is_some());
        if !unkept.is_empty() {
            return Err(unkept);
        }
        let table = |group: &Group| Table::new(scope, group.identity(), group.table_size());
        let tables = policy.groups().iter().map(table).collect();
        let has_final_denials = has_final_denials(&policy);
        let (directories, plugin) = (Directories::default(), plugin_label(scope));
        let policy_from = None;
        Ok(Self {
            policy,
            tables,
            directories,
            fleet,
            policy_from,
            has_fleet,
            plugin,
            has_final_denials,
        })
    }
}

fn lines(problems: &Problems) -> Vec<String> {
    problems.0.iter().map(ToString::to_string).collect()
}

/// What the filter cannot keep of what rules say of a fleet.
fn unkept(policy: &Policy, has_authority: bool) -> Vec<String> {
    let of_fleet = policy.rules().iter().enumerate();
    let of_fleet = of_fleet.filter(|(_, rule)| rule.scope() == Scope::Fleet);
    let unkept = of_fleet.filter_map(|(i, rule)| {
        if !has_authority {
            return Some(format!(
                "rules[{i}].scope: \"fleet\" needs an authority; name it in \"fleet\" beside \"policy\""
            ));
        }
        rule.is_waited_for().then(|| {
            format!(
                "rules[{i}].action: nobody waits here for a count of the fleet; leave \"delay\" out, \
                 or use the scope {{\"share\": 12}}"
            )
        })
    });
    unkept.collect()
}

/// True for one rule whose requests cost the same and that takes no place back, neither because of
/// a response nor because whoever waits for it (`leaky-queue`) leaves.
fn has_final_denials(policy: &Policy) -> bool {
    let [rule] = policy.rules() else { return false };
    if policy.has_fleet() {
        return false;
    }
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

    // Guards: twelve filters that each admit the whole limit, though the policy says one count.
    #[test]
    fn a_count_of_the_fleet_is_refused_without_an_authority() {
        let policy = br#"{"version": 1, "rules": [
            {"name": "a", "key": [], "scope": "local", "quotas": [{"limit": 1, "window": "1s"}]},
            {"name": "b", "key": [], "scope": "fleet", "quotas": [{"limit": 1, "window": "1s"}]}]}"#;
        let refused = Config::compile(policy, b"").err().expect("it is refused");
        assert_eq!(
            refused,
            [r#"rules[1].scope: "fleet" needs an authority; name it in "fleet" beside "policy""#]
        );
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
