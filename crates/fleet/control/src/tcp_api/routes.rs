//! The paths of tokens.

use super::gate::Access;
use super::roles::{Role, SCHEME};
use super::tokens::{Proof, Token, TokenError, TokenFile};
use crate::api::{ErrorBody, unread};
use crate::engine::Failure;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, get};
use axum::{Json, Router};
use ringway_scheduler as place;
use ringway_wire::fields::hex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(paths(tokens, add_token, remove_token, page))]
struct Description;

/// The description of the paths, and of tokens.
pub(crate) fn description() -> utoipa::openapi::OpenApi {
    let mut all = Description::openapi();
    let components = all.components.get_or_insert_default();
    components.add_security_scheme(SCHEME, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    all
}

/// A client of the API at its TCP address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Its name, which the audit log has.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The hash by SHA-256 of its certificate, if that is what it proves itself by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// A client to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The hash by SHA-256 of its certificate, 64 hexadecimal digits; without it a token is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// A client that was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// Its name.
    pub name: String,
    /// Its token, if it has no certificate. It is not stored, and not shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// The page for browsers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageView {
    /// Its address.
    pub url: String,
}

/// The paths; without `access` the API has no TCP address.
pub(super) fn router(access: Option<Arc<Access>>) -> Router {
    Router::new()
        .route("/v1/tokens", get(tokens).post(add_token))
        .route("/v1/tokens/{name}", delete(remove_token))
        .route("/v1/page", get(page))
        .method_not_allowed_fallback(place::not_so)
        .with_state(access)
}

type Shared = State<Option<Arc<Access>>>;

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Failure {
        match error {
            TokenError::Unknown(_) => Failure::unknown(error),
            TokenError::Wrong(_) => Failure::wrong(error),
            _ => Failure::conflict(error),
        }
    }
}

/// Uses the file of tokens, which may be written, on a thread that may wait.
async fn with_file<T: Send + 'static>(
    access: Option<Arc<Access>>,
    work: impl FnOnce(&mut TokenFile) -> Result<T, TokenError> + Send + 'static,
) -> Result<T, Failure> {
    let how = "the API has no TCP address; bring the fabric up with --listen, or add [api] to its file";
    let access = access.ok_or_else(|| Failure::conflict(how))?;
    let done = tokio::task::spawn_blocking(move || work(&mut access.tokens())).await;
    Ok(done.map_err(Failure::conflict)??)
}

/// The clients of the API at its TCP address, without their tokens, which are not stored.
#[utoipa::path(get, path = "/v1/tokens", security(("token" = ["admin"])),
    responses((status = 200, body = Vec<TokenView>),
        (status = 409, body = ErrorBody, description = "The API has no TCP address")))]
async fn tokens(State(access): Shared) -> Result<Json<Vec<TokenView>>, Failure> {
    let view = |token: &Token| TokenView {
        name: token.name.clone(),
        role: token.role,
        certificate: match &token.proof {
            Proof::Certificate(hash) => Some(hex(hash)),
            Proof::Token(_) => None,
        },
    };
    with_file(access, move |file| Ok(file.list().iter().map(view).collect())).await.map(Json)
}

/// Adds a client. Its token is in the answer, and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", security(("token" = ["admin"])), request_body = NewToken,
    responses((status = 200, body = CreatedToken),
        (status = 409, body = ErrorBody, description = "Its name is taken, or the file can't be written"),
        (status = 422, body = ErrorBody, description = "The name or the certificate is wrong")))]
async fn add_token(
    State(access): Shared,
    new: Result<Json<NewToken>, JsonRejection>,
) -> Result<Json<CreatedToken>, Failure> {
    let Json(NewToken { name, role, certificate }) = new.map_err(unread)?;
    let add = move |file: &mut TokenFile| {
        let token = file.add(&name, role, certificate.as_deref())?;
        Ok(CreatedToken { name, token })
    };
    with_file(access, add).await.map(Json)
}

/// Removes a client; its next request is refused.
#[utoipa::path(delete, path = "/v1/tokens/{name}", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The client")),
    responses((status = 204), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "The file can't be written")))]
async fn remove_token(State(access): Shared, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    with_file(access, move |file| file.remove(&name)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Where the page for browsers is.
#[utoipa::path(get, path = "/v1/page", security(("token" = ["read"])),
    responses((status = 200, body = PageView),
        (status = 409, body = ErrorBody, description = "It is not served")))]
async fn page(State(access): Shared) -> Result<Json<PageView>, Failure> {
    let url = access.and_then(|access| access.page().map(String::from));
    let none = "the page is not served; bring the fabric up with --page";
    url.map(|url| Json(PageView { url })).ok_or_else(|| Failure::conflict(none))
}
