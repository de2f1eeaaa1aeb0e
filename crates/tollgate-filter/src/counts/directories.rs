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
use tollgate_storage::table::Table;

use crate::host::shared_data::{Change, SharedCell, SharedData, Stored};

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
    let entered = SharedCell::new(shared, &table.directory_name()).change(|found| {
        let directory =
            found.map_or_else(|| Some(Directory::default()), |(it, _)| Directory::read(it));
        let is_damaged = directory.is_none();
        let mut directory = directory.unwrap_or_default();
        let lost = match directory.register(policy, group) {
            Registered::AsItIs => {
                let cas = found.map(|(_, cas)| cas);
                return Change::Keep((Read { cas, directory: Rc::new(directory) }, None));
            }
            Registered::Newest { forgotten: 1.. } => {
                Some("the directory is full: counts that were used long ago")
            }
            _ if is_damaged => Some("the directory was damaged: counts that were used"),
            _ => None,
        };
        let mut bytes = Vec::new();
        directory.write(&mut bytes);
        // The host does not return the number of the write.
        let read = Read { cas: None, directory: Rc::new(directory) };
        Change::Write(bytes.into(), (read, lost))
    });
    entered.ok()
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
                format!("{lost} under other quotas of rule {} start again", names.join(", "))
            }));
            self.put(index, read);
        }
        Some(lines)
    }

    /// The directory of the table with this index, read again.
    pub fn refresh(&self, shared: &impl SharedData, index: usize, table: &Table) -> Rc<Directory> {
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
    pub fn for_value(
        &self,
        shared: &impl SharedData,
        policy: &Policy,
        (index, table): (usize, &Table),
        value: &[u8],
    ) -> Rc<Directory> {
        let last = self.last(index).directory;
        let has_unknown = |group: &Group| group.has_unknown(policy, &last, value);
        if policy.groups().get(index).is_some_and(has_unknown) {
            return self.refresh(shared, index, table);
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
