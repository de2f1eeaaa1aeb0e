//! What Envoy does not show a dynamic module, of a policy for Envoy: it returns metadata of other
//! filters by the name of the filter and one name in it, and nothing that is nested deeper.
//!
//! Invariant: the module refuses to configure with these problems, and `tollgate check` reports the
//! same of a configuration that loads it. Not here: the rest of a configuration.

use alloc::format;
use alloc::string::String;

use crate::explain::rules::Explain;
use crate::spec::fact::Fact;
use crate::spec::problem::{Problem, Problems};
use crate::spec::settled_cost::ActualCost;

const CLAIM: &str = "which Envoy does not show a dynamic module; use a header that another filter \
    sets, or the wasm module tollgate-envoy.wasm";
const NESTED: &str = "which Envoy does not show a dynamic module beyond two names; set the value \
    directly under the filter's name, use a header that another filter sets, or the wasm module \
    tollgate-envoy.wasm";

impl Explain<'_> {
    /// Every part of the policy that needs nested metadata of other filters, claims among them.
    /// Each place is a rule; it is empty for a tenant, exempt entries and rules that deny.
    #[must_use]
    pub fn problems_in_dynamic_module(&self) -> Problems {
        let mut problems = Problems::default();
        for read in self.reads() {
            let what = match read.fact {
                Fact::Claim(name) => format!("reads the claim \"{name}\", {CLAIM}"),
                Fact::Metadata(path) if path.is_nested() => {
                    format!("reads the metadata {path}, {NESTED}")
                }
                Fact::Metadata(_) => continue,
                Fact::Client | Fact::Method | Fact::Host | Fact::Path | Fact::Query(_) => continue,
                Fact::Header(_) | Fact::Cookie(_) | Fact::Route | Fact::Certificate(_) => continue,
                Fact::Country | Fact::Asn | Fact::Cloudflare(_) => continue,
                Fact::Domain | Fact::Descriptor(_) | Fact::Entries | Fact::Beside => continue,
                Fact::Status | Fact::Actual | Fact::Duration => continue,
            };
            let path = read.by.rule().map_or_else(String::new, |index| self.path_of(index));
            let problem = Problem::new(&path, what);
            if !problems.0.contains(&problem) {
                problems.0.push(problem);
            }
        }
        for (index, rule) in self.0.rules().iter().enumerate() {
            if let Some(ActualCost::Metadata(path)) = rule.settled_cost().map(|cost| &cost.actual)
                && path.is_nested()
            {
                let place = format!("{}.cost.actual", self.path_of(index));
                let message = format!("reads the metadata {path}, {NESTED}");
                problems.0.push(Problem::new(&place, message));
            }
        }
        problems
    }

    /// The place in the document of the rule with this index.
    fn path_of(&self, index: usize) -> String {
        format!("rules[{}]", self.0.rules().get(index).map_or(index, |rule| rule.place()))
    }
}
