//! A plugin's configuration: compiles the bytes from Envoy to a policy and its tables.
//!
//! Invariant: a configuration either compiles as a whole or is rejected with every problem, one
//! line each; nothing is corrected silently. Deliberately absent: host calls.

use tollgate_policy::metrics::metric_label;
use tollgate_policy::plugin::{Fleet, NamedPolicy, PolicyFrom};
use tollgate_policy::{Group, Plugin, Policy, Rule, Scope, Surface};
use tollgate_storage::table::Table;

use crate::counts::directories::Directories;
use crate::counts::final_denials::FinalDenials;
use crate::host::proxy::Unsupported;

mod compiled_form;
mod document;
pub mod routes;

/// The message of a module that reads no documents, for everything but a compiled policy.
const NOT_COMPILED: &str = "this module reads no documents; give it what \"tollgate compile policy.json \
    --surface envoy --base64\" writes, or load tollgate-envoy.wasm";

/// The message of the other modules for a cost in the body of the response.
const NOT_READ: &str = "needs the module tollgate-envoy-full.wasm, because this one does not read the bodies of responses";

/// A policy in force.
pub struct Config {
    /// The compiled policy.
    pub policy: Policy,
    /// One table for each of the policy's groups, in their order.
    pub tables: Vec<Table>,
    /// The quotas that the records of each table may be of.
    pub directories: Directories,
    /// The authority for the counts of a fleet.
    pub fleet: Option<Fleet>,
    /// The server for later policies.
    pub policy_from: Option<PolicyFrom>,
    /// True when a server provides later policies, or has provided this one.
    pub follows: bool,
    /// The policies of routes that name one, by their names.
    pub named: Vec<(String, Config)>,
    /// True when rules count for a fleet.
    pub has_fleet: bool,
    /// True when rules count by a calendar, which takes the wall clock.
    pub is_by_calendar: bool,
    /// A rule limits requests in flight.
    pub limits_in_flight: bool,
    /// The plugin's name in the metrics.
    pub plugin: String,
    /// The denials that may be repeated without reading the tables.
    pub final_denials: FinalDenials,
}

/// The values that a plugin keeps when a server provides another policy.
#[derive(Clone)]
pub struct PluginSettings {
    /// The authority for the counts of a fleet.
    pub fleet: Option<Fleet>,
    /// The key of the hash under which keys are reported.
    pub hash_key: Option<[u8; 16]>,
}

impl Config {
    /// Reads a plugin configuration: a compiled policy in one of the forms of
    /// `compiled_form::find`, or, where documents are read, a policy, alone or together with the
    /// servers to ask: JSON text (`StringValue`, `BytesValue`) or a serialised
    /// `google.protobuf.Struct` (YAML inside the Envoy configuration). `scope` is the plugin's own
    /// name, see [`Table::new`].
    ///
    /// # Errors
    /// Every problem, one line each.
    pub fn compile(configuration: &[u8], scope: &[u8]) -> Result<Self, Vec<String>> {
        let plugin = compiled(configuration)?;
        Self::of_plugin(plugin.map_or_else(|| document::plugin(configuration), Ok)?, scope)
    }

    /// The same without documents: only a compiled policy is read.
    ///
    /// # Errors
    /// Every problem, one line each.
    pub fn read_compiled(configuration: &[u8], scope: &[u8]) -> Result<Self, Vec<String>> {
        let plugin = compiled(configuration)?.ok_or_else(|| vec![NOT_COMPILED.to_owned()])?;
        Self::of_plugin(plugin, scope)
    }

    fn of_plugin(plugin: Plugin, scope: &[u8]) -> Result<Self, Vec<String>> {
        let Plugin { policy, named, fleet, policy_from } = plugin;
        let named =
            named.into_iter().map(|named| Self::of_name(named, scope)).collect::<Result<_, _>>()?;
        let follows = policy_from.is_some();
        Ok(Self { policy_from, follows, named, ..Self::of(policy, fleet, scope)? })
    }

    /// Compiles a policy that routes name; its counts are found by that name, too.
    fn of_name(named: NamedPolicy, scope: &[u8]) -> Result<(String, Self), Vec<String>> {
        let NamedPolicy { name, policy } = named;
        let scope_of_name = [scope, b"\0", name.as_bytes()].concat();
        let config = Self::of(policy, None, &scope_of_name).map_err(|lines| {
            lines.iter().map(|line| ["policies.", &name, ".", line].concat()).collect::<Vec<_>>()
        })?;
        let plugin = [&plugin_label(scope), "_", &name].concat();
        Ok((name, Self { plugin, ..config }))
    }

    /// Compiles a policy from a server, for a plugin whose other configuration is unchanged.
    ///
    /// # Errors
    /// Every problem, one line each.
    pub fn followed(
        text: &str,
        settings: &PluginSettings,
        scope: &[u8],
    ) -> Result<Self, Vec<String>> {
        let mut policy = document::policy(text)?;
        if let Some(key) = settings.hash_key {
            policy.set_hash_key(key);
        }
        Ok(Self { follows: true, ..Self::of(policy, settings.fleet.clone(), scope)? })
    }

    /// The same in a module that reads the bodies of responses, or does not, on a host with these
    /// limits.
    ///
    /// # Errors
    /// Everything that needs another module.
    pub fn for_module(
        self,
        reads_bodies: bool,
        unsupported: Unsupported,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        if let Some(why) = unsupported.calls {
            let calls =
                [("fleet", self.fleet.is_some()), ("policy_from", self.policy_from.is_some())];
            let used = calls.into_iter().filter(|(_, is_used)| *is_used);
            problems.extend(used.map(|(name, _)| [name, ": ", why].concat()));
        }
        let mut of = |policy: &Policy, at: &str| {
            if !reads_bodies {
                problems.extend(unread_bodies(policy, at));
            }
            if let Some(why) = unsupported.waiting {
                problems.extend(delays(policy, at, why));
            }
            if let Some(problems_of) = unsupported.parts {
                problems
                    .extend(problems_of(policy).0.iter().map(|problem| format!("{at}{problem}")));
            }
        };
        of(&self.policy, "");
        for (name, config) in &self.named {
            of(&config.policy, &["policies.", name, "."].concat());
        }
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    fn of(policy: Policy, fleet: Option<Fleet>, scope: &[u8]) -> Result<Self, Vec<String>> {
        let has_fleet = !policy.fleet().is_empty();
        let limits_in_flight = policy.rules().iter().any(Rule::limits_requests_in_flight);
        let is_by_calendar = policy.groups().iter().any(Group::is_by_calendar);
        let problems = unmet_requirements(&policy, fleet.is_some());
        if !problems.is_empty() {
            return Err(problems);
        }
        let table = |group: &Group| Table::new(scope, group.identity(), group.table_size());
        let tables = policy.groups().iter().map(table).collect();
        let final_denials = FinalDenials::of(&policy);
        let (directories, plugin) = (Directories::default(), plugin_label(scope));
        let (policy_from, follows, named) = (None, false, Vec::new());
        Ok(Self {
            policy,
            tables,
            directories,
            fleet,
            policy_from,
            follows,
            named,
            has_fleet,
            is_by_calendar,
            limits_in_flight,
            plugin,
            final_denials,
        })
    }
}

/// The compiled policy in a configuration; `None` when it is a document.
fn compiled(configuration: &[u8]) -> Result<Option<Plugin>, Vec<String>> {
    if configuration.is_empty() {
        return Err(vec!["the plugin has no configuration; put the policy there".into()]);
    }
    if let Some(compiled) = compiled_form::find(configuration) {
        let read = Plugin::read_compiled(&compiled, Surface::Envoy);
        return read.map(Some).map_err(|why| vec![format!("the compiled policy {why}")]);
    }
    Ok(None)
}

/// The requirements of fleet rules that the filter cannot meet.
fn unmet_requirements(policy: &Policy, has_authority: bool) -> Vec<String> {
    let of_fleet = policy.rules().iter().filter(|rule| rule.scope() == Scope::Fleet);
    let unmet = of_fleet.filter_map(|rule| {
        let i = rule.place();
        if !has_authority {
            return Some(format!(
                "rules[{i}].scope: \"fleet\" needs an authority; name it in \"fleet\" next to \"policy\""
            ));
        }
        rule.is_waited_for().then(|| {
            format!(
                "rules[{i}].action: no request waits here for a count of the fleet; leave \"delay\" out, \
                 or use the scope {{\"share\": 12}}"
            )
        })
    });
    unmet.collect()
}

/// The rules whose costs are in the body of the response.
fn unread_bodies(policy: &Policy, at: &str) -> Vec<String> {
    let rules = policy.rules().iter().filter(|rule| rule.reads_body());
    let line = |rule: &Rule| {
        let i = rule.place();
        format!("{at}rules[{i}].cost.actual: {NOT_READ}")
    };
    rules.map(line).collect()
}

/// The rules for which requests wait, one line each.
fn delays(policy: &Policy, at: &str, why: &str) -> Vec<String> {
    let line = |rule: &Rule| format!("{at}rules[{}]: delays requests; {why}", rule.place());
    let mut lines: Vec<String> = policy.delaying_rules().map(line).collect();
    lines.dedup();
    lines
}

/// The plugin's name, or else its `root_id`, as a part of a metric's name; `tollgate` when it has
/// neither.
fn plugin_label(scope: &[u8]) -> String {
    let mut names = scope.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .next()
        .map_or_else(|| "tollgate".into(), |name| metric_label(&String::from_utf8_lossy(name)))
}

#[cfg(test)]
mod tests {
    use tollgate_policy::{Problem, Problems};

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

    // Guards: twelve filters that each allow the whole limit, though the policy specifies one
    // count.
    #[test]
    fn a_count_of_the_fleet_is_refused_without_an_authority() {
        let policy = br#"{"version": 1, "rules": [
            {"name": "a", "key": [], "scope": "local", "quotas": [{"limit": 1, "window": "1s"}]},
            {"name": "b", "key": [], "scope": "fleet", "quotas": [{"limit": 1, "window": "1s"}]}]}"#;
        let refused = Config::compile(policy, b"").err().expect("it is refused");
        assert_eq!(
            refused,
            [r#"rules[1].scope: "fleet" needs an authority; name it in "fleet" next to "policy""#]
        );
    }

    // Guards: a cost that stays an estimate for ever, because nothing reads the bodies.
    #[test]
    fn a_cost_in_a_body_is_refused_where_none_are_read() {
        let rule = |actual: &str| {
            format!(
                r#"{{"name": "r", "key": [], "cost": {{"estimate": 1, "max": 2, "actual": {actual}}},
                    "quotas": [{{"limit": 9, "window": "1s"}}]}}"#
            )
        };
        let body = rule(r#"{"json": ["/usage/total_tokens"]}"#);
        let header = rule(r#"{"header": "x-tokens"}"#).replace("\"r\"", "\"h\"");
        let policy = format!(r#"{{"version": 1, "rules": [{header}, {body}]}}"#);
        let of = |text: &str| Config::compile(text.as_bytes(), b"").ok().unwrap();
        let for_module = |text: &str, reads| of(text).for_module(reads, Unsupported::NOTHING);
        assert!(for_module(&policy, true).is_ok());
        let line = format!("rules[1].cost.actual: {NOT_READ}");
        assert_eq!(for_module(&policy, false).err(), Some(vec![line.clone()]));
        let named = format!(
            r#"{{"policy": {{"version": 1, "rules": []}}, "policies": {{"a": {policy}}}}}"#
        );
        let line = format!("policies.a.{line}");
        assert_eq!(for_module(&named, false).err(), Some(vec![line]));
    }

    // Guards: a request that waits, or a call, on a host on which it would be lost.
    #[test]
    fn what_a_host_cannot_do_is_refused_by_name() {
        let rule = |name: &str, more: &str| {
            format!(
                r#"{{"name": "{name}", "key": [], "quotas": [{{"limit": 9, "window": "1s"}}]{more}}}"#
            )
        };
        let delay = r#", "action": {"delay": {"max": "1s"}}"#;
        let queue = rule("queue", "").replace("1s\"", "1s\", \"algorithm\": \"leaky-queue\"");
        let rules = [
            rule("denies", ""),
            rule("delays", delay),
            queue,
            rule("place", &[r#", "concurrency": {"limit": 2, "max_age": "30s"}"#, delay].concat()),
            rule("shadow", &[r#", "mode": "shadow""#, delay].concat()),
        ];
        let policy = format!(r#"{{"version": 1, "rules": [{}]}}"#, rules.join(", "));
        let named = format!(
            r#"{{"policy": {policy}, "policies": {{"a": {{"version": 1, "rules": [{}]}}}}}}"#,
            rule("waits", delay)
        );
        let fleet = r#"{"cluster": "a", "path": "/l", "token": "t", "secret": "0123456789abcdef"}"#;
        let called = format!(
            r#"{{"policy": {{"version": 1, "rules": []}}, "fleet": {fleet},
                "policy_from": {{"cluster": "a", "path": "/p"}}}}"#
        );
        let of = |document: &str, unsupported| {
            let config = Config::compile(document.as_bytes(), b"").ok().unwrap();
            config.for_module(true, unsupported).err().unwrap_or_default()
        };
        let parts = |policy: &Policy| {
            let problem = |rule: &Rule| Problem::new(rule.name(), "no such rule".to_owned());
            Problems(policy.rules().iter().filter(|it| it.name() == "waits").map(problem).collect())
        };
        let all = Unsupported {
            waiting: Some("no waiting"),
            calls: Some("no calls"),
            parts: Some(parts),
        };
        let places = ["rules[1]", "rules[2]", "rules[3]", "policies.a.rules[0]"];
        let lines = places.map(|place| format!("{place}: delays requests; no waiting"));
        assert_eq!(
            of(&named, all),
            [&lines[..], &["policies.a.waits: no such rule".into()]].concat()
        );
        assert_eq!(of(&called, all), ["fleet: no calls", "policy_from: no calls"]);
        for document in [&named, &called] {
            assert!(of(document, Unsupported::NOTHING).is_empty());
        }
    }

    fn refused(configuration: &[u8]) -> Vec<String> {
        Config::compile(configuration, b"").err().expect("it is refused")
    }

    const DAMAGED: &str =
        "the compiled policy is damaged: it was cut or changed; compile the policy again";

    // Guards: the message in each module to an operator that supplies the wrong file.
    #[test]
    fn what_is_no_policy_is_refused_in_words() {
        assert_eq!(refused(b""), ["the plugin has no configuration; put the policy there"]);
        assert_eq!(refused(b"\0tollgate"), [DAMAGED]);
        assert_eq!(refused(b"AHRvbGxnYXRl"), [DAMAGED]);
        assert_eq!(refused(b"{\"compiled\": \"AHRvbGxnYXRl\"}"), [DAMAGED]);
        assert_eq!(
            refused(b"{\"compiled\": \"\"}"),
            ["the compiled policy is not a compiled policy; make one with \"tollgate compile\""]
        );
    }

    #[test]
    fn a_document_is_refused_where_none_are_read() {
        let refused = |document| Config::read_compiled(document, b"").err().expect("it is refused");
        assert_eq!(refused(b"{\"version\": 1, \"rules\": []}"), [NOT_COMPILED]);
        assert_eq!(refused(b"\n\x14\n\x07version\x12\x09\x11\0\0\0\0\0\0\xf0\x3f"), [NOT_COMPILED]);
        assert_eq!(refused(b"AHRvbGxnYXRl"), [DAMAGED]);
    }
}
