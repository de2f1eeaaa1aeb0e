//! Detects, from requests, whether clients can choose the address that they are counted by.
//!
//! A connection manager with `use_remote_address` notes the peer address on every request: it
//! appends it to X-Forwarded-For, or with `skip_xff_append` sets X-Envoy-External-Address or
//! X-Envoy-Internal. A manager without it takes the address from X-Forwarded-For, and trusts what a
//! client wrote there. The host shows no settings, so the sign is a request without all three
//! headers: it came neither through the first sort of manager nor through a proxy that the second
//! may trust.
//!
//! Invariant: silent where the policy itself counts the entries of the list (`trusted_hops`), and
//! about connections without an address (Unix sockets). Deliberately absent: a decision.

use std::cell::Cell;

use crate::config::Config;
use crate::follow::log_once::LogOnce;
use crate::host::proxy::Proxy;
use crate::request::facts::RequestFacts;

/// Reading headers is a host call. Where no rule reads them, only one request in this many is
/// checked, and this many when a policy begins.
const SAMPLED_REQUESTS: u32 = 64;

const LOCAL_PROXY: &str = "a proxy on this machine sends requests, and the policy takes the address of the \
    connection, so all of its clients are one; set xff_num_trusted_hops, or client_ip with trusted_proxies";

const UNVERIFIED: &str = "a request came without X-Forwarded-For, so the connection manager probably \
    has no use_remote_address: true and takes the client's address from that header: a client that sends it chooses what it \
    is counted by; set use_remote_address, or client_ip with trusted_hops if every client comes through a proxy";

/// The watch of one policy.
pub struct AddressCheck<H> {
    host: H,
    plugin: String,
    fingerprint: u64,
    takes_the_connection: bool,
    trusts_the_connection: bool,
    requests: Cell<u32>,
    /// True once the log shows that a proxy on this machine makes all clients share one address.
    has_local_proxy: Cell<bool>,
    unverified: Cell<Unverified>,
    /// The number of workers' policies that have seen a request with an unverified address.
    gauge: Option<u32>,
}

/// Unverified addresses seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Unverified {
    #[default]
    NotSeen,
    Seen,
    /// Ends the policy and removes its part from the gauge.
    Ended,
}

impl<H: Proxy> AddressCheck<H> {
    /// A watch that has seen nothing yet.
    pub fn new(host: H, config: &Config) -> Self {
        let gauge = host.define_gauge(metric!(UnverifiedAddresses));
        let policy = &config.policy;
        Self {
            host,
            plugin: config.plugin.clone(),
            fingerprint: policy.fingerprint(),
            takes_the_connection: policy.client_address().takes_the_connection(),
            trusts_the_connection: policy.client_address().trusts_the_connection(),
            requests: Cell::default(),
            has_local_proxy: Cell::default(),
            unverified: Cell::default(),
            gauge,
        }
    }

    /// Checks a request whose rules have already read the facts they need.
    pub fn check(&self, facts: &RequestFacts<H>) {
        if !self.has_local_proxy.get()
            && self.takes_the_connection
            && facts.is_from_a_proxy_of_this_machine()
        {
            self.has_local_proxy.set(true);
            self.warn(LOCAL_PROXY);
        }
        if self.trusts_the_connection
            && self.unverified.get() == Unverified::NotSeen
            && facts.has_address()
            && self.is_sampled(facts)
            && !facts.has_noted_address()
        {
            self.report_unverified();
        }
    }

    fn report_unverified(&self) {
        // Reading the headers was a host call, in which the host may have called the filter.
        if self.unverified.get() == Unverified::NotSeen {
            self.unverified.set(Unverified::Seen);
            self.change(1);
            let log_once = LogOnce::of_plugin(*b"adr", &self.plugin);
            if log_once.is_new(&self.host, &self.fingerprint.to_le_bytes()) {
                self.warn(UNVERIFIED);
            }
        }
    }

    /// The policy decides no new requests.
    pub fn end(&self) {
        if self.unverified.replace(Unverified::Ended) == Unverified::Seen {
            self.change(-1);
        }
    }

    fn is_sampled(&self, facts: &RequestFacts<H>) -> bool {
        if facts.has_headers() {
            return true;
        }
        let requests = self.requests.get();
        self.requests.set(requests.wrapping_add(1));
        requests < SAMPLED_REQUESTS || requests.is_multiple_of(SAMPLED_REQUESTS)
    }

    fn change(&self, by: i64) {
        if let Some(gauge) = self.gauge {
            self.host.add(gauge, by);
        }
    }

    fn warn(&self, text: &str) {
        self.host.log_warning(&format!("tollgate: plugin {}: {text}", self.plugin));
    }
}
