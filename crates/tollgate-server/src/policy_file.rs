//! The policy file and the files that its lists take values from: read at the start, on SIGHUP, and
//! whenever their contents change.
//!
//! Invariant: contents are compared, not names or times, so a file that is replaced, edited in
//! place or reached by links that move (a ConfigMap) is one case. A change is taken when two checks
//! in a row read the same contents, so a file that is being written is not taken half. Contents
//! that cannot be enforced are logged and counted once, and the previous policy stays. Deliberately
//! absent: checks of anything but a regular file, since reading a pipe takes its contents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tollgate_policy::{Problem, Problems, Surface};
use tollgate_service::{deployment, health};
use tollgate_yaml::{Document, Language, read_beside};

use crate::gate::Gate;
use crate::log::Level;
use crate::policy::active::{self, ProtocolRestrictions};
use crate::policy::following::File;

/// The longest policy that is read: the policy crate's limit, and room to detect a longer one.
const MAX_POLICY: u64 = 2 << 20;
/// The time between two checks of the file.
const LOOK: Duration = Duration::from_secs(2);

/// The policy file of a running server.
#[derive(Debug)]
pub(crate) struct PolicyFile {
    gate: Arc<Gate>,
    path: PathBuf,
    looks: Mutex<FileChecks>,
}

/// The result of reading the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    Text {
        policy: String,
        /// The files that it names, each with its text or the reason that there is none.
        lists: BTreeMap<String, Result<String, String>>,
    },
    /// The reason that there is none.
    Unreadable(String),
}

impl Contents {
    /// Reads `path`, however long that takes.
    pub(crate) fn read(path: &Path) -> Self {
        let policy = match read(path) {
            Ok(policy) => policy,
            Err(why) => return Self::Unreadable(why),
        };
        // JSON without the word is parsed when it is taken, not at every check.
        let document = document(path, &policy).ok();
        let names = document.map_or_else(Vec::new, |document| document.files_to_take());
        let read = |name: String| (name.clone(), read_beside(path, &name));
        Self::Text { policy, lists: names.into_iter().map(read).collect() }
    }

    /// The policy in it, as this server would enforce it.
    ///
    /// # Errors
    /// All its mistakes.
    pub(crate) fn compile(
        &self,
        path: &Path,
        hash_key: &[u8],
        spoken: ProtocolRestrictions,
    ) -> Result<File, Problems> {
        match self {
            Self::Text { policy, lists } => {
                let document = document(path, policy)?;
                let absent = || Err("was not read; reload the policy".to_owned());
                let document = document
                    .take_files(|name| lists.get(name).cloned().unwrap_or_else(absent))
                    .map_err(Problems::from)?;
                let policy = active::compile(&document.json, hash_key, spoken)
                    .map_err(|problems| document.located(problems, Surface::Server))?;
                Ok(File::new(document.json, policy))
            }
            Self::Unreadable(why) => {
                let message = format!("{} cannot be read: {why}", path.display());
                Err(Problems([Problem::new("policy", message)].into()))
            }
        }
    }

    fn fingerprint(&self) -> Fingerprint {
        match self {
            Self::Text { policy, lists } => {
                let lists = lists.iter().map(|(name, text)| format!("{name:?}{text:?}"));
                let all: String = [policy.clone()].into_iter().chain(lists).collect();
                Fingerprint::Text(deployment::fingerprint(&all))
            }
            Self::Unreadable(why) => Fingerprint::Unreadable(why.clone()),
        }
    }
}

fn document(path: &Path, policy: &str) -> Result<Document, Problems> {
    Document::read(policy.to_owned(), Language::of_file(path, policy))
}

fn read(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|why| why.to_string())?;
    if metadata.len() > MAX_POLICY {
        return Err("it is longer than 2 MiB".to_owned());
    }
    std::fs::read_to_string(path).map_err(|why| why.to_string())
}

/// The value by which contents are compared, so that they are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fingerprint {
    Text(u64),
    Unreadable(String),
}

/// The checks of the file so far.
#[derive(Debug)]
struct FileChecks {
    /// The contents that were last taken: enforced, or found invalid.
    taken: Fingerprint,
    last: Fingerprint,
}

impl FileChecks {
    /// Notes a check that read `now`; true when that is to be taken.
    fn note(&mut self, now: Fingerprint) -> bool {
        let is_due = now != self.taken && now == self.last;
        self.last = now;
        is_due
    }
}

impl PolicyFile {
    /// The file at `path`, whose `contents` `gate` was made from.
    pub(crate) fn new(gate: Arc<Gate>, path: PathBuf, contents: &Contents) -> Self {
        let taken = contents.fingerprint();
        let looks = Mutex::new(FileChecks { last: taken.clone(), taken });
        Self { gate, path, looks }
    }

    /// Checks the file again and again.
    pub(crate) async fn watch(&self) {
        let mut interval = interval(LOOK);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let mut looks = self.looks.lock().await;
            let path = self.path.clone();
            let is_pipe = |path: &Path| path.metadata().is_ok_and(|it| !it.is_file());
            let look = spawn_blocking(move || (!is_pipe(&path)).then(|| Contents::read(&path)));
            if let Ok(Some(contents)) = look.await
                && looks.note(contents.fingerprint())
            {
                self.take(&mut looks, contents).await;
            }
        }
    }

    /// Reads the file and takes its contents, whether or not they are new. A disk that does not
    /// respond holds up none of the threads that serve.
    pub(crate) async fn reload(&self) {
        let mut looks = self.looks.lock().await;
        let path = self.path.clone();
        let read = spawn_blocking(move || Contents::read(&path)).await;
        let contents = read.unwrap_or_else(|why| Contents::Unreadable(why.to_string()));
        self.take(&mut looks, contents).await;
    }

    /// Makes the policy in `contents` this server's file. It is then in force as after any other
    /// deployment, unless an operator wrote another at run time.
    async fn take(&self, looks: &mut FileChecks, contents: Contents) {
        let gate = &self.gate;
        let spoken = gate.following.spoken();
        let taken = contents.fingerprint();
        (looks.taken, looks.last) = (taken.clone(), taken);
        match contents.compile(&self.path, &gate.hash_key, spoken) {
            Ok(file) => {
                let of_file = file.policy.public_fingerprint();
                gate.following.set_file(file, gate.clock.now_ms());
                gate.follow(0).await;
                let active = gate.following.active();
                let is_in_force = active.policy.public_fingerprint() == of_file;
                let fields = [("version", active.version.into()), ("in_force", is_in_force.into())];
                gate.log.event(Level::Info, "policy_reloaded", &fields);
            }
            Err(problems) => {
                gate.traffic.files_refused.fetch_add(1, Ordering::Relaxed);
                let prefix = "the policy file cannot be enforced, the one before stays: ";
                health::log_each(&problems, prefix, &mut |line| {
                    gate.log.message(Level::Error, "policy_refused", line);
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: a file that is written slowly, taken half; a wrong file that is logged every two
    // seconds; and a file that goes wrong and back before it was taken.
    #[test]
    fn contents_are_taken_once_when_two_looks_agree() {
        let text = Fingerprint::Text;
        let mut looks = FileChecks { taken: text(1), last: text(1) };
        let mut note = |now: Fingerprint| {
            let is_due = looks.note(now.clone());
            if is_due {
                looks.taken = now;
            }
            is_due
        };
        assert!(!note(text(1)), "nothing changed");
        assert!(!note(text(2)) && !note(text(3)), "still being written");
        assert!(note(text(3)) && !note(text(3)) && !note(text(3)), "once");
        let gone = || Fingerprint::Unreadable("no such file".to_owned());
        assert!(!note(gone()) && !note(text(3)) && !note(gone()), "away for a moment");
        assert!(note(gone()) && !note(gone()), "gone");
        assert!(!note(text(3)) && note(text(3)), "back, with what was there before");
    }
}
