//! Writes the tables of `docs/accuracy.md`, or checks that they equal the present output.
//!
//! `cargo xtask bench accuracy [--check] [--log FILE]` runs it. Without a log the tables of the
//! real day are unchanged. Deliberately not here: any figure, and the time that a run takes.

use std::{env, fs, path::PathBuf, process::ExitCode};
use tollgate_accuracy::{
    bounds::{BoundSearch, Depth, climbed, exhaustive},
    document::{Block, bounds, nasa, picture::pictures, synthetic},
    log,
};

/// Relative to the root of the repository, the working directory.
const DOCUMENT: &str = "docs/accuracy.md";
/// Names the log when there is no `--log`.
const LOG: &str = "TOLLGATE_NASA_LOG";

struct Options {
    is_check: bool,
    log: Option<PathBuf>,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options { is_check: false, log: env::var_os(LOG).map(PathBuf::from) };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--check" => options.is_check = true,
            "--log" => options.log = Some(words.next().ok_or("--log needs a file")?.into()),
            other => return Err(format!("unknown option {other:?}; use --check or --log FILE")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<(), String> {
    let document = fs::read_to_string(DOCUMENT).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let mut made = document.clone();
    for block in blocks(options)? {
        made = block.put(&made)?;
    }
    let pictures = pictures().map(|picture| (picture.path, picture.svg));
    for (path, made) in [(DOCUMENT, made)].into_iter().chain(pictures) {
        if options.is_check {
            let found = fs::read_to_string(path).unwrap_or_default();
            check(path, &found, &made)?;
        } else {
            fs::write(path, made).map_err(|error| format!("{path}: {error}"))?;
            eprintln!("written: {path}");
        }
    }
    Ok(())
}

fn check(path: &str, found: &str, made: &str) -> Result<(), String> {
    match first_difference(found, made) {
        None => Ok(()),
        Some(difference) => Err(format!(
            "{path} differs from the code's result: {difference}\ncargo xtask bench accuracy rewrites it"
        )),
    }
}

fn blocks(options: &Options) -> Result<Vec<Block>, String> {
    eprintln!("  searching the worst traces");
    let (all, sixty) = (met(exhaustive(Depth::Quick))?, met(climbed(Depth::Quick))?);
    let mut blocks = vec![bounds::exhaustive(&all), bounds::climbed(&sixty)];
    if !options.is_check {
        eprintln!("  searching deeper, for about a minute");
        let (all, sixty) = (met(exhaustive(Depth::Deep))?, met(climbed(Depth::Deep))?);
        blocks.push(bounds::deep(&all, &sixty));
    }
    eprintln!("  made-up traffic");
    blocks.push(synthetic::block()?);
    match &options.log {
        Some(path) => {
            eprintln!("  the day of real traffic");
            let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let arrivals =
                log::arrivals(&bytes).map_err(|why| format!("{}: {why}", path.display()))?;
            blocks.push(nasa::block(&arrivals)?);
        }
        None => eprintln!("  the day of real traffic is left as it is: {LOG} names no log"),
    }
    Ok(blocks)
}

/// All results if every bound was reached and none exceeded; otherwise the first that fails.
fn met(all: Vec<BoundSearch>) -> Result<Vec<BoundSearch>, String> {
    match all.iter().find(|one| !one.is_met()) {
        None => Ok(all),
        Some(BoundSearch { subject, goal, bound, attack, .. }) => Err(format!(
            "{} at limit {}, {goal:?}: the bound is {bound}, found were {} with {attack}",
            subject.name,
            subject.limiter.limit(),
            attack.most,
        )),
    }
}

/// `line 12: "old" and "new"`
fn first_difference(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let pairs = old.lines().zip(new.lines()).enumerate();
    let differs = pairs.into_iter().find(|(_, (old, new))| old != new);
    Some(differs.map_or("it is longer or shorter".to_owned(), |(index, (old, new))| {
        format!("line {}:\n  {old}\n  {new}", index + 1)
    }))
}
