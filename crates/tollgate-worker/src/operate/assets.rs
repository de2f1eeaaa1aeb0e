//! The playground and the operator's page as static files, in a deployment that binds them.
//!
//! Invariant: only plain names directly below a page's folder request files, so a file can never be
//! served in place of the origin or the admin API, whatever it is called. Without the binding these
//! paths are like any other. The policy neither counts nor denies them: a file is the same for all
//! clients, and the origin is not called for it. The operator's page holds no secret; it is served
//! only where it could do something.

use worker::wasm_bindgen::JsValue;
use worker::web_sys;

use crate::runtime::js;
use tollgate_service::ApiResponse;

/// The name of the binding in wrangler.toml.
pub(crate) const ASSETS: &str = "ASSETS";

/// A page and the files next to it.
struct Site {
    /// Without its last slash.
    folder: &'static str,
    /// The content security policy of the page's own files.
    policy: &'static str,
    /// The endings of its files; without any, every plain name below the folder is a file.
    endings: &'static [&'static str],
}

const PLAYGROUND: Site = Site {
    folder: "/.well-known/tollgate/playground",
    policy: include_str!("../../../tollgate-playground/csp.txt"),
    endings: &[],
};
/// The admin API is in the same folder, and none of its paths ends like a file.
const ADMIN: Site = Site {
    folder: "/.well-known/tollgate/admin",
    policy: include_str!("../../../tollgate-service/page/csp.txt"),
    endings: &[".js", ".css", ".txt"],
};

/// The resource that a path requests.
#[derive(Debug, PartialEq, Eq)]
enum Resource<'p> {
    /// The page.
    Page,
    /// A file next to the page; its name is a hash of its content.
    File(&'p str),
    /// The page without its last slash, from where its files would not be found.
    Folder,
    /// A name that no file can have.
    Nothing,
}

impl Site {
    /// The resource that `path` requests; `None` when it is not below the page.
    fn asked<'p>(&self, path: &'p str) -> Option<Resource<'p>> {
        let rest = path.strip_prefix(self.folder)?;
        let Some(name) = rest.strip_prefix('/') else {
            return rest.is_empty().then_some(Resource::Folder);
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        match name {
            "" => Some(Resource::Page),
            name if !name.starts_with('.') && name.bytes().all(is_plain) && self.is_file(name) => {
                Some(Resource::File(name))
            }
            _ => self.endings.is_empty().then_some(Resource::Nothing),
        }
    }

    fn is_file(&self, name: &str) -> bool {
        self.endings.is_empty() || self.endings.iter().any(|ending| name.ends_with(ending))
    }

    /// The headers of every file.
    fn fields(&self, kept: &str) -> String {
        format!(
            "cache-control: {kept}\ncontent-security-policy: {}; frame-ancestors 'none'\n\
             x-content-type-options: nosniff\nreferrer-policy: no-referrer\n\
             cross-origin-opener-policy: same-origin\ncross-origin-resource-policy: same-origin\n",
            self.policy.trim()
        )
    }
}

/// The response to a request for a page or one of its files; `None` when `path` is not theirs.
/// `is_operated` is true where the deployment has an operator, so that the operator's page is
/// useful.
pub(crate) async fn answer(
    assets: &JsValue,
    request: &web_sys::Request,
    path: &str,
    is_operated: bool,
) -> Option<web_sys::Response> {
    let sites = if is_operated { &[PLAYGROUND, ADMIN][..] } else { &[PLAYGROUND] };
    let (site, asked) = sites.iter().find_map(|site| Some((site, site.asked(path)?)))?;
    if !matches!(request.method().as_str(), "GET" | "HEAD") {
        return Some(js::send(&ApiResponse::not_allowed("GET, HEAD")));
    }
    let kept = match asked {
        Resource::Page => "no-cache",
        Resource::File(_) => "public, max-age=31536000, immutable",
        Resource::Folder => {
            let reply =
                ApiResponse::problem(308, "Permanent Redirect", "the page ends with a slash");
            return Some(js::send(&reply.with("location", &format!("{}/", site.folder))));
        }
        Resource::Nothing => return Some(js::send(&nothing())),
    };
    let found = js::asset(assets, request, path, &site.fields(kept)).await;
    Some(found.unwrap_or_else(|| js::send(&nothing())))
}

fn nothing() -> ApiResponse {
    ApiResponse::problem(404, "Not Found", "the page has no such file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_folder_and_nothing_else() {
        for (path, expected) in [
            ("/.well-known/tollgate/playground/", Some(Resource::Page)),
            ("/.well-known/tollgate/playground", Some(Resource::Folder)),
            ("/.well-known/tollgate/playground/main-A1.js", Some(Resource::File("main-A1.js"))),
            ("/.well-known/tollgate/playground/a/b", Some(Resource::Nothing)),
            ("/.well-known/tollgate/playground//", Some(Resource::Nothing)),
            ("/.well-known/tollgate/playground/..", Some(Resource::Nothing)),
            ("/.well-known/tollgate/playground/.env", Some(Resource::Nothing)),
            ("/.well-known/tollgate/playground/%2e%2e%2fhealth", Some(Resource::Nothing)),
            ("/.well-known/tollgate/playground/a%00", Some(Resource::Nothing)),
            ("/.well-known/tollgate/playgrounds", None),
            ("/.well-known/tollgate/health", None),
            ("/.WELL-KNOWN/tollgate/playground/", None),
            ("//.well-known/tollgate/playground/", None),
            ("/index.html", None),
            ("/", None),
        ] {
            assert_eq!(PLAYGROUND.asked(path), expected, "{path}");
        }
    }

    // Guards: a file that is served in place of the admin API, which is in the same folder.
    #[test]
    fn the_operators_page_leaves_the_api_alone() {
        for (path, expected) in [
            ("/.well-known/tollgate/admin/", Some(Resource::Page)),
            ("/.well-known/tollgate/admin", Some(Resource::Folder)),
            ("/.well-known/tollgate/admin/main-A1.js", Some(Resource::File("main-A1.js"))),
            ("/.well-known/tollgate/admin/NOTICE.txt", Some(Resource::File("NOTICE.txt"))),
            ("/.well-known/tollgate/admin/policy", None),
            ("/.well-known/tollgate/admin/policy/history", None),
            ("/.well-known/tollgate/admin/tenants/a.js", None),
            ("/.well-known/tollgate/admin/tenants%2Fa.js", None),
            ("/.well-known/tollgate/admin/.js", None),
            ("/.well-known/tollgate/admin/index.html", None),
            ("/.well-known/tollgate/administrators", None),
            ("/.well-known/tollgate/metrics", None),
            ("/admin/", None),
        ] {
            assert_eq!(ADMIN.asked(path), expected, "{path}");
        }
    }

    #[test]
    fn every_field_is_one_line() {
        for site in [PLAYGROUND, ADMIN] {
            let fields = site.fields("no-cache");
            assert_eq!(fields.lines().filter(|line| line.contains(": ")).count(), 6);
            assert!(fields.contains("default-src 'none'; script-src 'self'"), "{fields}");
            assert!(!fields.contains("unsafe-inline"), "{fields}");
        }
    }
}
