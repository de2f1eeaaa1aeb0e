//! The host's metrics, through the ABI.
//!
//! Invariant: nothing here panics; a metric that the host rejects is `None`, and one that does not
//! count stops no request. Deliberately absent: names.
#![allow(unsafe_code, reason = "a call across the ABI is unsafe by nature")]

use crate::host::{Host, Module, OK};
use tollgate_filter::host::proxy::Counters;

const COUNTER: u32 = 0;
const GAUGE: u32 = 1;
const HISTOGRAM: u32 = 2;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_define_metric(kind: u32, name: *const u8, name_len: usize, metric: *mut u32) -> u32;
    fn proxy_increment_metric(metric: u32, by: i64) -> u32;
    fn proxy_record_metric(metric: u32, value: u64) -> u32;
}

impl<M: Module> Counters for Host<M> {
    fn define(&self, name: &str) -> Option<u32> {
        define(COUNTER, name)
    }

    fn define_gauge(&self, name: &str) -> Option<u32> {
        define(GAUGE, name)
    }

    fn define_histogram(&self, name: &str) -> Option<u32> {
        define(HISTOGRAM, name)
    }

    fn add(&self, counter: u32, by: i64) {
        // SAFETY: plain numbers. A counter that does not count must not stop a request.
        let _ = unsafe { proxy_increment_metric(counter, by) };
    }

    fn record(&self, metric: u32, value: u64) {
        // SAFETY: plain numbers, as above.
        let _ = unsafe { proxy_record_metric(metric, value) };
    }
}

fn define(kind: u32, name: &str) -> Option<u32> {
    let mut metric = 0;
    // SAFETY: the host reads `name` and writes four bytes to `metric`.
    let status = unsafe { proxy_define_metric(kind, name.as_ptr(), name.len(), &raw mut metric) };
    (status == OK).then_some(metric)
}
