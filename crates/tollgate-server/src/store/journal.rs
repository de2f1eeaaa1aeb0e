//! Rules on disk: one file that begins with the whole state and continues with every change.
//!
//! Invariant: a change is on the disk, synchronised, before it is made in memory and its response
//! is sent. A change is one line with a hash of it. So a line that was cut off by the end of the
//! process or of the machine is recognised: its response was never sent, and it is dropped. Any
//! other line that is wrong, or that does not apply to the lines before it, is damage, and the
//! server does not start.
//!
//! A failed write leaves unknown bytes, so nothing is written after them: the next change first
//! rewrites the whole file, atomically, and is denied while that fails. The file is also rewritten
//! when it is opened, which may fail (the disk may be full), and when its changes are longer than
//! its beginning.

use sha2::{Digest, Sha256};
use tollgate_service::{MemoryLimits, MemoryStore};

use crate::store::folder::Folder;

/// The file, and its replacement.
const NAME: &str = "rules";
const NEW: &str = "rules.new";

/// The file, open for more changes.
#[derive(Debug)]
pub(super) struct Journal<F: Folder> {
    folder: F,
    /// Bytes of changes that are always kept before the file is rewritten.
    least_changes: u64,
    /// The file and its length; `None` while it must be rewritten before anything else.
    file: Option<(F::File, Lengths)>,
}

#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// Bytes of the line with the whole state.
    begins: u64,
    /// Bytes of all lines.
    all: u64,
}

/// A file of rules that was read.
pub(super) struct Opened<F: Folder> {
    pub(super) journal: Journal<F>,
    /// The rules in it.
    pub(super) store: MemoryStore,
    /// The reason that no change can be written, if none can.
    pub(super) unwritable: Option<String>,
}

impl<F: Folder> Journal<F> {
    /// Reads the file in `folder`. It is not rewritten for less than `least_changes` bytes of
    /// changes.
    ///
    /// # Errors
    /// It cannot be read, or it is damaged.
    pub(super) fn open(
        folder: F,
        limits: MemoryLimits,
        least_changes: u64,
    ) -> Result<Opened<F>, String> {
        let bytes = folder.read(NAME).map_err(|why| format!("{NAME} cannot be read: {why}"))?;
        let store = match bytes {
            Some(bytes) => replay(&bytes, limits)?,
            None => MemoryStore::new(limits),
        };
        let mut journal = Self { folder, least_changes, file: None };
        let unwritable = journal.rewrite(&store.to_json()).err().map(unwritable);
        Ok(Opened { journal, store, unwritable })
    }

    /// Writes a change, as JSON, that is made when this returns; `before` returns the store as JSON
    /// without the change, and is seldom called.
    ///
    /// # Errors
    /// It could not be written, and must not be made. It is not there after a restart, unless the
    /// disk failed while it removed it.
    pub(super) fn append(
        &mut self,
        change: &str,
        before: impl FnOnce() -> String,
    ) -> Result<(), String> {
        let (mut file, lengths) = self.ready(before)?;
        let line = line(change);
        let wrote = self.folder.write(&mut file, line.as_bytes());
        match wrote.and_then(|()| self.folder.sync(&file)) {
            Ok(()) => {
                let all = lengths.all.saturating_add(len(&line));
                self.file = Some((file, Lengths { all, ..lengths }));
                Ok(())
            }
            Err(why) => {
                // A denied change must not be there after a restart.
                let cut = self.folder.cut(&file, lengths.all);
                let _ = cut.and_then(|()| self.folder.sync(&file));
                Err(unwritable(why))
            }
        }
    }

    /// The file, with only known bytes in it. The caller puts it back when a change was written.
    fn ready(&mut self, all: impl FnOnce() -> String) -> Result<(F::File, Lengths), String> {
        let rewritten = if self.is_due() { self.rewrite(&all()) } else { Ok(()) };
        // A file that is only long is still appended to when it cannot be rewritten.
        let kept = self.file.take();
        kept.ok_or_else(|| match rewritten {
            Err(why) => unwritable(why),
            Ok(()) => format!("{NAME} is not open"),
        })
    }

    /// True when the file must be rewritten before the next change.
    fn is_due(&self) -> bool {
        self.file.as_ref().is_none_or(|(_, Lengths { begins, all })| {
            all.saturating_sub(*begins) > self.least_changes.max(*begins)
        })
    }

    /// Replaces the file by one that begins with the whole state.
    fn rewrite(&mut self, all: &str) -> std::io::Result<()> {
        let line = line(all);
        let file = self.write_new(&line).inspect_err(|_| {
            // A half-written file takes disk space that the next try needs.
            let _ = self.folder.remove(NEW);
        })?;
        // From here on it is not known which of the two files has the name.
        self.file = None;
        self.folder.rename(NEW, NAME)?;
        self.folder.sync_names()?;
        let begins = len(&line);
        self.file = Some((file, Lengths { begins, all: begins }));
        Ok(())
    }

    fn write_new(&self, line: &str) -> std::io::Result<F::File> {
        let mut file = self.folder.create(NEW)?;
        self.folder.write(&mut file, line.as_bytes())?;
        self.folder.sync(&file)?;
        Ok(file)
    }
}

fn unwritable(why: std::io::Error) -> String {
    format!("{NAME} cannot be written: {why}")
}

/// The rules that the lines of a file produce.
fn replay(bytes: &[u8], limits: MemoryLimits) -> Result<MemoryStore, String> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let first = whole(lines.next().unwrap_or_default());
    let store = first.and_then(|json| MemoryStore::from_json(limits, json).ok_or(DAMAGED));
    let mut store = store.map_err(|why| damage(1, why))?;
    for (line, number) in lines.zip(2_usize..) {
        if line.last() != Some(&b'\n') {
            // The last line, cut off.
            break;
        }
        let replayed = whole(line).and_then(|json| store.replay(json.as_bytes()));
        replayed.map_err(|why| damage(number, why))?;
    }
    Ok(store)
}

const DAMAGED: &str = "is damaged";

fn damage(number: usize, why: &str) -> String {
    format!("line {number} of {NAME} {why}; restore the file")
}

fn line(json: &str) -> String {
    format!("{:016x} {json}\n", hash(json))
}

fn len(line: &str) -> u64 {
    u64::try_from(line.len()).unwrap_or(u64::MAX)
}

/// The JSON of a line, when the line is as it was written.
fn whole(line: &[u8]) -> Result<&str, &'static str> {
    let text = str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n'));
    let parts = text.and_then(|text| text.split_once(' '));
    let is_hash = |given: &str, json| u64::from_str_radix(given, 16) == Ok(hash(json));
    parts.filter(|(given, json)| is_hash(given, json)).map(|(_, json)| json).ok_or(DAMAGED)
}

fn hash(json: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(json).into();
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::failing::{Failing, Left};
    use crate::store::folder::OnDisk;
    use tollgate_service::{Expect, StoreCall, TenantCall};

    const LEAST: u64 = 4 << 20;

    fn put(id: &str, entry: &str) -> StoreCall {
        let (id, entry, expect) = (id.to_owned(), entry.to_owned(), Expect::Nothing);
        StoreCall::Tenants(TenantCall::Put { id, entry, expect })
    }

    fn opened<F: Folder>(folder: F) -> Result<Opened<F>, String> {
        Journal::open(folder, MemoryLimits::default(), LEAST)
    }

    /// A file with these changes, and the rules that it produces.
    fn written(changes: &[StoreCall]) -> (Failing, String) {
        let folder = Failing::default();
        let Opened { mut journal, mut store, .. } = opened(folder.clone()).expect("opened");
        for change in changes {
            journal.append(&change.to_json(), || store.to_json()).expect("written");
            store.answer(change);
        }
        (folder, store.to_json())
    }

    /// The reason that a file with this `damage` is rejected; the file is not changed.
    fn refused(changes: &[StoreCall], damage: impl FnOnce(&mut Vec<u8>)) -> String {
        let (folder, _) = written(changes);
        folder.damage(NAME, damage);
        let before = folder.read(NAME).expect("read");
        let why = opened(folder.clone()).err().expect("it is damaged");
        assert_eq!(folder.read(NAME).expect("read"), before, "it was touched");
        why
    }

    fn ends_of_lines(bytes: &[u8]) -> Vec<usize> {
        let behind = (1..).zip(bytes).filter(|(_, byte)| **byte == b'\n');
        behind.map(|(end, _)| end).collect()
    }

    #[test]
    fn a_last_line_cut_off_anywhere_was_never_answered() {
        let (_, one) = written(&[put("a", "1")]);
        let (folder, two) = written(&[put("a", "1"), put("b", "2")]);
        let whole = folder.read(NAME).expect("read").expect("a file");
        let ends = ends_of_lines(&whole);
        for end in ends[1]..=whole.len() {
            let folder = folder.left(Left::Written);
            folder.damage(NAME, |bytes| bytes.truncate(end));
            let store = opened(folder).expect("opened").store;
            let expected = if end == whole.len() { &two } else { &one };
            assert_eq!(&store.to_json(), expected, "{end}");
        }
    }

    #[test]
    fn damage_stops_the_start_and_is_named() {
        let changes = [put("a", "1"), put("b", "2")];
        let flipped = |line: usize, at: usize| {
            move |bytes: &mut Vec<u8>| {
                let begin = ends_of_lines(bytes)[line - 1];
                bytes[begin + at] ^= 1;
            }
        };
        for (line, at) in [(1, 3), (1, 30), (2, 3), (2, 30)] {
            let why = refused(&changes, flipped(line, at));
            let number = line + 1;
            assert_eq!(why, format!("line {number} of rules is damaged; restore the file"));
        }
        let of_nothing = "line 1 of rules is damaged; restore the file";
        assert_eq!(refused(&changes, Vec::clear), of_nothing);
        assert_eq!(refused(&changes, |bytes| bytes.truncate(9)), of_nothing);
        assert_eq!(refused(&changes, |bytes| bytes[20] = b'!'), of_nothing);
    }

    // Guards: a change that a restart silently leaves out, because the one before it is missing.
    #[test]
    fn a_line_that_does_not_apply_is_damage() {
        let delete = |id: &str| {
            StoreCall::Tenants(TenantCall::Delete { id: id.to_owned(), expect: Expect::Anything })
        };
        let changes = [put("a", "1"), delete("a"), put("b", "2")];
        let without_first = refused(&changes, |bytes| {
            let ends = ends_of_lines(bytes);
            bytes.drain(ends[0]..ends[1]);
        });
        let expected = "line 2 of rules does not apply to the changes before it; restore the file";
        assert_eq!(without_first, expected);
        let later = line("{\"later\":1}");
        let unknown = refused(&changes, |bytes| bytes.extend_from_slice(later.as_bytes()));
        let expected = "line 5 of rules is not a change that this version knows; restore the file";
        assert_eq!(unknown, expected);
    }

    #[test]
    fn the_file_does_not_grow_without_end() {
        let Opened { mut journal, mut store, .. } = opened(Failing::default()).expect("opened");
        let delete =
            StoreCall::Tenants(TenantCall::Delete { id: "a".into(), expect: Expect::Anything });
        let long = put("a", &"x".repeat(500_000));
        for change in [&long, &delete].into_iter().cycle().take(20) {
            journal.append(&change.to_json(), || store.to_json()).expect("written");
            store.answer(change);
        }
        let len = journal.file.as_ref().map(|(_, lengths)| lengths.all).expect("written");
        assert!(len < 2 * LEAST, "{len}");
        let again = opened(journal.folder.left(Left::Synced)).expect("opened").store;
        assert_eq!(again.to_json(), store.to_json());
    }

    #[test]
    fn one_process_has_the_folder() {
        let name = format!("tollgate-journal-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        let (change, json) = (put("a", "1"), {
            let folder = OnDisk::open(&path).expect("opened");
            assert_eq!(OnDisk::open(&path).err().as_deref(), Some("another process has it"));
            let Opened { mut journal, mut store, unwritable } = opened(folder).expect("opened");
            assert_eq!(unwritable, None);
            let change = put("a", "1");
            journal.append(&change.to_json(), || store.to_json()).expect("written");
            store.answer(&change);
            store.to_json()
        });
        let mut store = opened(OnDisk::open(&path).expect("it is free")).expect("opened").store;
        assert_eq!((store.to_json(), store.would_change(&change)), (json, false));
        assert!(store.answer(&change).is_some());
        std::fs::remove_dir_all(&path).expect("removed");
    }
}
