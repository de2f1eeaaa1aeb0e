//! The sources of a setting: flags, the environment, the file.
//!
//! Invariant: one reader for all settings: whatever the source is, a value is a text with its
//! place, and the first source that has one decides.

use std::collections::BTreeMap;
use std::path::Path;

use tollgate_policy::{Problem, Problems};

use crate::config::settings::{SECRETS, SETTINGS, Setting};

/// A file of settings that is longer was not written by hand: 1 MiB.
const MAX_FILE: u64 = 1 << 20;

/// A value, and its place.
#[derive(Clone, Debug)]
pub(crate) struct SettingValue {
    pub(crate) text: String,
    /// `--listen`, `TOLLGATE_LISTEN`, or the name in the file.
    pub(crate) place: String,
}

/// All values.
#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<String, SettingValue>);

impl Sources {
    /// Reads all of them; mistakes go to `problems`.
    pub(crate) fn read(
        flag: &dyn Fn(&str) -> Option<String>,
        variable: &dyn Fn(&str) -> Option<String>,
        file: Option<&Path>,
        problems: &mut Problems,
    ) -> Self {
        let mut given = file.map_or_else(BTreeMap::new, |file| members(file, problems));
        let files: Vec<String> = SECRETS.iter().map(file_of).collect();
        let plain = SETTINGS.iter().map(|it| (it.name, it.variable(), it.flag()));
        let of_secrets = SECRETS.iter().zip(&files).map(|(secret, name)| {
            (
                name.as_str(),
                format!("{}_FILE", secret.variable()),
                format!("{}-file", secret.flag()),
            )
        });
        for (name, variable_name, flag_name) in plain.chain(of_secrets) {
            let of_flag = flag(&flag_name).map(|text| (text, format!("--{flag_name}")));
            let of_variable = || variable(&variable_name).map(|text| (text, variable_name.clone()));
            if let Some((text, place)) = of_flag.or_else(of_variable) {
                given.insert(name.to_owned(), SettingValue { text, place });
            }
        }
        for (secret, file) in SECRETS.iter().zip(&files) {
            let by_name = given.remove(file);
            let by_variable = variable(&secret.variable())
                .map(|text| SettingValue { text, place: secret.variable() });
            let found = match (by_variable, by_name) {
                (Some(_), Some(other)) => {
                    let message =
                        format!("is given in addition to {}; use one of them", secret.variable());
                    problems.0.push(Problem::new(&other.place, message));
                    None
                }
                (Some(found), None) => Some(found),
                (None, Some(named)) => read_secret(&named, problems),
                (None, None) => None,
            };
            if let Some(found) = found {
                given.insert(secret.name.to_owned(), found);
            }
        }
        Self(given)
    }

    /// The value of a setting, or its default.
    pub(crate) fn get(&self, name: &str) -> Option<SettingValue> {
        let default = || {
            let row = SETTINGS.iter().find(|setting| setting.name == name)?;
            Some(SettingValue { text: row.default?.to_owned(), place: name.to_owned() })
        };
        self.0.get(name).cloned().or_else(default)
    }
}

fn file_of(secret: &Setting) -> String {
    format!("{}_file", secret.name)
}

fn read_secret(named: &SettingValue, problems: &mut Problems) -> Option<SettingValue> {
    match read(Path::new(&named.text)) {
        Ok(text) => Some(SettingValue { text, place: named.place.clone() }),
        Err(why) => {
            problems.0.push(Problem::new(&named.place, format!("cannot be read: {why}")));
            None
        }
    }
}

/// The members of the file of settings, as texts.
fn members(path: &Path, problems: &mut Problems) -> BTreeMap<String, SettingValue> {
    let text = match read(path) {
        Ok(text) => text,
        Err(why) => {
            problems.0.push(Problem::new("--config", format!("cannot be read: {why}")));
            return BTreeMap::new();
        }
    };
    let table = match text.parse::<toml::Table>() {
        Ok(table) => table,
        Err(why) => {
            let before = why.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count().saturating_add(1);
            let message = format!("line {line} is not TOML: {}", why.message());
            problems.0.push(Problem::new("--config", message));
            return BTreeMap::new();
        }
    };
    let mut given = BTreeMap::new();
    for (name, value) in table {
        let is_setting = SETTINGS.iter().any(|setting| setting.name == name)
            || SECRETS.iter().any(|secret| file_of(secret) == name);
        if SECRETS.iter().any(|secret| secret.name == name) {
            let message = format!("is a secret; write it into a file and name that in {name}_file");
            problems.0.push(Problem::new(&name, message));
        } else if !is_setting {
            problems.0.push(Problem::new(&name, "is not a setting; see --help".to_owned()));
        } else if let Some(text) = text_of(&value) {
            given.insert(name.clone(), SettingValue { text, place: name });
        } else {
            let message = "is not a text, a number or a list of texts".to_owned();
            problems.0.push(Problem::new(&name, message));
        }
    }
    given
}

fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Array(items) => {
            let texts: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            Some(texts?.join(","))
        }
        toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_)
        | toml::Value::Table(_) => None,
    }
}

/// The text of a file of settings or of a secret.
fn read(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|why| why.to_string())?;
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        return Err("it is not a file of at most 1 MiB".to_owned());
    }
    std::fs::read_to_string(path).map_err(|why| why.to_string())
}
