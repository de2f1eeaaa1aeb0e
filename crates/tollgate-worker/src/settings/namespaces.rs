//! The classes of Durable Objects that a deployment binds.
//!
//! Invariant: a binding that is not a class of objects is a problem, never taken for absent, and
//! all classes are made in the same place.

use tollgate_policy::Problem;
use worker::Env;
use worker::wasm_bindgen::JsValue;

use crate::runtime::js;
use crate::settings::placement::{JURISDICTION, Placement};

/// The binding of the objects that count.
pub(crate) const OBJECTS: &str = "LIMITER";
/// The binding of the objects of tenants' entries.
pub(crate) const TENANTS: &str = "TENANTS";

/// The objects bound to `name`; `None` when nothing is.
///
/// # Errors
/// Something else is bound there, or the runtime has no jurisdictions (workerd on its own).
pub(crate) fn objects(
    env: &Env,
    placement: Placement,
    name: &str,
) -> Result<Option<JsValue>, Problem> {
    let Some(bound) = js::binding(env, name) else { return Ok(None) };
    if !js::is_namespace(&bound) {
        let message = "is bound to no Durable Objects; see wrangler.toml".to_owned();
        return Err(Problem::new(name, message));
    }
    let placed = js::placed(&bound, placement.hint, placement.jurisdiction);
    match placed.as_string() {
        None => Ok(Some(placed)),
        Some(why) => {
            let message = format!("cannot be used here, leave it out: {why}");
            Err(Problem::new(JURISDICTION, message))
        }
    }
}
