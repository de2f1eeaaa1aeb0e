//! The paths below `/.well-known/tollgate/`, and the permissions for them.
//!
//! Invariant: this table is their only source; the OpenAPI document is compared with it. A path is
//! compared as it was sent, segment by segment, so that only its one spelling matches; a parameter
//! is one segment, decoded once.

use alloc::string::String;

use tollgate_http_syntax::percent::decoded;

/// The prefix of every path.
pub const PREFIX: &str = "/.well-known/tollgate/";

/// True for a path that this service answers, whether or not it exists. Apart from these and the
/// health report, paths below the prefix belong to other handlers.
#[must_use]
pub fn is_ours(path: &str) -> bool {
    let Some(rest) = path.strip_prefix(PREFIX) else { return false };
    matches!(rest, "admin" | "metrics" | "openapi.json") || rest.starts_with("admin/")
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    ReadPolicy,
    PutPolicy,
    DeletePolicy,
    ReadHistory,
    ReadVersion,
    RollBack,
    ListTenants,
    ReadTenant,
    PutTenant,
    DeleteTenant,
    Explain,
    ReadKey,
    ResetKey,
    BlockKey,
    UnblockKey,
    ReadKeyHistory,
    ReadUsage,
    ReadMetrics,
    ReadOpenApi,
}

/// The permission for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Every caller, where there is an admin API.
    Public,
    /// Callers that may read, or read metrics only.
    Metrics,
    /// Callers that may read, or read the policy only.
    Follow,
    /// Callers that may read.
    Read,
    /// Callers that may write.
    Write,
}

/// One path.
#[derive(Debug)]
pub(crate) struct Route {
    /// After the prefix, with `{name}` for a parameter.
    pub(crate) path: &'static str,
    pub(crate) methods: &'static [Method],
}

/// One method of a path.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    pub(crate) operation: Operation,
    pub(crate) right: Permission,
}

const fn get(operation: Operation) -> Method {
    Method { name: "GET", operation, right: Permission::Read }
}

const fn write(name: &'static str, operation: Operation) -> Method {
    Method { name, operation, right: Permission::Write }
}

/// Every path.
pub(crate) const ROUTES: &[Route] = &[
    Route {
        path: "admin/policy",
        methods: &[
            Method { name: "GET", operation: Operation::ReadPolicy, right: Permission::Follow },
            write("PUT", Operation::PutPolicy),
            write("DELETE", Operation::DeletePolicy),
        ],
    },
    Route { path: "admin/policy/history", methods: &[get(Operation::ReadHistory)] },
    Route { path: "admin/policy/versions/{version}", methods: &[get(Operation::ReadVersion)] },
    Route { path: "admin/policy/rollback", methods: &[write("POST", Operation::RollBack)] },
    Route { path: "admin/tenants", methods: &[get(Operation::ListTenants)] },
    Route {
        path: "admin/tenants/{id}",
        methods: &[
            get(Operation::ReadTenant),
            write("PUT", Operation::PutTenant),
            write("DELETE", Operation::DeleteTenant),
        ],
    },
    Route {
        path: "admin/explain",
        // It consumes nothing, so a caller that may read may use it.
        methods: &[Method { name: "POST", operation: Operation::Explain, right: Permission::Read }],
    },
    Route { path: "admin/keys", methods: &[get(Operation::ReadKey)] },
    Route { path: "admin/keys/history", methods: &[get(Operation::ReadKeyHistory)] },
    Route { path: "admin/keys/reset", methods: &[write("POST", Operation::ResetKey)] },
    Route { path: "admin/keys/block", methods: &[write("POST", Operation::BlockKey)] },
    Route { path: "admin/keys/unblock", methods: &[write("POST", Operation::UnblockKey)] },
    Route { path: "admin/usage", methods: &[get(Operation::ReadUsage)] },
    Route {
        path: "metrics",
        methods: &[Method {
            name: "GET",
            operation: Operation::ReadMetrics,
            right: Permission::Metrics,
        }],
    },
    Route {
        path: "openapi.json",
        methods: &[Method {
            name: "GET",
            operation: Operation::ReadOpenApi,
            right: Permission::Public,
        }],
    },
];

/// The route of `path`, and its parameter, if it has one.
///
/// # Errors
/// The parameter is not percent-encoded UTF-8.
pub(crate) fn find(path: &str) -> Result<Option<(&'static Route, String)>, ()> {
    let Some(rest) = path.strip_prefix(PREFIX) else { return Ok(None) };
    for route in ROUTES {
        if let Some(raw) = parameter(route.path, rest) {
            return decoded(raw).map(|text| Some((route, text))).ok_or(());
        }
    }
    Ok(None)
}

/// The part of `path` for the parameter of `template`, empty when it has none; `None` when they do
/// not match.
fn parameter<'p>(template: &str, path: &'p str) -> Option<&'p str> {
    let (mut wanted, mut given, mut found) = (template.split('/'), path.split('/'), "");
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(found),
            (Some(name), Some(raw)) if name.starts_with('{') && !raw.is_empty() => found = raw,
            (Some(segment), Some(raw)) if segment == raw => {}
            _ => return None,
        }
    }
}

impl Route {
    /// The operation of `method` here.
    pub(crate) fn method(&self, method: &str) -> Option<&'static Method> {
        let name = if method == "HEAD" { "GET" } else { method };
        self.methods.iter().find(|it| it.name == name)
    }

    /// The methods, as `allow` lists them.
    pub(crate) fn allow(&self) -> String {
        let mut allow = String::new();
        for method in self.methods {
            allow.push_str(if allow.is_empty() { "" } else { ", " });
            allow.push_str(if method.name == "GET" { "GET, HEAD" } else { method.name });
        }
        allow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        let path = |path: &str| {
            let found = find(path).map(|route| route.map(|(route, id)| (route.path, id)));
            found.map(|found| {
                found.map_or_else(String::new, |(path, id)| alloc::format!("{path} {id}"))
            })
        };
        let cases = [
            ("admin/policy", "admin/policy "),
            ("admin/policy/versions/7", "admin/policy/versions/{version} 7"),
            ("admin/tenants/a%2Fb", "admin/tenants/{id} a/b"),
            ("admin/tenants/%2e%2e", "admin/tenants/{id} .."),
            ("admin/tenants/%252e", "admin/tenants/{id} %2e"),
            ("admin/policy/", ""),
            ("admin//policy", ""),
            ("/admin/policy", ""),
            ("admin/Policy", ""),
            ("admin/%70olicy", ""),
            ("admin/policy;a", ""),
            ("admin/tenants/", ""),
            ("admin/tenants/a/b", ""),
            ("admin/../metrics", ""),
            ("metrics/", ""),
            ("", ""),
        ];
        for (given, expected) in cases {
            assert_eq!(
                path(&alloc::format!("{PREFIX}{given}")).as_deref(),
                Ok(expected),
                "{given}"
            );
        }
        assert_eq!(path(&alloc::format!("{PREFIX}admin/tenants/%ff")), Err(()));
        assert_eq!(path("/admin/policy").as_deref(), Ok(""));
        assert_eq!(path("//.well-known/tollgate/metrics").as_deref(), Ok(""));
    }

    #[test]
    fn head_is_get_where_there_is_one() {
        let (route, _) = find(&alloc::format!("{PREFIX}admin/policy")).unwrap().unwrap();
        assert_eq!(route.allow(), "GET, HEAD, PUT, DELETE");
        assert_eq!(route.method("HEAD").map(|m| m.operation), Some(Operation::ReadPolicy));
        assert!(route.method("get").is_none() && route.method("POST").is_none());
        let (route, _) = find(&alloc::format!("{PREFIX}admin/explain")).unwrap().unwrap();
        assert!(route.allow() == "POST" && route.method("HEAD").is_none());
    }

    #[test]
    fn the_rest_below_the_prefix_is_the_origins() {
        for ours in ["admin", "admin/", "admin/policy", "admin//policy", "metrics", "openapi.json"]
        {
            assert!(is_ours(&alloc::format!("{PREFIX}{ours}")), "{ours}");
        }
        for other in ["", "administrator", "Admin/", "metrics/", "health", "playground/", "/admin/"]
        {
            assert!(!is_ours(&alloc::format!("{PREFIX}{other}")), "{other}");
        }
        assert!(!is_ours("/admin/policy") && !is_ours("//.well-known/tollgate/metrics"));
    }
}
