//! The paths of guests that are migrated.

use super::ErrorBody;
use super::routes::unread;
use crate::engine::{Answer, EngineRequest, Failure, Inbox, MigrationRequest};
use crate::guests::Started;
use crate::migration::remote::Remote;
use crate::migration::source::Source;
use crate::migration::{
    Activation, ArrivalView, GuestArrival, MigrationDecision, MigrationError, MigrationView, NewMigration,
    arrival,
};
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use ringway_linux_guests::Guest;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use utoipa::OpenApi;

/// How long a QEMU may take to start.
const START: Duration = Duration::from_secs(60);

#[derive(OpenApi)]
#[openapi(paths(
    migrate_guest,
    guest_migration,
    cancel_guest_migration,
    resolve_guest_migration,
    prepare_guest,
    arriving_guest,
    activate_guest,
    abandon_guest
))]
struct Description;

/// The description of these paths.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// These paths.
pub fn routes() -> Router<Inbox> {
    Router::new()
        .route("/v1/guests/{name}/migrate", post(migrate_guest))
        .route("/v1/guests/{name}/migration", get(guest_migration).delete(cancel_guest_migration))
        .route("/v1/guests/{name}/migration/resolve", post(resolve_guest_migration))
        .route("/v1/guest-arrivals", post(prepare_guest))
        .route("/v1/guest-arrivals/{name}/{ticket}", get(arriving_guest).delete(abandon_guest))
        .route("/v1/guest-arrivals/{name}/{ticket}/activate", post(activate_guest))
}

async fn ask_about<T>(inbox: &Inbox, make: impl FnOnce(Answer<T>) -> MigrationRequest) -> Result<T, Failure> {
    inbox.ask(|answer| EngineRequest::Migration(make(answer))).await
}

/// Moves a running QEMU guest to another fabric, whose file describes the same guest. The answer comes once that fabric
/// has checked and prepared it; a refused migration changes nothing.
#[utoipa::path(post, path = "/v1/guests/{name}/migrate", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The guest")),
    request_body = NewMigration,
    responses((status = 202, body = MigrationView, description = "It has begun"),
        (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "The guest or the other fabric can't"),
        (status = 422, body = ErrorBody, description = "The other fabric is not named as one")))]
async fn migrate_guest(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    new: Result<Json<NewMigration>, JsonRejection>,
) -> Result<(StatusCode, Json<MigrationView>), Failure> {
    let Json(new) = new.map_err(unread)?;
    let begun = tokio::spawn(async move {
        let to = Remote::find(&new.to).map_err(Failure::wrong)?;
        let departing = ask_about(&inbox, |answer| MigrationRequest::Depart(name, new, answer)).await?;
        let progress = departing.progress.clone();
        let source = Source::new(departing, to, inbox);
        let prepared = tokio::task::spawn_blocking(move || match source.prepare() {
            Ok(arrival) => Ok((source, arrival)),
            Err(error) => {
                source.abandon(&error);
                Err(error)
            }
        });
        let prepared = prepared.await.unwrap_or(Err(MigrationError::Down));
        let (source, arrival) = prepared.map_err(Failure::conflict)?;
        tokio::task::spawn_blocking(move || source.run(&arrival));
        Ok::<_, Failure>(progress.view())
    });
    // The guest is prepared, and migrated, even if the client is gone.
    let view = begun.await.map_err(Failure::conflict)??;
    Ok((StatusCode::ACCEPTED, Json(view)))
}

/// How far the last migration of a guest from here is.
#[utoipa::path(get, path = "/v1/guests/{name}/migration", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The guest")),
    responses((status = 200, body = MigrationView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It was not migrated")))]
async fn guest_migration(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
) -> Result<Json<MigrationView>, Failure> {
    let progress = ask_about(&inbox, |answer| MigrationRequest::Progress(name, answer)).await?;
    Ok(Json(progress.view()))
}

/// Asks to end a migration: the guest runs on here. It is ended when the stage says so; it may be too late. A guest
/// that arrives here, and was not activated, is given up.
#[utoipa::path(delete, path = "/v1/guests/{name}/migration", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The guest")),
    responses((status = 204), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It was not migrated")))]
async fn cancel_guest_migration(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    ask_about(&inbox, |answer| MigrationRequest::Cancel(name, answer)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Decides where a guest runs of which the other fabric does not say whether it runs there (stage `asking`), because it
/// is lost for good. It is asked once more, and if it answers, that counts. Otherwise the guest goes on here, or is
/// ended here: a guest that runs there too runs twice, and one that does not run there is lost.
#[utoipa::path(post, path = "/v1/guests/{name}/migration/resolve", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The guest")),
    request_body = MigrationDecision,
    responses((status = 202, body = MigrationView, description = "It is done when the stage says so"),
        (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It is known where the guest runs, or will be")))]
async fn resolve_guest_migration(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    decision: Result<Json<MigrationDecision>, JsonRejection>,
) -> Result<(StatusCode, Json<MigrationView>), Failure> {
    let Json(MigrationDecision { runs_at }) = decision.map_err(unread)?;
    let progress = ask_about(&inbox, |answer| MigrationRequest::Resolve(name, runs_at, answer)).await?;
    Ok((StatusCode::ACCEPTED, Json(progress.view())))
}

/// Checks a guest that is to arrive from another fabric, and starts a QEMU that waits for it. The ports of the guest
/// send nothing until it is activated. A refused guest changes nothing.
#[utoipa::path(post, path = "/v1/guest-arrivals",
    security(("token" = ["admin"])), request_body = GuestArrival,
    responses((status = 201, body = ArrivalView),
        (status = 409, body = ErrorBody, description = "It does not fit to this fabric")))]
async fn prepare_guest(
    State(inbox): State<Inbox>,
    new: Result<Json<GuestArrival>, JsonRejection>,
) -> Result<(StatusCode, Json<ArrivalView>), Failure> {
    let Json(new) = new.map_err(unread)?;
    let (name, ticket) = (new.name.clone(), new.ticket.clone());
    let (folder, started) =
        ask_about(&inbox, |answer| MigrationRequest::Arrive(Box::new(new), answer)).await?;
    let guest = match started_guest(started).await {
        Ok(guest) => guest,
        Err(why) => {
            give_up(&inbox, &name, &ticket).await;
            return Err(Failure::conflict(format!("guest {name}: {why}")));
        }
    };
    let arriving = find(&inbox, &name, &ticket).await?;
    let Some(arriving) = arriving else {
        return Err(Failure::conflict("it has arrived already"));
    };
    if let Err(error) = arrival::receive(guest, arriving.clone(), &folder, inbox.clone()) {
        give_up(&inbox, &name, &ticket).await;
        return Err(Failure::conflict(error));
    }
    Ok((StatusCode::CREATED, Json(arriving.view())))
}

/// The guest, once its QEMU answers.
async fn started_guest(started: Started) -> Result<Arc<Guest>, String> {
    let late = || "its QEMU does not start".to_string();
    let guest = tokio::time::timeout(START, started).await.map_err(|_| late())?.map_err(|_| late())??;
    let asked = guest.clone();
    let ready = tokio::task::spawn_blocking(move || arrival::ready(&asked)).await;
    ready.unwrap_or_else(|error| Err(error.to_string())).map(|()| guest)
}

async fn find(inbox: &Inbox, name: &str, ticket: &str) -> Result<Option<Arc<arrival::Arriving>>, Failure> {
    let (name, ticket) = (name.to_string(), ticket.to_string());
    ask_about(inbox, |answer| MigrationRequest::Arriving(name, ticket, answer)).await
}

async fn give_up(inbox: &Inbox, name: &str, ticket: &str) {
    let (name, ticket) = (name.to_string(), ticket.to_string());
    // It is not there if it could not be started.
    let _ = ask_about(inbox, |answer| MigrationRequest::Abandon(name, ticket, answer)).await;
}

/// State of a guest that arrives, or has arrived.
#[utoipa::path(get, path = "/v1/guest-arrivals/{name}/{ticket}", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The guest"),
        ("ticket" = String, Path, description = "The attempt")),
    responses((status = 200, body = ArrivalView), (status = 404, body = ErrorBody)))]
async fn arriving_guest(
    State(inbox): State<Inbox>,
    Path((name, ticket)): Path<(String, String)>,
) -> Result<Json<ArrivalView>, Failure> {
    let view = match find(&inbox, &name, &ticket).await? {
        Some(arriving) => arriving.view(),
        None => {
            let (state, empty) = ("active".into(), String::new());
            ArrivalView { guest: name, ticket, state, stream: empty.clone(), reason: empty }
        }
    };
    Ok(Json(view))
}

/// Lets a guest that has arrived go on here. The answer comes once it runs. Its former place must have stopped it, and
/// must not let it go on unless it is told that it will not run here.
#[utoipa::path(post, path = "/v1/guest-arrivals/{name}/{ticket}/activate", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The guest"),
        ("ticket" = String, Path, description = "The attempt")),
    request_body(content = Activation, description = "May be left out"),
    responses((status = 204), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It can't, and never will")))]
async fn activate_guest(
    State(inbox): State<Inbox>,
    Path((name, ticket)): Path<(String, String)>,
    body: Bytes,
) -> Result<StatusCode, Failure> {
    // An older version sends nothing.
    let activation = match &*body {
        [] => Activation::default(),
        body => Json::from_bytes(body).map_err(unread)?.0,
    };
    let Some(arriving) = find(&inbox, &name, &ticket).await? else { return Ok(StatusCode::NO_CONTENT) };
    let guest = inbox.ask(|answer| EngineRequest::Guest(name, answer)).await?;
    let engine = Handle::current();
    let activate = move || arrival::activate(&guest, &arriving, activation, (&inbox, &engine));
    let done = tokio::task::spawn_blocking(activate).await;
    let done = done.unwrap_or_else(|error| Err(error.to_string()));
    done.map(|()| StatusCode::NO_CONTENT).map_err(Failure::conflict)
}

/// Gives up a guest that arrives. The answer comes once its QEMU has ended.
#[utoipa::path(delete, path = "/v1/guest-arrivals/{name}/{ticket}", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The guest"),
        ("ticket" = String, Path, description = "The attempt")),
    responses((status = 204), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It was activated, or is about to be")))]
async fn abandon_guest(
    State(inbox): State<Inbox>,
    Path((name, ticket)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    ask_about(&inbox, |answer| MigrationRequest::Abandon(name, ticket, answer))
        .await
        .map(|()| StatusCode::NO_CONTENT)
}
