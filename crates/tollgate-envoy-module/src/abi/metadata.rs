//! Values in the metadata of a stream and of its route, each by its type.
//!
//! Invariant: bytes that Envoy lends are copied before the next call. Not here: which type to ask
//! for; Envoy logs an error when a value has another one.
#![allow(unsafe_code, reason = "calls across the ABI")]

use super::Stream;
use super::imports::{self, Buffer};

/// Metadata that filters have set, in `envoy_dynamic_module_type_metadata_source`.
const OF_STREAM: i32 = 0;
/// Metadata of the route.
const ROUTE_METADATA: i32 = 1;

impl Stream {
    /// A text that a filter has set; `None` for a value of another type.
    pub(crate) fn metadata_text(self, filter: &str, name: &str) -> Option<Vec<u8>> {
        let (filter, name) = (Buffer::of(filter.as_bytes()), Buffer::of(name.as_bytes()));
        let mut found = Buffer::EMPTY;
        // SAFETY: the stream lives. Envoy reads both names and writes one buffer, which is copied
        // before any other call.
        unsafe {
            imports::envoy_dynamic_module_callback_http_get_metadata_string(
                self.0,
                OF_STREAM,
                filter,
                name,
                &raw mut found,
            )
            .then(|| found.bytes().to_vec())
        }
    }

    /// The same for a number.
    pub(crate) fn metadata_number(self, filter: &str, name: &str) -> Option<f64> {
        let (filter, name) = (Buffer::of(filter.as_bytes()), Buffer::of(name.as_bytes()));
        let mut found = 0.0;
        // SAFETY: the stream lives. Envoy reads both names and writes one number.
        unsafe {
            imports::envoy_dynamic_module_callback_http_get_metadata_number(
                self.0,
                OF_STREAM,
                filter,
                name,
                &raw mut found,
            )
            .then_some(found)
        }
    }

    /// The same for a boolean.
    pub(crate) fn metadata_truth(self, filter: &str, name: &str) -> Option<bool> {
        let (filter, name) = (Buffer::of(filter.as_bytes()), Buffer::of(name.as_bytes()));
        let mut found = false;
        // SAFETY: the stream lives. Envoy reads both names and writes one boolean.
        unsafe {
            imports::envoy_dynamic_module_callback_http_get_metadata_bool(
                self.0,
                OF_STREAM,
                filter,
                name,
                &raw mut found,
            )
            .then_some(found)
        }
    }

    /// A text in the metadata of the route; no bytes for a value that is no text.
    pub(crate) fn route_metadata(self, namespace: &str, key: &str) -> Option<Vec<u8>> {
        let namespace = Buffer::of(namespace.as_bytes());
        let mut found = Buffer::EMPTY;
        // SAFETY: the stream lives. Envoy writes exactly as many keys as it said, and one buffer,
        // each of which is read before any other call.
        unsafe {
            let count = imports::envoy_dynamic_module_callback_http_get_metadata_keys_count(
                self.0,
                ROUTE_METADATA,
                namespace,
            );
            let mut keys = vec![Buffer::EMPTY; count];
            let keys_at = keys.as_mut_ptr();
            // Envoy logs an error for a key that is not there.
            if !(count > 0
                && imports::envoy_dynamic_module_callback_http_get_metadata_keys(
                    self.0,
                    ROUTE_METADATA,
                    namespace,
                    keys_at,
                )
                && keys.iter().any(|it| it.bytes() == key.as_bytes()))
            {
                return None;
            }
            let is_text = imports::envoy_dynamic_module_callback_http_get_metadata_string(
                self.0,
                ROUTE_METADATA,
                namespace,
                Buffer::of(key.as_bytes()),
                &raw mut found,
            );
            Some(if is_text { found.bytes().to_vec() } else { Vec::new() })
        }
    }
}
