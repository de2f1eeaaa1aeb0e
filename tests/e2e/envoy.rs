//! The filter in a real Envoy.
