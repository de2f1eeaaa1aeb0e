//! How many buckets each table has, agreed by all workers through the host's map when a policy is
//! configured.
//!
//! Invariant: a table's extent is written before a worker uses it, and only ever grows. So a worker
//! that looks for a key looks in all the places where another may have put it (`places`). Bytes
//! that are not an extent count as a table that began with one bucket: any bucket may then be half
//! of another, and keys are looked for there.
//!
//! Deliberately absent: reading the extent for a request. That would cost as much as reading the
//! bucket, and a bucket itself shows whether it was halved.

use tollgate_table::{Extent, Table};

use crate::config::Config;
use crate::host::shared_data::{INSERT, SharedData, Stored, Written};

/// Attempts to write an extent. Every lost race means that another worker wrote one.
const MAX_TRIES: u32 = 32;

/// Where workers of layout 1 agreed on their seed: the sign that they counted here.
const SEED_OF_LAYOUT_1: &[u8] = b"\x01seed";

/// The state in which a table was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    New,
    AsItIs,
    Unreachable,
}

/// Brings every table of `config` to the extent that all workers agree on. Returns what an operator
/// must know, a line each; `None` when the host does not respond.
pub fn agree(shared: &impl SharedData, config: &mut Config) -> Option<Vec<String>> {
    let (mut lines, mut is_new) = (Vec::new(), false);
    for (group, table) in config.tables.iter_mut().enumerate() {
        let wanted = table.extent().level;
        match reach(shared, table) {
            Found::Unreachable => return None,
            found => is_new |= found == Found::New,
        }
        if table.extent().level > wanted {
            let rules = config.policy.rules().iter().filter(|rule| rule.group() == group);
            let names: Vec<_> = rules.map(|rule| format!("\"{}\"", rule.name())).collect();
            lines.push(still_larger(&names.join(", "), table));
        }
    }
    if is_new && !matches!(shared.get(SEED_OF_LAYOUT_1), Stored::Absent) {
        lines.push(
            "counts of an earlier version of this filter are not read: every key starts afresh"
                .into(),
        );
    }
    Some(lines)
}

fn still_larger(rules: &str, table: &Table) -> String {
    let keys = table.size().capacity_of(table.extent().level);
    format!(
        "the table of rule {rules} keeps the room for {keys} keys that it once had, until Envoy \
         restarts: no count is forgotten for a smaller \"capacity\""
    )
}

fn reach(shared: &impl SharedData, table: &mut Table) -> Found {
    let name = table.extent_name();
    let wanted = table.extent().level;
    for _ in 0..MAX_TRIES {
        let (extent, cas, found) = match shared.get(&name) {
            Stored::Unreachable => return Found::Unreachable,
            Stored::Absent => (Extent { base: wanted, level: wanted }, INSERT, Found::New),
            Stored::Value(bytes, cas) => match Extent::from_bytes(&bytes) {
                Some(extent) if extent.level >= wanted => {
                    *table = table.reaching(extent);
                    return Found::AsItIs;
                }
                Some(Extent { base, .. }) => (Extent { base, level: wanted }, cas, Found::AsItIs),
                None => (Extent { base: 0, level: wanted }, cas, Found::AsItIs),
            },
        };
        match shared.set(&name, &extent.to_bytes(), cas) {
            Written::Done => {
                *table = table.reaching(extent);
                return found;
            }
            Written::Lost => {}
            Written::Unreachable => return Found::Unreachable,
        }
    }
    Found::Unreachable
}
