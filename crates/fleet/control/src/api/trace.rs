//! Tracing a frame: the path, and its JSON.

use super::ErrorBody;
use crate::engine::{Failure, Inbox};
use crate::tcp_api::Caller;
use crate::trace;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(paths(trace_frame))]
struct Description;

/// The description of this path.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// This path.
pub fn routes() -> Router<Inbox> {
    Router::new().route("/v1/ports/{name}/trace", post(trace_frame))
}

/// A frame to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewTrace {
    /// The frame: its fields in the words of `ovs-ofctl`, such as `tcp,nw_dst=10.0.0.2,tp_dst=80`, or its bytes in
    /// hexadecimal.
    pub frame: String,
    /// Whether its sender leaves the checksum of TCP or UDP to the host.
    #[serde(default)]
    pub checksum_offload: bool,
    /// Bytes of payload of a segment, if its sender leaves segmentation to the host.
    #[serde(default)]
    pub gso_size: Option<u16>,
    /// Whether the frame is sent then, as if the port's peer had sent it.
    #[serde(default)]
    pub inject: bool,
}

/// What would become of a frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TraceView {
    /// The port that the frame enters.
    pub port: String,
    /// The frame, in hexadecimal.
    pub frame: String,
    /// Where it, and what is made of it, enters the fabric: first at its port, then behind each function or link that
    /// it passes.
    pub hops: Vec<HopView>,
    /// Number of frames that were not followed, since there are too many.
    pub omitted: usize,
    /// Whether the frame was sent, if that was requested. A frame for which there is no room is not sent.
    pub sent: Option<bool>,
    /// Whether its port would have done something else with the frame when it was sent than what the first hop says:
    /// the fabric changed meanwhile.
    pub changed: bool,
}

/// A frame that enters the fabric at a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HopView {
    /// Its number, from 1.
    pub number: usize,
    /// The number of the hop before; null for the first.
    pub after: Option<usize>,
    /// What the frame passed in between, such as `function wall` or `link line`; empty for the first.
    pub through: String,
    /// The port.
    pub port: String,
    /// The frame, in hexadecimal.
    pub frame: String,
    /// Its length in bytes.
    pub length: usize,
    /// What it is.
    pub summary: String,
    /// The worker that serves the port.
    pub worker: String,
    /// What the port is connected to: `switch main`, `patch b`.
    pub to: String,
    /// The switch's lookup: `learning`, `static`, `hash` or `flow`; empty without a switch.
    pub table: String,
    /// What the lookup finds: `known`, `flooded`, `unknown`, `reserved`, `invalid`; `flow` where flow tables decide;
    /// `patch`, `instance`, `nowhere` where there is no switch.
    pub lookup: String,
    /// What a learning switch does with the source address: `known`, `new`, `moved`, `refused`, `limited`.
    pub learned: Option<String>,
    /// Its VLAN, if a port of the switch has policy.
    pub vlan: Option<u16>,
    /// Whether its sender's addresses are `allowed`, or why not, if the port restricts them.
    pub sender: Option<String>,
    /// Whether the port's frames wait now, since a function that they are for does not run yet.
    pub held: bool,
    /// Why the frame is dropped at this port.
    pub dropped: Option<String>,
    /// What flow tables do with it: a line for each table, group and meter.
    #[serde(default)]
    pub flows: Vec<String>,
    /// Where copies of it go.
    pub destinations: Vec<DestinationView>,
    /// Who gets it, if it is a packet to a group, on a switch that snoops.
    #[serde(default)]
    pub multicast: Option<MulticastView>,
    /// Copies for ports that mirror others.
    #[serde(default)]
    pub mirrored: Vec<MirroredView>,
    /// Number of destinations that were not looked at.
    pub omitted: usize,
    /// Why the frame was not followed here; empty if it was.
    pub note: String,
}

/// Who gets a packet to a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MulticastView {
    /// The group's address; none for a message of IGMP or MLD.
    pub group: Option<String>,
    /// The ports of members and routers; none: all ports get it.
    pub ports: Option<Vec<String>>,
}

/// A copy of a frame for a port that mirrors another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MirroredView {
    /// The port that gets the copy.
    pub port: String,
    /// The mirrored port.
    pub of: String,
    /// Whether the frame is copied as it goes to the mirrored port, instead of as it comes from there.
    pub leaves: bool,
}

/// A copy of a frame at its destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DestinationView {
    /// The port.
    pub port: String,
    /// Its kind.
    pub kind: String,
    /// The number of the queue.
    pub queue: u32,
    /// `delivered`; `dropped`; `waits`: the destination is full, and the frame waits; `busy`: it could not be looked
    /// at.
    pub verdict: String,
    /// Why it is dropped; for one that waits, why it will be if room does not come in time.
    pub reason: Option<String>,
    /// Nanoseconds that it waits at most.
    pub hold: u64,
    /// What becomes of its VLAN tag: `inserted 10`, `set 10`, `removed`.
    pub retag: Option<String>,
    /// What is made of the frame, if the destination can't take it as it is.
    pub completion: Option<CompletionView>,
    /// Whether it is joined with segments of its flow that are taken at the same time.
    #[serde(default)]
    pub joins: bool,
    /// The function behind the port, and what it does.
    pub function: Option<FunctionTraceView>,
    /// The link behind the port, and what it does.
    pub link: Option<LinkTraceView>,
    /// The numbers of the hops that follow.
    pub next: Vec<usize>,
}

/// Offloads that are completed in software.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CompletionView {
    /// Number of frames that result.
    pub frames: usize,
    /// The first one, in hexadecimal.
    pub first: String,
    /// Its length in bytes.
    pub length: usize,
}

/// What a function does with a frame, as a private instance of its configuration did in simulated time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionTraceView {
    /// The function's name.
    pub name: String,
    /// Its state, such as `running`.
    pub state: String,
    /// The name by which its configuration knows the port.
    pub input: String,
    /// Why it is not known what it does; empty if it is.
    pub unknown: String,
    /// The elements that the frame reached, from the port on.
    pub elements: Vec<ElementTraceView>,
    /// How it got there.
    pub connections: Vec<ElementPassView>,
    /// The frames that it sends.
    pub sent: Vec<SentFrameView>,
    /// Number of frames that it sends beside these.
    pub omitted: usize,
    /// What its elements print.
    pub printed: Vec<String>,
}

/// An element that a frame reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ElementTraceView {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Packets that it dropped, or kept until the end of the trace.
    pub kept: u64,
    /// Whether what it does depends on packets that came before, so that the function that runs may do something else.
    pub has_state: bool,
}

/// Packets that passed from one element to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ElementPassView {
    /// The element that they left, by its place in the list.
    pub from: usize,
    /// The output.
    pub output: usize,
    /// The element that they entered.
    pub to: usize,
    /// The input.
    pub input: usize,
    /// Their number.
    pub packets: u64,
}

/// A frame that a function sends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SentFrameView {
    /// The name by which its configuration knows the port.
    pub port: String,
    /// The frame, in hexadecimal.
    pub frame: String,
    /// Nanoseconds after the frame that it got.
    pub after: u64,
}

/// What a link does with a frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LinkTraceView {
    /// The link's name.
    pub name: String,
    /// The port whose frames this direction gets.
    pub from: String,
    /// The settings that differ from their defaults, in the syntax of the file.
    pub settings: BTreeMap<String, String>,
    /// Why it certainly drops the frame.
    pub dropped: Option<String>,
    /// Nanoseconds that it takes to send the frames that wait now.
    pub queueing: u64,
    /// Nanoseconds that it takes to send this one.
    pub sending: u64,
    /// Mean delay in nanoseconds.
    pub delay: u64,
    /// The deviation from it, as the settings have it.
    pub jitter: u64,
    /// Probability that the frame is lost.
    pub loss: f64,
    /// Probability that it is marked Congestion Experienced, if its transport is capable of that.
    pub mark: f64,
    /// Probability that one of its bits is inverted.
    pub corrupt: f64,
    /// Probability that it arrives twice.
    pub duplicate: f64,
}

/// Says what would become of a frame that the peer of a port sent, with no effect; or sends it too.
#[utoipa::path(post, path = "/v1/ports/{name}/trace", security(("token" = ["read"])),
    params(("name" = String, Path, description = "The port")),
    request_body = NewTrace,
    responses((status = 200, body = TraceView), (status = 404, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "Sending the frame needs the role operate"),
        (status = 409, body = ErrorBody, description = "No answer of the data process, or too many traces"),
        (status = 422, body = ErrorBody, description = "The frame is wrong")))]
async fn trace_frame(
    State(inbox): State<Inbox>,
    Path(name): Path<String>,
    caller: Option<Extension<Caller>>,
    new: Result<Json<NewTrace>, JsonRejection>,
) -> Result<Json<TraceView>, Failure> {
    let Json(new) = new.map_err(super::routes::unread)?;
    if let Some(Extension(caller)) = caller.filter(|caller| new.inject && !caller.may_operate()) {
        let what = format!("sending a frame needs the role operate; token {} has another one", caller.name);
        return Err(Failure::request(StatusCode::FORBIDDEN, what));
    }
    trace::trace(&inbox, name, &new).await.map(Json)
}
