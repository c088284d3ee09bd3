//! Paths of the placement API.

use super::body::{AtMost, OBJECTS};
use super::extender::{best, bind, filter, prioritize};
use super::metrics::{healthz, metrics};
use super::{
    BackupRequest, BalanceRequest, DecisionView, DrainRequest, DrainView, EventsView, ExplainView, FactPush,
    Failed, JoinRequest, JoinView, PlaceRequest, Placer, PluginsView, RevisionView, Service, StatusView,
    StoreView, UnitView, VmView, WhyNotRequest,
};
use crate::ErrorBody;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use ringway_place::engine::{BalanceStep, HostRow, Object, WhyNot};
use ringway_place::policy::Policy;
use serde::Deserialize;
use utoipa::{IntoParams, OpenApi};

/// Attack: an endless body. Largest size in bytes.
pub(crate) const LARGEST: usize = 8 << 20;

/// Attack: a query that names a million nodes, which blocks the thread that answers others. Largest number of nodes
/// that are judged on that thread.
const QUICK: usize = 1000;

#[derive(OpenApi)]
#[openapi(paths(
    hosts,
    vms,
    maintain,
    activate,
    drain,
    join,
    policies,
    policy,
    units,
    events,
    store,
    backup,
    objects,
    described,
    remove,
    remove_fact,
    plugins,
    attached,
    facts,
    decide,
    start_guest,
    attempt,
    why_not,
    decisions,
    explain,
    confirm,
    release,
    balance,
    rounds,
    super::extender::filter,
    super::extender::best,
    super::extender::prioritize,
    super::extender::bind,
    super::metrics::metrics,
    super::metrics::healthz
))]
struct Description;

/// The OpenAPI description of these paths.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// The router of these paths.
pub fn router(place: Placer) -> Router {
    Router::new()
        .route("/v1/place", post(decide))
        .route("/v1/place/hosts", get(hosts))
        .route("/v1/place/vms", get(vms))
        .route("/v1/place/hosts/{name}/maintenance", post(maintain))
        .route("/v1/place/hosts/{name}/activate", post(activate))
        .route("/v1/place/hosts/{name}/drain", post(drain))
        .route("/v1/place/this-host", post(join))
        .route("/v1/place/policies", get(policies))
        .route("/v1/place/policies/{name}", get(policy))
        .route("/v1/place/events", get(events))
        .route("/v1/place/store", get(store))
        .route("/v1/place/store/backup", post(backup))
        .route("/v1/place/units", get(units))
        .route("/v1/place/plugins", put(plugins).get(attached))
        .route("/v1/place/objects", post(objects).get(described))
        .route("/v1/place/objects/{kind}/{name}", delete(remove))
        .route("/v1/place/facts", post(facts))
        .route("/v1/place/facts/{host}/{name}", delete(remove_fact))
        .route("/v1/place/try", post(attempt))
        .route("/v1/place/why-not", post(why_not))
        .route("/v1/place/decisions", get(decisions))
        .route("/v1/place/decisions/{id}", get(explain))
        .route("/v1/place/guests/{name}/start", post(start_guest))
        .route("/v1/place/vms/{name}/confirm", post(confirm))
        .route("/v1/place/vms/{name}/release", post(release))
        .route("/v1/place/balance", post(balance).get(rounds))
        .merge(extender_routes())
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(place)
}

fn extender_routes() -> Router<Placer> {
    Router::new()
        .route("/v1/place/extender/filter", post(filter))
        .route("/v1/place/extender/best", post(best))
        .route("/v1/place/extender/prioritize", post(prioritize))
        .route("/v1/place/extender/bind", post(bind))
}

/// The extender's paths, for an address that kube-scheduler can reach, with health and metrics.
pub(crate) fn extender_router(place: Placer) -> Router {
    extender_routes()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .method_not_allowed_fallback(not_so)
        .fallback(nowhere)
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(place)
}

/// Answers a request with an unsupported method.
pub async fn not_so(method: Method) -> Response {
    let error = format!("{method} is not for this path; see /openapi.json");
    (StatusCode::METHOD_NOT_ALLOWED, Json(ErrorBody::new(error))).into_response()
}

async fn nowhere() -> Failed {
    let what = "there is no such path; the extender has `filter`, `best`, `prioritize` and `bind`; there \
        are /metrics and /healthz";
    Failed::Unknown(what.into())
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = match self {
            Failed::Unknown(_) => StatusCode::NOT_FOUND,
            Failed::Wrong(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Failed::Conflict(_) => StatusCode::CONFLICT,
            Failed::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
        };
        (status, Json(ErrorBody::new(self))).into_response()
    }
}

/// Runs blocking work on another thread.
pub(crate) async fn work<T: Send + 'static>(
    place: Placer,
    what: impl FnOnce(&Service) -> Result<T, Failed> + Send + 'static,
) -> Result<Json<T>, Failed> {
    let done = tokio::task::spawn_blocking(move || what(&place.service()?)).await;
    done.map_err(|error| Failed::Conflict(error.to_string()))?.map(Json)
}

/// Decides about `nodes` nodes: on this thread if that takes less time than handing it to another one, since
/// kube-scheduler waits for each answer.
pub(crate) async fn decided<T: Send + 'static>(
    place: Placer,
    nodes: usize,
    what: impl FnOnce(&Service) -> Result<T, Failed> + Send + 'static,
) -> Result<Json<T>, Failed> {
    match nodes <= QUICK && place.is_quick() {
        true => what(&place.service()?).map(Json),
        false => work(place, what).await,
    }
}

pub(crate) fn body<T>(json: Result<Json<T>, JsonRejection>) -> Result<T, Failed> {
    json.map(|Json(body)| body).map_err(|rejection| Failed::Wrong(rejection.body_text()))
}

type Body<T> = Result<Json<T>, JsonRejection>;

/// Every host, with its remaining resources.
#[utoipa::path(get, path = "/v1/place/hosts",
    security(("token" = ["read"])), responses((status = 200, body = Vec<HostRow>)))]
async fn hosts(State(place): State<Placer>) -> Result<Json<Vec<HostRow>>, Failed> {
    work(place, Service::hosts).await
}

/// Every VM, with its reservation.
#[utoipa::path(get, path = "/v1/place/vms",
    security(("token" = ["read"])), responses((status = 200, body = Vec<VmView>)))]
async fn vms(State(place): State<Placer>) -> Result<Json<Vec<VmView>>, Failed> {
    work(place, Service::vm_views).await
}

/// Puts a host into maintenance: it gets no new VMs, balancing rounds migrate its VMs, and it is in maintenance when
/// it is empty.
#[utoipa::path(post, path = "/v1/place/hosts/{name}/maintenance", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The host")),
    responses((status = 200, body = StatusView), (status = 404, body = ErrorBody)))]
async fn maintain(State(place): State<Placer>, Path(name): Path<String>) -> Result<Json<StatusView>, Failed> {
    work(place, move |service| service.maintain(&name)).await
}

/// Ends a host's maintenance.
#[utoipa::path(post, path = "/v1/place/hosts/{name}/activate", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The host")),
    responses((status = 200, body = StatusView), (status = 404, body = ErrorBody)))]
async fn activate(State(place): State<Placer>, Path(name): Path<String>) -> Result<Json<StatusView>, Failed> {
    work(place, move |service| service.activate(&name)).await
}

/// Puts a host into maintenance and moves its VMs away, some at a time. Repeat the request to follow it.
#[utoipa::path(post, path = "/v1/place/hosts/{name}/drain",
    security(("token" = ["operate"])), request_body = DrainRequest,
    params(("name" = String, Path, description = "The host")),
    responses((status = 200, body = DrainView), (status = 404, body = ErrorBody),
        (status = 422, body = ErrorBody)))]
async fn drain(
    State(place): State<Placer>,
    Path(name): Path<String>,
    request: Body<DrainRequest>,
) -> Result<Json<DrainView>, Failed> {
    let request = body(request)?;
    work(place, move |service| service.drain(&name, request.parallel)).await
}

/// Adds the fabric's own host to a cluster, so that VMs are placed on it too.
#[utoipa::path(post, path = "/v1/place/this-host",
    security(("token" = ["admin"])), request_body = JoinRequest,
    responses((status = 200, body = JoinView), (status = 409, body = ErrorBody)))]
async fn join(State(place): State<Placer>, request: Body<JoinRequest>) -> Result<Json<JoinView>, Failed> {
    let request = body(request)?;
    let done = tokio::task::spawn_blocking(move || place.join(&request.cluster)).await;
    done.map_err(|error| Failed::Conflict(error.to_string()))?.map(Json)
}

/// Every policy.
#[utoipa::path(get, path = "/v1/place/policies",
    security(("token" = ["read"])), responses((status = 200, body = Vec<Policy>)))]
async fn policies(State(place): State<Placer>) -> Result<Json<Vec<Policy>>, Failed> {
    work(place, Service::policies).await
}

/// A policy.
#[utoipa::path(get, path = "/v1/place/policies/{name}", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The policy")),
    responses((status = 200, body = Policy), (status = 404, body = ErrorBody)))]
async fn policy(State(place): State<Placer>, Path(name): Path<String>) -> Result<Json<Policy>, Failed> {
    work(place, move |service| service.policy(&name)).await
}

/// Selects events.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Which {
    /// Events after this revision; the newest ones if unset.
    after: Option<u64>,
    /// Largest number of events; the last revision is always complete; default 100.
    count: Option<usize>,
    /// Whether measurements are shown too: loads of hosts, and the fabric's rates; default true.
    measurements: Option<bool>,
}

/// Events: objects added, changed or deleted, reservations, decisions; oldest first. To follow, repeat the
/// request with the answer's revision.
#[utoipa::path(get, path = "/v1/place/events",
    security(("token" = ["read"])), params(Which),
    responses((status = 200, body = EventsView),
        (status = 409, body = ErrorBody, description = "The revision was compacted")))]
async fn events(
    State(place): State<Placer>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<EventsView>, Failed> {
    let Query(which) = which.map_err(|rejection| Failed::Wrong(rejection.body_text()))?;
    let (count, measurements) = (which.count.unwrap_or(100), which.measurements.unwrap_or(true));
    work(place, move |service| service.events(which.after, count, measurements)).await
}

/// The store: its path, its contents, whether the disk is full.
#[utoipa::path(get, path = "/v1/place/store", security(("token" = ["read"])),
    responses((status = 200, body = StoreView),
        (status = 409, body = ErrorBody, description = "It can't be used, and why")))]
async fn store(State(place): State<Placer>) -> Result<Json<StoreView>, Failed> {
    work(place, Service::store).await
}

/// Writes a backup of the store to a file of the fabric's host, replacing it.
#[utoipa::path(post, path = "/v1/place/store/backup",
    security(("token" = ["admin"])), request_body = BackupRequest,
    responses((status = 200, body = StoreView), (status = 409, body = ErrorBody),
        (status = 507, body = ErrorBody, description = "There is no room for it")))]
async fn backup(
    State(place): State<Placer>,
    request: Body<BackupRequest>,
) -> Result<Json<StoreView>, Failed> {
    let request = body(request)?;
    work(place, move |service| service.backup(request.path.as_ref())).await
}

/// Every unit that policies choose from.
#[utoipa::path(get, path = "/v1/place/units",
    security(("token" = ["read"])), responses((status = 200, body = Vec<UnitView>)))]
async fn units(State(place): State<Placer>) -> Result<Json<Vec<UnitView>>, Failed> {
    work(place, |service| Ok(service.units())).await
}

/// Attaches external units in addition to those of the fabric file, replacing those attached before: folders
/// of Python plugins, services in any language. They stay attached when the fabric is restarted.
#[utoipa::path(put, path = "/v1/place/plugins",
    security(("token" = ["admin"])), request_body = serde_json::Value,
    responses((status = 200, body = Vec<UnitView>), (status = 422, body = ErrorBody)))]
async fn plugins(
    State(place): State<Placer>,
    options: Body<crate::plugins::Options>,
) -> Result<Json<Vec<UnitView>>, Failed> {
    let options = body(options)?;
    work(place, |service| {
        service.attach(options)?;
        Ok(service.units())
    })
    .await
}

/// The sources of external units, with their errors.
#[utoipa::path(get, path = "/v1/place/plugins",
    security(("token" = ["read"])), responses((status = 200, body = PluginsView)))]
async fn attached(State(place): State<Placer>) -> Result<Json<PluginsView>, Failed> {
    work(place, |service| Ok(service.plugins())).await
}

/// Adds or replaces objects, all or none: clusters, policies, hosts, loads, facts, blacklist entries, VMs, groups.
#[utoipa::path(post, path = "/v1/place/objects",
    security(("token" = ["admin"])), request_body = Vec<Object>,
    responses((status = 200, body = RevisionView), (status = 422, body = ErrorBody),
        (status = 507, body = ErrorBody, description = "The disk is full")))]
async fn objects(
    State(place): State<Placer>,
    new: Body<AtMost<Object, OBJECTS>>,
) -> Result<Json<RevisionView>, Failed> {
    let AtMost(new) = body(new)?;
    work(place, |service| service.put(new)).await
}

/// Selects objects.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Kind {
    /// `cluster`, `policy`, `host`, `load`, `fact`, `blacklist`, `vm` or `group`; all if unset.
    kind: Option<String>,
}

/// The objects that were added, as they are now.
#[utoipa::path(get, path = "/v1/place/objects",
    security(("token" = ["read"])), operation_id = "list_objects", params(Kind),
    responses((status = 200, body = Vec<Object>), (status = 422, body = ErrorBody)))]
async fn described(
    State(place): State<Placer>,
    kind: Result<Query<Kind>, QueryRejection>,
) -> Result<Json<Vec<Object>>, Failed> {
    let Query(Kind { kind }) = kind.map_err(|rejection| Failed::Wrong(rejection.body_text()))?;
    work(place, move |service| service.objects(kind.as_deref())).await
}

/// Deletes an unused object. Deleting a host deletes its measurements.
#[utoipa::path(delete, path = "/v1/place/objects/{kind}/{name}", security(("token" = ["admin"])),
    params(("kind" = String, Path,
            description = "`host`, `vm`, `group`, `policy`, `cluster`, `load` or `blacklist`"),
        ("name" = String, Path, description = "Its name")),
    responses((status = 204), (status = 404, body = ErrorBody, description = "There is none"),
        (status = 409, body = ErrorBody, description = "It is in use"),
        (status = 507, body = ErrorBody, description = "The disk is full")))]
async fn remove(
    State(place): State<Placer>,
    Path((kind, name)): Path<(String, String)>,
) -> Result<StatusCode, Failed> {
    let done = tokio::task::spawn_blocking(move || place.remove(&kind, &name)).await;
    done.map_err(|error| Failed::Conflict(error.to_string()))?.map(|()| StatusCode::NO_CONTENT)
}

/// Deletes a fact about a host.
#[utoipa::path(delete, path = "/v1/place/facts/{host}/{name}", security(("token" = ["operate"])),
    params(("host" = String, Path, description = "The host"),
        ("name" = String, Path, description = "The figure")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn remove_fact(
    State(place): State<Placer>,
    Path((host, name)): Path<(String, String)>,
) -> Result<StatusCode, Failed> {
    work(place, move |service| service.remove_fact(&host, &name)).await.map(|_| StatusCode::NO_CONTENT)
}

/// Sets facts about hosts. The next decision uses them.
#[utoipa::path(post, path = "/v1/place/facts",
    security(("token" = ["operate"])), request_body = Vec<FactPush>,
    responses((status = 200, body = RevisionView), (status = 422, body = ErrorBody),
        (status = 507, body = ErrorBody, description = "The disk is full")))]
async fn facts(
    State(place): State<Placer>,
    facts: Body<AtMost<FactPush, OBJECTS>>,
) -> Result<Json<RevisionView>, Failed> {
    let AtMost(facts) = body(facts)?;
    work(place, |service| service.facts(facts)).await
}

/// Decides where VMs run, and reserves their resources.
#[utoipa::path(post, path = "/v1/place",
    security(("token" = ["operate"])), request_body = PlaceRequest,
    responses((status = 200, body = DecisionView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "A VM of `new` runs"),
        (status = 422, body = ErrorBody),
        (status = 507, body = ErrorBody, description = "The disk is full")))]
async fn decide(
    State(place): State<Placer>,
    request: Body<PlaceRequest>,
) -> Result<Json<DecisionView>, Failed> {
    let request = body(request)?;
    work(place, |service| service.place(request)).await
}

/// Decides where VMs would run, with a full trace, without a reservation.
#[utoipa::path(post, path = "/v1/place/try",
    security(("token" = ["read"])), request_body = PlaceRequest,
    responses((status = 200, body = ExplainView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "A VM of `new` runs"),
        (status = 422, body = ErrorBody)))]
async fn attempt(
    State(place): State<Placer>,
    request: Body<PlaceRequest>,
) -> Result<Json<ExplainView>, Failed> {
    let request = body(request)?;
    work(place, |service| service.attempt(request)).await
}

/// Why a host would or would not run VMs.
#[utoipa::path(post, path = "/v1/place/why-not",
    security(("token" = ["read"])), request_body = WhyNotRequest,
    responses((status = 200, body = WhyNot), (status = 404, body = ErrorBody)))]
async fn why_not(State(place): State<Placer>, request: Body<WhyNotRequest>) -> Result<Json<WhyNot>, Failed> {
    let request = body(request)?;
    work(place, |service| service.why_not(request)).await
}

/// Limits a list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Count {
    /// Largest number of decisions; default 20.
    count: Option<usize>,
}

/// The newest decisions, newest first.
#[utoipa::path(get, path = "/v1/place/decisions",
    security(("token" = ["read"])), params(Count),
    responses((status = 200, body = Vec<DecisionView>)))]
async fn decisions(
    State(place): State<Placer>,
    count: Result<Query<Count>, QueryRejection>,
) -> Result<Json<Vec<DecisionView>>, Failed> {
    let Query(count) = count.map_err(|rejection| Failed::Wrong(rejection.body_text()))?;
    work(place, move |service| service.decisions(count.count.unwrap_or(20))).await
}

/// A decision's details, repeated at its revision.
#[utoipa::path(get, path = "/v1/place/decisions/{id}", security(("token" = ["read"])),
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 200, body = ExplainView), (status = 404, body = ErrorBody)))]
async fn explain(
    State(place): State<Placer>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<Json<ExplainView>, Failed> {
    let Path(id) = id.map_err(|rejection| Failed::Wrong(rejection.body_text()))?;
    work(place, move |service| service.explain(id)).await
}

/// Places a guest or a function of the fabric file on this host, and starts it.
#[utoipa::path(post, path = "/v1/place/guests/{name}/start",
    security(("token" = ["operate"])), operation_id = "place_guest",
    params(("name" = String, Path, description = "The guest or function")),
    responses((status = 200, body = DecisionView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody)))]
async fn start_guest(
    State(place): State<Placer>,
    Path(name): Path<String>,
) -> Result<Json<DecisionView>, Failed> {
    let done = tokio::task::spawn_blocking(move || place.start_guest(&name)).await;
    done.map_err(|error| Failed::Conflict(error.to_string()))?.map(Json)
}

/// Confirms that a VM runs where it was placed.
#[utoipa::path(post, path = "/v1/place/vms/{name}/confirm", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The VM")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn confirm(State(place): State<Placer>, Path(name): Path<String>) -> Result<StatusCode, Failed> {
    work(place, move |service| service.confirm(&name)).await.map(|_| StatusCode::NO_CONTENT)
}

/// Releases a VM's reservation.
#[utoipa::path(post, path = "/v1/place/vms/{name}/release", security(("token" = ["operate"])),
    params(("name" = String, Path, description = "The VM")),
    responses((status = 204), (status = 404, body = ErrorBody)))]
async fn release(State(place): State<Placer>, Path(name): Path<String>) -> Result<StatusCode, Failed> {
    work(place, move |service| service.release(&name)).await.map(|_| StatusCode::NO_CONTENT)
}

/// A round of balancing, carried out, or a preview of several.
#[utoipa::path(post, path = "/v1/place/balance",
    security(("token" = ["operate"])), request_body = BalanceRequest,
    responses((status = 200, body = Vec<BalanceStep>), (status = 404, body = ErrorBody)))]
async fn balance(
    State(place): State<Placer>,
    request: Body<BalanceRequest>,
) -> Result<Json<Vec<BalanceStep>>, Failed> {
    let request = body(request)?;
    work(place, |service| service.balance(request)).await
}

/// The last rounds of balancing in which something happened, newest first.
#[utoipa::path(get, path = "/v1/place/balance",
    security(("token" = ["read"])), responses((status = 200, body = Vec<BalanceStep>)))]
async fn rounds(State(place): State<Placer>) -> Result<Json<Vec<BalanceStep>>, Failed> {
    work(place, |service| Ok(service.last_rounds())).await
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_path_and_method_is_described() {
        let described = serde_json::to_value(super::description()).unwrap();
        let mut count = 0;
        for line in include_str!("routes.rs").lines().filter_map(|line| line.trim().strip_prefix(".route(\""))
        {
            let (path, handlers) = line.split_once('"').unwrap();
            for method in ["get", "post", "put", "delete"] {
                if handlers.contains(&format!("{method}(")) {
                    assert!(described["paths"][path][method].is_object(), "{method} {path}");
                    count += 1;
                }
            }
        }
        assert!(count > 25, "only {count} were looked at");
    }
}
