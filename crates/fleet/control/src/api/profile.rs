//! The path of the data path's profile.

use super::routes::{Sample, sampled};
use super::{ErrorBody, FunctionView, GraphElement};
use crate::engine::{EngineRequest, Failure, Inbox};
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use ringway_fabric::proto::{Profile, StageCount, WorkerProfile};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(paths(profile))]
struct Description;

/// The description of this path.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// This path.
pub fn routes() -> Router<Inbox> {
    Router::new().route("/v1/profile", get(profile))
}

/// Where the time of workers and functions went during a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProfileView {
    /// Length of the sample in nanoseconds.
    pub nanoseconds: u64,
    /// Each worker. Its times add up to the sample.
    pub workers: Vec<WorkerProfileView>,
    /// Functions that run on a worker, and those whose elements were asked for.
    pub functions: Vec<FunctionProfileView>,
}

/// Where a worker's time went, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerProfileView {
    /// Its name.
    pub name: String,
    /// Asleep.
    pub slept: u64,
    /// Polling without a frame.
    pub idle: u64,
    /// In functions.
    pub functions: u64,
    /// The stages of bursts.
    pub stages: Vec<StageView>,
}

/// A stage of bursts. Ticks, bursts and frames are of those turns that were measured, time is of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StageView {
    /// Its name.
    pub name: String,
    /// Nanoseconds.
    pub time: u64,
    /// Ticks of the processor's clock.
    pub ticks: u64,
    /// Bursts; of `notify`, signals.
    pub bursts: u64,
    /// Frames of these bursts.
    pub frames: u64,
}

/// Where a function's time went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionProfileView {
    /// Its name.
    pub name: String,
    /// Its worker; empty if it has a process or a VM of its own.
    pub worker: String,
    /// Nanoseconds on its worker.
    pub time: u64,
    /// Turns on its worker.
    pub turns: u64,
    /// Its elements, if they were asked for.
    pub elements: Vec<GraphElement>,
}

/// What else to measure.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Elements {
    /// Whether each element of running functions is measured, which slows them down.
    #[serde(default)]
    elements: bool,
}

/// How long workers go on to measure after a sample should have ended.
const SLACK: Duration = Duration::from_secs(1);

/// Measures for a while where the time of workers and functions goes.
#[utoipa::path(get, path = "/v1/profile",
    security(("token" = ["read"])), params(Sample, Elements),
    responses((status = 200, body = ProfileView), (status = 409, body = ErrorBody)))]
async fn profile(
    State(inbox): State<Inbox>,
    Query(sample): Query<Sample>,
    Query(Elements { elements }): Query<Elements>,
) -> Result<Json<ProfileView>, Failure> {
    let functions = if elements { running(&inbox).await? } else { Vec::new() };
    let lease = u64::try_from((sample.time() + SLACK).as_nanos()).unwrap_or(u64::MAX);
    let before = inbox.ask(|answer| EngineRequest::Profile(lease, answer)).await?;
    let graphs: Vec<_> = functions
        .into_iter()
        .map(|name| {
            let (inbox, sample) = (inbox.clone(), sample.clone());
            tokio::spawn(
                async move { sampled(&inbox, name.clone(), sample).await.map(|graph| (name, graph)) },
            )
        })
        .collect();
    tokio::time::sleep(sample.time()).await;
    let after = inbox.ask(|answer| EngineRequest::Profile(0, answer)).await?;
    let mut view = ProfileView::between(&before, &after);
    for graph in graphs {
        // A function may have ended meanwhile.
        let Ok(Ok((name, graph))) = graph.await else { continue };
        match view.functions.iter_mut().find(|function| function.name == name) {
            Some(function) => function.elements = graph.elements,
            None => {
                let elements = graph.elements;
                view.functions.push(FunctionProfileView { name, elements, ..FunctionProfileView::default() });
            }
        }
    }
    Ok(Json(view))
}

/// The functions that run.
async fn running(inbox: &Inbox) -> Result<Vec<String>, Failure> {
    let all: Vec<FunctionView> = inbox.ask(EngineRequest::Functions).await?;
    Ok(all.into_iter().filter(|function| function.state == "running").map(|function| function.name).collect())
}

impl ProfileView {
    fn between(before: &Profile, after: &Profile) -> ProfileView {
        let nanoseconds = after.now.saturating_sub(before.now);
        let workers = after.workers.iter().map(|worker| {
            let first = before.workers.iter().find(|first| first.name == worker.name);
            WorkerProfileView::between(first.unwrap_or(&WorkerProfile::default()), worker, nanoseconds)
        });
        let functions = after.functions.iter().map(|function| {
            let first = before.functions.iter().find(|first| first.name == function.name).cloned();
            let first = first.unwrap_or_default();
            FunctionProfileView {
                name: function.name.clone(),
                worker: function.worker.clone(),
                time: function.time.saturating_sub(first.time),
                turns: function.turns.saturating_sub(first.turns),
                elements: Vec::new(),
            }
        });
        ProfileView { nanoseconds, workers: workers.collect(), functions: functions.collect() }
    }
}

impl WorkerProfileView {
    fn between(before: &WorkerProfile, after: &WorkerProfile, nanoseconds: u64) -> WorkerProfileView {
        let passed = |of: fn(&WorkerProfile) -> u64| of(after).saturating_sub(of(before));
        // What is counted at the end of a turn may exceed the sample by the part of the turn before it.
        let slept = passed(|worker| worker.slept).min(nanoseconds);
        let busy = passed(|worker| worker.busy).min(nanoseconds - slept);
        let beside = passed(|worker| worker.functions_busy).min(busy);
        let alone = passed(|worker| worker.functions_alone).min(nanoseconds - slept - busy);
        let mut stages: Vec<StageView> = after
            .stages
            .iter()
            .map(|stage| {
                let first = before.stages.iter().find(|first| first.stage == stage.stage);
                let passed = |of: fn(&StageCount) -> u64| of(stage).saturating_sub(first.map_or(0, of));
                let (ticks, bursts, frames) =
                    (passed(|stage| stage.ticks), passed(|stage| stage.bursts), passed(|stage| stage.frames));
                StageView { name: stage.stage.clone(), time: 0, ticks, bursts, frames }
            })
            .collect();
        divide(&mut stages, busy - beside);
        let idle = nanoseconds - slept - busy - alone;
        WorkerProfileView { name: after.name.clone(), slept, idle, functions: beside + alone, stages }
    }
}

/// Divides a time among stages in proportion to their ticks; the last one gets what remains.
fn divide(stages: &mut [StageView], time: u64) {
    let all = stages.iter().map(|stage| u128::from(stage.ticks)).sum::<u128>();
    let mut left = time;
    for stage in stages.iter_mut() {
        // A sample so short that no turn was measured has no proportion.
        let part = (u128::from(time) * u128::from(stage.ticks)).checked_div(all).unwrap_or(0);
        stage.time = u64::try_from(part).unwrap_or(0).min(left);
        left -= stage.time;
    }
    if let Some(last) = stages.last_mut() {
        last.time += left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(busy: u64, slept: u64, functions: [u64; 2], ticks: [u64; 2]) -> WorkerProfile {
        let stage =
            |name: &str, ticks| StageCount { stage: name.into(), ticks, bursts: ticks / 10, frames: ticks };
        WorkerProfile {
            name: "w0".into(),
            busy,
            slept,
            functions_busy: functions[0],
            functions_alone: functions[1],
            stages: vec![stage("copy", ticks[0]), stage("rest", ticks[1])],
        }
    }

    #[test]
    fn the_times_of_a_worker_add_up_to_the_sample() {
        let profile = |now, worker| Profile { now, workers: vec![worker], functions: Vec::new() };
        let before = profile(100, worker(10, 20, [5, 5], [7, 7]));
        for (after, slept, idle, functions, stages) in [
            (worker(610, 120, [105, 55], [307, 107]), 100, 250, 150, [375, 125]),
            // No turn was measured.
            (worker(110, 20, [5, 5], [7, 7]), 0, 900, 0, [0, 100]),
            // Figures that a turn on the way exceeds.
            (worker(2000, 520, [5, 105], [17, 7]), 500, 0, 0, [500, 0]),
        ] {
            let view = ProfileView::between(&before, &profile(1100, after));
            let found = &view.workers[0];
            let times: Vec<u64> = found.stages.iter().map(|stage| stage.time).collect();
            assert_eq!((found.slept, found.idle, found.functions), (slept, idle, functions));
            assert_eq!(times, stages);
            assert_eq!(slept + idle + functions + times.iter().sum::<u64>(), view.nanoseconds);
        }
    }
}
