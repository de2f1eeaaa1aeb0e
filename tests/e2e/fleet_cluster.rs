//! A cluster of real Redis nodes.

use tollgate_e2e::process::{READY_WITHIN, wait_until};

use crate::fleet_engine_redis::Redis;

/// Forms one cluster of separate nodes: primaries that share the slots evenly.
pub fn join(nodes: &[Redis]) {
    let share = 16_384 / nodes.len();
    for (i, node) in nodes.iter().enumerate() {
        let last = if i + 1 == nodes.len() { 16_383 } else { (i + 1) * share - 1 };
        let range = [(i * share).to_string(), last.to_string()];
        let added = node.command(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]);
        assert_eq!(added, "+OK");
        let epoch = (i + 1).to_string();
        assert_eq!(node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), "+OK");
        if i > 0 {
            node.meet(&nodes[0]);
        }
    }
    wait_for(nodes);
}

/// Waits until each of these, which are all nodes, knows all the others.
pub fn wait_for(nodes: &[Redis]) {
    wait_until("the cluster is whole", READY_WITHIN, || {
        let is_whole = |node: &Redis| {
            let info = node.try_command(&["CLUSTER", "INFO"]).unwrap_or_default();
            let known = format!("cluster_known_nodes:{}", nodes.len());
            info.contains("cluster_state:ok") && info.contains(&known)
        };
        nodes.iter().all(is_whole).then_some(())
    });
}

/// Makes `replica`, which the cluster knows, follow `primary`, and waits until it does.
pub fn follow(replica: &Redis, primary: &Redis) {
    let primary = primary.command(&["CLUSTER", "MYID"]);
    wait_until("the replica knows its primary", READY_WITHIN, || {
        (replica.command(&["CLUSTER", "REPLICATE", &primary]) == "+OK").then_some(())
    });
    wait_until("the replica follows", READY_WITHIN, || {
        replica.command(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
    });
}
