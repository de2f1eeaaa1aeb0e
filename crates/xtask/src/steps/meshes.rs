//! The manifests of meshes in `envoy/`: Istio's and Envoy Gateway's objects with the filter.
//!
//! Invariant: no registry that is reached has the schemas of these kinds, so the embedded policy is
//! judged by more than our own programs: real Envoy configures the filter with it as the mesh would
//! hand it over, and `tollgate check` reads the same. The fields around it are validated by a JSON
//! Schema of ours, taken from the kinds' definitions as they are published. Every judge must also
//! reject copies with a mistake.

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

/// The fields of all kinds of objects in `envoy/`.
const SCHEMA: &str = "crates/xtask/python/meshes.yaml";

/// A file, and the location of the filter's configuration in it.
struct Manifest {
    file: &'static str,
    /// The module that it loads.
    module: fn(&Workspace) -> PathBuf,
    /// The filter as the mesh builds it from the object, with the module's path.
    filter: fn(&Value, &str) -> Value,
    /// Texts in the file, mistakes in their places, and the objections of the schema.
    wrong_fields: &'static [(&'static str, &'static str, &'static str)],
}

const MANIFESTS: [Manifest; 5] = [
    Manifest {
        file: "istio-wasmplugin.yaml",
        module: Workspace::envoy_wasm,
        filter: of_wasm_plugin,
        wrong_fields: &[
            ("failStrategy:", "failureStrategy:", "('failureStrategy' was unexpected)"),
            ("pluginConfig:", "pluginConfiguration:", "'pluginConfig' is a required property"),
            ("phase: AUTHN", "phase: FIRST", "$.spec.phase 'FIRST' is not one of"),
            ("namespace:", "space:", "('space' was unexpected)"),
        ],
    },
    Manifest {
        file: "istio-envoyfilter.yaml",
        module: Workspace::envoy_wasm,
        filter: of_envoy_filter,
        wrong_fields: &[
            ("operation: INSERT_BEFORE", "operation: BEFORE", "'BEFORE' is not one of"),
            ("subFilter:", "filter:", "('filter' was unexpected)"),
            ("istio: ingressgateway", "istio: 7", "labels.istio 7 is not of type 'string'"),
            ("configPatches:", "patches:", "'configPatches' is a required property"),
        ],
    },
    Manifest {
        file: "envoy-gateway.yaml",
        module: Workspace::envoy_wasm,
        filter: of_extension_policy,
        wrong_fields: &[
            ("failOpen: false", "failOpen: never", "'never' is not of type 'boolean'"),
            ("image:", "picture:", "('picture' was unexpected)"),
            ("  name: eg", "  name: ''", "targetRefs[0].name ''"),
            ("v1alpha1", "v1", "$.apiVersion 'gateway.envoyproxy.io/v1alpha1' was expected"),
        ],
    },
    Manifest {
        file: "istio-dynamic-module.yaml",
        module: Workspace::envoy_module,
        filter: of_envoy_filter,
        wrong_fields: &[("context: GATEWAY", "context: ALL", "'ALL' is not one of")],
    },
    Manifest {
        file: "envoy-gateway-dynamic-module.yaml",
        module: Workspace::envoy_module,
        filter: of_dynamic_module,
        wrong_fields: &[
            ("dynamicModule:", "dynamicModules:", "('dynamicModules' was unexpected)"),
            ("filterName:", "filter_name:", "('filter_name' was unexpected)"),
        ],
    },
];
/// A text in every policy, and a mistake in its place.
const EMBEDDED: (&str, &str) = ("window: 1m", "window: 0m");

pub fn check(workspace: &Workspace) -> Result<()> {
    build::build(workspace, Product::Envoy)?;
    build::build(workspace, Product::Module)?;
    server::build(workspace, "tollgate-cli")?;
    for manifest in &MANIFESTS {
        let path = workspace.root.join("envoy").join(manifest.file);
        let text = files::text(&path)?;
        let (object, mistakes) = read(workspace, &text)?;
        if !mistakes.is_empty() {
            return Err(wrong(manifest, mistakes));
        }
        let said = embedded(workspace, manifest, &object)?;
        if let Some((judge, said)) =
            said.iter().find_map(|(judge, said)| Some((judge, said.as_ref()?)))
        {
            return Err(wrong(manifest, format!("{judge} rejects the embedded policy:\n{said}")));
        }
        for (right, other, objection) in manifest.wrong_fields {
            let (_, mistakes) = read(workspace, &replaced(manifest, &text, right, other)?)?;
            if !mistakes.contains(objection) {
                let why = format!("{objection:?} is not among the mistakes {mistakes:?}");
                return Err(wrong(manifest, why));
            }
        }
        let (broken, _) = read(workspace, &replaced(manifest, &text, EMBEDDED.0, EMBEDDED.1)?)?;
        for (judge, said) in embedded(workspace, manifest, &broken)? {
            if !said.is_some_and(|said| said.contains("rules[0].quotas[0].window")) {
                let why = format!("{judge} does not reject a copy with {:?}", EMBEDDED.1);
                return Err(wrong(manifest, why));
            }
        }
        println!(
            "envoy/{}: the policy by Envoy {} and `tollgate check`; the fields by {SCHEMA}",
            manifest.file, CURRENT.version
        );
    }
    Ok(())
}

fn wrong(manifest: &Manifest, why: String) -> Problem {
    let fix = format!("correct it, or {SCHEMA}");
    Problem::new(format!("envoy/{} is not right", manifest.file), why, fix)
}

fn replaced(manifest: &Manifest, text: &str, from: &str, to: &str) -> Result<String> {
    match text.contains(from) {
        true => Ok(text.replace(from, to)),
        false => Err(wrong(manifest, format!("it does not contain {from:?}, to be made wrong"))),
    }
}

/// An object as Kubernetes' tools for Python read its YAML, and its mistakes by the schema.
fn read(workspace: &Workspace, text: &str) -> Result<(Value, String)> {
    const READ: &str = "import json, sys, yaml\n\
        from jsonschema import Draft202012Validator\n\
        schema, value = yaml.safe_load(open(sys.argv[1])), yaml.safe_load(sys.argv[2])\n\
        print(json.dumps(value))\n\
        for mistake in Draft202012Validator(schema).iter_errors(value):\n    \
        print(mistake.json_path, mistake.message)";
    let mut python = python::MANIFESTS.python(workspace);
    python.args(["-c", READ]).arg(workspace.root.join(SCHEMA)).arg(text);
    let said = run::output(&mut python, "write one object of YAML")?;
    let (json, mistakes) = said.split_once('\n').unwrap_or_default();
    let object = serde_json::from_str(json);
    let object = object.or_problem("cannot read the output of Python", "see meshes.rs")?;
    Ok((object, mistakes.to_owned()))
}

/// Each judge's objection to the policy in an object.
fn embedded(
    workspace: &Workspace,
    manifest: &Manifest,
    object: &Value,
) -> Result<[(&'static str, Option<String>); 2]> {
    let filter = (manifest.filter)(object, &(manifest.module)(workspace).display().to_string());
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
    let mut check = Command::new(workspace.cli());
    let (status, said, complaints) = run::captured(check.arg("check").arg(file))?;
    Ok((!status.success()).then(|| said + &complaints))
}

fn type_of(filter: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.filters.{filter}")
}

/// An Envoy with one listener and this filter.
fn bootstrap(filter: Value) -> Value {
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
    config["configuration"] = text(policy);
    json!({"name": "tollgate", "typed_config": {
        "@type": type_of("http.wasm.v3.Wasm"),
        "config": config,
    }})
}

fn text(policy: &Value) -> Value {
    json!({
        "@type": "type.googleapis.com/google.protobuf.StringValue",
        "value": policy.to_string(),
    })
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

/// Envoy Gateway gives the object's JSON as a text, too.
fn of_dynamic_module(object: &Value, module: &str) -> Value {
    let spec = &object["spec"]["dynamicModule"][0];
    json!({"name": "tollgate", "typed_config": {
        "@type": type_of("http.dynamic_modules.v3.DynamicModuleFilter"),
        "dynamic_module_config": {"module": {"local": {"filename": module}}},
        "filter_name": spec["filterName"],
        "filter_config": text(&spec["config"]),
    }})
}

/// The object contains the whole filter.
fn of_envoy_filter(object: &Value, module: &str) -> Value {
    let mut filter = object["spec"]["configPatches"][0]["patch"]["value"].clone();
    for place in [
        "/typed_config/config/vm_config/code/local/filename",
        "/typed_config/dynamic_module_config/module/local/filename",
    ] {
        let shipped = Path::new(module).file_name().unwrap_or_default().to_string_lossy();
        if let Some(file) = filter.pointer_mut(place)
            && *file == json!(format!("/etc/envoy/{shipped}"))
        {
            *file = json!(module);
        }
    }
    filter
}
