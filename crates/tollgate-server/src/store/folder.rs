//! The folder of rules: the few operations of a disk, each of which may fail.
//!
//! Invariant: an operation that fails has done some of its work, or none, and nothing else. One
//! process has the folder at a time. Only its own user may read its contents: policies contain keys
//! of tokens. Deliberately absent: the contents of the files, and the handling of a failure.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file that shows which process has the folder.
const LOCK: &str = "lock";

/// A folder with files.
pub(super) trait Folder {
    /// A file that is open for more bytes at its end.
    type File: std::fmt::Debug;
    /// The bytes of a file; `None` when there is no such file.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Opens a file without bytes, made where there is none.
    fn create(&self, name: &str) -> Result<Self::File>;
    /// Writes after the last byte.
    fn write(&self, file: &mut Self::File, bytes: &[u8]) -> Result<()>;
    /// Returns when the bytes of the file survive a loss of power.
    fn sync(&self, file: &Self::File) -> Result<()>;
    /// Removes all bytes after the first `len`.
    fn cut(&self, file: &Self::File, len: u64) -> Result<()>;
    /// Gives a file the name of another, which is gone then. Files that are open stay open.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> Result<()>;
    /// Returns when the names of files survive a loss of power.
    fn sync_names(&self) -> Result<()>;
}

/// A folder on a disk, which no other process has.
#[derive(Debug)]
pub(super) struct OnDisk {
    path: PathBuf,
    /// Locked until this is dropped.
    _lock: File,
}

impl OnDisk {
    /// The folder at `path`, made where there is none.
    ///
    /// # Errors
    /// It cannot be made or locked, or another process has it.
    pub(super) fn open(path: &Path) -> std::result::Result<Self, String> {
        std::fs::create_dir_all(path).map_err(|why| why.to_string())?;
        let name = path.join(LOCK);
        let lock = private().append(true).create(true).open(&name);
        // On a read-only disk the file is locked as it is.
        let lock = lock.or_else(|why| File::open(&name).map_err(|_| why.to_string()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err("another process has it".to_owned()),
            Err(TryLockError::Error(why)) => Err(why.to_string()),
        }
    }
}

impl Folder for OnDisk {
    type File = File;

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match std::fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
            Err(why) => Err(why),
        }
    }

    fn create(&self, name: &str) -> Result<File> {
        let file = private().append(true).create(true).open(self.path.join(name))?;
        file.set_len(0)?;
        Ok(file)
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> Result<()> {
        file.sync_all()
    }

    fn cut(&self, file: &File, len: u64) -> Result<()> {
        file.set_len(len)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}
