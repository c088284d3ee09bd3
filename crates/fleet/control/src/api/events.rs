//! The path of events.

use super::ErrorBody;
use crate::engine::{Failure, Inbox};
use crate::events::MOST_WATCHERS;
use crate::tcp_api::{Caller, StreamPlace};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use ringway_scheduler::{Cut, Feed};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(paths(fabric_events))]
struct Description;

/// The description of the path.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// The path.
pub fn routes() -> Router<Inbox> {
    Router::new().route("/v1/events", get(fabric_events))
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Its number; later events have larger ones.
    pub id: u64,
    /// When it happened, in nanoseconds since 1970.
    pub time: u64,
    /// What happened, such as `peer-attached`.
    pub kind: String,
    /// The port, guest or other object to which it happened; may be empty.
    pub name: String,
    /// More about it, for people; may be empty.
    pub text: String,
}

/// Which events.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Which {
    /// Events after that of this number only.
    #[serde(default)]
    after: u64,
    /// The newest so many at most; 100 by default.
    #[serde(default = "hundred")]
    count: usize,
    /// Send events as they come, as a stream of server-sent events: `id` is the number, `event` the kind, `data` the
    /// JSON. Without `after` and the header `Last-Event-ID` those from now on. `count` has no meaning.
    #[serde(default)]
    follow: bool,
}

fn hundred() -> usize {
    100
}

/// What has happened in the fabric, oldest first; as a stream, also what happens from now on.
#[utoipa::path(get, path = "/v1/events",
    security(("token" = ["read"])), params(Which), responses(
    (status = 200, body = Vec<EventView>),
    (status = 503, body = ErrorBody, description = "Too many clients follow events")))]
async fn fabric_events(
    State(inbox): State<Inbox>,
    Query(which): Query<Which>,
    headers: HeaderMap,
    cut: Option<Extension<Cut>>,
    caller: Option<Extension<Caller>>,
) -> Result<Response, Failure> {
    let log = inbox.event_log();
    if !which.follow {
        return Ok(Json(log.after(which.after, which.count)).into_response());
    }
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = seen.or(Some(which.after)).filter(|id| *id > 0).unwrap_or_else(|| log.last());
    let own = StreamPlace::of(caller.as_deref())?;
    let Some(place) = log.watcher() else {
        let what = format!(
            "{MOST_WATCHERS} clients follow events already; end one of them, or ask without `follow`"
        );
        return Err(Failure::request(StatusCode::SERVICE_UNAVAILABLE, what));
    };
    let cut = cut.map(|Extension(cut)| cut).unwrap_or_default();
    let (feed, response) = Feed::new(cut, "text/event-stream");
    let fed = log.clone().feed(feed, after, place);
    tokio::spawn(async move {
        let _own = own;
        fed.await;
    });
    Ok(response)
}
