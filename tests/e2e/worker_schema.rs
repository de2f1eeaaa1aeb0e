//! The OpenAPI document against the real responses, by schemathesis: an independent reader of the
//! document generates requests from it, valid and invalid ones, and compares every response.

use std::process::Command;

use serde_json::Value;
use tollgate_e2e::process::{TempDir, required_path};
use tollgate_e2e::server::{CHECK_TOKEN, FLEET_SECRET};

use crate::worker_admin::{ADMIN, limited, operated};

/// Random requests of each operation, in addition to those that follow from its schema.
const EXAMPLES: &str = "10";
/// Whether a response is documented, and agrees with its documentation.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method";
/// The paths that require another token than the operator's.
const OF_CALLERS: [&str; 5] = ["/check", "/check/settle", "/check/renew", "/check/done", "/lease"];
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
const OPEN_API: &str = include_str!("../../docs/openapi.json");
/// Its package has a script and no main module.
const RUN: &str = "from schemathesis.cli import schemathesis; schemathesis()";

// Guards: an incorrect document from which clients are generated: a response that is not
// documented, a member that is missing or of another type, a media type, a field; and a 500 for an
// unexpected request.
#[test]
fn every_answer_to_generated_requests_is_documented() {
    let packages = required_path("TOLLGATE_SCHEMATHESIS", "cargo xtask test workerd");
    let setup = operated(limited(1_000_000)).binding("METRICS_TOKEN", "who-reads-the-metrics");
    let setup = setup.binding("CHECK_TOKEN", CHECK_TOKEN).binding("FLEET_SECRET", FLEET_SECRET);
    let setup = setup.binding("HASH_KEY", "what-names-objects");
    let worker = setup.start();
    let document: Value = serde_json::from_str(OPEN_API).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let count = |is_of_callers: bool| {
        let paths =
            paths.iter().filter(|(path, _)| OF_CALLERS.contains(&path.as_str()) == is_of_callers);
        let operations = paths.flat_map(|(_, path)| path.as_object().expect("a path").keys());
        let is_method = |key: &&String| ["get", "put", "post", "delete"].contains(&key.as_str());
        operations.filter(is_method).count()
    };
    assert_eq!(count(true), OF_CALLERS.len());
    for (token, option, is_of_callers) in
        [(ADMIN, "--exclude-path", false), (CHECK_TOKEN, "--include-path", true)]
    {
        let folder = TempDir::new("schemathesis");
        let mut python = Command::new("python3");
        python.current_dir(folder.path()).env("PYTHONPATH", &packages).env("NO_COLOR", "1");
        // By its file: for a document that is served it leaves out the path that serves it.
        let served = format!("http://127.0.0.1:{}", worker.port);
        python.args(["-c", RUN, "run", FILE, "--url", &served, "--header"]);
        python.arg(format!("Authorization: Bearer {token}"));
        python.args(["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES]);
        // The same requests in every run.
        python.args(["--seed", "1", "--generation-deterministic", "--no-shrink"]);
        python.args(["--workers", "1", "--checks", CHECKS, "--continue-on-failure"]);
        python.args(["--request-timeout", "60", "--suppress-health-check", "all"]);
        python.args(["--warnings", "off"]);
        for path in OF_CALLERS {
            python.args([option, path]);
        }
        let output = python.output().expect("python3 starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}{errors}{}", worker.log());
        // It sent requests, for every operation.
        let count = count(is_of_callers);
        assert!(said.contains(&format!("Tested: {count}\n")) && count >= 3, "{count}: {said}");
    }
}
