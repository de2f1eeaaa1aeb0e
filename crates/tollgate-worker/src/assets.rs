//! The playground as static files, in a deployment that binds them.
//!
//! Invariant: files are asked for by plain names directly below [`PREFIX`] and by nothing else, so
//! none can answer for the origin, whatever it is called. Without the binding these paths are like
//! any other. The policy neither counts nor refuses them: a file is the same for everybody, and no
//! origin is asked for it.

use worker::wasm_bindgen::JsValue;
use worker::web_sys;

use crate::js;
use tollgate_service::Answer as Reply;

/// The name of the binding in wrangler.toml.
pub(crate) const ASSETS: &str = "ASSETS";
/// Where the page is; what it fetches lies beside it.
const PREFIX: &str = "/.well-known/tollgate/playground";
/// What the page's own files may do; the page says the same of itself.
const POLICY: &str = include_str!("../../tollgate-playground/csp.txt");

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked<'p> {
    /// The page.
    Page,
    /// What lies beside it; its name is a hash of its content.
    File(&'p str),
    /// The page without its last slash, from where its files would not be found.
    Folder,
    /// Nothing that can be there.
    Nothing,
}

/// What `path` asks for; `None` when it is not the page's business.
fn asked(path: &str) -> Option<Asked<'_>> {
    let rest = path.strip_prefix(PREFIX)?;
    let Some(name) = rest.strip_prefix('/') else {
        return rest.is_empty().then_some(Asked::Folder);
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    Some(match name {
        "" => Asked::Page,
        name if name.starts_with('.') || !name.bytes().all(is_plain) => Asked::Nothing,
        name => Asked::File(name),
    })
}

/// The answer to a request for the page or one of its files; `None` when `path` is not theirs.
pub(crate) async fn answer(
    assets: &JsValue,
    request: &web_sys::Request,
    path: &str,
) -> Option<web_sys::Response> {
    let asked = asked(path)?;
    if !matches!(request.method().as_str(), "GET" | "HEAD") {
        return Some(js::send(&Reply::not_allowed("GET, HEAD")));
    }
    let kept = match asked {
        Asked::Page => "no-cache",
        Asked::File(_) => "public, max-age=31536000, immutable",
        Asked::Folder => {
            let reply = Reply::problem(308, "Permanent Redirect", "the page ends with a slash");
            return Some(js::send(&reply.with("location", &format!("{PREFIX}/"))));
        }
        Asked::Nothing => return Some(js::send(&nothing())),
    };
    let found = js::asset(assets, request, path, &fields(kept)).await;
    Some(found.unwrap_or_else(|| js::send(&nothing())))
}

fn nothing() -> Reply {
    Reply::problem(404, "Not Found", "the playground has no such file")
}

/// What every file is sent with.
fn fields(kept: &str) -> String {
    format!(
        "cache-control: {kept}\ncontent-security-policy: {}; frame-ancestors 'none'\n\
         x-content-type-options: nosniff\nreferrer-policy: no-referrer\n\
         cross-origin-opener-policy: same-origin\n",
        POLICY.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_folder_and_nothing_else() {
        for (path, expected) in [
            ("/.well-known/tollgate/playground/", Some(Asked::Page)),
            ("/.well-known/tollgate/playground", Some(Asked::Folder)),
            ("/.well-known/tollgate/playground/main-A1.js", Some(Asked::File("main-A1.js"))),
            ("/.well-known/tollgate/playground/a/b", Some(Asked::Nothing)),
            ("/.well-known/tollgate/playground//", Some(Asked::Nothing)),
            ("/.well-known/tollgate/playground/..", Some(Asked::Nothing)),
            ("/.well-known/tollgate/playground/.env", Some(Asked::Nothing)),
            ("/.well-known/tollgate/playground/%2e%2e%2fhealth", Some(Asked::Nothing)),
            ("/.well-known/tollgate/playground/a%00", Some(Asked::Nothing)),
            ("/.well-known/tollgate/playgrounds", None),
            ("/.well-known/tollgate/health", None),
            ("/.WELL-KNOWN/tollgate/playground/", None),
            ("//.well-known/tollgate/playground/", None),
            ("/index.html", None),
            ("/", None),
        ] {
            assert_eq!(asked(path), expected, "{path}");
        }
    }

    #[test]
    fn every_field_is_one_line() {
        let fields = fields("no-cache");
        assert_eq!(fields.lines().filter(|line| line.contains(": ")).count(), 5);
        assert!(fields.contains("default-src 'none'; script-src 'self'"), "{fields}");
    }
}
