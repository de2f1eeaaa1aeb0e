//! Input and output streams: the standard input, an output that is full or has no reader, colours.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{tollgate, tollgate_reading};

fn policies() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/policies")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command.current_dir(policies()).args(arguments);
    command
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

#[test]
fn the_standard_input_is_read_like_a_file() {
    for (name, report) in
        [("good.json", "check"), ("policy.yaml", "check"), ("good.json", "explain")]
    {
        let bytes = fs::read(policies().join(name)).unwrap();
        let from_file = tollgate(&policies(), &[report, name]);
        assert_eq!(tollgate_reading(&policies(), &[report, "-"], &bytes), from_file, "{name}");
        assert_eq!(from_file.code, 0);
    }
    let envoy = fs::read(policies().join("envoy.yaml")).unwrap();
    let ran = tollgate_reading(&policies(), &["check", "-"], &envoy);
    assert!(ran.code == 1 && ran.stdout.starts_with("<stdin>:12: listener \"public\""), "{ran:?}");
}

// Editors of Windows write a byte order mark first and end lines with two characters.
#[test]
fn a_mark_and_other_ends_of_lines_change_nothing() {
    for name in ["good.json", "policy.yaml", "envoy.yaml"] {
        let text = fs::read_to_string(policies().join(name)).unwrap();
        let plain = tollgate_reading(&policies(), &["check", "-"], text.as_bytes());
        let odd = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        let ran = tollgate_reading(&policies(), &["check", "-"], odd.as_bytes());
        assert_eq!(ran, plain, "{name}");
    }
}

#[test]
fn what_is_hostile_ends_soon_and_says_why() {
    let long = |unit: &str| unit.repeat(12 << 20 >> unit.len().ilog2());
    let bomb = (0..20).fold("- &a0 [x, x]\n".to_owned(), |text, i| {
        format!("{text}- &a{} [{}]\n", i + 1, format!("*a{i}, ").repeat(20))
    });
    let rows: [(Vec<u8>, i32, &str); 13] = [
        (long("\0").into_bytes(), 1, "longer than 1 MiB"),
        (long("a: b\n").into_bytes(), 1, "longer than 1 MiB"),
        (b"version: \xff".to_vec(), 2, "<stdin> is not UTF-8"),
        (b"".to_vec(), 1, "not JSON"),
        ("[".repeat(100_000).into_bytes(), 1, "not JSON: recursion limit"),
        (format!("a: {}", "[".repeat(100_000)).into_bytes(), 1, "<stdin>:1: "),
        ("- ".repeat(100_000).into_bytes(), 1, "nested more than 160 levels deep"),
        (bomb.into_bytes(), 1, "too many values"),
        (b"a: &a [*a]".to_vec(), 1, "an alias refers to a node that contains it"),
        (b"version: 1\n\trules: []".to_vec(), 1, "found a tab"),
        (b"version: 1\n---\nversion: 1".to_vec(), 1, "<stdin>:2: a second document begins here"),
        (b"# nothing".to_vec(), 1, "<stdin>:1: is empty"),
        (b"admin: {}".to_vec(), 1, "<stdin>: no Tollgate filter found\n"),
    ];
    for (input, code, expected) in rows {
        let ran = tollgate_reading(&policies(), &["check", "-"], &input);
        let head: String = String::from_utf8_lossy(&input).chars().take(40).collect();
        assert_eq!(ran.code, code, "{head}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{head}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{head}");
    }
}

/// Lines of a policy never reach a terminal or a log with control characters.
#[test]
fn nothing_that_stands_in_a_file_steers_a_terminal() {
    let policy = "version: 1\nrules:\n- name: \"a\\e[2J\\u202e\"\n  key: []\n  quotas: []\n";
    for color in ["always", "never"] {
        let arguments = ["check", "-", "--color", color];
        let ran = tollgate_reading(&policies(), &arguments, policy.as_bytes());
        assert!(ran.stderr.contains("a\\u{1b}[2J\\u{202e}"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("\u{1b}[2J") && !ran.stderr.contains('\u{202e}'));
    }
}

#[test]
fn a_full_disk_is_an_error() {
    for arguments in [
        &["check", "good.json"][..],
        &["check", "bad.json", "--json"],
        &["check", "envoy.yaml"],
        &["explain", "good.json"],
        &["explain", "good.json", "--json"],
        &["embed", "good.json"],
        &["compile", "good.json", "--surface", "worker"],
        &["schema"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["--version"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = output(command(arguments).stdout(full));
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(3), "{arguments:?}: {said}");
        assert!(said.starts_with("error: cannot write to the standard output: "), "{said}");
    }
}

// As `tollgate schema | head -1`: the exit code still reports the result.
#[test]
fn a_reader_who_leaves_is_no_error() {
    for (arguments, code) in [(&["schema"][..], 0), (&["check", "bad.json", "--json"], 1)] {
        let mut child =
            command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(
            (child.wait().unwrap().code(), said.as_str()),
            (Some(code), ""),
            "{arguments:?}"
        );
    }
}

#[test]
fn colours_are_for_a_terminal_or_for_whoever_asks() {
    let has_colours = |prepare: &dyn Fn(&mut Command), arguments: &[&str]| {
        let mut command = command(arguments);
        prepare(&mut command);
        let Output { stdout, stderr, .. } = output(&mut command);
        [stdout, stderr].concat().contains(&0x1b)
    };
    for arguments in
        [&["check", "good.json"][..], &["check", "bad.yaml"], &["explain", "good.json"]]
    {
        let always = [arguments, &["--color", "always"]].concat();
        let never = [arguments, &["--color", "never"]].concat();
        let forced = |command: &mut Command| {
            command.env("CLICOLOR_FORCE", "1");
        };
        assert!(!has_colours(&|_| (), arguments), "{arguments:?}: to a pipe");
        assert!(has_colours(&|_| (), &always) && has_colours(&forced, arguments), "{arguments:?}");
        assert!(!has_colours(&forced, &never), "{arguments:?}");
    }
    // JSON is for programs.
    assert!(!has_colours(&|_| (), &["check", "good.json", "--json", "--color", "always"]));
}

#[test]
fn problems_are_json_of_one_shape() {
    for name in ["bad.json", "bad.yaml", "long.json"] {
        let check = tollgate(&policies(), &["check", name, "--surface", "envoy", "--json"]);
        let explain = tollgate(&policies(), &["explain", name, "--json"]);
        assert_eq!(explain, check, "{name}");
        let report: Value = serde_json::from_str(&check.stdout).unwrap();
        assert_eq!((check.code, &report["ok"]), (1, &Value::Bool(false)));
        assert!(!report["problems"].as_array().unwrap().is_empty());
    }
}

#[test]
fn shells_read_the_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let text = tollgate(&policies(), &["completions", shell]).stdout;
        assert!(text.contains("explain") && text.contains("surface"), "{shell}");
    }
    let script = tollgate(&policies(), &["completions", "bash"]).stdout;
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("completions.bash");
    fs::write(&path, script).unwrap();
    let script = format!(
        "source {} && COMP_WORDS=(tollgate che) COMP_CWORD=1 && _tollgate tollgate che tollgate && echo ${{COMPREPLY[@]}}",
        path.display()
    );
    let ran = output(Command::new("bash").args(["-c", &script]));
    assert_eq!(String::from_utf8(ran.stdout).unwrap().trim(), "check");
}

#[test]
fn the_manual_names_every_option() {
    let pages = ["check", "explain", "simulate", "embed", "compile"]
        .map(|name| tollgate(&policies(), &["man", name]));
    for (page, option) in pages.iter().zip(["surface", "curl", "parallel", "vm\\-id", "output"]) {
        assert!(page.stdout.contains(&format!("\\-\\-{option}")), "{}", page.stdout);
    }
    let whole = tollgate(&policies(), &["man"]).stdout;
    assert!(whole.contains("tollgate\\-explain(1)") && whole.contains("Exit codes: 0 good"));
    assert_eq!(tollgate(&policies(), &["man", "chekc"]).code, 2);
}
