//! The Worker in a real workerd, and its wasm in Node under a clock of the test. Run by
//! `cargo xtask test workerd`, which sets the paths of workerd, Node and the Worker.

#[allow(dead_code, reason = "the tests of the filter use the rest")]
mod envoy_server;
#[allow(dead_code, reason = "the tests of a server use the rest")]
mod following_envoys;
#[allow(dead_code, reason = "the tests of a server use the rest")]
mod leasing_envoys;
#[path = "../vectors/format.rs"]
mod vectors;
mod worker_admin;
mod worker_assets;
mod worker_body;
mod worker_calls;
mod worker_cases;
mod worker_changes;
mod worker_charging;
mod worker_check;
mod worker_compiled;
mod worker_corrupt;
mod worker_cost;
mod worker_crowd;
mod worker_denials;
mod worker_deny;
mod worker_docs;
mod worker_durable;
mod worker_ends;
mod worker_exact;
mod worker_failure;
mod worker_fields;
mod worker_fleet;
mod worker_follow;
mod worker_forward;
mod worker_grpc;
mod worker_health;
mod worker_identity;
mod worker_in_flight;
mod worker_jwt;
mod worker_keys;
mod worker_later;
mod worker_leases;
mod worker_metrics;
mod worker_odd;
mod worker_origin;
mod worker_origins;
mod worker_panics;
mod worker_penalty;
mod worker_package;
mod worker_placement;
mod worker_policy;
mod worker_proxy;
mod worker_relaxed;
mod worker_replay;
mod worker_returns;
mod worker_rpc;
mod worker_schema;
mod worker_settings;
mod worker_settle;
mod worker_shard_costs;
mod worker_shards;
mod worker_streams;
mod worker_tenants;
mod worker_upgrades;
mod worker_usage;
mod worker_values;
mod worker_wait;
