//! The only code of this command that writes a file.
//!
//! Invariant: no file is lost. A file that the command also reads is never written, whatever its
//! name, except the one to edit (`edit`). A file that is not known to come from this command is
//! written only with `--force`. A file is replaced as a whole or stays the same. Deliberately not
//! here: a lock; when two runs write one file at the same time, the later wins.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use tollgate_policy::Plugin;

use crate::error::CommandError;

/// How many bytes of a file are read to recognise one that this command wrote.
const HEAD: u64 = 1024;
/// The beginning of a module for a Worker.
pub(crate) const MODULE: &str = "export default \"";

/// The kinds of content that this command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A report as a page.
    Page,
    /// A compiled policy: as bytes, as text or as a module.
    Compiled,
    /// A configuration of Envoy, which the user wrote.
    Configuration,
}

/// The permission to overwrite a file.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Force {
    /// Replace a file that this command did not write
    #[arg(long)]
    pub(crate) force: bool,
}

/// The existing files that may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverwriteMode {
    /// Files that this command wrote before.
    Own,
    /// Every file that is not an input: `--force`.
    All,
}

impl OverwriteMode {
    /// Maps the flag.
    pub(crate) const fn by(Force { force }: Force) -> Self {
        if force { Self::All } else { Self::Own }
    }
}

/// A file that will be written.
#[derive(Debug)]
pub(crate) struct OutputFile<'p> {
    path: &'p Path,
    /// The files that the command reads; `-` is the standard input.
    inputs: Vec<&'p Path>,
    content: Content,
    replaces: OverwriteMode,
}

impl<'p> OutputFile<'p> {
    /// Checks the file at `path`, for a command that reads `inputs`.
    ///
    /// # Errors
    /// The file is one of the inputs, or a foreign file exists there.
    pub(crate) fn new(
        path: &'p Path,
        inputs: impl IntoIterator<Item = &'p Path>,
        content: Content,
        replaces: OverwriteMode,
    ) -> Result<Self, CommandError> {
        let file = Self { path, inputs: inputs.into_iter().collect(), content, replaces };
        file.check()?;
        Ok(file)
    }

    /// Checks the file at `path`, which is read and written back with some lines replaced; `inputs`
    /// are the other files that the command reads.
    ///
    /// # Errors
    /// The file is one of these.
    pub(crate) fn edit(
        path: &'p Path,
        inputs: impl IntoIterator<Item = &'p Path>,
    ) -> Result<Self, CommandError> {
        Self::new(path, inputs, Content::Configuration, OverwriteMode::All)
    }

    /// Replaces the file as a whole; checks it again, since much time may have passed.
    ///
    /// # Errors
    /// As [`OutputFile::new`], or the file cannot be written; it is then unchanged.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), CommandError> {
        self.check()?;
        put(self.path, bytes).map_err(|error| CommandError::OutputFile(self.path.to_owned(), error))
    }

    fn check(&self) -> Result<(), CommandError> {
        let name = self.path.display();
        let refuse = |why: &str| Err(CommandError::Misuse(format!("{name} {why}")));
        let own = Identity::of(self.path);
        if own.is_some() && self.inputs.iter().any(|input| Identity::of(input) == own) {
            return refuse("is also read by this command; name another file");
        }
        match (fs::metadata(self.path), self.replaces) {
            (_, OverwriteMode::All) => Ok(()),
            (Ok(metadata), OverwriteMode::Own) if is_own(self.path, &metadata, self.content) => {
                Ok(())
            }
            (Ok(_), OverwriteMode::Own) => {
                refuse("exists, and this command did not write it; --force replaces it")
            }
            (Err(_), OverwriteMode::Own) if fs::symlink_metadata(self.path).is_ok() => {
                refuse("is a link to a file that does not exist; --force replaces it")
            }
            // It does not exist; any other error shows when it is written.
            (Err(_), OverwriteMode::Own) => Ok(()),
        }
    }
}

/// True when no content is lost: a device, an empty file, or a file that this command wrote.
fn is_own(path: &Path, metadata: &Metadata, content: Content) -> bool {
    if !metadata.is_file() || metadata.len() == 0 {
        return true;
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.is_ok()
        && match content {
            Content::Page => {
                let head = String::from_utf8_lossy(&head);
                head.starts_with("<!doctype html>") && head.contains(tollgate_report::GENERATOR)
            }
            Content::Configuration => false,
            Content::Compiled => {
                let text = head.strip_prefix(MODULE.as_bytes()).unwrap_or(&head);
                Plugin::is_compiled(text)
            }
        }
}

/// Writes a temporary file next to the one at `path` and renames it. A link stays a link, and a
/// file keeps its permissions; a device or a pipe is written directly.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(&path).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        return OpenOptions::new().write(true).open(&path)?.write_all(bytes);
    }
    let (mut file, temporary) = temporary_for(&path)?;
    let permissions = before.map(|before| before.permissions());
    let written = file
        .write_all(bytes)
        .and_then(|()| permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions)))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary); // the first error is the one that is reported
    }
    written
}

/// Creates a new file in the folder of `path`, under an unused name.
fn temporary_for(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut name = [0; 8];
    getrandom::fill(&mut name).map_err(|error| io::Error::other(error.to_string()))?;
    let name = format!(".tollgate-{:016x}.partial", u64::from_ne_bytes(name));
    let temporary = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary);
    // The folder is missing; the name of the temporary file does not help a reader.
    file.map(|file| (file, temporary)).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => io::Error::other("a temporary file is in the way; try again"),
        _ => error,
    })
}

/// The identity of the file behind a name.
#[cfg(unix)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

#[cfg(unix)]
impl Identity {
    /// The identity of `path`, or of the standard input for `-`; `None` where there is no file.
    fn of(path: &Path) -> Option<Self> {
        use std::os::fd::AsFd as _;
        use std::os::unix::fs::MetadataExt as _;

        let metadata = if path.as_os_str() == "-" {
            let input = io::stdin().as_fd().try_clone_to_owned().ok()?;
            File::from(input).metadata().ok()?
        } else {
            fs::metadata(path).ok()?
        };
        // Output to a terminal or to /dev/null loses no data.
        let (device, inode) = (metadata.dev(), metadata.ino());
        metadata.is_file().then_some(Self { device, inode })
    }
}

/// The identity of the file behind a name.
#[cfg(not(unix))]
#[derive(Clone, PartialEq, Eq)]
struct Identity(PathBuf);

#[cfg(not(unix))]
impl Identity {
    /// The identity of `path`; `None` where there is no file.
    fn of(path: &Path) -> Option<Self> {
        fs::canonicalize(path).ok().map(Self)
    }
}
