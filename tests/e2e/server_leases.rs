//! Nodes that lease from one server, and unauthorized ones.

use tollgate_e2e::authority::{Authority, Kind};
use tollgate_e2e::fleet_node::{self, Node, run_dry};
use tollgate_e2e::leasing::{LIMIT, check_one_budget, check_strangers, policy};
use tollgate_e2e::server::{CHECK_TOKEN, Setup};

fn start() -> Authority {
    Kind::Server.start(policy())
}

// Guards: units that two nodes spend, that are returned to no count, or that a message adds twice.
#[test]
fn three_nodes_and_direct_checks_admit_the_limit_and_messages_that_come_again_nothing() {
    check_one_budget(&start());
}

// Guards: a server that leases nothing for a while after its start, and one whose predecessor's
// leases cost more than the counts that are lost.
#[test]
fn it_leases_from_the_first_question_and_a_restart_costs_one_limit() {
    let mut server = Setup::new(policy()).leasing().start();
    let node = |table| {
        let mut node = Node::new(table, &policy().to_string(), "192.0.2.1", &[server.port]);
        let is_leased = (0..20).any(|_| node.admits() && node.left() > 0);
        assert!(is_leased, "within its first twenty requests");
        node
    };
    let [first, second] = [node(1), node(2)];
    let port = server.port;
    server.crash();
    let third = Node::new(3, &policy().to_string(), "192.0.2.1", &[port]);
    let before = run_dry(first).total() + run_dry(second).total();
    let admitted = before + run_dry(third).total();
    assert!((LIMIT..=2 * LIMIT).contains(&admitted), "{admitted}");
}

// Guards: an unauthorized node that leases units, which others are then denied.
#[test]
fn who_may_not_ask_and_what_is_no_question_gets_an_answer_and_changes_nothing() {
    check_strangers(&start());
}

#[test]
fn without_the_secret_there_is_nothing_to_be_leased_from() {
    let off = Setup::new(policy()).variable("TOLLGATE_CHECK_TOKEN", CHECK_TOKEN).start();
    let good = Node::new(1, &policy().to_string(), "192.0.2.1", &[off.port]).message(1);
    assert_eq!(off.client().send(&fleet_node::question(&good)).status, 404);
}
