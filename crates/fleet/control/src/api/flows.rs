//! The paths of switches' flow tables.

use super::ErrorBody;
use super::routes::unread;
use crate::engine::{EngineRequest, Failure, FlowRequest, Inbox};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, OpenApi, ToSchema};

/// Largest body of a change in bytes: two hundred thousand flows. Attack: an endless body.
const LARGEST: usize = 24 << 20;

#[derive(OpenApi)]
#[openapi(paths(flows, change_flows, replace_flows))]
struct Description;

/// The description of these paths.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// These paths.
pub fn routes() -> Router<Inbox> {
    let flows = get(flows).post(change_flows).put(replace_flows);
    Router::new().route("/v1/switches/{name}/flows", flows.layer(DefaultBodyLimit::max(LARGEST)))
}

/// The flow tables of a switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowsView {
    /// The switch.
    pub switch: String,
    /// Number of the changes so far.
    pub revision: u64,
    /// The flows that are meant, by table, priority and match.
    pub flows: Vec<FlowView>,
    /// Number of flows that are not among them, since the answer would be too long.
    pub omitted: u64,
    /// The groups, as `ovs-ofctl dump-groups` shows them.
    pub groups: Vec<String>,
    /// The meters.
    pub meters: Vec<MeterView>,
    /// The numbers of ports.
    pub ports: Vec<FlowPortView>,
    /// All flows, groups and meters, one a line, as `PUT` takes them; empty if they are many.
    pub rules: String,
}

/// A flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowView {
    /// The flow, as `ovs-ofctl dump-flows` shows it.
    pub text: String,
    /// Frames that it matched.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
}

impl FlowView {
    /// A line of a dump.
    pub(crate) fn of(text: String) -> FlowView {
        let count = |name: &str| {
            let digits = text.split_once(name).map_or("", |(_, rest)| rest);
            digits
                .split(|letter: char| !letter.is_ascii_digit())
                .next()
                .and_then(|digits| digits.parse().ok())
        };
        let (packets, bytes) = (count("n_packets=").unwrap_or(0), count("n_bytes=").unwrap_or(0));
        FlowView { text, packets, bytes }
    }
}

/// A meter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MeterView {
    /// The meter, as `ovs-ofctl dump-meters` shows it.
    pub text: String,
    /// Frames that came to it.
    pub packets: u64,
    /// Frames that it dropped.
    pub dropped: u64,
}

/// The number that flows have for a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowPortView {
    /// The number.
    pub number: u16,
    /// The port, which may be gone: it has this number when it comes again.
    pub name: String,
}

/// A change of flow tables: all of it is made, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowsChange {
    /// Changes, one a line, as in a bundle of `ovs-ofctl`: `flow add FLOW`, `flow modify FLOW`, `flow delete MATCH`,
    /// `group add GROUP`, `meter add METER`. `flow` and `add` may be left out. Only in `POST`.
    #[serde(default)]
    pub changes: Option<String>,
    /// The command of all lines of `changes`, which then have none, such as `flow delete_strict`.
    #[serde(default)]
    pub command: Option<String>,
    /// All flows, groups and meters that there shall be, one a line. Only in `PUT`.
    #[serde(default)]
    pub rules: Option<String>,
    /// Whether nothing is changed: the answer has the difference. Only in `PUT`.
    #[serde(default)]
    pub dry_run: bool,
    /// The revision that is changed; with another one, the change is refused.
    #[serde(default)]
    pub revision: Option<u64>,
}

/// What a change has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowsChanged {
    /// Number of the changes so far.
    pub revision: u64,
    /// Flows that were added, changed or removed.
    pub count: u64,
    /// What `PUT` has changed, or would: lines that begin with `-` are gone, lines with `+` are new.
    pub difference: Vec<String>,
}

/// Which flows to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
struct Chosen {
    /// Those of this table, match, cookie, `out_port`, as `ovs-ofctl dump-flows` takes them. All if it is absent.
    #[serde(default)]
    filter: String,
}

/// The flow tables of a switch, with what is counted.
#[utoipa::path(get, path = "/v1/switches/{name}/flows", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The switch"), Chosen),
    responses((status = 200, body = FlowsView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It has no flow tables"),
        (status = 422, body = ErrorBody, description = "The filter is wrong")))]
async fn flows(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    Query(Chosen { filter }): Query<Chosen>,
) -> Result<Json<FlowsView>, Failure> {
    inbox.ask(|answer| EngineRequest::Flows(name, FlowRequest::Dump(filter, answer))).await.map(Json)
}

/// Changes flows, groups and meters of a switch while frames pass: all changes at once, or none.
#[utoipa::path(post, path = "/v1/switches/{name}/flows",
    security(("token" = ["operate"])), request_body = FlowsChange,
    params(("name" = String, Path, description = "The switch")),
    responses((status = 200, body = FlowsChanged), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It has no flow tables, or another revision"),
        (status = 422, body = ErrorBody, description = "A change is wrong, and nothing has changed")))]
async fn change_flows(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    change: Result<Json<FlowsChange>, JsonRejection>,
) -> Result<Json<FlowsChanged>, Failure> {
    let Json(change) = change.map_err(unread)?;
    if change.changes.is_none() || change.rules.is_some() || change.dry_run {
        return Err(Failure::wrong("POST takes `changes`, and neither `rules` nor `dry_run`"));
    }
    inbox.ask(|answer| EngineRequest::Flows(name, FlowRequest::Change(change, answer))).await.map(Json)
}

/// Makes the rules of the request those of a switch, at once. What stays keeps what was counted.
#[utoipa::path(put, path = "/v1/switches/{name}/flows",
    security(("token" = ["operate"])), request_body = FlowsChange,
    params(("name" = String, Path, description = "The switch")),
    responses((status = 200, body = FlowsChanged), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "It has no flow tables, or another revision"),
        (status = 422, body = ErrorBody, description = "A rule is wrong, and nothing has changed")))]
async fn replace_flows(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    change: Result<Json<FlowsChange>, JsonRejection>,
) -> Result<Json<FlowsChanged>, Failure> {
    let Json(change) = change.map_err(unread)?;
    if change.rules.is_none() || change.changes.is_some() || change.command.is_some() {
        return Err(Failure::wrong("PUT takes `rules`, and neither `changes` nor `command`"));
    }
    inbox.ask(|answer| EngineRequest::Flows(name, FlowRequest::Change(change, answer))).await.map(Json)
}
