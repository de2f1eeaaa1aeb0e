//! Values in the metadata of a stream and of its route, each by its type.
//!
//! Invariant: bytes that Envoy lends are copied before the next call. Not here: which type to ask
//! for; Envoy logs an error when a value has another one.
#![allow(unsafe_code, reason = "calls across the ABI")]

use core::ffi::c_void;

use super::Stream;
use super::imports::{self, Buffer};

/// Metadata that filters have set, in `envoy_dynamic_module_type_metadata_source`.
const OF_STREAM: i32 = 0;
/// Metadata of the route.
const ROUTE_METADATA: i32 = 1;

/// A function of Envoy that writes one value of its type, and returns whether there is one.
type Read<T> = unsafe extern "C" fn(*mut c_void, i32, Buffer, Buffer, *mut T) -> bool;

impl Stream {
    /// A text that a filter has set; `None` for a value of another type.
    pub(crate) fn metadata_text(self, filter: &str, name: &str) -> Option<Vec<u8>> {
        let read = imports::envoy_dynamic_module_callback_http_get_metadata_string;
        let found = self.metadata(read, OF_STREAM, filter, name, Buffer::EMPTY)?;
        // SAFETY: Envoy lends the text, and nothing was called since.
        Some(unsafe { found.bytes() }.to_vec())
    }

    /// The same for a number.
    pub(crate) fn metadata_number(self, filter: &str, name: &str) -> Option<f64> {
        let read = imports::envoy_dynamic_module_callback_http_get_metadata_number;
        self.metadata(read, OF_STREAM, filter, name, 0.0)
    }

    /// The same for a boolean.
    pub(crate) fn metadata_truth(self, filter: &str, name: &str) -> Option<bool> {
        let read = imports::envoy_dynamic_module_callback_http_get_metadata_bool;
        self.metadata(read, OF_STREAM, filter, name, false)
    }

    fn metadata<T>(
        self,
        read: Read<T>,
        source: i32,
        filter: &str,
        name: &str,
        mut value: T,
    ) -> Option<T> {
        let (filter, name) = (Buffer::of(filter.as_bytes()), Buffer::of(name.as_bytes()));
        // SAFETY: the stream lives, and `read` is one of the three functions for metadata: it reads
        // both names and writes one value.
        unsafe { read(self.0, source, filter, name, &raw mut value) }.then_some(value)
    }

    /// A text in the metadata of the route; no bytes for a value that is no text.
    pub(crate) fn route_metadata(self, namespace: &str, key: &str) -> Option<Vec<u8>> {
        let read = imports::envoy_dynamic_module_callback_http_get_metadata_string;
        // The function for texts does not distinguish another type from no value.
        self.has_route_metadata(namespace, key).then_some(())?;
        let found = self.metadata(read, ROUTE_METADATA, namespace, key, Buffer::EMPTY);
        // SAFETY: Envoy lends the text, and nothing was called since.
        Some(found.map_or_else(Vec::new, |text| unsafe { text.bytes() }.to_vec()))
    }

    /// True when the metadata of the route has this key.
    fn has_route_metadata(self, namespace: &str, key: &str) -> bool {
        let namespace = Buffer::of(namespace.as_bytes());
        // SAFETY: the stream lives. Envoy writes exactly as many keys as it said, each of which is
        // read before any other call.
        unsafe {
            let count = imports::envoy_dynamic_module_callback_http_get_metadata_keys_count(
                self.0,
                ROUTE_METADATA,
                namespace,
            );
            let mut keys = vec![Buffer::EMPTY; count];
            count > 0
                && imports::envoy_dynamic_module_callback_http_get_metadata_keys(
                    self.0,
                    ROUTE_METADATA,
                    namespace,
                    keys.as_mut_ptr(),
                )
                && keys.iter().any(|it| it.bytes() == key.as_bytes())
        }
    }
}
