//! The npm package, used without Rust: installed without a network, typed, run by wrangler alone
//! with the template, and next to the example app that calls it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate_e2e::http::{Client, Request};
use tollgate_e2e::process::{self, Server, TempDir};
use tollgate_e2e::workerd::node_bin;
use tollgate_policy::{Surface, compiled_text};

const RUN: &str = "cargo xtask test workerd";
const DOCUMENT: &str = include_str!("../../docs/worker.md");
/// The file with the version of wrangler.
const WRANGLER: &str = include_str!("../../crates/xtask/node/package.json");
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/worker-app");

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_all(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a file is copied")),
        }
    }
}

/// The output of a command; a failed test when it fails.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success(), "{command:?}: {}", said.concat());
    said.concat()
}

/// Installs the package into `folder`, only from its file.
fn install(folder: &Path) -> PathBuf {
    let package = process::required_path("TOLLGATE_NPM_PACKAGE", RUN);
    let mut npm = Command::new("npm");
    npm.current_dir(folder).args(["install", "--offline", "--no-audit", "--no-fund"]);
    npm.arg("--cache").arg(folder.join(".npm"));
    run(npm.arg(package));
    folder.join("node_modules/tollgate-worker")
}

/// wrangler with these configurations, and the port of the first.
fn dev(folder: &Path, configurations: &[&str]) -> (Server, u16) {
    let port = process::free_port();
    let modules = process::required_path("TOLLGATE_NODE_MODULES", RUN);
    let mut wrangler = Command::new(node_bin());
    wrangler.current_dir(folder).arg(modules.join("wrangler/bin/wrangler.js")).arg("dev");
    for file in configurations {
        wrangler.args(["-c", file]);
    }
    wrangler.args(["--ip", "127.0.0.1", "--port", &port.to_string()]);
    with_node(&mut wrangler);
    let mut server = Server::start(wrangler, folder.join("wrangler.log"));
    server.wait_for_port(port);
    (server, port)
}

/// The blocks of console in docs/worker.md: each command with its output.
fn console() -> Vec<(&'static str, &'static str)> {
    let blocks = DOCUMENT.split("```console\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().expect("an end"));
    let commands = blocks.flat_map(|block| block.strip_prefix("$ ").expect("$").split("\n$ "));
    commands.map(|it| it.split_once('\n').unwrap_or((it, ""))).collect()
}

/// A command of the document, with the package, the tool and the port of this machine.
fn here(command: &str, folder: &Path, port: u16) -> Command {
    let package = process::required_path("TOLLGATE_NPM_PACKAGE", RUN);
    let modules = process::required_path("TOLLGATE_NODE_MODULES", RUN);
    let wrangler = modules.join("wrangler/bin/wrangler.js");
    let wrangler = format!("exec {} {}", node_bin().display(), wrangler.display());
    let named = WRANGLER.split("\"wrangler\": \"").nth(1).and_then(|it| it.split('"').next());
    let named = format!("npx wrangler@{}", named.expect("a version"));
    let command = command
        .replace("./tollgate-worker-0.1.0.tgz", &package.display().to_string())
        .replace("npm install", "npm install --offline --cache .npm")
        .replace("8787", &port.to_string())
        .replace(&named, &wrangler);
    assert!(!command.contains("npx"), "another version of wrangler is tested: {command}");
    let mut shell = Command::new("sh");
    shell.current_dir(folder).args(["-c", &command]);
    with_node(&mut shell);
    shell
}

/// A program started as `node` is the Node of the tests.
fn with_node(program: &mut Command) {
    let folder = node_bin().parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    program.env("PATH", format!("{folder}:{path}"));
}

// Guards: a build that continues with an invalid policy, or reports only some of the mistakes; and
// bytes that differ from another compiler's.
#[test]
fn the_package_compiles_a_policy() {
    let folder = TempDir::new("compile");
    install(folder.path());
    let compile = |arguments: &[&str]| {
        let mut program = Command::new(folder.path().join("node_modules/.bin/tollgate-compile"));
        with_node(program.current_dir(folder.path()).args(arguments));
        let output = program.output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let template = folder.path().join("node_modules/tollgate-worker/template/policy.json");
    fs::copy(&template, folder.path().join("policy.json")).expect("a file");
    assert_eq!(compile(&[]), (Some(0), String::new()));
    let policy = fs::read_to_string(template).expect("a policy");
    let policy = tollgate_language::compile(&policy, Surface::Worker).expect("it is good");
    let module = fs::read_to_string(folder.path().join("policy.compiled.mjs")).expect("a module");
    let text = compiled_text(|out| policy.write_compiled(out));
    assert_eq!(module, format!("export default \"{text}\";\n"));
    let bad = r#"{"version": 1, "rules": [{"name": "a", "key": [], "quotas": [{"limit": -1, "window": "0s"}]}]}"#;
    fs::write(folder.path().join("bad.json"), bad).expect("a file");
    let (code, said) = compile(&["bad.json", "none.mjs"]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(code == Some(1) && lines.len() == 2, "{said}");
    assert!(
        lines[0].starts_with("tollgate-compile: bad.json: rules[0].quotas[0].limit: "),
        "{said}"
    );
    assert!(!folder.path().join("none.mjs").exists(), "nothing is written");
    assert_eq!(compile(&["none.json"]).0, Some(1));
    assert_eq!(compile(&["a", "b", "c"]).0, Some(2));
}

// Guards: a document whose commands do not work; a package that lacks a module, whose template
// wrangler rejects, or that allows every request because its policy is not the user's.
#[test]
fn the_commands_of_the_document_lead_to_a_limit() {
    let folder = TempDir::new("package");
    let port = process::free_port();
    let commands = console();
    let [install, copy, dev, ask] = commands[..] else { panic!("{commands:?}") };
    for (command, _) in [install, copy] {
        run(&mut here(command, folder.path(), port));
    }
    let start = |port: u16, name: &str| {
        let mut server = Server::start(here(dev.0, folder.path(), port), folder.path().join(name));
        server.wait_for_port(port);
        server
    };
    let server = start(port, "wrangler.log");
    assert_eq!(run(&mut here(ask.0, folder.path(), port)), ask.1, "{}", server.log());
    drop(server);
    // Without the call that sets the policy there is none, and no request is allowed.
    let main = folder.path().join("limiter/src/index.mjs");
    let text = fs::read_to_string(&main).expect("the main module");
    assert!(text.contains("usePolicy(policy);\n"), "{text}");
    fs::write(&main, text.replace("usePolicy(policy);\n", "")).expect("it is written");
    let port = process::free_port();
    let server = start(port, "wrangler2.log");
    let answers = run(&mut here(ask.0, folder.path(), port));
    assert_eq!(answers, "{\"type\":\"about:blan\n".repeat(6), "{}", server.log());
    let response = Client::connect(port).send(&Request::get("/.well-known/tollgate/health"));
    assert_eq!(response.status, 500, "{} {}", response.text(), server.log());
}

// Guards: types that a compiler rejects, or that are incomplete; and the example that users copy:
// an app that sends its checks by its binding, denies with the policy's response, and shows clients
// the rest.
#[test]
fn the_example_app_is_typed_and_limited_by_its_binding() {
    let folder = TempDir::new("example");
    for part in ["package.json", "tsconfig.json", "wrangler.toml", "src"] {
        let from = Path::new(EXAMPLE).join(part);
        match from.is_dir() {
            true => copy_all(&from, &folder.path().join(part)),
            false => drop(fs::copy(from, folder.path().join(part)).expect("a file is copied")),
        }
    }
    let installed = install(folder.path());
    copy_all(&installed.join("template"), &folder.path().join("limiter"));
    fs::write(folder.path().join("limiter/.dev.vars"), "HASH_KEY=any-long-secret\n")
        .expect("a file");
    types(folder.path());
    let app = fs::read_to_string(folder.path().join("src/index.ts")).expect("the app");
    assert!(DOCUMENT.contains(&format!("```ts\n{app}```")), "docs/worker.md shows another app");

    let (server, port) = dev(folder.path(), &["wrangler.toml", "limiter/wrangler.toml"]);
    let ask = |method: &str, path: &str| {
        let request = Request::new(method, path).header("cf-connecting-ip", "192.0.2.1");
        Client::connect(port).send(&request)
    };
    for left in (0..5).rev() {
        let response = ask("POST", "/login");
        assert_eq!((response.status, response.text().as_str()), (200, "welcome\n"));
        let field = response.header("ratelimit").expect("a field");
        assert!(field.contains(&format!("r={left};")), "{field}");
    }
    let refused = ask("POST", "/login?again");
    assert_eq!(refused.status, 429, "{}", server.log());
    let content_type = refused.header("content-type");
    assert_eq!(content_type.as_deref(), Some("application/problem+json"));
    assert!(refused.header("retry-after").is_some() && refused.text().contains("Quota Exceeded"));
    assert_eq!(ask("GET", "/login").status, 200, "another route");
    // A hundred words are charged, and ten settled.
    let text = ["word"; 100].join(" ");
    for left in [1900, 1890] {
        let request =
            Request::post("/summary", text.clone()).header("cf-connecting-ip", "192.0.2.1");
        let response = Client::connect(port).send(&request);
        assert_eq!((response.status, response.text().len()), (200, 50), "{}", server.log());
        let field = response.header("ratelimit").expect("a field");
        assert!(field.contains(&format!("r={left};")), "{field}");
    }
}

/// Code that must not compile: each line is a mistake.
const MISTAKES: &str = r#"import { describe, type Tollgate } from "tollgate-worker";
declare const tollgate: Tollgate;
declare const request: Request;
tollgate.check({ method: "GET" });
tollgate.check({ method: "GET", path: "/", hots: "a" });
(await tollgate.check({ method: "GET", path: "/" })).charged;
(await tollgate.check({ method: "GET", path: "/", response_status: 401 })).decision;
(await tollgate.check({ requests: [describe(request)] })).decision;
if ((await tollgate.check(describe(request))).decision === "denied") throw 0;
describe(request, "x-api-key");
(await tollgate.settle("x", 5)).charged;
tollgate.settle("x", "5");
tollgate.settle((await tollgate.check(describe(request))).id, 5);
export {};
"#;

/// Checks the example and the package's own files against the platform's types; then every mistake
/// must be reported.
fn types(folder: &Path) {
    let compiler = process::required_path("TOLLGATE_TYPES_MODULES", RUN);
    copy_all(
        &compiler.join("@cloudflare/workers-types"),
        &folder.join("node_modules/@cloudflare/workers-types"),
    );
    let tsc = || {
        let mut tsc = Command::new(node_bin());
        tsc.current_dir(folder).arg(compiler.join("typescript/bin/tsc")).args(["-p", "."]);
        tsc
    };
    run(&mut tsc());
    let file = folder.join("src/mistakes.ts");
    fs::write(&file, MISTAKES).expect("a file");
    let said = tsc().output().expect("tsc starts").stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let lines = MISTAKES.lines().count();
    for line in 4..lines {
        assert!(said.contains(&format!("src/mistakes.ts({line},")), "line {line}: {said}");
    }
    assert!(!said.contains("src/index.ts"), "{said}");
    fs::remove_file(file).expect("it is there");
}
