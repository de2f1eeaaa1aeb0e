//! The real `tollgate-server`. Run by `cargo xtask test server`, which builds it and sets its path.

mod server_answers;
mod server_config;
mod server_connections;
mod server_data;
mod server_deny;
mod server_descriptors;
mod server_docs;
mod server_end;
mod server_envoy;
mod server_exact;
mod server_forward;
mod server_leases;
mod server_malformed;
mod server_ready;
mod server_reload;
mod server_reported;
mod server_grpc;
mod server_tls;
mod server_traces;
