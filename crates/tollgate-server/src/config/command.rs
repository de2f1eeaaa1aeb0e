//! The command line.
//!
//! Invariant: flags are the rows of the table of settings, so help and reader cannot differ.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches};
use tollgate_policy::Problems;

use crate::config::environment::{CONFIG, Environment};
use crate::config::placeholders::placeholders;
use crate::config::settings::{SECRETS, SETTINGS, Setting};
use crate::config::sources::Sources;
use crate::config::traces;
use crate::config::values::Config;

/// The command that the command line names.
#[derive(Debug)]
pub enum Command {
    /// Serve.
    Serve(Config),
    /// Report whether the configuration is right.
    Check(Config),
    /// The configuration is wrong.
    Wrong(Problems),
    /// Print this text, and exit with this status: the help, or a misuse of the command line.
    Print(String, u8),
}

/// Reads the command line, the environment and the file.
#[must_use]
pub fn command(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Command {
    let matches = match declared().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let status = u8::try_from(error.exit_code()).unwrap_or(2);
            return Command::Print(error.render().to_string(), status);
        }
    };
    let flag = |name: &str| matches.get_one::<String>(name).cloned();
    let variable = |name: &str| environment.text(name);
    let file = flag("config").or_else(|| variable(CONFIG)).map(PathBuf::from);
    let (mut problems, mut warnings) = (Problems::default(), Vec::new());
    environment.check(&mut problems, &mut warnings);
    let sources = Sources::read(&flag, &variable, file.as_deref(), &mut problems);
    let mut config = Config::read(&sources, &mut problems);
    config.traces = traces::read(&sources, &variable, &mut problems);
    let placeholders = placeholders(&sources);
    if is_check(&matches) {
        problems.0.extend(placeholders);
    } else {
        // An example starts as it is shipped, and its log names the values to change.
        warnings.extend(placeholders.iter().map(ToString::to_string));
    }
    config.warnings.extend(warnings);
    if !problems.0.is_empty() {
        return Command::Wrong(problems);
    }
    if is_check(&matches) { Command::Check(config) } else { Command::Serve(config) }
}

fn is_check(matches: &ArgMatches) -> bool {
    matches.get_flag("check-config")
}

fn declared() -> clap::Command {
    let about =
        "Serves POST /check according to a policy, with counts in memory or in a shared store";
    let after = "Every setting can also be set in the file, under its name here with _ for -, and in the \
                 environment, with the prefix TOLLGATE_: listen = \"[::]:8080\", \
                 TOLLGATE_LISTEN=[::]:8080. A flag takes precedence over the environment, and the \
                 environment over the file. Secrets are never flags: they are the variables \
                 TOLLGATE_CHECK_TOKEN, TOLLGATE_ADMIN_TOKEN, TOLLGATE_READ_TOKEN, \
                 TOLLGATE_METRICS_TOKEN, TOLLGATE_FOLLOW_TOKEN, TOLLGATE_HASH_KEY, \
                 TOLLGATE_STORE_PASSWORD and TOLLGATE_FLEET_SECRET, or the contents of the files that \
                 these flags name.";
    let config = Arg::new("config").long("config").value_name("FILE");
    let check = Arg::new("check-config").long("check-config").action(ArgAction::SetTrue);
    let command = clap::Command::new("tollgate-server")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .after_help(after)
        .term_width(100)
        .arg(config.help("Settings as TOML"))
        .arg(check.help("Reports all errors in settings, policy and certificates, and exits"));
    let command = SETTINGS.iter().fold(command, |command, setting| {
        command.arg(argument(setting, setting.flag(), help(setting)))
    });
    SECRETS.iter().fold(command, |command, secret| {
        let help = format!("A file with a secret. {}", secret.help);
        command.arg(argument(secret, format!("{}-file", secret.flag()), help))
    })
}

fn argument(setting: &Setting, name: String, help: String) -> Arg {
    Arg::new(name.clone()).long(name).value_name(setting.value).help(help)
}

fn help(setting: &Setting) -> String {
    match setting.default {
        Some(default) => format!("{} [default: {default}]", setting.help),
        None => setting.help.to_owned(),
    }
}
