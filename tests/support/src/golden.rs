//! Committed files with printed output, which a test compares, or rewrites with `TOLLGATE_BLESS=1`.

use std::fs;
use std::path::Path;

/// True when the files are to be rewritten.
pub fn is_blessing() -> bool {
    std::env::var_os("TOLLGATE_BLESS").is_some_and(|value| value == "1")
}

/// Compares `made` with the file at `path`, or writes it there.
///
/// # Panics
///
/// At the first line that differs, and when the file cannot be read or written.
pub fn assert_file(path: impl AsRef<Path>, made: &str) {
    let (path, at) = (path.as_ref(), path.as_ref().display());
    if is_blessing() {
        return fs::write(path, made).unwrap_or_else(|e| panic!("{at}: {e}"));
    }
    let file = fs::read_to_string(path).unwrap_or_else(|e| panic!("{at}: {e}"));
    if file == made {
        return;
    }
    let same = file.lines().zip(made.lines()).take_while(|(a, b)| a == b).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(nothing)").to_owned();
    panic!(
        "{at}:{}\n  file: {}\n  made: {}\nif this is meant, repeat the test with TOLLGATE_BLESS=1",
        same + 1,
        line(&file),
        line(made)
    );
}
