//! The playground and the admin page as static assets of the Worker: below their prefixes, when
//! configured, and never in place of the origin.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tollgate_e2e::http::{Client, Request, Response};
use tollgate_e2e::process::{self, Server, TempDir};
use tollgate_e2e::workerd::{Setup, Workerd, node_bin, worker_dir};

use crate::worker_origin::serve;

const PAGE: &str = "/.well-known/tollgate/playground/";
const HEALTH: &str = "/.well-known/tollgate/health";

/// Assets that have a file for every path, which is the worst that a deployment could bind.
const GREEDY: &str = r#"
export default {
  fetch(request) {
    const told = [...request.headers.keys()].join(",");
    const { pathname, search } = new URL(request.url);
    if (request.headers.get("if-none-match") === '"known"') return new Response(null, { status: 304 });
    const headers = { etag: '"known"', "cache-control": "public, max-age=0", "content-type": "text/html" };
    return new Response(`asset ${pathname}${search} told ${told}`, { headers });
  },
};
"#;

fn policy(limit: u64) -> String {
    let quota = json!({"algorithm": "fixed-window", "limit": limit, "window": "366d"});
    let rule = json!({"name": "all", "key": ["client_ip"], "quotas": [quota]});
    json!({"version": 1, "rules": [rule]}).to_string()
}

/// An origin that also has every path.
fn origin() -> String {
    serve(|request| {
        let body = format!("origin {}", request.target);
        request.answer("200 OK", "content-type: text/plain\r\n", body);
    })
}

fn get(worker: &Workerd, path: &str) -> Response {
    let request = Request::get(path).header("cf-connecting-ip", "192.0.2.1");
    worker.client().send(&request)
}

// Guards: a file that replaces the origin's response, because both have a path of its name; a path
// that is the prefix in another spelling; and files that the policy's limits count or deny.
#[test]
fn assets_never_answer_for_the_origin() {
    let worker = Setup::new(policy(1000)).binding("ORIGIN", origin()).assets(GREEDY).start();
    for path in [
        "/",
        "/index.html",
        "/assets/x.js",
        "/main-A1.js",
        "/.well-known/tollgate",
        "/.well-known/tollgate/",
        "/.well-known/tollgate/index.html",
        "/.well-known/tollgate/playgrounds",
        "/.well-known/tollgate/playground.html",
        "/.well-known/security.txt",
        "/.WELL-KNOWN/tollgate/playground/",
        "//.well-known/tollgate/playground/",
        "/a/.well-known/tollgate/playground/",
        "/.well-known%2Ftollgate/playground/",
        "/.well-known/tollgate/playground%2Findex.html",
        "/?/.well-known/tollgate/playground/",
    ] {
        let answer = get(&worker, path);
        assert_eq!(answer.text(), format!("origin {path}"));
        assert!(answer.header("ratelimit").is_some(), "{path} was not counted");
    }
    for path in [PAGE, "/.well-known/tollgate/playground/main-A1.js"] {
        let answer = get(&worker, path);
        assert!(answer.text().starts_with(&format!("asset {path} ")), "{}", answer.text());
        assert_eq!(answer.header("ratelimit"), None, "{path} was counted");
    }
    assert_eq!(get(&worker, HEALTH).status, 200);
}

// Guards: a page that other sites can frame, to which others can add scripts, or that a browser
// keeps when a deployment has another one; and assets that receive a client's cookies.
#[test]
fn the_page_is_sent_with_what_it_may_do() {
    let worker = Setup::new(policy(1)).binding("ORIGIN", origin()).assets(GREEDY).start();
    let request = Request::get(&format!("{PAGE}?p=1"))
        .header("cookie", "session=1")
        .header("authorization", "Bearer x");
    let page = worker.client().send(&request);
    assert_eq!(page.text(), format!("asset {PAGE} told "));
    let policy = page.header("content-security-policy").expect("a policy");
    for part in
        ["default-src 'none'", "script-src 'self' 'wasm-unsafe-eval'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{policy}");
    assert_eq!(page.all("cache-control"), ["no-cache"]);
    assert_eq!(page.header("x-content-type-options").as_deref(), Some("nosniff"));
    let file = get(&worker, &format!("{PAGE}main-A1.js"));
    assert_eq!(file.all("cache-control"), ["public, max-age=31536000, immutable"]);
    let known = worker.client().send(&Request::get(PAGE).header("if-none-match", "\"known\""));
    assert_eq!((known.status, known.text().as_str()), (304, ""));
    let head = worker.client().send(&Request::new("HEAD", PAGE));
    assert_eq!((head.status, head.text().as_str()), (200, ""));
}

// Guards: a page without an API behind it, one that replaces the admin API, and one that has more
// permissions than it needs.
#[test]
fn the_admin_page_is_there_with_a_token_and_leaves_the_api_alone() {
    const ADMIN: &str = "/.well-known/tollgate/admin/";
    let setup = Setup::new(policy(1000)).operated().binding("ORIGIN", origin());
    let worker = setup.binding("ADMIN_TOKEN", "a-token-of-this-test").assets(GREEDY).start();
    let page = get(&worker, ADMIN);
    assert_eq!(page.text(), format!("asset {ADMIN} told "));
    assert_eq!(page.all("cache-control"), ["no-cache"]);
    let allowed = page.header("content-security-policy").expect("a policy");
    for part in ["default-src 'none'", "trusted-types 'none'", "frame-ancestors 'none'"] {
        assert!(allowed.contains(part), "{allowed}");
    }
    assert!(!allowed.contains("unsafe"), "{allowed}");
    assert!(get(&worker, &format!("{ADMIN}main-A1.js")).text().starts_with("asset "));
    for path in ["policy", "policy/history", "tenants/a.js", "keys", "index.html", ".x.js"] {
        let answer = get(&worker, &format!("{ADMIN}{path}"));
        assert!(answer.status >= 400 && !answer.text().contains("asset"), "{path}");
    }
    assert_eq!(worker.client().send(&Request::new("POST", ADMIN)).status, 405);
    let metrics = Setup::new(policy(1000)).operated().binding("ORIGIN", origin());
    let metrics = metrics.binding("METRICS_TOKEN", "a-token-of-this-test").assets(GREEDY).start();
    let off = Setup::new(policy(1000)).binding("ORIGIN", origin()).assets(GREEDY).start();
    for worker in [metrics, off] {
        for path in [ADMIN, "/.well-known/tollgate/admin", &format!("{ADMIN}main-A1.js")] {
            assert_eq!(get(&worker, path).status, 404, "{path}");
        }
    }
}

// Guards: a client that is denied and cannot see why; one whose visits to the page use up its
// quota.
#[test]
fn the_policy_neither_counts_nor_refuses_the_page() {
    let worker = Setup::new(policy(1)).binding("ORIGIN", origin()).assets(GREEDY).start();
    let statuses: Vec<u16> =
        [PAGE, PAGE, "/a", "/a", PAGE].iter().map(|path| get(&worker, path).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 200]);
}

// Guards: a name that a file server resolves to something else, a method that writes, a redirect of
// the assets that leads away, and a failure without a response.
#[test]
fn only_plain_names_are_asked_for_and_only_files_are_answers() {
    let worker = Setup::new(policy(1)).binding("ORIGIN", origin()).assets(GREEDY).start();
    for name in ["a/b", "%2e%2e%2fhealth", ".env", "a%00", "a%20b", "/", "%61"] {
        let answer = get(&worker, &format!("{PAGE}{name}"));
        assert_eq!(answer.status, 404, "{name}");
        assert!(answer.text().contains("the page has no such file"), "{}", answer.text());
    }
    let answer = worker.client().send(&Request::post(PAGE, "x"));
    assert_eq!((answer.status, answer.header("allow").as_deref()), (405, Some("GET, HEAD")));
    let answer = get(&worker, PAGE.trim_end_matches('/'));
    assert_eq!((answer.status, answer.header("location").as_deref()), (308, Some(PAGE)));
    for fetch in [
        "return new Response(null, { status: 404 })",
        "return new Response('x', { status: 500 })",
        "return Response.redirect('https://example.com/')",
        "throw new Error('no assets')",
    ] {
        let module = format!("export default {{ fetch(request) {{ {fetch}; }} }};");
        let setup = Setup::new(policy(1)).binding("ORIGIN", origin()).assets(&module);
        let worker = setup.start();
        let answer = get(&worker, PAGE);
        assert_eq!((answer.status, answer.header("location")), (404, None), "{fetch}");
    }
}

// Guards: a deployment that is not configured to serve a page.
#[test]
fn without_assets_the_prefix_is_like_any_other_path() {
    let worker = Setup::new(policy(2)).binding("ORIGIN", origin()).start();
    for status in [200, 200, 429] {
        let answer = get(&worker, PAGE);
        assert_eq!(answer.status, status);
        assert!(status != 200 || answer.text() == format!("origin {PAGE}"));
    }
    let service = Setup::new(policy(1)).start();
    assert_eq!(get(&service, PAGE).status, 404);
}

// Guards: a setting that is ignored; and an invalid policy, whose author needs the page most.
#[test]
fn assets_that_are_none_are_a_wrong_setting_and_a_wrong_policy_has_its_page() {
    let worker = Setup::new(policy(1)).binding("ASSETS", "yes").start();
    let health = get(&worker, HEALTH);
    assert_eq!(health.status, 500);
    assert!(health.text().contains("\"path\":\"ASSETS\""), "{}", health.text());
    let worker = Setup::new("{").assets(GREEDY).start();
    assert_eq!((get(&worker, PAGE).status, get(&worker, "/").status), (200, 500));
}

/// The shipped wrangler.toml with its block of assets enabled, for a Worker in the same folder.
fn wrangler_toml(origin: &str) -> String {
    let shipped = include_str!("../../wrangler.toml");
    let block = shipped.split("# [assets]").nth(1).expect("a block of assets");
    let block: Vec<&str> =
        block.lines().skip(1).map_while(|line| line.strip_prefix("# ")).collect();
    let mut text =
        shipped.replace("main = \"crates/tollgate-worker/entry.mjs\"", "main = \"entry.mjs\"");
    text = text.replace("command = \"cargo xtask build worker\"", "command = \"true\"");
    text.push_str(&format!("\n[assets]\n{}\n", block.join("\n")));
    text.push_str(&format!("\n[vars]\nORIGIN = \"{origin}\"\n"));
    assert!(text.contains("run_worker_first = true") && text.contains("main = \"entry.mjs\""));
    text
}

fn write(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
    fs::write(path, text).expect("a file is written");
}

// Guards: the block of wrangler.toml that operators copy, with the platform's own assets as
// wrangler runs them: files at the root of the folder, and below its names, never replace the
// origin's response.
#[test]
fn wranglers_own_assets_never_answer_for_the_origin() {
    let folder = TempDir::new("wrangler");
    for file in
        ["entry.mjs", "policy.json", "build/policy.mjs", "build/index.js", "build/index_bg.wasm"]
    {
        let to = folder.path().join(file);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder is made");
        fs::copy(worker_dir().join(file), to).expect("the Worker is copied");
    }
    write(folder.path(), "policy.json", &policy(1000));
    let toml = wrangler_toml(&origin());
    let assets = "target/tollgate/assets";
    write(folder.path(), &format!("{assets}{PAGE}index.html"), "asset page");
    write(folder.path(), &format!("{assets}{PAGE}main-A1.js"), "asset script");
    // These files are there only by mistake.
    write(folder.path(), &format!("{assets}/index.html"), "asset root");
    write(folder.path(), &format!("{assets}/x.js"), "asset x");
    write(folder.path(), "wrangler.toml", &toml);
    let port = process::free_port();
    let modules = process::required_path("TOLLGATE_NODE_MODULES", "cargo xtask test workerd");
    let mut wrangler = Command::new(node_bin());
    wrangler.current_dir(folder.path()).arg(modules.join("wrangler/bin/wrangler.js"));
    wrangler.args(["dev", "--ip", "127.0.0.1", "--port", &port.to_string()]);
    let mut server = Server::start(wrangler, folder.path().join("wrangler.log"));
    server.wait_for_port(port);
    let get = |path: &str| {
        let request = Request::get(path).header("cf-connecting-ip", "192.0.2.1");
        Client::connect(port).send(&request)
    };
    for path in ["/", "/index.html", "/x.js", "/x", "/.well-known/tollgate/", "/none"] {
        assert_eq!(get(path).text(), format!("origin {path}"), "{}", server.log());
    }
    assert_eq!(get(PAGE).text(), "asset page");
    let script = get(&format!("{PAGE}main-A1.js"));
    assert_eq!(script.text(), "asset script");
    assert!(script.header("content-type").expect("a type").starts_with("text/javascript"));
    assert_eq!(get(&format!("{PAGE}none.js")).status, 404);
    assert_eq!(get(HEALTH).status, 200);
}
