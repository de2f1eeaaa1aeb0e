//! The description of the service in OpenAPI 3.1.
//!
//! Invariant: it is the file of the repository, which tests compare with the routes and with the
//! responses.

/// The document.
pub const OPEN_API: &str = include_str!("../../../docs/openapi.json");

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::string::{String, ToString};

    use super::*;
    use crate::check::MAX_BATCH;
    use crate::problem::Wrong;
    use crate::routes::{PREFIX, Permission, ROUTES};

    fn document() -> serde_json::Value {
        serde_json::from_str(OPEN_API).expect("JSON")
    }

    #[test]
    fn it_has_every_route_with_its_tokens_and_no_other() {
        let document = document();
        let mut expected = BTreeSet::from([
            "GET /.well-known/tollgate/health ".to_string(),
            "POST /check check".to_string(),
            "POST /check/settle check".to_string(),
            "POST /check/renew check".to_string(),
            "POST /check/done check".to_string(),
            "POST /lease check".to_string(),
        ]);
        for route in ROUTES {
            for method in route.methods {
                let tokens = match method.right {
                    Permission::Public => "",
                    Permission::Metrics => "metrics, read, admin",
                    Permission::Follow => "follow, read, admin",
                    Permission::Read => "read, admin",
                    Permission::Write => "admin",
                };
                expected.insert(format!("{} {PREFIX}{} {tokens}", method.name, route.path));
            }
        }
        let mut found = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                let tokens = operation["security"].as_array().expect("security").iter();
                let names = tokens.flat_map(|one| one.as_object().expect("names").keys());
                let tokens: alloc::vec::Vec<&str> = names.map(String::as_str).collect();
                found.insert(format!("{} {path} {}", method.to_uppercase(), tokens.join(", ")));
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn it_has_every_status_and_bound() {
        let document = document();
        let mut statuses = BTreeSet::new();
        for (_, methods) in document["paths"].as_object().expect("paths") {
            for (_, operation) in methods.as_object().expect("methods") {
                statuses
                    .extend(operation["responses"].as_object().expect("responses").keys().cloned());
            }
        }
        for wrong in Wrong::ALL {
            assert!(statuses.contains(&wrong.about().0.to_string()), "{wrong:?}");
        }
        let batch = &document["components"]["schemas"]["CheckBatch"]["properties"]["requests"];
        assert_eq!(batch["maxItems"], MAX_BATCH);
    }
}
