//! The authority of a fleet, which keeps its counts: a real `tollgate-server`, or the Worker in a
//! real workerd.
//!
//! Invariant: both have the same tokens and secret, so that one test runs on either. After a kill
//! an authority still has its durable state. A server with counts in memory loses these, and leases
//! nothing until all its earlier leases have expired.

use std::time::Duration;

use crate::http::{Client, Request, Response};
use crate::process::wait_until;
use crate::server::{self, ADMIN_TOKEN, CHECK_TOKEN, FLEET_SECRET, TollgateServer};
use crate::workerd::{self, Workerd};

/// The token that permits reading the policy in force, and nothing else.
pub const FOLLOW_TOKEN: &str = "only-for-tests-follow";

const SOON: Duration = Duration::from_secs(60);

/// The kind of authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One process, counts in memory.
    Server,
    /// One process, objects on disk.
    Worker,
}

/// A running authority.
pub enum Authority {
    /// See [`Kind::Server`].
    Server(Box<TollgateServer>),
    /// See [`Kind::Worker`].
    Worker(Box<Workerd>),
}

impl Kind {
    /// Starts an authority with `policy`. The policy can be changed and followed, and nodes can
    /// lease.
    pub fn start(self, policy: impl ToString) -> Authority {
        match self {
            Self::Server => {
                let setup = server::Setup::new(policy).leasing().operated();
                let setup = setup.variable("TOLLGATE_FOLLOW_TOKEN", FOLLOW_TOKEN);
                Authority::Server(Box::new(setup.start()))
            }
            Self::Worker => Authority::Worker(Box::new(worker(policy).start())),
        }
    }
}

/// The setup of a Worker that is such an authority.
pub fn worker(policy: impl ToString) -> workerd::Setup {
    let setup = workerd::Setup::new(policy).operated().binding("METRICS_INTERVAL_S", 1);
    let setup = setup.binding("ADMIN_TOKEN", ADMIN_TOKEN).binding("CHECK_TOKEN", CHECK_TOKEN);
    setup.binding("FOLLOW_TOKEN", FOLLOW_TOKEN).binding("FLEET_SECRET", FLEET_SECRET)
}

/// A request of an operator; `target` is the path below the prefix.
pub fn operates(method: &str, target: &str, body: &str, fields: &[(&str, &str)]) -> Request {
    let target = format!("/.well-known/tollgate/{target}");
    let mut request = Request::new(method, &target)
        .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
        .header("content-type", "application/json");
    if !body.is_empty() {
        request = request.body(body);
    }
    for (name, value) in fields {
        request = request.header(name, value);
    }
    request
}

impl Authority {
    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        match self {
            Self::Server(server) => server.port,
            Self::Worker(worker) => worker.port,
        }
    }

    /// A connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.port())
    }

    /// The response of one of its paths to the operator.
    pub fn operate(
        &self,
        method: &str,
        path: &str,
        body: &str,
        fields: &[(&str, &str)],
    ) -> Response {
        self.client().send(&operates(method, path, body, fields))
    }

    /// The value of a metric, once `is_expected` holds: isolates deliver their counts after their
    /// responses.
    pub fn metric(&self, name: &str, is_expected: impl Fn(u64) -> bool) {
        wait_until(name, SOON, || {
            let text = self.operate("GET", "metrics", "", &[]).text();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value = line.and_then(|value| value.parse().ok());
            value.is_some_and(&is_expected).then_some(())
        });
    }

    /// Sends `kill -9`, at once.
    pub fn kill(&mut self) {
        match self {
            Self::Server(server) => server.server.kill(),
            Self::Worker(worker) => worker.kill(),
        }
    }

    /// Starts it again after [`kill`](Self::kill), on the same port.
    pub fn restart(&mut self) {
        match self {
            Self::Server(server) => server.crash(),
            Self::Worker(worker) => worker.restart(),
        }
    }

    /// All output since it was started.
    pub fn log(&self) -> String {
        match self {
            Self::Server(server) => server.server.log(),
            Self::Worker(worker) => worker.log(),
        }
    }
}
