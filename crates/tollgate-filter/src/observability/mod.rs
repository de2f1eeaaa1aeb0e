//! The operator's view: metrics, access log fields, warnings.
//!
//! Invariant: no key is in any of them, and their number is bounded whatever clients send.
//! Deliberately not here: anything that a decision depends on.

/// The name of a metric's family. It is a constant, so that the module contains nothing else of the
/// table.
macro_rules! metric {
    ($family:ident) => {
        const { tollgate_policy::metrics::Family::$family.envoy_name() }
    };
}

pub(crate) mod access_log;
pub(crate) mod address_check;
pub(crate) mod counter_buffer;
pub(crate) mod denied_keys;
pub(crate) mod labels;
pub mod metric_names;
pub mod metrics;
pub(crate) mod observer;
pub(crate) mod rule_metrics;
