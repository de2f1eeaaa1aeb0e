//! The manifests of meshes in `envoy/`: Istio's and Envoy Gateway's objects with the filter.
//!
//! Invariant: no registry that is reached has the schemas of these kinds, so the embedded policy is
//! judged by more than our own programs: real Envoy configures the filter with it as the mesh would
//! hand it over, and `tollgate check` reads the same. The fields around it are compared with a
//! table, taken from the kinds' definitions as they are published. Every judge must also reject a
//! copy with a mistake.

use super::mesh_fields::{self, Kind};
use crate::{
    build::{self, Product, server},
    files,
    problem::{OrProblem, Problem, Result},
    run,
    servers::envoy,
    tools::{envoy::CURRENT, python},
    workspace::Workspace,
};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const SHIPPED_FILTER: &str = "/etc/envoy/tollgate-envoy.wasm";

/// A file, its kind, and the location of the filter's configuration in it.
struct Manifest {
    file: &'static str,
    kind: &'static Kind,
    /// The filter as the mesh builds it from the object, with the module's path.
    filter: fn(&Value, &str) -> Value,
    /// A field's name and a wrong one: the table must reject it.
    beside: (&'static str, &'static str),
}

const MANIFESTS: [Manifest; 3] = [
    Manifest {
        file: "istio-wasmplugin.yaml",
        kind: &mesh_fields::WASM_PLUGIN,
        filter: of_wasm_plugin,
        beside: ("failStrategy:", "failureStrategy:"),
    },
    Manifest {
        file: "istio-envoyfilter.yaml",
        kind: &mesh_fields::ENVOY_FILTER,
        filter: of_envoy_filter,
        beside: ("operation: INSERT_BEFORE", "operation: BEFORE"),
    },
    Manifest {
        file: "envoy-gateway.yaml",
        kind: &mesh_fields::EXTENSION_POLICY,
        filter: of_extension_policy,
        beside: ("failOpen: false", "failOpen: never"),
    },
];
/// A text in every policy, and a mistake in its place.
const EMBEDDED: (&str, &str) = ("window: 1m", "window: 0m");

pub fn check(workspace: &Workspace) -> Result<()> {
    build::build(workspace, Product::Envoy)?;
    server::build_cli(workspace)?;
    for manifest in &MANIFESTS {
        let path = workspace.root.join("envoy").join(manifest.file);
        let text = files::text(&path)?;
        let object = read(workspace, &text)?;
        beside(manifest, &object)?;
        let said = embedded(workspace, manifest, &object)?;
        if let Some((judge, said)) =
            said.iter().find_map(|(judge, said)| Some((judge, said.as_ref()?)))
        {
            return Err(wrong(manifest, format!("{judge} rejects the embedded policy:\n{said}")));
        }
        let (right, other) = manifest.beside;
        let broken = read(workspace, &replaced(manifest, &text, right, other)?)?;
        if beside(manifest, &broken).is_ok() {
            return Err(wrong(manifest, format!("the table accepts a copy with {other:?}")));
        }
        let broken = read(workspace, &replaced(manifest, &text, EMBEDDED.0, EMBEDDED.1)?)?;
        for (judge, said) in embedded(workspace, manifest, &broken)? {
            if !said.is_some_and(|said| said.contains("rules[0].quotas[0].window")) {
                let why = format!("{judge} does not reject a copy with {:?}", EMBEDDED.1);
                return Err(wrong(manifest, why));
            }
        }
        let Manifest { file, kind, .. } = manifest;
        println!(
            "envoy/{file}: the policy by Envoy {} and `tollgate check`; the fields of {} by a table",
            CURRENT.version, kind.name
        );
    }
    Ok(())
}

fn wrong(manifest: &Manifest, why: String) -> Problem {
    let fix = "correct it, or the tables in mesh_fields.rs";
    Problem::new(format!("envoy/{} is not right", manifest.file), why, fix)
}

fn replaced(manifest: &Manifest, text: &str, from: &str, to: &str) -> Result<String> {
    match text.contains(from) {
        true => Ok(text.replace(from, to)),
        false => Err(wrong(manifest, format!("it does not contain {from:?}, to be made wrong"))),
    }
}

fn beside(manifest: &Manifest, object: &Value) -> Result<()> {
    let mistakes = manifest.kind.mistakes(object);
    if mistakes.is_empty() { Ok(()) } else { Err(wrong(manifest, mistakes.join("\n"))) }
}

/// YAML as Kubernetes' tools for Python read it.
fn read(workspace: &Workspace, text: &str) -> Result<Value> {
    const READ: &str = "import json, sys, yaml\n\
        json.dump(yaml.safe_load(sys.argv[1]), sys.stdout)";
    let mut python = python::MANIFESTS.python(workspace);
    let json = run::output(python.args(["-c", READ, text]), "write one object of YAML")?;
    serde_json::from_str(&json).or_problem("cannot read the output of Python", "see meshes.rs")
}

/// Each judge's objection to the policy in an object.
fn embedded(
    workspace: &Workspace,
    manifest: &Manifest,
    object: &Value,
) -> Result<[(&'static str, Option<String>); 2]> {
    let filter = (manifest.filter)(object, &workspace.envoy_wasm().display().to_string());
    let config = bootstrap(filter).to_string();
    let by_envoy = envoy::validate(workspace, CURRENT, "mesh", &config).err();
    let by_check = checked(&written(workspace, &config)?, workspace)?;
    Ok([("Envoy", by_envoy.map(|problem| problem.why)), ("tollgate check", by_check)])
}

fn written(workspace: &Workspace, config: &str) -> Result<PathBuf> {
    let file = workspace.out.join("run/mesh.json");
    files::write(&file, config)?;
    Ok(file)
}

fn checked(file: &Path, workspace: &Workspace) -> Result<Option<String>> {
    let program = workspace.server().with_file_name("tollgate");
    let (status, said, complaints) = run::captured(Command::new(program).arg("check").arg(file))?;
    Ok((!status.success()).then(|| said + &complaints))
}

/// An Envoy with one listener and this filter.
fn bootstrap(filter: Value) -> Value {
    let type_of = |name: &str| format!("type.googleapis.com/envoy.extensions.filters.{name}");
    let manager = json!({
        "@type": type_of("network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "mesh",
        // As the gateways of both meshes have it.
        "use_remote_address": true,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "direct_response": {"status": 200}},
        ]}]},
        "http_filters": [filter, {
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": type_of("http.router.v3.Router")},
        }],
    });
    json!({"static_resources": {"listeners": [{
        "name": "mesh",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    }]}})
}

/// As both meshes write it: the object's JSON in a text.
fn wasm(config: &Value, policy: &Value) -> Value {
    let mut config = config.clone();
    config["configuration"] = json!({
        "@type": "type.googleapis.com/google.protobuf.StringValue",
        "value": policy.to_string(),
    });
    json!({"name": "tollgate", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
        "config": config,
    }})
}

/// Istio names the plugin after the object, and no `vm_id`.
fn of_wasm_plugin(object: &Value, module: &str) -> Value {
    let (about, spec) = (&object["metadata"], &object["spec"]);
    let name = |field| about[field].as_str().unwrap_or_default();
    let config = json!({
        "name": format!("{}.{}", name("namespace"), name("name")),
        "root_id": spec["pluginName"],
        "failure_policy": spec["failStrategy"],
        "vm_config": {
            "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"filename": module}},
            "environment_variables": {
                "key_values": {"ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": "1"},
            },
        },
    });
    wasm(&config, &spec["pluginConfig"])
}

fn of_extension_policy(object: &Value, module: &str) -> Value {
    let spec = &object["spec"]["wasm"][0];
    let config = json!({
        "name": spec["name"],
        "fail_open": spec["failOpen"],
        "vm_config": {
            "vm_id": "envoyextensionpolicy/default/tollgate/wasm/0",
            "runtime": "envoy.wasm.runtime.v8",
            "code": {"local": {"filename": module}},
        },
    });
    wasm(&config, &spec["config"])
}

/// The object contains the whole filter.
fn of_envoy_filter(object: &Value, module: &str) -> Value {
    let mut filter = object["spec"]["configPatches"][0]["patch"]["value"].clone();
    let file = &mut filter["typed_config"]["config"]["vm_config"]["code"]["local"]["filename"];
    if file == SHIPPED_FILTER {
        *file = json!(module);
    }
    filter
}
