//! The configurations in `envoy/`, run unchanged: only addresses and paths are replaced.
//!
//! `envoy.yaml` is run by docker compose and by `cargo xtask up`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::{self, Server, TempDir};

use crate::envoy_server::{As, Envoy, Listener, Setup, envoy_bin, filter_wasm, tollgate};

/// The texts of the files that are replaced.
const FILTER: &str = "/etc/envoy/tollgate-envoy.wasm";
const ORIGIN: &str = "address: origin, port_value: 8000";
const INGRESS: &str = "address: 0.0.0.0, port_value: 10000";
const ADMIN: &str = "address: 127.0.0.1, port_value: 9901";
const FILES: &str = "/etc/envoy/xds";

/// An Envoy that runs files of `envoy/`.
struct Shipped {
    _server: Server,
    _origin: Envoy,
    dir: TempDir,
    ingress: u16,
}

impl Shipped {
    /// The first of `files` is the bootstrap.
    fn start(files: &[&str]) -> Self {
        let dir = TempDir::new("envoy-shipped");
        let origin = Setup::new(1, vec![Listener::new("origin", vec![])]).start();
        let (ingress, admin) = (process::free_port(), process::free_port());
        let on = |port: u16| format!("address: 127.0.0.1, port_value: {port}");
        let mut places = vec![
            (FILTER, filter_wasm().display().to_string()),
            (ORIGIN, on(origin.ports[0])),
            (INGRESS, on(ingress)),
            (ADMIN, on(admin)),
            (FILES, dir.path().join("xds").display().to_string()),
        ];
        fs::create_dir(dir.path().join("xds")).expect("no folder");
        let texts: Vec<String> = files.iter().map(|file| read(file)).collect();
        places.retain(|(place, _)| texts.iter().any(|text| text.contains(place)));
        for place in [FILTER, ORIGIN, INGRESS] {
            assert!(places.iter().any(|(found, _)| *found == place), "no {place} in {files:?}");
        }
        for (file, text) in files.iter().zip(&texts) {
            let adapted =
                places.iter().fold(text.clone(), |text, (old, new)| text.replace(old, new));
            fs::write(dir.path().join(file), adapted).expect("no file");
        }
        let mut command = Command::new(envoy_bin());
        command.arg("-c").arg(dir.path().join(files[0])).args(["--concurrency", "2"]);
        command.args(["--use-dynamic-base-id", "--log-level", "warning"]);
        let mut server = Server::start(command, dir.path().join("envoy.log"));
        server.wait_for_port(ingress);
        Self { _server: server, _origin: origin, dir, ingress }
    }

    fn client(&self) -> Client {
        Client::connect(self.ingress)
    }

    /// Replaces a file by the result of `change`, as a control plane would.
    fn replace(&self, file: &str, change: impl Fn(&str) -> String) {
        let path = self.dir.path().join(file);
        let before = fs::read_to_string(&path).expect("no such file");
        let after = change(&before);
        assert_ne!(before, after, "{file} has no such text");
        let partial = self.dir.path().join("partial");
        fs::write(&partial, after).expect("no file");
        fs::rename(partial, path).expect("the file does not move");
    }
}

fn read(file: &str) -> String {
    let shipped = process::required_path("TOLLGATE_ENVOY_CONFIG", "cargo xtask test envoy");
    let path: PathBuf = shipped.parent().expect("a folder").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The response of one path: the status, and the policy that the fields name. The connection stays
/// open.
fn ask(client: &mut Client, path: &str) -> (u16, String) {
    let response = client.send(&Request::get(path));
    assert_eq!(response.header("connection"), None);
    (response.status, response.header("ratelimit-policy").unwrap_or_default())
}

// Guards: a route without limits, a route with a policy of its own, all others, in one listener.
#[test]
fn routes_have_policies_of_their_own() {
    ["per-route.yaml", "per-route-filters.yaml"].into_iter().for_each(try_routes);
}

fn try_routes(file: &str) {
    let envoy = Shipped::start(&[file]);
    let mut client = envoy.client();
    for _ in 0..20 {
        assert_eq!(ask(&mut client, "/healthz"), (200, String::new()), "off");
    }
    let logins: Vec<_> = (0..4).map(|_| ask(&mut client, "/login")).collect();
    assert_eq!(logins.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [200, 200, 200, 429]);
    let only = |said: &str, name: &str| said.contains(name) && said.matches(";q=").count() == 1;
    assert!(logins.iter().all(|(_, policy)| only(policy, "log-ins")), "{logins:?}");
    let (status, policy) = ask(&mut client, "/");
    assert!(status == 200 && only(&policy, "per-client"), "log-ins count by themselves: {policy}");
    // One more is allowed each second: two hundred at once are too many on any machine.
    let refused = (0..200).filter(|_| ask(&mut client, "/").0 == 429).count();
    assert!(refused > 0);
    assert_eq!(ask(&mut client, "/healthz"), (200, String::new()), "still off");
}

// Guards: the statement of `per-route.yaml` about Envoy, that a route cannot have its own policy.
// If a version accepts one, there is a better way.
#[test]
fn a_route_takes_no_configuration_of_the_filter() {
    let policy = json!({"version": 1, "rules": [{
        "name": "r", "key": [], "quotas": [{"limit": 1, "window": "1m"}],
    }]});
    let filter = tollgate(&policy, "vm", As::Text);
    let message = filter["typed_config"].clone();
    let wrapped = json!({
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": message,
    });
    for own in [message, wrapped] {
        let mut listener = Listener::new("main", vec![filter.clone()]);
        listener.routes[0]["typed_per_filter_config"] = json!({"tollgate": own});
        let output = Setup::new(1, vec![listener]).validate();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        let why = "doesn't support virtual host or route specific configurations";
        assert!(said.contains(why), "{said}");
    }
}

// Guards: the files of xDS, and that another policy by ECDS closes no connection and resets no
// count, while one with mistakes changes nothing.
#[test]
fn policies_come_from_files() {
    let envoy = Shipped::start(&["xds/bootstrap.yaml", "xds/lds.yaml", "xds/ecds.yaml"]);
    let mut kept = envoy.client();
    // The listener may exist before its filter does.
    process::wait_until("the filter is there", process::READY_WITHIN, || {
        ask(&mut kept, "/").1.contains("q=10").then_some(())
    });
    assert!((0..200).any(|_| ask(&mut kept, "/").0 == 429));

    let long = "limit: 10, window: 1000s, burst: 5";
    envoy.replace("xds/ecds.yaml", |text| text.replace("limit: 10, window: 10s, burst: 5", long));
    process::wait_until("the new policy is in force", process::READY_WITHIN, || {
        ask(&mut kept, "/").1.contains("w=1000").then_some(())
    });
    while ask(&mut kept, "/").0 == 200 {}
    envoy.replace("xds/ecds.yaml", |text| text.replace(long, "limit: -1, window: 10s"));
    process::wait_until("the mistake is told", process::READY_WITHIN, || {
        let log = fs::read_to_string(envoy.dir.path().join("envoy.log")).expect("a log");
        log.contains("rules[0].quotas[0].limit").then_some(())
    });
    let (status, policy) = ask(&mut envoy.client(), "/");
    assert!(status == 429 && policy.contains("w=1000"), "the one before stays: {policy}");
}
