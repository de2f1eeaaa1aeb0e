//! Several nodes: a primary with a replica and a sentinel, and a cluster, whose slots move and
//! whose primaries die.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_e2e::process::{READY_WITHIN, wait_until};
use tollgate_redis::{Engine, Failed, Fault, KeyRequest, Options};

use crate::fleet_cluster;
use crate::fleet_engine_redis::{Kind, Redis};
use crate::{LIMIT, ask_all, is_charged, request, runtime, server, tally};

/// A cluster of `count` primaries, which share the slots evenly.
fn cluster(count: usize) -> Vec<Redis> {
    let nodes: Vec<Redis> = (0..count).map(|_| Redis::start(Kind::Cluster)).collect();
    fleet_cluster::join(&nodes);
    nodes
}

fn id(node: &Redis) -> String {
    node.command(&["CLUSTER", "MYID"])
}

fn address(nodes: &[Redis]) -> String {
    format!("redis+cluster://127.0.0.1:{}", nodes[0].port)
}

fn many(server: &Engine, client: usize, i: usize) -> tollgate_redis::Name {
    server.name(format!("{client} {i}").as_bytes())
}

#[test]
fn keys_of_a_cluster_are_decided_where_they_are() {
    let nodes = cluster(3);
    runtime().block_on(async {
        let servers: Vec<_> = (0..2).map(|_| server(&address(&nodes), |_| {})).collect();
        // One knows the map beforehand, the other learns it by redirections.
        servers[0].greet().await.expect("it is there");
        let sum = ask_all(&servers, 8, 100, many).await;
        assert_eq!(sum.get(), [800, 0, 0, 0]);
        let hot = |server: &Engine, _, _| server.name(b"hot");
        let sum = ask_all(&servers, 16, 200, hot).await;
        assert_eq!(sum.get(), [LIMIT, 3_200 - LIMIT, 0, 0]);
    });
    let sizes: BTreeSet<bool> =
        nodes.iter().map(|node| node.command(&["DBSIZE"]) != ":0").collect();
    assert_eq!(sizes, BTreeSet::from([true]), "every node has some");
}

#[test]
fn slots_that_move_lose_nothing() {
    let nodes = cluster(2);
    runtime().block_on(async {
        let server = server(&address(&nodes), |_| {});
        server.greet().await.expect("it is there");
        let name = server.name(b"hot");
        let ask = || async {
            server.ask(name, KeyRequest::Check(request(3))).await.map(|reply| is_charged(&reply))
        };
        assert_eq!(ask().await, Ok(true));
        let key = format!("tollgate:{name}");
        let slot = nodes[0].command(&["CLUSTER", "KEYSLOT", &key]).replace(':', "");
        let has_it = |node: &&Redis| node.command(&["DBSIZE"]) == ":1";
        let from = nodes.iter().find(has_it).expect("it is stored");
        let to = nodes.iter().find(|node| node.port != from.port).expect("two nodes");
        let ids = [id(from), id(to)];
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]);
        assert_eq!(ask().await, Ok(true), "still there");
        let port = to.port.to_string();
        let moved = from.command(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
        assert_eq!(moved, "+OK");
        assert_eq!(ask().await, Ok(true), "asked for at the other one, this once");
        for node in [to, from] {
            assert_eq!(node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]), "+OK");
        }
        assert_eq!(ask().await, Ok(false), "the limit holds across the move");
        assert_eq!(ask().await, Ok(false));
    });
}

#[test]
fn a_cluster_goes_on_when_a_replica_takes_over() {
    let mut nodes = cluster(3);
    let replica = Redis::start(Kind::Cluster);
    replica.meet(&nodes[0]);
    nodes.push(replica);
    fleet_cluster::wait_for(&nodes);
    fleet_cluster::follow(&nodes[3], &nodes[1]);
    runtime().block_on(async {
        let change = |options: &mut Options| options.timeout = Duration::from_millis(500);
        let servers: Vec<_> = (0..2).map(|_| server(&address(&nodes), change)).collect();
        servers[0].greet().await.expect("it is there");
        // Keys of every node.
        let before = ask_all(&servers, 4, 100, many).await.get();
        assert_eq!(before, [400, 0, 0, 0]);
        nodes[1].kill();
        let whole = || nodes[3].command(&["INFO", "replication"]).contains("role:master");
        wait_until("the replica took over", READY_WITHIN, || whole().then_some(()));
        // Servers that know the old node must first learn of the change.
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        loop {
            let [admitted, _, failed, _] = ask_all(&servers, 4, 100, many).await.get();
            assert_eq!(admitted + failed, 400);
            if failed == 0 {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{failed} fail for ever");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // The data of the node that died is on its replica.
        let again = ask_all(&servers, 1, 1, |server, _, _| server.name(b"0 0")).await;
        assert_eq!(again.get(), [1, 0, 0, 0]);
        println!("a primary died: {:?}", tally(&servers));
    });
}

#[test]
fn a_primary_without_its_replica_refuses_where_it_must_have_one() {
    let primary = Redis::start_with(Kind::Plain, &["--min-replicas-to-write", "1"], None);
    runtime().block_on(async {
        let server = server(&primary.address(), |_| {});
        let answer = server.ask(server.name(b"key"), KeyRequest::Check(request(1))).await;
        assert_eq!(answer, Err(Failed::Engine(Fault::TooFewReplicas)));
    });
}

#[test]
fn sentinels_tell_where_the_primary_is_and_the_count_goes_on() {
    let mut primary = Redis::start(Kind::Plain);
    let of = primary.port.to_string();
    let replica = Redis::start_with(Kind::Plain, &["--replicaof", "127.0.0.1", &of], None);
    wait_until("the replica follows", READY_WITHIN, || {
        replica.command(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
    });
    let sentinel = Redis::sentinel("main", primary.port);
    runtime().block_on(async {
        let address = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
        let servers: Vec<_> = (0..2)
            .map(|_| server(&address, |options| options.timeout = Duration::from_millis(500)))
            .collect();
        for server in &servers {
            server.greet().await.expect("it is there");
        }
        let hot = |server: &Engine, _, _| server.name(b"hot");
        assert_eq!(ask_all(&servers, 4, 100, hot).await.get(), [400, 0, 0, 0]);
        wait_until("the replica has it", READY_WITHIN, || {
            let offset = |node: &Redis, name: &str| {
                let info = node.command(&["INFO", "replication"]);
                info.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
            };
            let sent = offset(&primary, "master_repl_offset:");
            (sent == offset(&replica, "slave_repl_offset:")).then_some(())
        });
        primary.kill();
        wait_until("the replica took over", READY_WITHIN, || {
            // A sentinel that makes it the primary ends all its connections.
            replica.try_command(&["INFO", "replication"])?.contains("role:master").then_some(())
        });
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        let mut admitted = 400;
        loop {
            let [more, _, failed, _] = ask_all(&servers, 4, 10, hot).await.get();
            admitted += more;
            if failed == 0 {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{failed} fail for ever");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let [more, denied, failed, _] = ask_all(&servers, 16, 100, hot).await.get();
        println!("failed over: {} admitted, {:?}", admitted + more, tally(&servers));
        assert!(admitted + more <= LIMIT && denied > 0 && failed == 0);
    });
}
