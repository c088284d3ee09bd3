//! Roles: each path of the API declares beside its handler, by `security`, which role a request needs.

use super::gate::Caller;
use crate::api::ErrorBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::{OpenApi, PathItem, path::Operation};

/// The name of the API's security scheme.
pub(super) const SCHEME: &str = "token";

/// What a token may be used for. Each role has the rights of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// To see the fabric.
    Read,
    /// To change what is there: links, policies of ports, flows, handlers; to start and stop guests and functions.
    Operate,
    /// Everything: to add and remove, to run commands, to read the file and the audit log, to take the fabric down.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];

    /// The role's word.
    pub fn word(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }

    /// The role of this word.
    pub fn find(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.word() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.word())
    }
}

/// The role that each path needs, by method and path.
struct Roles(HashMap<(Method, String), Role>);

impl Roles {
    /// The roles that a description has.
    fn of(description: &OpenApi) -> Roles {
        let mut roles = HashMap::new();
        for (path, item) in &description.paths.paths {
            for (method, operation) in operations(item) {
                let role = role_of(operation).map(|role| ((method, path.clone()), role));
                roles.extend(role);
            }
        }
        // It describes itself to everybody who may see the fabric.
        roles.insert((Method::GET, "/openapi.json".into()), Role::Read);
        Roles(roles)
    }

    /// The role that a request for `uri` needs, which has this route; `None` if its path has none, so that nobody may.
    fn needed(&self, method: &Method, path: &str, uri: &str) -> Option<Role> {
        let method = if method == Method::HEAD { Method::GET } else { method.clone() };
        if method == Method::PUT && path == HANDLER && is_global(uri) {
            return Some(Role::Admin);
        }
        // The rest of a path, `{*handler}`, is `{handler}` in the description.
        self.0.get(&(method, path.replace("{*", "{"))).copied()
    }
}

/// The path of a function's handlers.
const HANDLER: &str = "/v1/functions/{name}/handlers/{*handler}";

/// Whether a handler is a function's own, such as `hotconfig`, which replaces its configuration: it is of no element,
/// `ELEMENT.HANDLER`.
fn is_global(uri: &str) -> bool {
    let handler = uri.rsplit('/').next().unwrap_or_default();
    !handler.find('.').is_some_and(|at| at > 0)
}

/// The methods of a path.
fn operations(item: &PathItem) -> impl Iterator<Item = (Method, &Operation)> {
    let all = [
        (Method::GET, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::DELETE, &item.delete),
        (Method::PATCH, &item.patch),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

/// The role that an operation declares.
fn role_of(operation: &Operation) -> Option<Role> {
    let security = serde_json::to_value(operation.security.as_ref()?).ok()?;
    Role::find(security.get(0)?.get(SCHEME)?.get(0)?.as_str()?)
}

/// Lets through what the caller's role allows.
pub(super) fn authorised(router: Router, description: &OpenApi) -> Router {
    router.layer(from_fn_with_state(Arc::new(Roles::of(description)), check))
}

async fn check(State(roles): State<Arc<Roles>>, request: Request, next: Next) -> Response {
    // The answer of a path that is not there is the same for every role.
    let Some(path) = request.extensions().get::<MatchedPath>() else { return next.run(request).await };
    let needed = roles.needed(request.method(), path.as_str(), request.uri().path());
    let caller = request.extensions().get::<Caller>();
    match (needed, caller) {
        (Some(needed), Some(caller)) if caller.role >= needed => next.run(request).await,
        (Some(needed), Some(caller)) => {
            let Caller { name, role } = caller;
            refused(format!("this needs the role {needed}; token {name} has the role {role}"))
        }
        _ => refused("this is not served at this address; use the socket"),
    }
}

fn refused(error: impl ToString) -> Response {
    (StatusCode::FORBIDDEN, Json(ErrorBody::new(error))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_role_and_is_described() {
        let description = crate::api::description();
        let without: Vec<String> = description
            .paths
            .paths
            .iter()
            .flat_map(|(path, item)| operations(item).map(move |(method, one)| (method, path, one)))
            .filter(|(_, _, operation)| role_of(operation).is_none())
            .map(|(method, path, _)| format!("{method} {path}"))
            .collect();
        assert!(without.is_empty(), "add `security((\"token\" = [\"ROLE\"]))` beside them: {without:?}");
        let roles = Roles::of(&description);
        let mut count = 0;
        for (path, handlers) in routed() {
            for method in [Method::GET, Method::PUT, Method::POST, Method::DELETE, Method::PATCH] {
                if handlers.contains(&format!("{}(", method.as_str().to_lowercase())) {
                    assert!(roles.needed(&method, &path, &path).is_some(), "{method} {path} has no role");
                    count += 1;
                }
            }
        }
        assert!(count > 90, "only {count} were looked at");
    }

    /// The paths and handlers of `.route` in the sources of this crate and of placement.
    fn routed() -> Vec<(String, String)> {
        let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = ["api", "metrics", "tcp_api", "../../scheduler/src"].map(|folder| own.join(folder));
        let files = files.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap().flatten());
        let files = files.map(|entry| entry.path()).chain([own.join("audit.rs")]);
        let mut all = Vec::new();
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "rs")) {
            let text = std::fs::read_to_string(file).unwrap();
            // Tests have routers of their own.
            let text = text.split("#[cfg(test)]").next().unwrap();
            let lines = text.split(".route(\"").skip(1).filter_map(|rest| rest.split_once('"'));
            all.extend(lines.map(|(path, rest)| {
                (
                    path.to_string(),
                    rest.split(".route(\"").next().unwrap().lines().next().unwrap().to_string(),
                )
            }));
        }
        all
    }

    #[test]
    fn a_role_has_the_rights_of_those_below_it() {
        let roles = Roles::of(&crate::api::description());
        let needed = |method, path: &str| roles.needed(&method, path, path);
        assert_eq!(needed(Method::GET, "/v1/ports"), Some(Role::Read));
        assert_eq!(needed(Method::HEAD, "/v1/ports"), Some(Role::Read));
        assert_eq!(needed(Method::POST, "/v1/ports/{name}/trace"), Some(Role::Read));
        assert_eq!(needed(Method::PATCH, "/v1/links/{name}"), Some(Role::Operate));
        let written =
            |handler| roles.needed(&Method::PUT, HANDLER, &format!("/v1/functions/f/handlers/{handler}"));
        assert_eq!(written("c.reset"), Some(Role::Operate));
        // It replaces the configuration.
        assert_eq!(["hotconfig", ".hotconfig", "%68otconfig"].map(written), [Some(Role::Admin); 3]);
        assert_eq!(needed(Method::POST, "/v1/guests/{name}/exec"), Some(Role::Admin));
        assert_eq!(needed(Method::GET, "/v1/audit"), Some(Role::Admin));
        assert_eq!(needed(Method::GET, "/v1/tokens"), Some(Role::Admin));
        assert_eq!(needed(Method::TRACE, "/v1/ports"), None);
        assert_eq!(needed(Method::GET, "/v1/none"), None);
        assert!(Role::Read < Role::Operate && Role::Operate < Role::Admin);
        assert_eq!(Role::ALL.map(|role| Role::find(role.word())), Role::ALL.map(Some));
    }
}
