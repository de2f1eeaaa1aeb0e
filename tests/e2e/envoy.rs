//! The filter in a real Envoy, and the built module at chosen times.
//!
//! Run by `cargo xtask test envoy`, which sets the paths of Envoy, the filter and the data.

mod envoy_answers;
mod envoy_body;
mod envoy_cases;
mod envoy_cases_real;
mod envoy_certificates;
mod envoy_charging;
mod envoy_check;
mod envoy_clock;
mod envoy_compile;
mod envoy_compiled;
mod envoy_concurrency;
mod envoy_config;
mod envoy_day;
mod envoy_deny;
mod envoy_ends;
mod envoy_exact;
mod envoy_example;
mod envoy_flood;
mod envoy_grpc;
mod envoy_headers;
mod envoy_host;
mod envoy_hostile;
mod envoy_identity;
mod envoy_image;
mod envoy_jwt;
mod envoy_layers;
mod envoy_life;
mod envoy_life_changes;
mod envoy_life_drain;
mod envoy_life_module;
mod envoy_life_restart;
mod envoy_life_trap;
mod envoy_limits;
mod envoy_metadata;
mod envoy_migrate;
mod envoy_module;
mod envoy_numbers;
mod envoy_origins;
mod envoy_pace;
mod envoy_penalty;
mod envoy_policy;
mod envoy_priority;
mod envoy_reload;
mod envoy_routes;
mod envoy_seen;
mod envoy_server;
mod envoy_settings;
mod envoy_shipped;
mod envoy_succession;
mod envoy_values;
mod envoy_waiting;
#[path = "../vectors/format.rs"]
mod vectors;
