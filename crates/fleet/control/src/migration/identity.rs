//! Which fabric answers: its name, and a number that no other fabric has.
//!
//! Whoever migrates a guest believes only the fabric that prepared it: another one at the same place, or the same one
//! brought up anew, has never heard of the guest, and what it says tells nothing about where the guest runs.

use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::map_response;
use axum::response::Response;
use ringway_spec::names::name;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The header of every answer of the API.
pub const HEADER: &str = "ringway-fabric";
/// Attack: another host whose identity is without end. The longest text of one.
const LONGEST: usize = 64;

/// A fabric from when it is brought up until it is taken down, whatever replaces its processes meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricIdentity {
    name: String,
    /// Random.
    identity: String,
}

impl FabricIdentity {
    /// A fabric with this name and this random text.
    pub fn new(name: &str, identity: &str) -> FabricIdentity {
        FabricIdentity { name: name.into(), identity: identity.into() }
    }

    /// Reads the value of the header, `NAME IDENTITY`; `None` if it is none.
    pub fn read(text: &str) -> Option<FabricIdentity> {
        let (fabric, identity) = text.split_once(' ')?;
        let is_good = (1..=LONGEST).contains(&identity.len())
            && identity.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        is_good.then_some(FabricIdentity::new(name(fabric).ok()?, identity))
    }
}

impl fmt::Display for FabricIdentity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.name, self.identity)
    }
}

/// Puts the identity of this fabric into every answer of `router`.
pub fn identified(router: Router, fabric: &FabricIdentity) -> Router {
    // Names and identities have only characters that a header may have.
    let value = HeaderValue::from_str(&fabric.to_string()).ok();
    router.layer(map_response(move |mut response: Response| {
        if let Some(value) = value.clone() {
            response.headers_mut().insert(HEADER, value);
        }
        std::future::ready(response)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_a_name_and_a_random_text() {
        let fabric = FabricIdentity::new("lab-1", "6d1f-9a");
        assert_eq!(fabric.to_string(), "lab-1 6d1f-9a");
        assert_eq!(FabricIdentity::read("lab-1 6d1f-9a"), Some(fabric));
        let long = format!("lab {}", "a".repeat(LONGEST + 1));
        for text in ["", "lab", "lab ", " a", "-lab a", "lab a b", "lab a\n", "lab \u{1b}", &long] {
            assert_eq!(FabricIdentity::read(text), None, "{text:?}");
        }
    }
}
