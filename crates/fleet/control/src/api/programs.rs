//! The paths of programs.

use super::{ErrorBody, ProgramView};
use crate::engine::{EngineRequest, Failure, Inbox};
use crate::programs::Order;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(paths(programs, start_program, stop_program, restart_program))]
struct Description;

/// The description of these paths.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// These paths.
pub fn routes() -> Router<Inbox> {
    Router::new()
        .route("/v1/programs", get(programs))
        .route("/v1/programs/{name}/start", post(start_program))
        .route("/v1/programs/{name}/stop", post(stop_program))
        .route("/v1/programs/{name}/restart", post(restart_program))
}

/// Every program.
#[utoipa::path(get, path = "/v1/programs",
    security(("token" = ["read"])), responses((status = 200, body = Vec<ProgramView>)))]
async fn programs(State(inbox): State<Inbox>) -> Result<Json<Vec<ProgramView>>, Failure> {
    inbox.ask(EngineRequest::Programs).await.map(Json)
}

/// Starts a program.
#[utoipa::path(post, path = "/v1/programs/{name}/start", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The program")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn start_program(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::OrderProgram(name, Order::Start, answer)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Asks to end a program.
#[utoipa::path(post, path = "/v1/programs/{name}/stop", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The program")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn stop_program(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::OrderProgram(name, Order::Stop, answer)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Asks to end, and starts again, a program.
#[utoipa::path(post, path = "/v1/programs/{name}/restart", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The program")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn restart_program(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::OrderProgram(name, Order::Restart, answer)).await?;
    Ok(StatusCode::NO_CONTENT)
}
