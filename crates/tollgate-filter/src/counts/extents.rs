//! How many buckets each table has, agreed by all workers through the host's map when a policy is
//! configured.
//!
//! Invariant: a table's extent is written before a worker uses it, and only ever grows. So a worker
//! that looks for a key looks in all the places where another may have put it (`bucket_lookup`).
//! Bytes that are not an extent count as a table that began with one bucket: any bucket may then be
//! half of another, and keys are looked for there.
//!
//! Deliberately absent: reading the extent for a request. That would cost as much as reading the
//! bucket, and a bucket itself shows whether it was halved.

use tollgate_storage::table::{Extent, Table};

use crate::config::Config;
use crate::host::shared_data::{Change, SharedCell, SharedData, Stored};

/// Where workers of layout 1 agreed on their seed: the sign that they counted here.
const SEED_OF_LAYOUT_1: &[u8] = b"\x01seed";

/// Brings every table of `config` to the extent that all workers agree on. Returns what an operator
/// must know, a line each; `None` when the host does not respond.
pub fn agree(shared: &impl SharedData, config: &mut Config) -> Option<Vec<String>> {
    let (mut lines, mut is_new) = (Vec::new(), false);
    for (group, table) in config.tables.iter_mut().enumerate() {
        let wanted = table.extent().level;
        is_new |= reach(shared, table)?;
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

/// Brings `table` to the extent that all workers agree on; true when it had none.
fn reach(shared: &impl SharedData, table: &mut Table) -> Option<bool> {
    let wanted = table.extent().level;
    let reached = SharedCell::new(shared, &table.extent_name()).change(|found| {
        let Some((bytes, _)) = found else {
            let extent = Extent { base: wanted, level: wanted };
            return Change::Write(extent.to_bytes().to_vec().into(), (extent, true));
        };
        match Extent::from_bytes(bytes) {
            Some(extent) if extent.level >= wanted => Change::Keep((extent, false)),
            earlier => {
                let base = earlier.map_or(0, |extent| extent.base);
                let extent = Extent { base, level: wanted };
                Change::Write(extent.to_bytes().to_vec().into(), (extent, false))
            }
        }
    });
    let (extent, is_new) = reached.ok()?;
    *table = table.reaching(extent);
    Some(is_new)
}
