//! Policies for the unit tests of this crate. The compiler of documents is a crate that depends on
//! this one, so that its policies have other types than those under test: they are passed as bytes.

use alloc::format;
use alloc::vec::Vec;

use crate::binary::plugin::Plugin;
use crate::policy::compiled::Policy;
use crate::spec::surface::Surface;

/// The policy of `document`, which has no mistakes.
pub(crate) fn compile(document: &str, surface: Surface) -> Policy {
    let its = tollgate_policy::Surface::parse(surface.name()).expect("the same surface");
    let spec = tollgate_language::spec(document, its);
    let spec = spec.unwrap_or_else(|problems| panic!("{problems}"));
    let its = tollgate_policy::Policy::from_spec(spec.clone(), its).expect("a policy");
    let mut bytes = Vec::new();
    its.write_compiled(&mut bytes);
    let policy = Policy::read_compiled(&bytes, surface).expect("what was written");
    assert_eq!(format!("{:?}", policy.to_spec()), format!("{spec:?}"), "nothing is lost");
    policy
}

/// The plugin of `document`, for Envoy, without `policy_from`.
pub(crate) fn compile_plugin(document: &str) -> Plugin {
    let plugin = tollgate_language::compile_plugin(document, tollgate_policy::Surface::Envoy);
    let mut bytes = Vec::new();
    plugin.unwrap_or_else(|problems| panic!("{problems}")).write_compiled(&mut bytes);
    Plugin::read_compiled(&bytes, Surface::Envoy).expect("what was written")
}
