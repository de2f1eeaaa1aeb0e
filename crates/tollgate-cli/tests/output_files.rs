//! No command loses a file: neither an input, nor a file that it did not write.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{root, scratch, tollgate};

const POLICY: &str = r#"{"version": 1, "rules": [{"name": "a", "key": ["client_ip"],
  "quotas": [{"limit": 3, "window": "1s"}]}]}"#;
const LOG: &str = "192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n";

fn folder(name: &str) -> PathBuf {
    let folder = scratch(&format!("output_files/{name}"));
    fs::write(folder.join("policy.json"), POLICY).unwrap();
    fs::write(folder.join("other.json"), POLICY).unwrap();
    fs::write(folder.join("access.log"), LOG).unwrap();
    fs::copy(root().join("crates/tollgate-cli/tests/policies/busy.yaml"), folder.join("t.yaml"))
        .unwrap();
    folder
}

/// Every command that writes a file, without the file, and the files that it reads.
fn writers() -> Vec<(Vec<&'static str>, Vec<&'static str>)> {
    let replay = ["replay", "policy.json", "access.log", "--against", "other.json"];
    vec![
        ([&replay[..], &["--html"]].concat(), vec!["policy.json", "access.log", "other.json"]),
        (
            vec!["simulate", "--policy", "policy.json", "--traffic", "t.yaml", "--html"],
            vec!["policy.json", "t.yaml"],
        ),
        (vec!["compile", "policy.json", "--surface", "worker", "-o"], vec!["policy.json"]),
    ]
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap_or_default()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_file_that_is_read_is_not_written_whatever_it_is_called() {
    let folder = folder("inputs");
    let linked = |name: &str| [format!("{name}.soft"), format!("{name}.hard")];
    for (_, inputs) in writers() {
        for input in inputs {
            let [soft, hard] = linked(input);
            let _ = symlink(folder.join(input), folder.join(soft));
            let _ = fs::hard_link(folder.join(input), folder.join(hard));
        }
    }
    let before = files(&folder);
    for (words, inputs) in writers() {
        for input in inputs {
            let [soft, hard] = linked(input);
            let dotted = format!("./{input}");
            let whole = folder.join(input).display().to_string();
            for name in [input, &soft, &hard, &dotted, &whole] {
                for force in [&[][..], &["--force"]] {
                    let ran = tollgate(&folder, &[&words[..], &[name], force].concat());
                    let why =
                        format!("error: {name} is also read by this command; name another file\n");
                    assert_eq!(
                        (ran.code, ran.stdout.as_str(), ran.stderr),
                        (2, "", why),
                        "{words:?}"
                    );
                }
            }
        }
    }
    assert_eq!(files(&folder), before);
}

// Guards: `replay policy.json - --html access.log < access.log`.
#[test]
fn what_is_read_as_the_standard_input_is_not_written() {
    let folder = folder("standard");
    for words in [
        &["replay", "policy.json", "-", "--html", "access.log"][..],
        &["compile", "-", "--surface", "worker", "--force", "-o", "access.log"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let log = fs::File::open(folder.join("access.log")).unwrap();
        if words[0] == "compile" {
            fs::write(folder.join("access.log"), POLICY).unwrap();
        }
        command.current_dir(&folder).args(words).stdin(Stdio::from(log));
        let ran = command.output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{}", String::from_utf8_lossy(&ran.stderr));
        assert!(String::from_utf8_lossy(&ran.stderr).contains("access.log is also read"));
    }
    assert_eq!(fs::read_to_string(folder.join("access.log")).unwrap(), POLICY);
}

#[test]
fn a_file_of_others_is_replaced_only_with_force() {
    let folder = folder("others");
    for (number, (words, _)) in writers().into_iter().enumerate() {
        let name = format!("out{number}");
        let path = folder.join(&name);
        // Also pages and policies of other programs, and files that look like ours only at the end.
        let ours = "<meta name=\"generator\" content=\"tollgate\"/>";
        for other in [
            "mine",
            "<!doctype html>\n<p>mine</p>",
            &format!("{}{ours}", "x".repeat(2_000)),
            ours,
            POLICY,
        ] {
            fs::write(&path, other).unwrap();
            let ran = tollgate(&folder, &[&words[..], &[&name]].concat());
            let why = format!(
                "error: {name} exists, and this command did not write it; --force replaces it\n"
            );
            assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr), (2, "", why), "{words:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), other);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let ran = tollgate(&folder, &[&words[..], &[&name, "--force"]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{words:?}");
        let first = fs::read(&path).unwrap();
        assert!(first != POLICY.as_bytes());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        // It replaces its own output, and empty files, also through a link.
        symlink(&name, folder.join("link")).unwrap();
        for name in [name.as_str(), "link"] {
            for before in [first.clone(), vec![]] {
                fs::write(&path, before).unwrap();
                let ran = tollgate(&folder, &[&words[..], &[name]].concat());
                assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{words:?}");
                assert!(fs::read(&path).unwrap().len() > 20);
            }
        }
        assert!(fs::symlink_metadata(folder.join("link")).unwrap().is_symlink());
        fs::remove_file(folder.join("link")).unwrap();
        // A link without a target is a foreign file.
        symlink("nowhere", folder.join("link")).unwrap();
        assert_eq!(tollgate(&folder, &[&words[..], &["link"]].concat()).code, 2);
        assert!(!folder.join("nowhere").exists());
        fs::remove_file(folder.join("link")).unwrap();
    }
    let left = files(&folder).into_iter().filter(|(name, _)| name.contains("partial"));
    assert_eq!(left.count(), 0, "no temporary file is left");
}

// Guards: a device that is replaced by a file, as `compile -o /dev/null` did for root.
#[test]
fn a_pipe_is_written_to() {
    let folder = folder("pipe");
    let (words, _) = writers().swap_remove(1);
    let ran = tollgate(&folder, &[&words[..], &["/dev/stdout"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("<!doctype html>"), "{}", ran.stdout);
}

#[test]
fn what_cannot_be_written_is_known_and_leaves_nothing() {
    let folder = folder("unwritable");
    fs::create_dir(folder.join("folder")).unwrap();
    let before = files(&folder);
    for (words, _) in writers() {
        for name in ["no-such-folder/out", "folder"] {
            let ran = tollgate(&folder, &[&words[..], &[name]].concat());
            assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{words:?} {name}");
            assert!(ran.stderr.contains(&format!("cannot write {name}: ")), "{}", ran.stderr);
        }
    }
    assert_eq!(files(&folder), before);
}
