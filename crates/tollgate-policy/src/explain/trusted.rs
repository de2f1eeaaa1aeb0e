//! The facts that a policy has to trust for its keys, in words.
//!
//! Invariant: each filter is named once. Deliberately absent: the headers, which `reads` lists.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::explain::describe::joined;
use crate::explain::rules::Explain;
use crate::spec::key::KeySource;
use crate::spec::key_item::KeyPart;
use tollgate_http_syntax::sort::sort_by;

impl<'p> Explain<'p> {
    /// The parts of a client's certificate that are counted by in Envoy, in words; `None` when none
    /// is.
    #[must_use]
    pub fn certificate(&self) -> Option<String> {
        let field = |part: &KeyPart| {
            let KeySource::ClientCertificate(field) = part.source else { return None };
            Some(field)
        };
        let mut fields: Vec<_> = self.0.all_key_parts().filter_map(field).collect();
        sort_by(&mut fields, Ord::cmp);
        fields.dedup();
        let names = joined(fields.into_iter().map(|field| field.name().to_string()), " and ");
        (!names.is_empty()).then(|| {
            format!(
                "{names}, which any client can forge if the listener does not verify certificates (ACCEPT_UNTRUSTED)"
            )
        })
    }

    /// The filters of the proxy whose metadata is counted by, in words; `None` when none is.
    #[must_use]
    pub fn metadata(&self) -> Option<String> {
        let filter = |part: &'p KeyPart| {
            let KeySource::Metadata(path) = &part.source else { return None };
            path.0.first()
        };
        let mut filters: Vec<&String> = self.0.all_key_parts().filter_map(filter).collect();
        sort_by(&mut filters, Ord::cmp);
        filters.dedup();
        let names = joined(filters.into_iter().map(ToString::to_string), " and ");
        (!names.is_empty()).then(|| {
            format!("as {names} sets it, which is trusted and has to run before this filter")
        })
    }
}
