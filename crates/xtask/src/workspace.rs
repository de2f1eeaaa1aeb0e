//! The locations of the workspace root, the cache of tools, cargo's output and the products.
//!
//! Invariant: every path that another module or a test needs is named here or in `env.rs`, once.
//! Nothing is created here.

use crate::versions::TOLLGATE;
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// The folders of one checkout.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The folder with the virtual `Cargo.toml`.
    pub root: PathBuf,
    /// Downloaded and compiled tools: `.cache/`, or the variable `TOLLGATE_CACHE`.
    pub cache: PathBuf,
    /// Where cargo builds: `target/`, or the variable `CARGO_TARGET_DIR`.
    pub target: PathBuf,
    /// The products: `target/tollgate/`, whatever cargo's own folder is, because
    /// `envoy/docker-compose.yaml` names it.
    pub out: PathBuf,
}

impl Workspace {
    pub fn find() -> Self {
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest.ancestors().nth(2).unwrap_or(Path::new(".")).to_path_buf();
        let folder = |variable: &str, default: &str| {
            env::var_os(variable).map_or_else(|| root.join(default), |given| root.join(given))
        };
        Self {
            cache: folder("TOLLGATE_CACHE", ".cache"),
            target: folder("CARGO_TARGET_DIR", "target"),
            out: root.join("target/tollgate"),
            root,
        }
    }

    /// Cargo in the root of the workspace.
    pub fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.root);
        cargo
    }

    pub fn tool(&self, folder: &str) -> PathBuf {
        self.cache.join("tools").join(folder)
    }

    pub fn logs(&self) -> PathBuf {
        self.cache.join("logs")
    }

    /// The filter that is shipped.
    pub fn envoy_wasm(&self) -> PathBuf {
        self.out.join("tollgate-envoy.wasm")
    }

    /// The one that also holds no requests and makes none.
    pub fn envoy_lean_wasm(&self) -> PathBuf {
        self.out.join("tollgate-envoy-lean.wasm")
    }

    /// The one that takes compiled policies alone.
    pub fn envoy_slim_wasm(&self) -> PathBuf {
        self.out.join("tollgate-envoy-slim.wasm")
    }

    /// The example of a filter with the proxy-wasm SDK.
    pub fn envoy_example_wasm(&self) -> PathBuf {
        self.out.join("example-proxy-wasm-filter.wasm")
    }

    /// The dynamic module for this machine.
    pub fn envoy_module(&self) -> PathBuf {
        self.out.join("libtollgate_envoy_module.so")
    }

    /// The dynamic module for machines with aarch64.
    pub fn envoy_module_for_aarch64(&self) -> PathBuf {
        self.out.join("aarch64/libtollgate_envoy_module.so")
    }

    /// The library that end-to-end tests preload into Envoy, built by their step.
    pub fn clock_library(&self) -> PathBuf {
        self.target.join("release-test/libtollgate_clock.so")
    }

    /// The server, as end-to-end tests and benches run it, built by their step.
    pub fn server(&self) -> PathBuf {
        self.target.join("release-test/tollgate-server")
    }

    /// The command line, built as the server is.
    pub fn cli(&self) -> PathBuf {
        self.target.join("release-test/tollgate")
    }

    /// The npm package, packed. Its version is the workspace's.
    pub fn npm_package(&self) -> PathBuf {
        self.out.join(format!("npm/tollgate-worker-{TOLLGATE}.tgz"))
    }

    /// The files that `wrangler deploy` would upload, as plain workerd can serve them.
    pub fn worker_dir(&self) -> PathBuf {
        self.out.join("worker")
    }

    /// The Worker's twins, as plain workerd can serve them.
    pub fn twin_dir(&self) -> PathBuf {
        self.out.join("twin")
    }

    /// The files of a release.
    pub fn release_dir(&self) -> PathBuf {
        self.root.join("target/release-artifacts")
    }

    /// The filter's images, an OCI layout for each module.
    pub fn images_dir(&self) -> PathBuf {
        self.out.join("oci")
    }

    /// The playground, as any server of static files can serve it.
    pub fn playground_dir(&self) -> PathBuf {
        self.out.join("playground")
    }
}
