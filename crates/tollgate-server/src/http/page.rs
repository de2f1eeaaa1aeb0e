//! The operator's page as static files of a folder: the output of `cargo xtask build worker` for
//! the Worker.
//!
//! Invariant: files are read once, when the server starts, and are requested by plain names only,
//! so no path leaves the folder. They contain no secret, and are served only where an operator
//! could sign in. Deliberately absent: the playground.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use tollgate_service::ApiResponse;

/// The path of the page, without its last slash. No path of the admin API ends like a file.
const FOLDER: &str = "/.well-known/tollgate/admin";

/// The content security policy of the page.
const POLICY: &str = include_str!("../../../tollgate-service/page/csp.txt");

const INDEX: &str = "index.html";

/// The most files of a page, and the most bytes of one.
const MAX_FILES: usize = 100;
const MAX_FILE: u64 = 4 << 20;

/// The page.
#[derive(Debug, Default)]
pub struct Page(BTreeMap<String, String>);

impl Page {
    /// Reads the files of `folder`.
    ///
    /// # Errors
    /// It cannot be read, or contains no page.
    pub fn read(folder: &Path) -> Result<Self, String> {
        let message = |why: &dyn std::fmt::Display| format!("{}: {why}", folder.display());
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(|why| message(&why))? {
            let entry = entry.map_err(|why| message(&why))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if kind(&name).is_none() || files.len() >= MAX_FILES {
                continue;
            }
            if entry.metadata().map_err(|why| message(&why))?.len() > MAX_FILE {
                return Err(message(&format_args!("{name} is longer than 4 MiB")));
            }
            let text = std::fs::read_to_string(entry.path()).map_err(|why| message(&why))?;
            files.insert(name, text);
        }
        if !files.contains_key(INDEX) {
            return Err(message(&"the folder contains no index.html"));
        }
        Ok(Self(files))
    }

    /// The response to a request for the page or one of its files; `None` when `path` is not
    /// theirs.
    pub(super) fn answer(&self, method: &str, path: &str) -> Option<ApiResponse> {
        let rest = path.strip_prefix(FOLDER).filter(|_| !self.0.is_empty())?;
        let name = match rest.strip_prefix('/') {
            None if rest.is_empty() => {
                let detail = "the page ends with a slash";
                let answer = ApiResponse::problem(308, "Permanent Redirect", detail);
                return Some(answer.with("location", &format!("{FOLDER}/")));
            }
            None => return None,
            Some("") => INDEX,
            Some(INDEX) => return None,
            Some(name) => kind(name).map(|_| name)?,
        };
        if !matches!(method, "GET" | "HEAD") {
            return Some(ApiResponse::not_allowed("GET, HEAD"));
        }
        let Some(text) = self.0.get(name) else {
            return Some(ApiResponse::problem(404, "Not Found", "the page has no such file"));
        };
        let policy = format!("{}; frame-ancestors 'none'", POLICY.trim());
        // The name of a file is a hash of its content.
        let is_index = name == INDEX;
        let kept = if is_index { "no-cache" } else { "public, max-age=31536000, immutable" };
        let fields = [
            ("content-type", kind(name).unwrap_or_default()),
            ("cache-control", kept),
            ("content-security-policy", &policy),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ];
        let body = Cow::Owned(text.clone());
        let answer = ApiResponse { status: 200, fields: Default::default(), body };
        Some(fields.into_iter().fold(answer, |answer, (name, value)| answer.with(name, value)))
    }
}

/// The type of a file with this name; `None` for a name that no file of a page has.
fn kind(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "txt" => Some("text/plain; charset=utf-8"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_page_are_the_pages() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tollgate-service/page");
        let page = Page::read(Path::new(folder)).expect("a page");
        for (path, expected) in [
            ("/.well-known/tollgate/admin", Some(308)),
            ("/.well-known/tollgate/admin/", Some(200)),
            ("/.well-known/tollgate/admin/index.html", None),
            ("/.well-known/tollgate/admin/main.js", Some(200)),
            ("/.well-known/tollgate/admin/none.js", Some(404)),
            ("/.well-known/tollgate/admin/../../main.js", Some(404)),
            ("/.well-known/tollgate/admin/package.json", None),
            ("/.well-known/tollgate/admin/policy", None),
            ("/.well-known/tollgate/administrator", None),
            ("/check", None),
        ] {
            let status = |page: &Page| page.answer("GET", path).map(|answer| answer.status);
            assert_eq!(status(&page), expected, "{path}");
            assert_eq!(status(&Page::default()), None, "{path}");
        }
        let posted = page.answer("POST", "/.well-known/tollgate/admin/").expect("an answer");
        assert_eq!(posted.status, 405);
        let other = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        assert!(
            Page::read(Path::new(other)).is_err_and(|why| why.ends_with("contains no index.html"))
        );
    }
}
