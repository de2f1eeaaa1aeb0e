//! The target of a request: its path and query, and whether it stays where the origin's folder is.
//!
//! Invariant: the policy counts by the target, and the origin gets it with its folder in front. So
//! a target that climbs out of that folder would be another resource than the counted one. Such a
//! target is detected, whichever way a server reads it. Which resource a target is otherwise is the
//! policy's business.

/// Path and query of an absolute URL; the whole `url` crate would add 78 KB to the module.
pub(crate) fn target(url: &str) -> &str {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    authority.find('/').and_then(|start| authority.get(start..)).unwrap_or("/")
}

/// The path of a target.
pub(crate) fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

/// True when `origin` has a folder, and some server takes `target` for something outside of it:
/// `/../other`. Without a folder nothing is above.
pub(crate) fn leaves(origin: &str, target: &str) -> bool {
    let has_folder = origin.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    has_folder && climbs(target)
}

/// True when a server may resolve `target` to something above its first slash. Servers differ in
/// which characters are a slash. Each segment goes up as often as any server would, and down only
/// as often as all servers would.
fn climbs(target: &str) -> bool {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mut depth = 0_usize;
    path.split('/').any(|segment| {
        let (ups, has_name) = steps(segment);
        if ups == 0 {
            depth = depth.saturating_add(usize::from(has_name));
            return false;
        }
        let below = depth.checked_sub(ups);
        depth = below.unwrap_or_default();
        below.is_none()
    })
}

/// How often `segment` goes up, and whether it names something. Some servers first drop the part
/// after `;`.
fn steps(segment: &str) -> (usize, bool) {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".").replace("%3b", ";");
    let plain = plain.replace("%2f", "/").replace("%5c", "/").replace('\\', "/");
    let names = || plain.split('/').map(|name| name.split(';').next().unwrap_or_default());
    let has_name = names().any(|name| !matches!(name, "" | "." | ".."));
    (names().filter(|name| *name == "..").count(), has_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_target_and_a_path() {
        for (url, expected) in [
            ("https://a.example/b/c?d=/e", "/b/c?d=/e"),
            ("http://127.0.0.1:8787/", "/"),
            ("https://a.example", "/"),
        ] {
            assert_eq!(target(url), expected, "{url}");
        }
        assert_eq!(path("/check?a=/b"), "/check");
        assert_eq!(path("/"), "/");
    }

    #[test]
    fn nothing_leaves_the_folder_of_the_origin() {
        let folder = "http://o.example/base";
        for target in [
            "/..",
            "/../base/login",
            "/%2e%2E/base/login",
            "/.%2e/base/login",
            "/..%2fbase/login",
            "/..%5Cbase/login",
            "/..\\base\\login",
            "/%2e%2e%2fbase%2flogin",
            "/a/../../base/login",
            "//../base/login",
            "/a//../../base/login",
            "/./%2e/../base/login",
            "/a/..%2f..%2fbase/login",
            "/a%2fb/../../base/login",
            "/a\\b/../../base/login",
            "/..;/base/login",
            "/..%3bv=1/base/login",
            "/../a/b/c/d",
        ] {
            assert!(leaves(folder, target), "{target}");
            assert!(!leaves("http://o.example:80", target), "{target}");
        }
        for target in [
            "/",
            "/login",
            "/a/../login",
            "/a/b/../../login",
            "/a//b/../..",
            "/a/.../..b/b..",
            "/a%2fb",
            "/a?next=/../..",
            "/a#/../..",
            "/%252e%252e/a",
            "*",
        ] {
            assert!(!leaves(folder, target), "{target}");
        }
    }
}
