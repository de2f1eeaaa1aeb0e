//! Words that no file may contain: hosts of package registries and paths of one machine.
//!
//! Invariant: a checkout works behind any mirror and in any folder. Cargo.lock is exempt, it names
//! its source by cargo's own convention.

use super::finding::Finding;
use crate::workspace::Workspace;

/// Written in two parts, so that this file does not contain them.
const HOSTS: [&str; 7] = [
    concat!("registry.npm", "js.org"),
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("files.python", "hosted.org"),
    concat!("pypi", ".org"),
    concat!("deb.debian", ".org"),
    concat!("registry-1.docker", ".io"),
];

/// Paths that exist on this machine only: the checkout and the home folder.
pub fn places(workspace: &Workspace) -> Vec<String> {
    let home = std::env::var("HOME").unwrap_or_default();
    let root = workspace.root.display().to_string();
    let shared = workspace.root.join("../shared").canonicalize();
    let shared = shared.map(|path| path.display().to_string()).unwrap_or_default();
    let all = [root, shared, format!("{home}/")];
    all.into_iter().filter(|place| place.len() > 1).collect()
}

pub fn check(path: &str, text: &str, places: &[String]) -> Vec<Finding> {
    if path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(host) = HOSTS.iter().find(|host| line.contains(*host)) {
            let message =
                format!("names the registry host {host}: leave it to the machine's own settings");
            findings.push(Finding::new(path, index + 1, message));
        }
        if let Some(place) = places.iter().find(|place| holds_path(line, place)) {
            let message = format!("names {place}, a path of this machine: use a relative path");
            findings.push(Finding::new(path, index + 1, message));
        }
    }
    findings
}

/// True when `place` starts a path in `line`, rather than being the end of a longer one.
fn holds_path(line: &str, place: &str) -> bool {
    let starts_path = |at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-}*".contains(c))
    };
    line.match_indices(place).any(|(at, _)| starts_path(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_machine_paths_are_found() {
        let places = ["/srv/me/checkout".to_owned(), "/srv/me/".to_owned()];
        let host = format!("see https://{}/x\n", HOSTS[0]);
        assert!(check("a.md", &host, &places)[0].message.contains("registry host"));
        assert!(check("Cargo.lock", &host, &places).is_empty());
        let found = check("a.md", "fine\nlog in /srv/me/checkout/x\n", &places);
        assert!(found.len() == 1 && found[0].line == 2);
        assert!(check("a.md", "http://host.test/srv/me/x", &places).is_empty());
    }
}
