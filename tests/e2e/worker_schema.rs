//! The OpenAPI document against the real answers, by schemathesis: a reader of it that is not ours
//! makes requests of it, right and wrong ones, and compares every answer.

use std::process::Command;

use serde_json::Value;
use tollgate_e2e::process::{TempDir, required_path};

use crate::worker_admin::{ADMIN, limited, operated};

/// Requests of each operation that are made by chance, beside those that follow from its schema.
const EXAMPLES: &str = "10";
/// Whether an answer is documented, and is as it is documented.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method";
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
const OPEN_API: &str = include_str!("../../docs/openapi.json");
/// Its package has a script and no main module.
const RUN: &str = "from schemathesis.cli import schemathesis; schemathesis()";

// Guards: a document that clients are generated from and that is not so: an answer that is not
// there, a member that is missing or of another type, a media type, a field; and a 500 for
// something that nobody thought of.
#[test]
fn every_answer_to_generated_requests_is_documented() {
    let packages = required_path("TOLLGATE_SCHEMATHESIS", "cargo xtask test workerd");
    let setup = operated(limited(1_000_000)).binding("METRICS_TOKEN", "who-reads-the-metrics");
    let worker = setup.start();
    let folder = TempDir::new("schemathesis");
    let mut python = Command::new("python3");
    python.current_dir(folder.path()).env("PYTHONPATH", packages).env("NO_COLOR", "1");
    // By its file: of a document that is served it leaves out the path that serves it.
    let served = format!("http://127.0.0.1:{}", worker.port);
    python.args(["-c", RUN, "run", FILE, "--url", &served, "--header"]);
    python.arg(format!("Authorization: Bearer {ADMIN}"));
    python.args(["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES]);
    // The same requests in every run.
    python.args(["--seed", "1", "--generation-deterministic", "--no-shrink", "--workers", "1"]);
    python.args(["--checks", CHECKS, "--continue-on-failure", "--request-timeout", "60"]);
    python.args(["--suppress-health-check", "all", "--warnings", "off"]);
    let output = python.output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{errors}{}", worker.log());
    // It did ask, and of every operation.
    let document: Value = serde_json::from_str(OPEN_API).expect("JSON");
    let paths = document["paths"].as_object().expect("paths").values();
    let operations = paths.flat_map(|path| path.as_object().expect("a path").keys());
    let is_method = |key: &&String| ["get", "put", "post", "delete"].contains(&key.as_str());
    let count = operations.filter(is_method).count();
    assert!(said.contains(&format!("Tested: {count}\n")) && count > 10, "{count}: {said}");
}
