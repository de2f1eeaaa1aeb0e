//! The quotas that each table's records may be of, stored in the host's map in addition to the
//! table: after a change of the policy, counts continue where those of the earlier policy were.
//!
//! Invariant: a worker's quotas are in the directory before it writes a record of them. A record of
//! other quotas is only read with a directory that was read after the record. So a worker that
//! finds a record knows its quotas and knows which configuration is newer, however late that worker
//! was configured. Bytes that are not a directory are replaced when a policy is configured; until
//! then the last good one is used.
//!
//! Deliberately absent: reading the directory for requests whose records are the worker's own.
//! Those are all but the first of each key after a change.

use std::cell::RefCell;
use std::rc::Rc;

use tollgate_policy::{Directory, Group, Policy, Registered};
use tollgate_table::Table;

use crate::host::shared_data::{INSERT, SharedData, Stored, Written};

/// Attempts to write a directory. Every lost race means that another worker wrote one, mostly the
/// same one.
const MAX_TRIES: u32 = 32;

/// The directory of every table as last read.
#[derive(Default)]
pub struct Directories(RefCell<Vec<Read>>);

/// One directory as read.
#[derive(Clone, Default)]
struct Read {
    /// The number of its bytes in the host's map; `None` before they were read.
    cas: Option<u32>,
    directory: Rc<Directory>,
}

/// Enters the quotas of one group; returns the directory that was read or written, and what was
/// lost.
fn enter(
    shared: &impl SharedData,
    policy: &Policy,
    group: &Group,
    table: &Table,
) -> Option<(Read, Option<&'static str>)> {
    let name = table.directory_name();
    let mut bytes = Vec::new();
    for _ in 0..MAX_TRIES {
        let (found, cas) = match shared.get(&name) {
            Stored::Unreachable => return None,
            Stored::Absent => (Some(Directory::default()), None),
            Stored::Value(bytes, cas) => (Directory::read(&bytes), Some(cas)),
        };
        let is_damaged = found.is_none();
        let mut directory = found.unwrap_or_default();
        let registered = directory.register(policy, group);
        let lost = match registered {
            Registered::Newest { forgotten: 1.. } => {
                Some("the directory is full: what was used long ago")
            }
            _ if is_damaged => Some("the directory was damaged: what was used"),
            _ => None,
        };
        if registered == Registered::AsItIs {
            return Some((Read { cas, directory: Rc::new(directory) }, None));
        }
        bytes.clear();
        directory.write(&mut bytes);
        match shared.set(&name, &bytes, cas.unwrap_or(INSERT)) {
            // The host does not return the number of the write.
            Written::Done => {
                return Some((Read { cas: None, directory: Rc::new(directory) }, lost));
            }
            Written::Lost => {}
            Written::Unreachable => return None,
        }
    }
    None
}

impl Directories {
    /// Enters the policy's quotas for each of its tables. Returns what an operator must know, a
    /// line each; `None` when the host does not respond.
    pub fn agree(
        &self,
        shared: &impl SharedData,
        policy: &Policy,
        tables: &[Table],
    ) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        for (index, (group, table)) in policy.groups().iter().zip(tables).enumerate() {
            let (read, lost) = enter(shared, policy, group, table)?;
            lines.extend(lost.map(|lost| {
                let rules = policy.rules().iter().filter(|rule| rule.group() == index);
                let names: Vec<_> = rules.map(|rule| format!("\"{}\"", rule.name())).collect();
                format!("{lost} under other quotas of rule {} begins anew", names.join(", "))
            }));
            self.put(index, read);
        }
        Some(lines)
    }

    /// The directory of the table with this index, read again.
    pub fn ask(&self, shared: &impl SharedData, index: usize, table: &Table) -> Rc<Directory> {
        let before = self.last(index);
        let (bytes, cas) = match shared.get(&table.directory_name()) {
            Stored::Value(bytes, cas) if before.cas != Some(cas) => (bytes, cas),
            Stored::Value(..) | Stored::Absent | Stored::Unreachable => return before.directory,
        };
        let Some(directory) = Directory::read(&bytes) else { return before.directory };
        let directory = Rc::new(directory);
        self.put(index, Read { cas: Some(cas), directory: Rc::clone(&directory) });
        directory
    }

    /// The quotas of `value`, one of this table's: from the directory as last read, if that has
    /// them all.
    pub fn knowing(
        &self,
        shared: &impl SharedData,
        policy: &Policy,
        (index, table): (usize, &Table),
        value: &[u8],
    ) -> Rc<Directory> {
        let last = self.last(index).directory;
        let has_unknown = |group: &Group| group.has_unknown(policy, &last, value);
        if policy.groups().get(index).is_some_and(has_unknown) {
            return self.ask(shared, index, table);
        }
        last
    }

    fn last(&self, index: usize) -> Read {
        self.0.borrow().get(index).cloned().unwrap_or_default()
    }

    fn put(&self, index: usize, read: Read) {
        let mut all = self.0.borrow_mut();
        if all.len() <= index {
            all.resize_with(index.saturating_add(1), Read::default);
        }
        if let Some(slot) = all.get_mut(index) {
            *slot = read;
        }
    }
}
