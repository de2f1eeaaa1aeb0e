//! The functions that the module imports from the host: the ABI of proxy-wasm 0.2.1, and random
//! bytes of WASI preview 1.
//!
//! Invariant: declarations alone; every call is in `host` or its neighbours.
#![allow(unsafe_code, reason = "declares functions of another program")]

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    pub(crate) fn proxy_log(level: u32, text: *const u8, len: usize) -> u32;
    pub(crate) fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max_len: usize,
        bytes: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    pub(crate) fn proxy_get_header_map_value(
        map: u32,
        name: *const u8,
        name_len: usize,
        bytes: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    pub(crate) fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> u32;
    pub(crate) fn proxy_get_header_map_pairs(map: u32, bytes: *mut *mut u8, len: *mut usize)
    -> u32;
    pub(crate) fn proxy_get_header_map_size(map: u32, size: *mut usize) -> u32;
    pub(crate) fn proxy_add_header_map_value(
        map: u32,
        name: *const u8,
        name_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> u32;
    pub(crate) fn proxy_get_property(
        path: *const u8,
        path_len: usize,
        bytes: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    pub(crate) fn proxy_set_property(
        path: *const u8,
        path_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> u32;
    pub(crate) fn proxy_get_shared_data(
        name: *const u8,
        name_len: usize,
        bytes: *mut *mut u8,
        len: *mut usize,
        cas: *mut u32,
    ) -> u32;
    pub(crate) fn proxy_set_shared_data(
        name: *const u8,
        name_len: usize,
        value: *const u8,
        value_len: usize,
        cas: u32,
    ) -> u32;
    pub(crate) fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_len: usize,
        body: *const u8,
        body_len: usize,
        headers: *const u8,
        headers_len: usize,
        grpc_status: i32,
    ) -> u32;
    pub(crate) fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    pub(crate) fn proxy_set_effective_context(context: u32) -> u32;
    pub(crate) fn proxy_continue_stream(stream: u32) -> u32;
    pub(crate) fn proxy_http_call(
        cluster: *const u8,
        cluster_len: usize,
        headers: *const u8,
        headers_len: usize,
        body: *const u8,
        body_len: usize,
        trailers: *const u8,
        trailers_len: usize,
        timeout_ms: u32,
        call: *mut u32,
    ) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    pub(crate) fn random_get(bytes: *mut u8, len: usize) -> u32;
}
