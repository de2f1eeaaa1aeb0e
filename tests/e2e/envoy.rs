//! The filter in a real Envoy. Run by `cargo xtask test envoy`, which says where Envoy and the filter are.

mod envoy_answers;
mod envoy_config;
mod envoy_exact;
mod envoy_layers;
mod envoy_limits;
mod envoy_server;
