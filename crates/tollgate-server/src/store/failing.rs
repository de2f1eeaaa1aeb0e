//! A folder in memory for tests: the test sets when an operation fails and when the power is lost.
//!
//! Invariant: like a disk it keeps only bytes and names that were synchronised, and a failed
//! operation may have been done.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::store::folder::Folder;

/// The operations that fail, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Faults {
    None,
    /// One operation.
    At(usize),
    /// This operation and all later ones.
    From(usize),
}

/// The extent to which a failing operation is done: half of a write, and nothing of another
/// operation; or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Part,
    All,
}

/// The contents after the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Everything written: the machine still runs.
    Written,
    /// Everything synchronised: the machine lost its power.
    Synced,
}

/// The folder; its clones are the same folder.
#[derive(Clone, Debug, Default)]
pub(super) struct Failing(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    files: Vec<Bytes>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    fails: Option<(Faults, Extent)>,
    operations: usize,
    /// A file was not cut, or the cut was not synchronised: a line that was denied may be there.
    is_uncut: bool,
    is_cutting: bool,
}

#[derive(Clone, Debug, Default)]
struct Bytes {
    written: Vec<u8>,
    synced: Vec<u8>,
}

impl Failing {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().expect("no test panics with it")
    }

    /// Sets the operations that fail from now on, counted from 0.
    pub(super) fn fail(&self, faults: Faults, extent: Extent) {
        let mut disk = self.disk();
        (disk.fails, disk.operations) = (Some((faults, extent)), 0);
    }

    /// The number of operations since then.
    pub(super) fn operations(&self) -> usize {
        self.disk().operations
    }

    /// True when a line that was denied may be there: its removal failed, too.
    pub(super) fn is_uncut(&self) -> bool {
        self.disk().is_uncut
    }

    /// Another folder: this one as the next process finds it.
    pub(super) fn left(&self, left: Left) -> Self {
        let disk = self.disk();
        let names = match left {
            Left::Written => disk.names.clone(),
            Left::Synced => disk.synced_names.clone(),
        };
        let files = disk.files.iter().map(|bytes| {
            let kept = match left {
                Left::Written => bytes.written.clone(),
                Left::Synced => bytes.synced.clone(),
            };
            Bytes { written: kept.clone(), synced: kept }
        });
        let files = files.collect();
        let synced_names = names.clone();
        Self(Arc::new(Mutex::new(Disk { files, names, synced_names, ..Disk::default() })))
    }

    /// The bytes of a file, to be damaged.
    pub(super) fn damage(&self, name: &str, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut disk = self.disk();
        let number = disk.names[name];
        let bytes = &mut disk.files[number];
        damage(&mut bytes.written);
        bytes.synced = bytes.written.clone();
    }
}

impl Disk {
    /// Counts an operation and does it, all of it or (`false`) a part, unless it fails before that.
    fn operate(&mut self, step: impl FnOnce(&mut Self, bool)) -> Result<()> {
        let number = self.operations;
        self.operations = self.operations.saturating_add(1);
        let extent = self.fails.and_then(|(faults, extent)| {
            let fails = match faults {
                Faults::None => false,
                Faults::At(at) => number == at,
                Faults::From(from) => number >= from,
            };
            fails.then_some(extent)
        });
        step(self, extent != Some(Extent::Part));
        match extent {
            None => Ok(()),
            Some(_) => Err(Error::from(ErrorKind::StorageFull)),
        }
    }
}

impl Folder for Failing {
    type File = usize;

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let disk = self.disk();
        let number = disk.names.get(name);
        Ok(number.map(|number| disk.files[*number].written.clone()))
    }

    fn create(&self, name: &str) -> Result<usize> {
        let mut disk = self.disk();
        let mut number = disk.names.get(name).copied().unwrap_or(disk.files.len());
        disk.operate(|disk, is_all| {
            if is_all && number == disk.files.len() {
                disk.files.push(Bytes::default());
                disk.names.insert(name.to_owned(), number);
            }
            if is_all {
                disk.files[number].written.clear();
            }
            number = number.min(disk.files.len());
        })?;
        Ok(number)
    }

    fn write(&self, file: &mut usize, bytes: &[u8]) -> Result<()> {
        self.disk().operate(|disk, is_all| {
            let part = if is_all { bytes } else { &bytes[..bytes.len() / 2] };
            disk.files[*file].written.extend_from_slice(part);
        })
    }

    fn sync(&self, file: &usize) -> Result<()> {
        let mut disk = self.disk();
        let is_cutting = std::mem::take(&mut disk.is_cutting);
        let synced = disk.operate(|disk, is_all| {
            if is_all {
                disk.files[*file].synced = disk.files[*file].written.clone();
            }
        });
        disk.is_uncut |= is_cutting && synced.is_err();
        synced
    }

    fn cut(&self, file: &usize, len: u64) -> Result<()> {
        let mut disk = self.disk();
        disk.is_cutting = true;
        let cut = disk.operate(|disk, is_all| {
            if is_all {
                disk.files[*file].written.truncate(usize::try_from(len).expect("short"));
            }
        });
        disk.is_uncut |= cut.is_err();
        cut
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk().operate(|disk, is_all| {
            if is_all && let Some(number) = disk.names.remove(from) {
                disk.names.insert(to.to_owned(), number);
            }
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.disk().operate(|disk, is_all| {
            if is_all {
                disk.names.remove(name);
            }
        })
    }

    fn sync_names(&self) -> Result<()> {
        let mut disk = self.disk();
        let synced = disk.operate(|disk, is_all| {
            if is_all {
                disk.synced_names = disk.names.clone();
            }
        });
        disk.is_uncut &= synced.is_err();
        synced
    }
}
