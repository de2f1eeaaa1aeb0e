//! A root's configuration: the policy that it puts in force, the server that the policy follows,
//! and the timer of the program around the filter.
//!
//! Invariant: a configuration that is rejected changes nothing. Deliberately absent: requests.

use std::rc::Rc;

use tollgate_core::Span;

use super::Filter;
use crate::active_policy::ActivePolicy;
use crate::config::Config;
use crate::follow::Follower;
use crate::host::proxy::Proxy;
use crate::host::timer::TimerUser;
use crate::root::Root;

/// A policy in force, and its follower, if it has a server.
type Configured<H> = (ActivePolicy<H>, Option<Follower<H>>);

impl<H: Proxy> Filter<H> {
    /// Takes the configuration of a root, `len` bytes; false when it is rejected, for reasons that
    /// are logged.
    pub fn on_configure(&self, id: u32, len: usize) -> bool {
        let configured = self.configure(id, &self.host.configuration(len));
        for problem in configured.as_ref().err().into_iter().flatten() {
            self.host.log_error(&format!("tollgate: {problem}"));
        }
        configured.is_ok()
    }

    /// Puts the policy of a configuration in force for a root.
    ///
    /// # Errors
    /// Every problem, one line each.
    pub fn configure(&self, id: u32, configuration: &[u8]) -> Result<(), Vec<String>> {
        let unknown = || vec!["there is no root context with this number".to_owned()];
        let root = self.root(id).ok_or_else(unknown)?;
        let (policy, follower) = self.configured(&root, configuration)?;
        let before = root.follower();
        let plugin = policy.config.plugin.clone();
        root.put(policy);
        let follower = follower.map(Rc::new);
        let wants_at = follower.as_ref().and_then(|follower| follower.next_call_at());
        root.follower.set(follower);
        self.end_following(before, &plugin);
        let now = self.host.now().unwrap_or_default();
        root.timer.set(TimerUser::Policy, wants_at, now);
        Ok(())
    }

    /// The policy that a configuration puts in force, and its follower.
    fn configured(
        &self,
        root: &Root<H>,
        configuration: &[u8],
    ) -> Result<Configured<H>, Vec<String>> {
        let host = &self.host;
        let scope = host.plugin_scope();
        let read = if H::READS_DOCUMENTS { Config::compile } else { Config::read_compiled };
        let config = read(configuration, &scope)?;
        let config = config.for_module(H::READS_BODIES, self.host.unsupported())?;
        let (config, follower) = Follower::begin(host, config, scope, &root.counters);
        let policy = ActivePolicy::activate(host.clone(), config, Some(host), &root.counters);
        Ok((policy.map_err(|why| vec![why.to_owned()])?, follower))
    }

    /// Asks the server of a root for its policy, or puts a fetched policy in force.
    pub(super) fn follow(&self, root: &Root<H>) {
        let Some(follower) = root.follower().filter(|it| it.fetches()) else { return };
        let Some(now) = self.host.now() else { return };
        let policy = follower.tick(now);
        if !root.follower().is_some_and(|current| Rc::ptr_eq(&current, &follower)) {
            return; // configured again during this call
        }
        if let Some(policy) = policy {
            root.put(policy);
        }
        // Compiling takes time.
        let now = self.host.now().unwrap_or(now);
        root.timer.set(TimerUser::Policy, follower.next_call_at(), now);
    }

    /// A root of the plugin of this label follows no server any more; other roots may.
    pub(super) fn end_following(&self, follower: Option<Rc<Follower<H>>>, plugin: &str) {
        let Some(follower) = follower else { return };
        let is_of = |root: &Root<H>| root.policy().is_some_and(|it| it.config.plugin == plugin);
        if !self.all_roots().iter().any(|root| root.follower().is_some() && is_of(root)) {
            follower.end();
        }
    }

    /// Also calls the timer of a root after this long, once; `None` for no such call. The host has
    /// one timer for a root, so a program around the filter shares the filter's.
    pub fn wake_after(&self, id: u32, after: Option<Span>) {
        let Some(root) = self.root(id) else { return };
        let now = self.host.now().unwrap_or_default();
        root.timer.set(TimerUser::Program, after.map(|after| now.saturating_add(after)), now);
    }
}
