//! Rules on disk: one file that begins with everything and goes on with every change.
//!
//! Invariant: what was answered was written and synchronised before. A change is one line, with a
//! hash of it, so a line that was cut off by the end of the process or of the machine is known: it
//! was never answered, and is dropped. A line that is wrong anywhere else is damage, and the server
//! does not start. The file is written anew, atomically, when it is opened and when its changes are
//! longer than what it begins with. One process has it at a time. Nobody else may read it: policies
//! hold keys of tokens.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tollgate_service::{MemoryLimits, MemoryStore, StoreCall};

/// The file, what it is written to first, and what says that somebody has it.
const NAME: &str = "rules";
const NEW: &str = "rules.new";
const LOCK: &str = "lock";

/// Changes that are always kept before the file is written anew.
const LEAST_CHANGES: u64 = 4 << 20;

/// The file, open for more.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    file: File,
    /// Bytes of what it begins with, and of all.
    begins: u64,
    len: u64,
    /// A line that failed could not be removed: nothing may stand behind it.
    is_broken: bool,
    /// Held as long as this is.
    _lock: File,
}

impl Journal {
    /// Opens the file in `folder`, which is made if it is not there, and says what it holds.
    ///
    /// # Errors
    /// It cannot be read or written, another process has it, or it is damaged.
    pub(super) fn open(folder: &Path, limits: MemoryLimits) -> Result<(Self, MemoryStore), String> {
        let told = |why: &dyn std::fmt::Display| format!("data: {}: {why}", folder.display());
        std::fs::create_dir_all(folder).map_err(|why| told(&why))?;
        let lock = create(&folder.join(LOCK)).map_err(|why| told(&why))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(told(&"another process has it")),
            Err(TryLockError::Error(why)) => return Err(told(&why)),
        }
        let mut bytes = Vec::new();
        match File::open(folder.join(NAME)) {
            Ok(mut file) => drop(file.read_to_end(&mut bytes).map_err(|why| told(&why))?),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
            Err(why) => return Err(told(&why)),
        }
        let store = replay(&bytes, limits).map_err(|why| told(&why))?;
        let (file, begins) = write_anew(folder, &store.to_json()).map_err(|why| told(&why))?;
        let folder = folder.to_owned();
        Ok((Self { folder, file, begins, len: begins, is_broken: false, _lock: lock }, store))
    }

    /// Writes a change that the store has taken; `all` is the store as JSON then, and is seldom
    /// wanted.
    ///
    /// # Errors
    /// It could not be written; whether it is there after a restart is not known.
    pub(super) fn append(
        &mut self,
        call: &StoreCall,
        all: impl FnOnce() -> String,
    ) -> Result<(), String> {
        if self.is_broken {
            return Err("the file of rules is broken; see the log, and restart".to_owned());
        }
        let line = line(&call.to_json());
        let wrote = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(why) = wrote {
            self.is_broken = self.file.set_len(self.len).is_err();
            return Err(format!("the file of rules cannot be written: {why}"));
        }
        let added = u64::try_from(line.len()).unwrap_or(u64::MAX);
        self.len = self.len.saturating_add(added);
        let changes = self.len.saturating_sub(self.begins);
        if changes > LEAST_CHANGES.max(self.begins)
            // Else it is tried again with the next change.
            && let Ok((file, begins)) = write_anew(&self.folder, &all())
        {
            (self.file, self.begins, self.len) = (file, begins, begins);
        }
        Ok(())
    }
}

/// What the file's lines make.
fn replay(bytes: &[u8], limits: MemoryLimits) -> Result<MemoryStore, String> {
    let mut store = MemoryStore::new(limits);
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((i, raw)) = lines.next() {
        let read = checked(raw).and_then(|json| match i {
            0 => MemoryStore::from_json(limits, json).map(|kept| store = kept),
            _ => {
                StoreCall::from_json(json.as_bytes()).and_then(|call| store.answer(&call)).map(drop)
            }
        });
        let is_cut_off = i > 0 && lines.peek().is_none() && checked(raw).is_none();
        if read.is_none() && !is_cut_off {
            let number = i.saturating_add(1);
            return Err(format!("line {number} of {NAME} is damaged; restore the file"));
        }
    }
    Ok(store)
}

fn line(json: &str) -> String {
    format!("{:016x} {json}\n", hash(json))
}

/// The JSON of a line that is whole.
fn checked(line: &[u8]) -> Option<&str> {
    let line = str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (given, json) = line.split_once(' ')?;
    (u64::from_str_radix(given, 16).ok()? == hash(json)).then_some(json)
}

fn hash(json: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(json).into();
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Writes everything to a new file, and puts it in the place of the one before.
fn write_anew(folder: &Path, all: &str) -> std::io::Result<(File, u64)> {
    let (new, name) = (folder.join(NEW), folder.join(NAME));
    let line = line(all);
    let mut file = create(&new)?;
    file.set_len(0)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, &name)?;
    File::open(folder)?.sync_all()?;
    let file = OpenOptions::new().append(true).open(&name)?;
    Ok((file, u64::try_from(line.len()).unwrap_or(u64::MAX)))
}

fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_service::{Expect, StoreReply, TenantCall, TenantReply};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tollgate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn put(id: &str) -> StoreCall {
        let (id, entry) = (id.to_owned(), "{}".to_owned());
        StoreCall::Tenants(TenantCall::Put { id, entry, expect: Expect::Nothing })
    }

    fn tenants(store: &mut MemoryStore) -> usize {
        let call = StoreCall::Tenants(TenantCall::List { after: None, limit: 1000 });
        match store.answer(&call) {
            Some(StoreReply::Tenants(TenantReply::List { entries, .. })) => entries.len(),
            other => panic!("{other:?}"),
        }
    }

    fn write(journal: &mut Journal, store: &mut MemoryStore, id: &str) {
        let before = store.changes();
        let _ = store.answer(&put(id));
        assert!(store.changes() > before);
        journal.append(&put(id), || store.to_json()).expect("written");
    }

    #[test]
    fn what_was_written_is_there_again_and_a_line_cut_off_anywhere_is_not() {
        let folder = folder("journal");
        let limits = MemoryLimits::default();
        let (mut journal, mut store) = Journal::open(&folder, limits).expect("opened");
        let busy = Journal::open(&folder, limits).expect_err("it is taken");
        assert!(busy.ends_with("another process has it"), "{busy}");
        write(&mut journal, &mut store, "a");
        write(&mut journal, &mut store, "b");
        drop(journal);
        let whole = std::fs::read(folder.join(NAME)).expect("read");
        let second = whole.iter().rposition(|byte| *byte == b'\n').expect("a line");
        let before = whole[..second].iter().rposition(|byte| *byte == b'\n').expect("a line") + 1;
        for end in before..=whole.len() {
            std::fs::write(folder.join(NAME), &whole[..end]).expect("written");
            let (_journal, mut store) = Journal::open(&folder, limits).expect("opened");
            assert_eq!(tenants(&mut store), if end == whole.len() { 2 } else { 1 }, "{end}");
        }
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn damage_is_said_and_nothing_is_lost_for_it() {
        let folder = folder("damage");
        let limits = MemoryLimits::default();
        let (mut journal, mut store) = Journal::open(&folder, limits).expect("opened");
        write(&mut journal, &mut store, "a");
        write(&mut journal, &mut store, "b");
        drop(journal);
        let mut bytes = std::fs::read(folder.join(NAME)).expect("read");
        let at = bytes.iter().position(|byte| *byte == b'\n').expect("a line") + 30;
        bytes[at] ^= 1;
        std::fs::write(folder.join(NAME), &bytes).expect("written");
        let why = Journal::open(&folder, limits).expect_err("damaged");
        assert!(why.ends_with("line 2 of rules is damaged; restore the file"), "{why}");
        assert_eq!(std::fs::read(folder.join(NAME)).expect("read"), bytes, "it was touched");
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn the_file_does_not_grow_without_end() {
        let folder = folder("anew");
        let limits = MemoryLimits::default();
        let (mut journal, mut store) = Journal::open(&folder, limits).expect("opened");
        let delete =
            StoreCall::Tenants(TenantCall::Delete { id: "a".into(), expect: Expect::Anything });
        let long = StoreCall::Tenants(TenantCall::Put {
            id: "a".to_owned(),
            entry: "x".repeat(500_000),
            expect: Expect::Nothing,
        });
        for _ in 0..20 {
            for call in [&long, &delete] {
                let _ = store.answer(call);
                journal.append(call, || store.to_json()).expect("written");
            }
        }
        assert!(journal.len < 2 * LEAST_CHANGES, "{}", journal.len);
        drop(journal);
        let (_journal, mut again) = Journal::open(&folder, limits).expect("opened");
        assert_eq!((tenants(&mut again), again.changes()), (0, store.changes()));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
