//! Whether the connection manager around a filter provides the values that the policy reads.
//!
//! Invariant: a setting that lets a client choose the address that is counted is a problem, because
//! the limit then has no effect. A setting that makes the origin and the policy see different
//! requests, or that ends waiting requests, is a warning. Only settings that affect a value the
//! policy reads are checked. The reasons: docs/decisions.md.

use core::time::Duration;

use tollgate_policy::explain::Reader;
use tollgate_policy::plugin::NamedPolicy;
use tollgate_policy::spec::Fact;
use tollgate_policy::{Policy, Rule};

use crate::client_certificates::ClientCertificates;
use crate::manager::{FilterContext, Manager};
use crate::source::{Compiled, Finding};
use tollgate_yaml::Node;

const USE_REMOTE_ADDRESS: &str = "use_remote_address";
const HOPS: &str = "xff_num_trusted_hops";
const DETECTION: &str = "original_ip_detection_extensions";
const ESCAPED: &str = "path_with_escaped_slashes_action";
const OPTIONS: &str = "common_http_protocol_options";
const UNDERSCORES: &str = "headers_with_underscores_action";
const VERIFICATION: &str = "trust_chain_verification";
const FILTERS: &str = "http_filters";
const IDLE: &str = "stream_idle_timeout";

const XFF: &str = "envoy.extensions.http.original_ip_detection.xff.v3.XffConfig";

/// Networks with a prefix of at most this length contain an eighth of all addresses, clients
/// included.
const WIDE: u8 = 3;

/// Envoy's default when the setting is left out.
const DEFAULT_IDLE: Duration = Duration::from_secs(300);

const ESCAPED_ACTIONS: [&str; 5] = [
    "IMPLEMENTATION_SPECIFIC_DEFAULT",
    "KEEP_UNCHANGED",
    "REJECT_REQUEST",
    "UNESCAPE_AND_REDIRECT",
    "UNESCAPE_AND_FORWARD",
];
const UNDERSCORE_ACTIONS: [&str; 3] = ["ALLOW", "REJECT_REQUEST", "DROP_HEADER"];

const REMEDY: &str = "set use_remote_address: true, and xff_num_trusted_hops to the number of your proxies in front; \
    or, where every request comes through a proxy that appends to that header, let the policy take its entry: \
    \"client_ip\": {\"source\": \"x-forwarded-for\", \"trusted_hops\": 1}";

/// The findings around one filter.
#[derive(Default)]
pub(super) struct Judgement {
    problems: Vec<Finding>,
    warnings: Vec<Finding>,
    /// The manager's source of the client's address, if the policy uses it.
    pub(super) address: Option<String>,
}

impl Judgement {
    /// Checks the compiled policies of one filter.
    pub(super) fn of(compiled: &Compiled, around: &FilterContext) -> Self {
        let mut judgement = Self::default();
        let usual = compiled.policies.iter().map(|(_, policy)| policy);
        let of_routes = around.named.iter().map(|NamedPolicy { policy, .. }| policy);
        for policy in usual.chain(of_routes) {
            match &around.manager {
                Some(manager) => {
                    judgement.judge(manager, policy);
                    judgement.later(manager, policy, &around.later);
                }
                None => judgement.without_manager(policy),
            }
            if let Some(accepted) = around.certificates {
                judgement.certificates(accepted, policy);
            }
        }
        judgement
    }

    /// Adds these findings to those of the policy.
    pub(super) fn add_to(&mut self, compiled: &mut Compiled) {
        compiled.problems.append(&mut self.problems);
        compiled.warnings.append(&mut self.warnings);
    }

    fn without_manager(&mut self, policy: &Policy) {
        if address_reader(policy).is_some() {
            self.address = Some(
                "is not in this file; without use_remote_address: true in it, a client can choose its address"
                    .to_owned(),
            );
        }
    }

    fn judge(&mut self, manager: &Manager, policy: &Policy) {
        if let Some(reader) = address_reader(policy) {
            self.address(manager, &whose(policy, reader));
        }
        let reads = policy.explain().reads();
        if reads.iter().any(|read| read.fact == Fact::Path) {
            self.path(manager, policy);
        }
        let header = reads.iter().find_map(|read| {
            let Fact::Header(name) = read.fact else { return None };
            name.contains('-').then_some(name)
        });
        if let Some(name) = header {
            self.underscores(manager, name);
        }
        let waits = policy.rules().iter().filter_map(|rule| Some((rule, rule.longest_wait()?)));
        if let Some((rule, wait)) = waits.max_by_key(|(_, wait)| *wait) {
            let wait = Duration::from_nanos(wait.as_nanos());
            self.times(manager, rule, wait);
        }
    }

    /// Checks that no client can write the certificate by which it is counted.
    fn certificates(&mut self, accepted: ClientCertificates, policy: &Policy) {
        let reads = policy.explain().reads();
        let Some(by) = reads.iter().find(|read| matches!(read.fact, Fact::Certificate(_))) else {
            return;
        };
        let reader = whose(policy, by.by);
        match accepted {
            ClientCertificates::Verified => {}
            ClientCertificates::Any(line) => {
                let text = format!(
                    "is ACCEPT_UNTRUSTED, so a client can write a certificate with any name, and {reader}; leave it out, \
                     so that Envoy refuses certificates of other authorities"
                );
                push(&mut self.problems, finding(line, VERIFICATION, &text));
            }
            ClientCertificates::Never(line) => {
                let text = format!(
                    "has no validation_context, so Envoy asks for no certificate, and {reader}: no request has one; \
                     give it trusted_ca"
                );
                push(&mut self.warnings, finding(line, "transport_socket", &text));
            }
        }
    }

    /// Checks that the filters whose metadata the policy counts by run before it.
    fn later(&mut self, manager: &Manager, policy: &Policy, later: &[String]) {
        let reads = policy.explain().reads();
        let named = reads.iter().filter_map(|read| {
            let Fact::Metadata(path) = read.fact else { return None };
            Some((path.0.first()?, read.by))
        });
        if let Some((filter, by)) = named.into_iter().find(|(name, _)| later.contains(name)) {
            let reader = whose(policy, by);
            self.warning(
                manager,
                &[FILTERS],
                &format!(
                    "runs {filter} after this filter, and {reader}: no request has its metadata yet; put {filter} before"
                ),
            );
        }
    }

    /// Checks which source the manager trusts for the client's address.
    fn address(&mut self, manager: &Manager, reader: &str) {
        let is_set = manager.setting(&[DETECTION]).is_some_and(|it| !it.value.items().is_empty());
        if manager.is_on(USE_REMOTE_ADDRESS) {
            if is_set {
                self.problem(
                    manager,
                    &[DETECTION],
                    "Envoy refuses it together with use_remote_address: true",
                );
            }
            self.address = Some(match manager.number(HOPS) {
                0 => "takes the other end of the connection (use_remote_address)".to_owned(),
                hops => format!(
                    "takes entry {hops} from the right of X-Forwarded-For as the client sent it, \
                     so as many proxies in front have to append to it ({HOPS})"
                ),
            });
            return;
        }
        if is_set {
            return self.detection(manager, reader);
        }
        let why = match manager.number(HOPS) {
            0 => "the last entry".to_owned(),
            hops => format!("entry {} from the right", hops.saturating_add(1)),
        };
        self.problem(
            manager,
            &[USE_REMOTE_ADDRESS],
            &format!(
                "is not true, so Envoy takes {why} of X-Forwarded-For as the client's address, and {reader}: \
                 a client that sends that header chooses its address; {REMEDY}"
            ),
        );
    }

    /// Checks the extensions that find the address instead: networks of proxies are safe, all
    /// others trust a header.
    fn detection(&mut self, manager: &Manager, reader: &str) {
        let extensions = manager.setting(&[DETECTION]).map_or(&[][..], |it| it.value.items());
        for extension in extensions {
            let line = extension.line;
            match Detection::of(extension) {
                Detection::Networks => {
                    self.address = Some(
                        "takes it from X-Forwarded-For past its xff_trusted_cidrs, where the \
                         connection comes from one"
                            .to_owned(),
                    );
                }
                Detection::AnyEntry => {
                    let text = format!(
                        "takes an entry of X-Forwarded-For as the client's address, and {reader}: \
                         a client that sends that header chooses its address; give the networks of \
                         your proxies in xff_trusted_cidrs"
                    );
                    push(&mut self.problems, finding(line, DETECTION, &text));
                }
                Detection::Header => {
                    let text = format!(
                        "finds the client's address by a header, and {reader}: a client that \
                         reaches this listener directly can write that header; allow only your \
                         proxies to reach it"
                    );
                    push(&mut self.warnings, finding(line, DETECTION, &text));
                }
            }
        }
    }

    fn path(&mut self, manager: &Manager, policy: &Policy) {
        for (name, what) in [
            ("normalize_path", "with dots such as /a/../b"),
            ("merge_slashes", "with several slashes such as /a//b"),
        ] {
            if !manager.is_on(name) {
                self.warning(
                    manager,
                    &[name],
                    &format!(
                        "is not true: rules by path see a path {what} in normal form, and routes and the origin see it as sent, so they can resolve it differently; set it to true"
                    ),
                );
            }
        }
        let action = manager.word(&[ESCAPED], &ESCAPED_ACTIONS);
        let keeps = ["IMPLEMENTATION_SPECIFIC_DEFAULT", "KEEP_UNCHANGED"].contains(&action);
        // The text is only present where escaped slashes are kept as letters.
        if keeps && policy.explain().escaped_slashes().is_none() {
            self.warning(
                manager,
                &[ESCAPED],
                "leaves %2F and %5C as they are, where rules by path read them as slashes; set it to \
                 UNESCAPE_AND_FORWARD, or set \"escaped_slashes\": \"literal\" in the policy",
            );
        }
    }

    fn underscores(&mut self, manager: &Manager, name: &str) {
        let path = [OPTIONS, UNDERSCORES];
        if manager.word(&path, &UNDERSCORE_ACTIONS) == "ALLOW" {
            let other = name.replace('-', "_");
            self.warning(
                manager,
                &path,
                &format!(
                    "passes {other} on, which an origin of the CGI kind (WSGI, PHP) reads as {name}, and no rule does; \
                     set it to REJECT_REQUEST"
                ),
            );
        }
    }

    /// Checks for settings that end requests waiting for `wait` under this rule, and for requests
    /// that never end.
    fn times(&mut self, manager: &Manager, rule: &Rule, wait: Duration) {
        let waits = format!("rule \"{}\" lets requests wait up to {}", rule.name(), seconds(wait));
        let idle = manager.duration(&[IDLE]).unwrap_or(DEFAULT_IDLE);
        if idle.is_zero() {
            let text = format!(
                "is 0: no timeout ends a request that waited in a worker whose filter crashed, and {waits}; set it above that"
            );
            self.warning(manager, &[IDLE], &text);
        }
        let idle = Some((&[IDLE][..], idle));
        let others = [&["request_timeout"][..], &[OPTIONS, "max_stream_duration"]];
        let others = others.into_iter().filter_map(|path| Some((path, manager.duration(path)?)));
        for (path, time) in idle.into_iter().chain(others) {
            if !time.is_zero() && time <= wait {
                let text = format!(
                    "ends a request after {}, and {waits}; set it above that",
                    seconds(time)
                );
                self.warning(manager, path, &text);
            }
        }
    }

    fn problem(&mut self, manager: &Manager, path: &[&str], message: &str) {
        push(&mut self.problems, finding(manager.line_of(path), &path.join("."), message));
    }

    fn warning(&mut self, manager: &Manager, path: &[&str], message: &str) {
        push(&mut self.warnings, finding(manager.line_of(path), &path.join("."), message));
    }
}

/// Adds a finding unless it is already there: several policies of one filter share the same
/// manager.
fn push(findings: &mut Vec<Finding>, finding: Finding) {
    if findings.iter().all(|known| known.path != finding.path || known.line != finding.line) {
        findings.push(finding);
    }
}

fn finding(line: usize, path: &str, message: &str) -> Finding {
    let (path, message) = (path.to_owned(), message.to_owned());
    Finding { file: None, surface: None, line: Some(line), path, message }
}

/// How an extension finds the client's address.
enum Detection {
    /// From X-Forwarded-For, past known proxies.
    Networks,
    /// From an entry of X-Forwarded-For that any sender can write.
    AnyEntry,
    /// From another header that any sender can write.
    Header,
}

impl Detection {
    fn of(extension: &Node) -> Self {
        let either =
            |node: &Node, one: &str, other: &str| node.get(one).or(node.get(other)).cloned();
        let config = either(extension, "typed_config", "typedConfig");
        let url = config.as_ref().and_then(|config| config.get("@type")?.text());
        if url.is_none_or(|url| url.rsplit('/').next() != Some(XFF)) {
            return Self::Header;
        }
        let networks = config.and_then(|it| either(&it, "xff_trusted_cidrs", "xffTrustedCidrs"));
        let Some(networks) = networks else { return Self::AnyEntry };
        let cidrs = networks.get("cidrs").map_or(&[][..], Node::items);
        let is_wide = |cidr: &Node| {
            let length = either(cidr, "prefix_len", "prefixLen");
            let length = length.as_ref().and_then(Node::text).and_then(|text| text.parse().ok());
            length.unwrap_or(0) <= WIDE
        };
        if cidrs.iter().any(is_wide) { Self::AnyEntry } else { Self::Networks }
    }
}

/// The first part of the policy that reads the address found by the manager; `None` when no part
/// reads it, or when the policy itself counts entries of a list.
fn address_reader(policy: &Policy) -> Option<Reader<'_>> {
    let trusts = policy.client_address().trusts_the_connection();
    let reads = trusts.then(|| policy.explain().reads())?;
    reads.iter().find(|read| read.fact == Fact::Client).map(|read| read.by)
}

/// `rule "login" counts by it`
fn whose(policy: &Policy, reader: Reader<'_>) -> String {
    let rule = reader.rule().and_then(|rule| policy.rules().get(rule)).map(Rule::name);
    match (reader, rule) {
        (Reader::Key(_), Some(rule)) => format!("rule \"{rule}\" counts by it"),
        (Reader::Deny(rule, _), _) => format!("rule \"{rule}\" reads it"),
        (Reader::Exempt(item), _) => format!("exempt[{item}] reads it"),
        (_, Some(rule)) => format!("rule \"{rule}\" reads it"),
        (_, None) => "the policy reads it".to_owned(),
    }
}

/// `90s`, `1.5s`
fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs_f64())
}
