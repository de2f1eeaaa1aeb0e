//! The corpora of `tests/fuzz`, replayed without a fuzzer, so that fixed bugs stay fixed.
//!
//! The targets' bodies are the fuzzer's own; `tests/fuzz/README.md` describes how a file gets here.

#[path = "../../../tests/fuzz/src/logs.rs"]
mod logs;

use std::fs;
use std::path::Path;

/// Passes every file of a target's corpus to its body.
fn replay(target: &str, names: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(target);
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "only {} files of {target}", files.len());
    for file in files {
        println!("{}", file.display()); // the last one shown is the one that failed
        logs::check(names, &fs::read(&file).unwrap());
    }
}

#[test]
fn logs_of_nginx_and_apache() {
    let names = ["combined", "common", "vhost", "nginx", "nginx-json", "nginx-none"];
    replay("log_nginx", &names);
}

#[test]
fn logs_of_envoy() {
    replay("log_envoy", &["envoy"]);
}

#[test]
fn logs_of_json() {
    replay("log_json", &["json", "envoy-json"]);
}

#[test]
fn logs_of_columns() {
    replay("log_columns", &["csv", "tsv"]);
}

/// All orders of the bytes that end a line, a column, a quote or an object.
#[test]
fn logs_of_few_pieces() {
    const PIECES: [&str; 7] = ["1", "\"", "\n", ",", "\\", "{\"time\":", "}"];
    const LONGEST: u32 = 4;
    for first in [
        "csv:[time,client]",
        "json",
        "nginx:$msec $http_a \"$http_b\"",
        "envoy:%REQ(A)% %START_TIME(%s)%",
    ] {
        let name = first.split(':').next().unwrap();
        for number in 0..7_usize.pow(LONGEST) {
            let digits = (0..LONGEST).map(|i| number / 7_usize.pow(i) % 7);
            let log: String = digits.map(|digit| PIECES[digit]).collect();
            logs::check(&[name], format!("{first}\n{log}").as_bytes());
        }
    }
}
