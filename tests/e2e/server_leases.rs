//! Nodes that lease from one server, and those that only try to.

use tollgate_e2e::authority::{Authority, Kind};
use tollgate_e2e::fleet_node::{self, Node};
use tollgate_e2e::leasing::{check_one_budget, check_strangers, policy};
use tollgate_e2e::server::{CHECK_TOKEN, Setup};

fn start() -> Authority {
    Kind::Server.start(policy())
}

// Guards: units that two nodes spend, that come back to nobody, or that a message brings twice.
#[test]
fn three_nodes_and_direct_checks_admit_the_limit_and_messages_that_come_again_nothing() {
    check_one_budget(&start());
}

// Guards: a stranger who leases what others are then refused.
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
