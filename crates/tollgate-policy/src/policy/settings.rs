//! The settings for all rules of a policy: how requests are read, and which fields are sent to
//! clients.
//!
//! Invariant: every default of the document is filled in.

use crate::spec::policy::{ResponseSpec, SettingsSpec};

/// The settings for reading a request.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) spec: SettingsSpec,
    pub(crate) reads_path: bool,
    pub(crate) reads_host: bool,
    /// A rule asks the origin for a body that is not compressed.
    pub(crate) asks_identity: bool,
}

impl Settings {
    /// `Policy::complete` finds what is read.
    pub(crate) const fn new(spec: SettingsSpec) -> Self {
        Self { spec, reads_path: false, reads_host: false, asks_identity: false }
    }
}

/// The settings for the fields sent to clients.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) spec: ResponseSpec,
    /// The key with which partition keys are hashed before they are reported to clients.
    pub(crate) hash_key: Option<[u8; 16]>,
}
