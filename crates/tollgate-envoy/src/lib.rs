//! Tollgate as an Envoy proxy-wasm HTTP filter.
