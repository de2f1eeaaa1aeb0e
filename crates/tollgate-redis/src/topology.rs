//! The nodes of the engine, the slots of a cluster, and which node has a key.
//!
//! Invariant: a lane is an index in the list of nodes. A call for a key with an unknown location
//! goes to the node that probably has it, which reports the right one; so an old map costs one
//! round trip and never causes a wrong response. At most [`MAX_NODES`] are known at a time: nodes
//! that have no keys any more make room.
//!
//! Source of the slots: the cluster specification of Redis, "Key distribution model" and "Hash
//! tags": CRC16 (XMODEM: polynomial 0x1021, from 0) modulo 16,384, of the text in the first braces,
//! if it is not empty.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::address::{Address, Kind};
use crate::commit::Fault;
use crate::node::{Greeting, Node, connect};
use crate::resp::Value;
use crate::tls::Tls;

/// A cluster has at most a thousand nodes, by its specification.
const MAX_NODES: usize = 1_024;

/// The minimum time between two queries of the map.
const PAUSE: Duration = Duration::from_millis(100);

/// The nodes.
#[derive(Debug)]
pub(crate) struct Topology {
    address: Address,
    greeting: Greeting,
    nodes: RwLock<Vec<Arc<Node>>>,
    /// The lane of each slot of a cluster; empty for other engines.
    slots: RwLock<Vec<usize>>,
    /// The lane of the primary, for an engine without slots.
    primary: AtomicUsize,
    refreshed_at: tokio::sync::Mutex<Option<Instant>>,
}

impl Topology {
    pub(crate) fn new(address: Address, tls: Option<Arc<Tls>>, stall: Duration) -> Self {
        let Address { user, password, database, .. } = address.clone();
        let greeting = Greeting { user, password, database, tls, stall };
        let node = |host: &String| Arc::new(Node::new(host.clone(), greeting.clone()));
        // Sentinels are not nodes.
        let nodes = match address.kind {
            Kind::Node | Kind::Cluster => address.hosts.iter().map(node).collect(),
            Kind::Sentinel(_) => Vec::new(),
        };
        Self {
            address,
            greeting,
            nodes: RwLock::new(nodes),
            slots: RwLock::default(),
            primary: AtomicUsize::new(0),
            refreshed_at: tokio::sync::Mutex::new(None),
        }
    }

    /// The lane of a key.
    pub(crate) fn lane_of(&self, key: &[u8]) -> usize {
        let slots = read(&self.slots);
        let lane = match slots.is_empty() {
            true => None,
            false => slots.get(usize::from(slot_of(key))).copied(),
        };
        lane.unwrap_or_else(|| self.primary.load(Ordering::Relaxed))
    }

    pub(crate) fn node(&self, lane: usize) -> Option<Arc<Node>> {
        read(&self.nodes).get(lane).cloned()
    }

    /// The lanes that have keys, each with one of its slots where there are any.
    pub(crate) fn holders(&self) -> Vec<(usize, Option<u16>)> {
        let slots = read(&self.slots);
        if slots.is_empty() {
            return vec![(self.primary.load(Ordering::Relaxed), None)];
        }
        let mut holders: BTreeMap<usize, u16> = BTreeMap::new();
        for (slot, lane) in (0..SLOTS).zip(slots.iter()) {
            holders.entry(*lane).or_insert(slot);
        }
        holders.into_iter().map(|(lane, slot)| (lane, Some(slot))).collect()
    }

    /// The addresses of the nodes.
    pub(crate) fn addresses(&self) -> Vec<String> {
        read(&self.nodes).iter().map(|node| node.address.clone()).collect()
    }

    /// The lane of the node at an address, which may be new. An address without a host is on the
    /// host of the node that named it.
    pub(crate) fn lane_at(&self, address: &str, named_by: &str) -> Option<usize> {
        let (host, port) = address.rsplit_once(':')?;
        port.parse::<u16>().ok()?;
        let host = if host.is_empty() { named_by.rsplit_once(':')?.0 } else { host };
        let is_bare_six = host.contains(':') && !host.starts_with('[');
        let address =
            if is_bare_six { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let mut nodes = write(&self.nodes);
        if let Some(lane) = nodes.iter().position(|node| node.address == address) {
            return Some(lane);
        }
        let node = Arc::new(Node::new(address, self.greeting.clone()));
        if nodes.len() < MAX_NODES {
            nodes.push(node);
            return nodes.len().checked_sub(1);
        }
        let slots = read(&self.slots);
        let primary = self.primary.load(Ordering::Relaxed);
        let is_free = |lane: &usize| *lane != primary && !slots.contains(lane);
        let lane = (0..nodes.len()).find(is_free)?;
        *nodes.get_mut(lane)? = node;
        Some(lane)
    }

    /// Records that the slot of `key` is at `lane`.
    pub(crate) fn moved(&self, key: &[u8], lane: usize) {
        let before = write(&self.slots)
            .get_mut(usize::from(slot_of(key)))
            .map(|slot| std::mem::replace(slot, lane));
        if before.is_some_and(|before| before != lane) {
            self.inherits(lane);
        }
    }

    /// The node of `lane` now has keys that another one had.
    fn inherits(&self, lane: usize) {
        if let Some(node) = self.node(lane) {
            node.inherits();
        }
    }

    /// Queries the map again, unless another caller just did.
    pub(crate) async fn refresh(&self, within: Duration) -> Result<(), Fault> {
        if self.address.kind == Kind::Node {
            return Ok(());
        }
        let Ok(mut refreshed_at) = self.refreshed_at.try_lock() else { return Ok(()) };
        if refreshed_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return Ok(());
        }
        let mut hosts = match self.address.kind {
            Kind::Cluster => self.addresses(),
            Kind::Sentinel(_) | Kind::Node => Vec::new(),
        };
        hosts.extend(self.address.hosts.iter().cloned());
        let mut last = Err(Fault::Unreachable);
        for host in hosts {
            let result = timeout(within, self.ask(&host)).await;
            last = result.unwrap_or(Err(Fault::Late));
            if last.is_ok() {
                break;
            }
        }
        *refreshed_at = Some(Instant::now());
        last
    }

    async fn ask(&self, host: &str) -> Result<(), Fault> {
        match &self.address.kind {
            Kind::Node => Ok(()),
            Kind::Sentinel(name) => {
                let connection = connect(host, &self.greeting).await?;
                let query: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.as_bytes()];
                let reply = connection.ask(&query).await?;
                let parts = reply.parts().ok_or(Fault::Error)?;
                let [address, port] = parts else { return Err(Fault::Nonsense) };
                let address = joined(address, port).ok_or(Fault::Nonsense)?;
                let lane = self.lane_at(&address, host).ok_or(Fault::Nonsense)?;
                if self.primary.swap(lane, Ordering::Relaxed) != lane {
                    self.inherits(lane);
                }
                Ok(())
            }
            Kind::Cluster => {
                let lane = self.lane_at(host, host).ok_or(Fault::Nonsense)?;
                let ready = self.node(lane).ok_or(Fault::Nonsense)?.ready().await?;
                let reply = ready.connection.ask(&[b"CLUSTER", b"SLOTS"]).await?;
                let slots = self.slots(&reply, host).ok_or(Fault::Nonsense)?;
                let before = std::mem::replace(&mut *write(&self.slots), slots.clone());
                let changed = slots.iter().zip(before).filter(|(now, before)| *now != before);
                let heirs: BTreeSet<usize> = changed.map(|(now, _)| *now).collect();
                heirs.into_iter().for_each(|lane| self.inherits(lane));
                Ok(())
            }
        }
    }

    /// The lane of each slot, from a reply to `CLUSTER SLOTS`; unassigned slots map to the first
    /// node, which reports that they are unassigned.
    fn slots(&self, reply: &Value, named_by: &str) -> Option<Vec<usize>> {
        let mut slots = vec![0; usize::from(SLOTS)];
        for range in reply.parts()? {
            let [from, to, primary, ..] = range.parts()? else { return None };
            let (from, to) = (from.number()?, to.number()?);
            let [host, port, ..] = primary.parts()? else { return None };
            let lane = self.lane_at(&joined(host, port)?, named_by)?;
            let range = usize::try_from(from).ok()?..=usize::try_from(to).ok()?;
            slots.get_mut(range)?.fill(lane);
        }
        Some(slots)
    }
}

/// `host:port`; a node that does not know its own host sends an empty one or `?`.
fn joined(host: &Value, port: &Value) -> Option<String> {
    let host = match host {
        Value::Bulk(None) => "",
        known => std::str::from_utf8(known.bytes()?).ok()?,
    };
    let host = if host == "?" { "" } else { host };
    Some(format!("{host}:{}", u16::try_from(port.number()?).ok()?))
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(tagged(key)) & 0x3fff
}

fn tagged(key: &[u8]) -> &[u8] {
    let tag = || {
        let (_, rest) = key.split_at_checked(key.iter().position(|byte| *byte == b'{')?)?;
        let (_, rest) = rest.split_first()?;
        let (tag, _) = rest.split_at_checked(rest.iter().position(|byte| *byte == b'}')?)?;
        (!tag.is_empty()).then_some(tag)
    };
    tag().unwrap_or(key)
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let crc = crc ^ (u16::from(*byte) << 8);
        (0..8).fold(crc, |crc, _| {
            let is_carried = crc & 0x8000 != 0;
            let shifted = crc << 1;
            if is_carried { shifted ^ 0x1021 } else { shifted }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3, "its own example");
        // CLUSTER KEYSLOT of a real server.
        for (key, slot) in [("foo", 12_182), ("{foo}bar", 12_182), ("foo{}{bar}", 8_363)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
    }
}
