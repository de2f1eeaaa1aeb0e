//! The exchange of one thread with others: calls that the main thread sends, responses, lease work,
//! and policies that the main thread has fetched.
//!
//! Invariant: mail is taken in its order, each once; a thread that nothing wakes has no work and no
//! mail. Not here: the queues, which are `calls`'s.

use super::Worker;
use crate::abi;
use crate::calls::{self, Content, Mail};
use crate::context::{Root, Subject};
use crate::metrics::Target;
use crate::stored_policy;
use crate::timer::{self, Sleeper};

impl Worker {
    /// The main thread is woken for a configuration: what its roots have to do, and its calls.
    pub(crate) fn wake_main(&self, (number, envoy): (usize, abi::Configuration)) {
        self.end_roots();
        self.context.hook_of.set(Some((envoy, number)));
        self.take_mail();
        self.tick();
        calls::send(number, envoy);
        self.deliver_all((number, envoy));
    }

    /// Delivers the mail of this worker, and wakes the others that have some.
    pub(crate) fn deliver_all(&self, (number, envoy): (usize, abi::Configuration)) {
        self.context.hook_of.set(Some((envoy, number)));
        self.take_mail();
        for other in calls::with_mail() {
            timer::wake(Sleeper::Worker(other));
        }
        self.finish();
        self.context.metrics.hand_over(Target::Configuration(envoy), number);
        self.context.hook_of.set(None);
    }

    /// A stream of this thread is woken.
    pub(crate) fn wake(&self) {
        self.end_roots();
        // Before the tick, which gives up what has no response.
        self.take_mail();
        self.tick();
    }

    fn take_mail(&self) {
        while let Some(mail) = calls::take_mail(self.number()) {
            self.deliver(mail);
        }
    }

    fn deliver(&self, Mail { configuration, content }: Mail) {
        let is_it = |root: &&Root| root.configuration.number == configuration;
        let id = self.context.roots.borrow().iter().find(is_it).map(|root| root.id);
        let Some(root) = id else { return };
        self.depth.set(self.depth.get().saturating_add(1));
        self.about(Subject { root, stream: 0 }, || match content {
            Content::Answer(number, Ok(answer)) => {
                let len = answer.as_ref().map_or(0, |answer| answer.len);
                self.context.answer.replace(answer);
                self.filter.on_call_answered(root, number, len);
                self.context.answer.take();
            }
            Content::Answer(number, Err(why)) => self.filter.on_call_not_sent(root, number, why),
            Content::Work(work) => self.filter.adopt_lease_work(root, work),
        });
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    /// The last stream has ended, so nothing wakes this thread: its work goes to the main thread.
    pub(super) fn sleep(&self) {
        let of = |root: &Root| (root.id, root.configuration.number, root.configuration.main);
        let is_left = |root: &&Root| root.makes_calls && !root.is_main;
        let left: Vec<_> = self.context.roots.borrow().iter().filter(is_left).map(of).collect();
        if left.is_empty() {
            return;
        }
        self.take_mail();
        for (root, configuration, main) in left {
            let subject = Subject { root, stream: 0 };
            if let Some(work) = self.about(subject, || self.filter.take_lease_work(root)) {
                calls::hand_over((self.number(), main), configuration, work);
                timer::wake(Sleeper::Main(configuration));
            }
        }
    }

    /// Puts the policy in force that the main thread has fetched since this root has looked.
    pub(super) fn take_stored(&self, id: u32) {
        let number = stored_policy::number();
        let is_due = |root: &&Root| root.id == id && root.stored.is_some_and(|it| it != number);
        let seen = self.context.roots.borrow().iter().find(is_due).and_then(|root| root.stored);
        let Some(seen) = seen else { return };
        let subject = Subject { root: id, stream: 0 };
        let urgency = stored_policy::urgency(seen);
        if self.about(subject, || self.filter.take_stored_policy(id, urgency))
            && let Some(root) = self.context.roots.borrow_mut().iter_mut().find(|it| it.id == id)
        {
            root.stored = Some(number);
        }
    }
}
