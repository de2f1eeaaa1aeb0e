//! The cost of a rule of a fleet in Envoy: CPU per request compared with the same rule counted
//! locally, the share of requests that leave the proxy, CPU of the authority, and how much of a
//! limit two proxies allow while more is requested.
//!
//! Invariant: the Envoys differ in the scope and the lease of the one rule and in nothing else; one
//! worker each, one authority with counts in its memory. CPU ratios are taken within a round.

use super::{
    cpu::{self, ProcessorRole, seated},
    effort::Effort,
    envoy as alone,
    figures::{Table, figure, median},
    load::{self, Expect, Subject},
    wrk::{self, Requests, Served},
};
use crate::{
    build, files,
    problem::{Problem, Result},
    servers::{Server, envoy, free_port, http, tollgate},
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

const SECRET: &str = "only-for-the-bench-fleet";
/// More than any load here sends.
const PLENTY: u64 = 1_000_000_000;
/// Of the limit that two proxies share; far below what either of them can serve.
const RATE: u64 = 2_000;
const BURST: u64 = 500;
/// Nothing is leased for one longest life and the error of the clock after the authority's start.
const QUIET: Duration = Duration::from_secs(12);

/// A rule, and its name in the table.
struct Way {
    file: &'static str,
    label: &'static str,
    /// The field of its requests, whose name the rule has.
    line: &'static str,
}

const WAYS: [Way; 4] = [
    Way { file: "bench-fleet-local", label: "counted locally", line: "x-local: client-1" },
    Way { file: "bench-fleet-2s", label: "leased, `lease` 2 s", line: "x-two: client-1" },
    Way { file: "bench-fleet-10s", label: "leased, `lease` 10 s", line: "x-ten: client-1" },
    Way { file: "bench-fleet-ask", label: "asked for each request", line: "x-ask: client-1" },
];
const SHARED: &str = "x-shared: client-1";

pub fn measure(workspace: &Workspace, effort: Effort) -> Result<String> {
    build::server::build(workspace, "tollgate-server")?;
    let policy = workspace.out.join("run/bench-fleet.json");
    files::write(&policy, all_rules().to_string())?;
    let settings = [("TOLLGATE_FLEET_SECRET", SECRET)];
    let port = free_port()?;
    let authority = seated(ProcessorRole::Client, || {
        tollgate::start_with(workspace, port, &policy, &settings)
    })?;
    thread::sleep(QUIET);
    let proxies = WAYS.iter().map(|way| Proxy::start(workspace, way.file, authority.port));
    let proxies = proxies.collect::<Result<Vec<Proxy>>>()?;
    let (admins, subjects): (Vec<u16>, Vec<Subject>) = proxies
        .into_iter()
        .zip(&WAYS)
        .map(|(proxy, way)| (proxy.admin, proxy.subject(way)))
        .unzip();
    let costs = load::measure("leases", &subjects, effort)?;
    let names: Vec<&str> = WAYS.iter().map(|way| way.label).collect();
    let title = "Envoy: one request under a rule of a fleet";
    let mut table = load::table(title, &names, &costs, &[("x local", 0)]);
    table.note("One worker, `direct_response`, wrk with 16 connections, one key; the authority runs next to wrk.");
    let mut leaving = Table::new(
        "What leaves the proxy",
        &["", "requests", "left the proxy", "authority, us/request", "admitted / limit"],
    );
    for ((way, subject), admin) in WAYS.iter().zip(&subjects).zip(admins) {
        leaving.row(asked(way, subject, (admin, &authority), effort)?);
    }
    drop(subjects);
    leaving.row(shared(workspace, &authority, effort)?);
    leaving.note(&format!(
        "The last row is {RATE} a second with a burst of {BURST} for two Envoys, which receive several times as many requests; \
         the limit is that of the time and one burst. The median of the rounds."
    ));
    Ok(format!("{}\n{}", table.markdown(), leaving.markdown()))
}

fn all_rules() -> Value {
    let plenty = json!([{"limit": PLENTY, "window": "1s"}]);
    let rule = |line: &str, more: Value| {
        let header = line.split(':').next().unwrap_or_default();
        let mut rule = json!({"name": header, "key": [{"header": header}], "quotas": plenty});
        rule.as_object_mut().into_iter().for_each(|rule| {
            rule.extend(more.as_object().cloned().unwrap_or_default());
        });
        rule
    };
    let fleet = |lease: &str| json!({"scope": "fleet", "lease": lease, "on_failure": "deny"});
    let quotas = json!([{"limit": RATE, "window": "1s", "burst": BURST}]);
    let two = json!({"scope": "fleet", "on_failure": "deny", "quotas": quotas});
    json!({"version": 1, "rules": [
        rule(WAYS[0].line, json!({})),
        rule(WAYS[1].line, fleet("2s")),
        rule(WAYS[2].line, fleet("10s")),
        rule(WAYS[3].line, json!({"scope": "fleet", "lease": 0, "on_failure": "deny"})),
        rule(SHARED, two),
    ]})
}

/// An Envoy of the fleet.
struct Proxy {
    server: Server,
    admin: u16,
}

impl Proxy {
    fn start(workspace: &Workspace, file: &'static str, authority: u16) -> Result<Self> {
        let (port, admin) = (free_port()?, free_port()?);
        let fleet = json!({"cluster": "tollgate", "secret": SECRET, "timeout": "5s"});
        let plugin = json!({"policy": all_rules(), "fleet": fleet});
        let filter = alone::wasm(&workspace.envoy_wasm(), file, &plugin);
        let mut config = alone::bootstrap(port, Some(filter));
        let address =
            |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
        config["admin"] = json!({"address": address(admin)});
        config["static_resources"]["clusters"] = json!([{
            "name": "tollgate",
            "type": "STATIC",
            "load_assignment": {"cluster_name": "tollgate", "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": address(authority)}}]},
            ]},
        }]);
        let config = config.to_string();
        let options = envoy::Options { name: file, config, ready: (port, "/"), concurrency: 1 };
        let server = seated(ProcessorRole::Server, || envoy::start(workspace, options))?;
        Ok(Self { server, admin })
    }

    fn subject(self, way: &Way) -> Subject {
        let Self { server, .. } = self;
        Subject { name: way.label, server, requests: requests(way.line), expect: Expect::Passed }
    }
}

/// Of one client under the rule of this field.
fn requests(line: &'static str) -> Requests {
    Requests { path: "/", headers: vec![line], script: None }
}

/// A counter of the filter.
fn stat(admin: u16, name: &str) -> Result<u64> {
    let name = format!("wasmcustom.tollgate.{name}: ");
    let text = http::Request::new(admin, "/stats?usedonly").text()?;
    Ok(text.lines().find_map(|line| line.trim().strip_prefix(&name)?.parse().ok()).unwrap_or(0))
}

/// A row: how many requests of a load left the proxy.
fn asked(
    way: &Way,
    subject: &Subject,
    (admin, authority): (u16, &Server),
    effort: Effort,
) -> Result<[String; 5]> {
    let (mut shares, mut costs, mut all) = (Vec::new(), Vec::new(), 0);
    for _ in 0..effort.rounds {
        let before = (stat(admin, "fleet_asked")?, cpu::used_ns(authority.running.pid())?);
        let served = wrk::load(subject.server.port, &subject.requests, effort.duration())?;
        let after = (stat(admin, "fleet_asked")?, cpu::used_ns(authority.running.pid())?);
        shares.push((after.0 - before.0) as f64 / served.requests as f64);
        costs.push((after.1 - before.1) as f64 / served.requests as f64 / 1e3);
        all += served.requests;
    }
    let share = format!("{} %", figure(100.0 * median(&shares), 3));
    Ok([way.label.to_owned(), all.to_string(), share, figure(median(&costs), 2), "-".to_owned()])
}

/// A row: two Envoys, and more requests than the limit has.
fn shared(workspace: &Workspace, authority: &Server, effort: Effort) -> Result<[String; 5]> {
    let start = |file| Proxy::start(workspace, file, authority.port);
    let proxies = [start("bench-fleet-first")?, start("bench-fleet-second")?];
    let (mut shares, mut costs, mut admitted, mut all) = (vec![], vec![], vec![], 0);
    both(&proxies, Duration::from_secs(2))?;
    for _ in 0..effort.rounds {
        let asked =
            || proxies.iter().map(|proxy| stat(proxy.admin, "fleet_asked")).sum::<Result<u64>>();
        let before = (asked()?, cpu::used_ns(authority.running.pid())?);
        let began = Instant::now();
        let served = both(&proxies, effort.duration().max(Duration::from_secs(3)))?;
        let limit = began.elapsed().as_secs_f64() * RATE as f64 + BURST as f64;
        let after = (asked()?, cpu::used_ns(authority.running.pid())?);
        let requests = served.requests as f64;
        shares.push((after.0 - before.0) as f64 / requests);
        costs.push((after.1 - before.1) as f64 / requests / 1e3);
        admitted.push((served.requests - served.refused) as f64 / limit);
        all += served.requests;
    }
    if admitted.iter().any(|share| *share > 1.0) {
        let why = format!("{admitted:?} of the limit");
        return Err(Problem::new("more was admitted than one limiter admits", why, "see fleet.md"));
    }
    let share = format!("{} %", figure(100.0 * median(&shares), 2));
    let label = format!("two Envoys, {RATE} a second, overloaded");
    let part = format!("{} %", figure(100.0 * median(&admitted), 1));
    Ok([label, all.to_string(), share, figure(median(&costs), 2), part])
}

/// Loads both at the same time; their total of served requests.
fn both(proxies: &[Proxy; 2], duration: Duration) -> Result<Served> {
    let wanted = requests(SHARED);
    let sums = thread::scope(|scope| {
        let load = |proxy: &Proxy| wrk::load(proxy.server.port, &wanted, duration);
        let running = proxies.each_ref().map(|proxy| scope.spawn(move || load(proxy)));
        running.map(std::thread::ScopedJoinHandle::join)
    });
    let mut all = Served { requests: 0, refused: 0 };
    for sum in sums {
        let failed = || Problem::new("a load failed", "its thread panicked", "run it again");
        let sum = sum.map_err(|_| failed())??;
        all.requests += sum.requests;
        all.refused += sum.refused;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_a_rule_and_requests_of_its_own() {
        let rules = all_rules();
        let rules = rules["rules"].as_array().unwrap();
        assert_eq!(rules.len(), WAYS.len() + 1);
        for (rule, line) in rules.iter().zip(WAYS.iter().map(|way| way.line).chain([SHARED])) {
            let header = rule["name"].as_str().unwrap();
            assert_eq!(rule["key"][0]["header"], header);
            assert!(requests(line).headers[0].starts_with(&format!("{header}:")));
            assert_eq!(rule["scope"] == "fleet", line != WAYS[0].line);
        }
    }
}
