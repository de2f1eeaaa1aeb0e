//! A directory and a value with it, both as a store might return them.
//!
//! The first two bytes are the length of the directory, the value is the rest. Invariant checked,
//! for any bytes: a policy that is registered is registered once, and is written and read
//! unchanged; no key gets more at once than its quotas give, whatever records of earlier policies
//! the value has; a loaded value is valid.

use tollgate_core::Timestamp;
use tollgate_policy::{Directory, Disposition, Plan, Policy, Registered, is_value};

use super::request::Request;

const NOW: Timestamp = Timestamp::from_millis(1_780_000_000_000);

/// Loads `bytes` under `policy`, whose first rule counts every request and allows `most` at once.
pub fn check(policy: &Policy, bytes: &[u8], most: usize) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else { return };
    let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
    let (directory, value) = rest.split_at(len);
    let group = &policy.groups()[0];
    let mut known = Directory::read(directory).unwrap_or_default();
    known.register(policy, group);
    assert_eq!(known.register(policy, group), Registered::AsItIs);
    let (mut written, mut again) = (vec![], vec![]);
    known.write(&mut written);
    let read = Directory::read(&written).expect("what was written");
    read.write(&mut again);
    assert_eq!((read.len(), &again), (known.len(), &written));

    let request = Request::read(b"GET / 192.0.2.1");
    let (mut plan, mut stored, mut admitted) = (Plan::new(), value.to_vec(), 0);
    for _ in 0..3 * most {
        policy.plan(&request, &mut plan);
        let mut partition = plan.partition_mut(0).expect("a rule that counts everything");
        if !partition.load_own(policy, Some(&stored)) {
            partition.load_with(policy, &known, &stored, NOW);
        }
        plan.decide(policy, NOW);
        admitted += usize::from(matches!(plan.outcome(policy).disposition(), Disposition::Allow));
        let partition = plan.partition(0).expect("the same");
        assert!(is_value(partition.value()));
        if partition.changed() || partition.is_carried() {
            stored = partition.value().to_vec();
        }
    }
    assert!(admitted <= most, "{admitted} at once");
    let _ = group.used_share_with(policy, &known, &stored, NOW);
    assert!(group.idle_at_with(policy, &known, &stored) >= group.idle_at(policy, &stored));
}
