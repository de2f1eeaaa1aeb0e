//! Archives: identical files give identical bytes.
//!
//! Invariant: no clock, user or order of a folder has an influence: every file is of 1970, belongs
//! to root and is readable by all users.

use crate::problem::{OrProblem, Result};
use flate2::{Compression, write::GzEncoder};
use std::io::Write;
use tar::{Builder, Header};

/// A file in an archive.
pub struct Entry {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// All of `entries`, in their order.
pub fn tar(entries: &[Entry]) -> Result<Vec<u8>> {
    const FIX: &str = "shorten the names of files";
    let mut archive = Builder::new(Vec::new());
    for Entry { name, bytes } in entries {
        let mut header = Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        let added = archive.append_data(&mut header, name, bytes.as_slice());
        added.or_problem(format!("cannot archive {name}"), FIX)?;
    }
    archive.into_inner().or_problem("cannot write an archive", "free memory")
}

pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zipped = encoder.write_all(bytes).and_then(|()| encoder.finish());
    zipped.or_problem("cannot compress", "run again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_archived_comes_out_again_and_is_the_same_each_time() {
        let entries = || {
            vec![
                Entry { name: "b/plugin.wasm".into(), bytes: vec![7; 1000] },
                Entry { name: "a".into(), bytes: vec![] },
            ]
        };
        let once = gzip(&tar(&entries()).unwrap()).unwrap();
        assert_eq!(once, gzip(&tar(&entries()).unwrap()).unwrap());
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(once.as_slice()));
        let read: Vec<(String, Vec<u8>)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let (name, mut bytes) = (entry.path().unwrap().display().to_string(), vec![]);
                entry.read_to_end(&mut bytes).unwrap();
                (name, bytes)
            })
            .collect();
        let expected: Vec<_> = entries().into_iter().map(|e| (e.name, e.bytes)).collect();
        assert_eq!(read, expected);
    }
}
