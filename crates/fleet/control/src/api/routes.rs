//! The paths of the API.

use super::{
    ChainView, Changes, Departure, ErrorBody, Exec, ExecView, ExitsView, FabricGraphView, FabricView,
    FunctionView, GraphView, GroupsView, GuestView, HandlerValue, HostView, LinkChange, LinkView, NewClone,
    NewConfiguration, NewFabric, NewFunction, NewSnapshot, PortView, SavedFabric, SnapshotView, StatsView,
    TableView, UsageView, usage as processes,
};
use crate::engine::{EngineRequest, Failure, Inbox};
use crate::fabric_graph::{self as whole, Parts, Totals};
use crate::file;
use crate::function::graph;
use crate::function::handlers::{self, HandlerError};
use crate::functions::{FunctionError, Functions, refusal};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use axum::{Json, Router};
use ringway_linux_guests::Error;
use ringway_spec::Configuration;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::Semaphore;
use utoipa::{IntoParams, OpenApi};

/// Largest request body in bytes. Attack: an endless body.
const LARGEST: usize = 8 << 20;
/// Longest time limit of a command in a guest, in seconds.
const LONGEST: u64 = 86_400;

/// Attack: commands without end, each of which takes a thread. Largest number at the same time.
const MOST_COMMANDS: usize = 64;
static COMMANDS: Semaphore = Semaphore::const_new(MOST_COMMANDS);

/// Longest time for which packets of a function are counted, in seconds.
const LONGEST_SAMPLE: f64 = 60.0;

/// The API as OpenAPI describes it.
#[derive(OpenApi)]
#[openapi(
    info(title = "Ringway", description = "The control API of a fabric.", license(name = "Apache-2.0")),
    paths(
        fabric,
        put_fabric,
        saved_fabric,
        ports,
        exits,
        links,
        set_link,
        carrier_on,
        carrier_off,
        stats,
        usage,
        fabric_graph,
        fabric_svg,
        table,
        groups,
        fabric_hosts,
        guests,
        start_guest,
        stop_guest,
        exec,
        chains,
        functions,
        create_function,
        destroy_function,
        start_function,
        stop_function,
        suspend_function,
        resume_function,
        snapshot_function,
        snapshots,
        forget_snapshot,
        clone_snapshot,
        depart_function,
        arrive_function,
        update_function,
        function_graph,
        function_svg,
        read_handler,
        write_handler,
        shutdown,
    )
)]
struct Description;

/// The API's description.
pub fn description() -> utoipa::openapi::OpenApi {
    let mut all = Description::openapi();
    all.merge(crate::audit::description());
    all.merge(super::events::description());
    all.merge(crate::metrics::description());
    all.merge(super::flows::description());
    all.merge(super::objects::description());
    all.merge(super::migration::description());
    all.merge(super::profile::description());
    all.merge(super::programs::description());
    all.merge(super::rates::description());
    all.merge(super::trace::description());
    all.merge(crate::tcp_api::description());
    all.merge(ringway_scheduler::description());
    all
}

/// The API's router, whose handlers send requests to the engine by `inbox`.
pub fn router(inbox: Inbox) -> Router {
    Router::new()
        .route("/openapi.json", get(async || Json(description())))
        .route("/v1/fabric", get(fabric).put(put_fabric))
        .route("/v1/fabric/file", get(saved_fabric))
        .route("/v1/ports", get(ports))
        .route("/v1/ports/{name}/exits", get(exits))
        .route("/v1/links", get(links))
        .route("/v1/links/{name}", patch(set_link))
        .route("/v1/ports/{name}/up", post(carrier_on))
        .route("/v1/ports/{name}/down", post(carrier_off))
        .route("/v1/stats", get(stats))
        .route("/v1/usage", get(usage))
        .route("/v1/graph", get(fabric_graph))
        .route("/v1/graph.svg", get(fabric_svg))
        .route("/v1/switches/{name}/table", get(table))
        .route("/v1/switches/{name}/groups", get(groups))
        .route("/v1/hosts", get(fabric_hosts))
        .route("/v1/guests", get(guests))
        .route("/v1/guests/{name}/start", post(start_guest))
        .route("/v1/guests/{name}/stop", post(stop_guest))
        .route("/v1/guests/{name}/exec", post(exec))
        .route("/v1/chains", get(chains))
        .route("/v1/functions", get(functions).post(create_function))
        .route("/v1/functions/{name}", delete(destroy_function))
        .route("/v1/functions/{name}/start", post(start_function))
        .route("/v1/functions/{name}/stop", post(stop_function))
        .route("/v1/functions/{name}/suspend", post(suspend_function))
        .route("/v1/functions/{name}/resume", post(resume_function))
        .route("/v1/functions/{name}/snapshot", post(snapshot_function))
        .route("/v1/functions/{name}/depart", post(depart_function))
        .route("/v1/arrivals", post(arrive_function))
        .route("/v1/snapshots", get(snapshots))
        .route("/v1/snapshots/{name}", delete(forget_snapshot))
        .route("/v1/snapshots/{name}/clone", post(clone_snapshot))
        .route("/v1/functions/{name}/configuration", put(update_function))
        .route("/v1/functions/{name}/graph", get(function_graph))
        .route("/v1/functions/{name}/graph.svg", get(function_svg))
        .route("/v1/functions/{name}/handlers/{*handler}", get(read_handler).put(write_handler))
        .route("/v1/shutdown", post(shutdown))
        .merge(super::events::routes())
        .merge(crate::metrics::routes())
        .merge(super::flows::routes())
        .merge(super::objects::routes())
        .merge(super::migration::routes())
        .merge(super::profile::routes())
        .merge(super::programs::routes())
        .merge(super::rates::routes())
        .merge(super::trace::routes())
        .method_not_allowed_fallback(ringway_scheduler::not_so)
        .fallback(async || Failure::unknown("there is no such path; see /openapi.json"))
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(inbox)
}

/// The error for a request body that is not valid JSON or has the wrong form.
pub(crate) fn unread(rejection: JsonRejection) -> Failure {
    Failure::request(rejection.status(), rejection.body_text())
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, error_body) = match self {
            Failure::Unknown(error_body) => (StatusCode::NOT_FOUND, error_body),
            Failure::Wrong(error_body) => (StatusCode::UNPROCESSABLE_ENTITY, error_body),
            Failure::Conflict(error_body) => (StatusCode::CONFLICT, error_body),
            Failure::Request(status, error_body) => {
                (StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), error_body)
            }
            Failure::Down => (StatusCode::SERVICE_UNAVAILABLE, ErrorBody::new("the fabric is going down")),
        };
        (status, Json(error_body)).into_response()
    }
}

/// The fabric as a whole.
#[utoipa::path(get, path = "/v1/fabric",
    security(("token" = ["read"])), responses((status = 200, body = FabricView)))]
async fn fabric(State(inbox): State<Inbox>) -> Result<Json<FabricView>, Failure> {
    inbox.ask(EngineRequest::Fabric).await.map(Json)
}

/// Changes the fabric to the state described by a file, one change at a time. An invalid file changes nothing.
#[utoipa::path(put, path = "/v1/fabric",
    security(("token" = ["admin"])), request_body = NewFabric, responses(
    (status = 200, body = Changes, description = "Done"),
    (status = 409, body = ErrorBody, description = "It could not be done, and everything is as it was"),
    (status = 422, body = ErrorBody, description = "The file is wrong"),
))]
async fn put_fabric(
    State(inbox): State<Inbox>,
    new: Result<Json<NewFabric>, JsonRejection>,
) -> Result<Json<Changes>, Failure> {
    let Json(new) = new.map_err(unread)?;
    inbox.ask(|answer| EngineRequest::Become(new, answer)).await.map(Json)
}

/// The file that describes what runs: the last one, with what requests have changed since then.
#[utoipa::path(get, path = "/v1/fabric/file",
    security(("token" = ["admin"])), responses((status = 200, body = SavedFabric),
    (status = 409, body = ErrorBody, description = "The last file can't be read any more")))]
async fn saved_fabric(State(inbox): State<Inbox>) -> Result<Json<SavedFabric>, Failure> {
    inbox.ask(EngineRequest::Saved).await.map(Json)
}

/// Every port, in the order of the file.
#[utoipa::path(get, path = "/v1/ports",
    security(("token" = ["read"])), responses((status = 200, body = Vec<PortView>)))]
async fn ports(State(inbox): State<Inbox>) -> Result<Json<Vec<PortView>>, Failure> {
    inbox.ask(EngineRequest::Ports).await.map(Json)
}

/// Accesses to the registers of a port's card, and its interrupts, since its client connected.
#[utoipa::path(get, path = "/v1/ports/{name}/exits", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The port")),
    responses((status = 200, body = ExitsView), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "Its kind has no registers")))]
async fn exits(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<Json<ExitsView>, Failure> {
    inbox.ask(|answer| EngineRequest::Exits(name, answer)).await.map(Json)
}

/// Every emulated link, with its settings and counters.
#[utoipa::path(get, path = "/v1/links",
    security(("token" = ["read"])), responses((status = 200, body = Vec<LinkView>)))]
async fn links(State(inbox): State<Inbox>) -> Result<Json<Vec<LinkView>>, Failure> {
    inbox.ask(EngineRequest::Links).await.map(Json)
}

/// Changes settings of an emulated link while it runs. Frames under way arrive as before. A wrong value changes
/// nothing.
#[utoipa::path(patch, path = "/v1/links/{name}", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The link")),
    request_body = LinkChange,
    responses((status = 200, body = LinkView), (status = 404, body = ErrorBody),
        (status = 422, body = ErrorBody, description = "A value is wrong")))]
async fn set_link(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    change: Result<Json<LinkChange>, JsonRejection>,
) -> Result<Json<LinkView>, Failure> {
    let Json(change) = change.map_err(unread)?;
    inbox.ask(|answer| EngineRequest::SetLink(name, change, answer)).await.map(Json)
}

/// Turns a port's carrier on, as the file may say it by `carrier`.
#[utoipa::path(post, path = "/v1/ports/{name}/up", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The port")),
    responses((status = 204), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "Its peer can't see a carrier")))]
async fn carrier_on(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    set_carrier(&inbox, name, true).await
}

/// Turns a port's carrier off: its driver sees a disconnected cable, and no frames pass.
#[utoipa::path(post, path = "/v1/ports/{name}/down", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The port")),
    responses((status = 204), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "Its peer can't see a carrier")))]
async fn carrier_off(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    set_carrier(&inbox, name, false).await
}

async fn set_carrier(inbox: &Inbox, name: String, carrier: bool) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::SetCarrier(name, carrier, answer)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Every host, with its interfaces and programs.
#[utoipa::path(get, path = "/v1/hosts",
    security(("token" = ["read"])), responses((status = 200, body = Vec<HostView>)))]
async fn fabric_hosts(State(inbox): State<Inbox>) -> Result<Json<Vec<HostView>>, Failure> {
    inbox.ask(EngineRequest::Hosts).await.map(Json)
}

/// Counters of every port. Reading them costs the data path nothing.
#[utoipa::path(get, path = "/v1/stats",
    security(("token" = ["read"])), responses((status = 200, body = StatsView)))]
async fn stats(State(inbox): State<Inbox>) -> Result<Json<StatsView>, Failure> {
    inbox.ask(EngineRequest::Stats).await.map(Json)
}

/// Processor time and memory of every guest, function and process of the fabric.
#[utoipa::path(get, path = "/v1/usage",
    security(("token" = ["read"])), responses((status = 200, body = UsageView)))]
async fn usage(State(inbox): State<Inbox>) -> Result<Json<UsageView>, Failure> {
    let fabric = inbox.ask(EngineRequest::Fabric).await?;
    let guests = inbox.ask(EngineRequest::Guests).await?;
    let functions = inbox.ask(EngineRequest::Functions).await?;
    // With many functions, reading takes a while.
    let view = tokio::task::spawn_blocking(move || processes::usage(&fabric, guests, functions)).await;
    view.map(Json).map_err(|_| Failure::Down)
}

/// The addresses that a switch knows.
#[utoipa::path(get, path = "/v1/switches/{name}/table", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The switch")),
    responses((status = 200, body = TableView), (status = 404, body = ErrorBody)))]
async fn table(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<Json<TableView>, Failure> {
    inbox.ask(|answer| EngineRequest::Table(name, answer)).await.map(Json)
}

/// The members of groups that a switch knows, if it snoops.
#[utoipa::path(get, path = "/v1/switches/{name}/groups", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The switch")),
    responses((status = 200, body = GroupsView), (status = 404, body = ErrorBody)))]
async fn groups(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<Json<GroupsView>, Failure> {
    inbox.ask(|answer| EngineRequest::Groups(name, answer)).await.map(Json)
}

/// Every guest.
#[utoipa::path(get, path = "/v1/guests",
    security(("token" = ["read"])), responses((status = 200, body = Vec<GuestView>)))]
async fn guests(State(inbox): State<Inbox>) -> Result<Json<Vec<GuestView>>, Failure> {
    inbox.ask(EngineRequest::Guests).await.map(Json)
}

/// Starts a guest. It boots after the answer.
#[utoipa::path(post, path = "/v1/guests/{name}/start", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The guest")),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
async fn start_guest(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::StartGuest(name, answer)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Stops a guest. It powers off after the answer.
#[utoipa::path(post, path = "/v1/guests/{name}/stop", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The guest")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn stop_guest(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::StopGuest(name, answer)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Runs a shell command in a guest. The answer comes when the command has ended.
#[utoipa::path(post, path = "/v1/guests/{name}/exec", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The guest")),
    request_body = Exec, responses((status = 200, body = ExecView), (status = 404, body = ErrorBody),
    (status = 409, body = ErrorBody, description = "It does not run, or was restarted or ended meanwhile"),
    (status = 504, body = ErrorBody, description = "It did not answer in time")))]
async fn exec(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    exec: Result<Json<Exec>, JsonRejection>,
) -> Result<Json<ExecView>, Failure> {
    let Json(exec) = exec.map_err(unread)?;
    let guest = inbox.ask(|answer| EngineRequest::Guest(name, answer)).await?;
    let room = COMMANDS.try_acquire().map_err(|_| {
        Failure::conflict(format!("{MOST_COMMANDS} commands run in guests; wait until one has ended"))
    })?;
    let bound = Duration::from_secs(exec.timeout.clamp(1, LONGEST));
    let ran = tokio::task::spawn_blocking(move || {
        let ran = guest.run(&exec.command, bound);
        // Even if the client is gone, the thread was taken until now.
        drop(room);
        ran
    });
    let ran = ran.await;
    let ran = ran.map_err(Failure::conflict)?;
    let output = ran.map_err(|error| match error {
        Error::Timeout { .. } => Failure::request(StatusCode::GATEWAY_TIMEOUT, error),
        _ => Failure::conflict(error),
    })?;
    Ok(Json(ExecView { status: output.status, text: output.text }))
}

/// Every chain of functions.
#[utoipa::path(get, path = "/v1/chains",
    security(("token" = ["read"])), responses((status = 200, body = Vec<ChainView>)))]
async fn chains(State(inbox): State<Inbox>) -> Result<Json<Vec<ChainView>>, Failure> {
    inbox.ask(EngineRequest::Chains).await.map(Json)
}

/// Every function.
#[utoipa::path(get, path = "/v1/functions",
    security(("token" = ["read"])), responses((status = 200, body = Vec<FunctionView>)))]
async fn functions(State(inbox): State<Inbox>) -> Result<Json<Vec<FunctionView>>, Failure> {
    inbox.ask(EngineRequest::Functions).await.map(Json)
}

/// Starts a function. Its configuration runs after the answer.
#[utoipa::path(post, path = "/v1/functions/{name}/start", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The function")),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
async fn start_function(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::StartFunction(name, answer)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Stops a function. Its process ends after the answer.
#[utoipa::path(post, path = "/v1/functions/{name}/stop", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The function")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn stop_function(State(inbox): State<Inbox>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::StopFunction(name, answer)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Creates a function and starts it. It exists only if its configuration starts; a refused request changes nothing.
#[utoipa::path(post, path = "/v1/functions",
    security(("token" = ["admin"])), request_body = NewFunction, responses(
    (status = 201, description = "It runs"),
    (status = 422, body = ErrorBody, description = "The request or the configuration is wrong"),
    (status = 409, body = ErrorBody)))]
async fn create_function(
    State(inbox): State<Inbox>,
    new: Result<Json<NewFunction>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(NewFunction(keys)) = new.map_err(unread)?;
    // Long keys are parsed on this request's thread.
    let new = file::describe_function(keys).map_err(Failure::wrong)?;
    inbox.ask(|answer| EngineRequest::CreateFunction(Box::new(new), answer)).await?;
    Ok(StatusCode::CREATED)
}

/// Stops a function and forgets it.
#[utoipa::path(delete, path = "/v1/functions/{name}", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The function")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn destroy_function(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::DestroyFunction(name, answer)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Suspends a function: its process keeps its state, and its ports drop frames once their rings are full.
#[utoipa::path(post, path = "/v1/functions/{name}/suspend", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The function")),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
async fn suspend_function(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::SuspendFunction(name, true, answer)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a suspended function go on.
#[utoipa::path(post, path = "/v1/functions/{name}/resume", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The function")),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
async fn resume_function(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::SuspendFunction(name, false, answer)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How long a guest may take to get ready for a snapshot.
const POSE: Duration = Duration::from_secs(10);

/// Takes a snapshot of a function in a VM, which runs on. It is kept in memory until it is removed, or the fabric goes
/// down.
#[utoipa::path(post, path = "/v1/functions/{name}/snapshot", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The function")),
    request_body = NewSnapshot,
    responses((status = 201, description = "It is taken"), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It does not run, is not in a VM, or takes no part"),
        (status = 422, body = ErrorBody, description = "The name is wrong")))]
async fn snapshot_function(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    new: Result<Json<NewSnapshot>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(NewSnapshot { name: new }) = new.map_err(unread)?;
    let late = format!("the guest of {name} does not take part within {} s", POSE.as_secs());
    // Attack: a guest that never gets ready.
    let taken =
        tokio::time::timeout(POSE, inbox.ask(|answer| EngineRequest::Snapshot(name, new, answer))).await;
    taken.unwrap_or_else(|_| Err(Failure::conflict(late))).map(|()| StatusCode::CREATED)
}

/// Every snapshot.
#[utoipa::path(get, path = "/v1/snapshots",
    security(("token" = ["read"])), responses((status = 200, body = Vec<SnapshotView>)))]
async fn snapshots(State(inbox): State<Inbox>) -> Result<Json<Vec<SnapshotView>>, Failure> {
    inbox.ask(EngineRequest::Snapshots).await.map(Json)
}

/// Removes a snapshot. Its clones run on.
#[utoipa::path(delete, path = "/v1/snapshots/{name}", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The snapshot")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn forget_snapshot(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    inbox.ask(|answer| EngineRequest::Forget(name, answer)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Creates a function that goes on from a snapshot, and shares its memory until it writes it. Its restarts go on from
/// there too.
#[utoipa::path(post, path = "/v1/snapshots/{name}/clone", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The snapshot")),
    request_body = NewClone,
    responses((status = 201, description = "It runs"), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody),
        (status = 422, body = ErrorBody, description = "The request is wrong")))]
async fn clone_snapshot(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    new: Result<Json<NewClone>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(new) = new.map_err(unread)?;
    inbox.ask(|answer| EngineRequest::Clone(name, new, answer)).await.map(|()| StatusCode::CREATED)
}

/// Stops a function in a VM between two frames, so that it can go on in another fabric of this host, to which the
/// answer is posted as an arrival. It is suspended: resuming it lets it go on here after all, removing it ends it.
#[utoipa::path(post, path = "/v1/functions/{name}/depart", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The function")),
    responses((status = 200, body = Departure), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It does not run, is not in a VM, or takes no part")))]
async fn depart_function(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
) -> Result<Json<Departure>, Failure> {
    let late = format!("the guest of {name} does not take part within {} s", POSE.as_secs());
    // Attack: a guest that never gets ready.
    let left = tokio::time::timeout(POSE, inbox.ask(|answer| EngineRequest::Depart(name, answer))).await;
    left.unwrap_or_else(|_| Err(Failure::conflict(late))).map(Json)
}

/// Lets a function of another fabric of this host go on here, with its state. This fabric needs ring ports of the same
/// names that nobody has.
#[utoipa::path(post, path = "/v1/arrivals",
    security(("token" = ["admin"])), request_body = Departure,
    responses((status = 201, description = "It runs"), (status = 409, body = ErrorBody),
        (status = 422, body = ErrorBody, description = "It does not fit to this fabric")))]
async fn arrive_function(
    State(inbox): State<Inbox>,
    departure: Result<Json<Departure>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(departure) = departure.map_err(unread)?;
    // A long description is parsed on this request's thread.
    let function = Functions::described(&departure).map_err(Failure::wrong)?;
    inbox.ask(|answer| EngineRequest::Arrive(departure, Box::new(function), answer)).await?;
    Ok(StatusCode::CREATED)
}

/// Replaces the configuration of a running function; elements of the same name and class keep their state. A refused
/// configuration changes nothing.
#[utoipa::path(put, path = "/v1/functions/{name}/configuration", security(("token" = ["admin"])),
    params(("name" = String, Path, description = "The function")),
    request_body = NewConfiguration,
    responses((status = 204), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It does not run, or did not answer"),
        (status = 422, body = ErrorBody, description = "The configuration is wrong")))]
async fn update_function(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    new: Result<Json<NewConfiguration>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(NewConfiguration { configuration, source }) = new.map_err(unread)?;
    let source = file::source(source.map(Value::from)).map_err(Failure::wrong)?;
    let configuration = Configuration { file: None, source, text: configuration };
    let further = format!("{name}/");
    let is_further = |one: &FunctionView| one.name.starts_with(&further);
    let all: Vec<FunctionView> = inbox.ask(EngineRequest::Functions).await?;
    let others: Vec<FunctionView> = all.into_iter().filter(is_further).collect();
    if let Some(one) = others.iter().find(|one| one.state == "suspended") {
        return Err(FunctionError::Suspended(one.name.clone()).into());
    }
    update_one(&inbox, name, &configuration, true).await?;
    for FunctionView { name, state, .. } in others {
        // A function that starts has read the former configuration, and its socket answers once it runs.
        let runs = !matches!(&*state, "dormant" | "stopped" | "queued" | "ended");
        update_one(&inbox, name, &configuration, runs).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces the configuration of one instance of a function.
async fn update_one(
    inbox: &Inbox,
    name: String,
    configuration: &Configuration,
    runs: bool,
) -> Result<(), Failure> {
    let mut launch = 0;
    if runs {
        let (socket, number) = inbox.ask(|answer| EngineRequest::Handlers(name.clone(), answer)).await?;
        launch = number;
        let written = handlers::write(&socket, "hotconfig", configuration.text.as_bytes()).await;
        written.map_err(|error| match error {
            HandlerError::Refused(why) => Failure::wrong(refusal(&name, &why)),
            error => error.into(),
        })?;
    }
    inbox.ask(|answer| EngineRequest::UpdatedFunction(name, launch, configuration.clone(), answer)).await
}

/// How long packets are counted.
#[derive(Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Sample {
    /// Seconds, up to 60; 1 by default.
    #[serde(default = "one_second")]
    seconds: f64,
}

fn one_second() -> f64 {
    1.0
}

impl Sample {
    pub(super) fn time(&self) -> Duration {
        let seconds = if self.seconds.is_finite() { self.seconds } else { 1.0 };
        Duration::from_secs_f64(seconds.clamp(0.0, LONGEST_SAMPLE))
    }
}

async fn totals(inbox: &Inbox) -> Result<Totals, Failure> {
    Ok(Totals {
        stats: inbox.ask(EngineRequest::Stats).await?,
        links: inbox.ask(EngineRequest::Links).await?,
    })
}

/// The fabric's name and its graph, with what passes during a sample.
async fn drawn(inbox: &Inbox, sample: &Sample) -> Result<(String, FabricGraphView), Failure> {
    let before = totals(inbox).await?;
    tokio::time::sleep(sample.time()).await;
    let parts = Parts {
        fabric: inbox.ask(EngineRequest::Fabric).await?,
        ports: inbox.ask(EngineRequest::Ports).await?,
        hosts: inbox.ask(EngineRequest::Hosts).await?,
        guests: inbox.ask(EngineRequest::Guests).await?,
        functions: inbox.ask(EngineRequest::Functions).await?,
        chains: inbox.ask(EngineRequest::Chains).await?,
    };
    let graph = whole::graph(&parts, &before, &totals(inbox).await?);
    Ok((parts.fabric.name, graph))
}

/// The whole fabric as a graph, with what passes during a sample.
#[utoipa::path(get, path = "/v1/graph",
    security(("token" = ["read"])), params(Sample), responses((status = 200, body = FabricGraphView)))]
async fn fabric_graph(
    State(inbox): State<Inbox>,
    Query(sample): Query<Sample>,
) -> Result<Json<FabricGraphView>, Failure> {
    drawn(&inbox, &sample).await.map(|(_, graph)| Json(graph))
}

/// The fabric's graph as an SVG drawing.
#[utoipa::path(get, path = "/v1/graph.svg",
    security(("token" = ["read"])), params(Sample),
    responses((status = 200, body = String, content_type = "image/svg+xml")))]
async fn fabric_svg(State(inbox): State<Inbox>, Query(sample): Query<Sample>) -> Result<Response, Failure> {
    let (name, graph) = drawn(&inbox, &sample).await?;
    Ok(([(CONTENT_TYPE, "image/svg+xml")], whole::svg(&name, &graph)).into_response())
}

pub(super) async fn sampled(inbox: &Inbox, name: String, sample: Sample) -> Result<GraphView, Failure> {
    let (socket, _) = inbox.ask(|answer| EngineRequest::Handlers(name, answer)).await?;
    let time = sample.time();
    // A task of its own ends the profile even if the client disconnects.
    let sample = tokio::spawn(async move { graph::sample(&socket, time).await });
    Ok(sample.await.map_err(Failure::conflict)??)
}

/// Counts a running function's packets for a while. Returns its graph.
#[utoipa::path(get, path = "/v1/functions/{name}/graph", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The function"), Sample),
    responses((status = 200, body = GraphView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It does not run, or did not answer")))]
async fn function_graph(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    Query(sample): Query<Sample>,
) -> Result<Json<GraphView>, Failure> {
    sampled(&inbox, name, sample).await.map(Json)
}

/// The function's graph as an SVG drawing.
#[utoipa::path(get, path = "/v1/functions/{name}/graph.svg", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The function"), Sample),
    responses((status = 200, body = String, content_type = "image/svg+xml"), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It does not run, or did not answer")))]
async fn function_svg(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    Query(sample): Query<Sample>,
) -> Result<Response, Failure> {
    let graph = sampled(&inbox, name.clone(), sample).await?;
    Ok(([(CONTENT_TYPE, "image/svg+xml")], graph::svg(&name, &graph)).into_response())
}

impl From<HandlerError> for Failure {
    fn from(error: HandlerError) -> Failure {
        match error {
            HandlerError::Unknown(_) => Failure::unknown(error),
            HandlerError::Refused(_) | HandlerError::Silent(_) => Failure::conflict(error),
        }
    }
}

/// Reads a handler of a function.
#[utoipa::path(get, path = "/v1/functions/{name}/handlers/{handler}", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The function"),
        ("handler" = String, Path, description = "The handler, such as `counter.count`")),
    responses((status = 200, body = HandlerValue), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It does not run, did not answer, or refused")))]
async fn read_handler(
    State(inbox): State<Inbox>,
    Path((name, handler)): Path<(String, String)>,
) -> Result<Json<HandlerValue>, Failure> {
    let (socket, _) = inbox.ask(|answer| EngineRequest::Handlers(name, answer)).await?;
    let value = handlers::read(&socket, &handler).await?;
    Ok(Json(HandlerValue { value: String::from_utf8_lossy(&value).into_owned() }))
}

/// Writes a handler of a function.
#[utoipa::path(put, path = "/v1/functions/{name}/handlers/{handler}", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The function"),
        ("handler" = String, Path, description = "The handler, such as `counter.reset`")),
    request_body = HandlerValue,
    responses((status = 204), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It does not run, did not answer, or refused")))]
async fn write_handler(
    State(inbox): State<Inbox>,
    Path((name, handler)): Path<(String, String)>,
    value: Result<Json<HandlerValue>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(value) = value.map_err(unread)?;
    let (socket, _) = inbox.ask(|answer| EngineRequest::Handlers(name, answer)).await?;
    handlers::write(&socket, &handler, value.value.as_bytes()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes the fabric down. The answer comes when that is done.
#[utoipa::path(post, path = "/v1/shutdown",
    security(("token" = ["admin"])), responses((status = 204)))]
async fn shutdown(State(inbox): State<Inbox>) -> Result<StatusCode, Failure> {
    inbox.ask(EngineRequest::Shutdown).await.map(|()| StatusCode::NO_CONTENT)
}
