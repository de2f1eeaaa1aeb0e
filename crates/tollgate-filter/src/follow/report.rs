//! The lines in the host's log about a server.
//!
//! Invariant: all workers together log a line once. Deliberately absent: what follows from it.

use super::Follower;
use crate::host::proxy::Proxy;

/// The most problems of one policy that are logged.
const MAX_LINES: usize = 20;

impl<H: Proxy> Follower<H> {
    pub(super) fn succeeded(&self) {
        self.has_responded.set(true);
        if self.failures.is_over(&self.host) {
            self.log("responds again");
        }
    }

    pub(super) fn refused(&self, tag: &[u8], lines: &[String]) {
        self.metrics.count_refused(&self.host);
        if self.changes.is_new(&self.host, tag) {
            lines.iter().take(MAX_LINES).for_each(|line| self.log(line));
            let more = lines.len().saturating_sub(MAX_LINES);
            if more > 0 {
                self.log(&format!("and {more} more problems"));
            }
        }
    }

    pub(super) fn log(&self, what: &str) {
        let cluster = &self.from.cluster;
        self.host.log_warning(&format!("tollgate: server \"{cluster}\": {what}"));
    }
}
