//! Metrics in Prometheus' format: `/metrics` of the API, and of a TCP address, since Prometheus can't scrape a UNIX
//! socket. docs/metrics.md has the names.
//!
//! The engine gives the same views as to any client of the API; the text is made on another thread. Every counter is
//! either of the page of counters, which outlives both processes, or of a process that counts from zero when it is
//! started again: none goes back to another value, which Prometheus would take for a jump.

mod fabric;
mod ports;
mod text;

use crate::api::{
    ChainView, ErrorBody, FabricView, FunctionView, GuestView, HostView, LinkView, PortView, ProgramView,
    StatsView, UsageView, usage,
};
use crate::engine::{EngineRequest, Failure, Inbox};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ringway_scheduler as place;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use text::{Exposition, Type};
use tokio::sync::Semaphore;
use utoipa::OpenApi;

/// Attack: endless scrapes, each of which looks at every process. The number that are answered at the same time; others
/// wait, also for a pause after each.
static SCRAPES: Semaphore = Semaphore::const_new(1);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(OpenApi)]
#[openapi(paths(metrics))]
struct Description;

/// The description of the path.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// The path of the API.
pub fn routes() -> Router<Inbox> {
    Router::new().route("/metrics", get(metrics))
}

/// What is served at a TCP address: the metrics and nothing else.
pub fn router(inbox: Inbox, is_loopback: bool) -> Router {
    let nowhere = || async { (StatusCode::NOT_FOUND, "there is no such path; there is /metrics\n") };
    let routes = routes().method_not_allowed_fallback(place::not_so).fallback(nowhere).with_state(inbox);
    if is_loopback { routes.layer(from_fn(of_this_host)) } else { routes }
}

/// Attack: a page in a browser of this host, whose name was made to mean the loopback address (DNS rebinding), reads
/// the answer as its own.
async fn of_this_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    match host.is_none_or(names_this_host) {
        true => next.run(request).await,
        false => (StatusCode::MISDIRECTED_REQUEST, "name this host as localhost, or by its address\n")
            .into_response(),
    }
}

/// Whether a `Host` header, with or without a port, names the host by its address or as `localhost`.
fn names_this_host(host: &str) -> bool {
    let authority: Option<Authority> = host.parse().ok();
    let name = authority.as_ref().map_or("", Authority::host);
    let address: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
    name.eq_ignore_ascii_case("localhost") || address.is_some()
}

/// Bounds of the TCP address. Its clients are Prometheus servers; any local user reaches it.
pub fn bounds() -> place::Bounds {
    place::Bounds {
        answer: Some(Duration::from_secs(30)),
        connections: 64,
        // A scrape has no body.
        body: 1 << 10,
        bytes: 64 << 10,
        // A fabric with 200 ports has 2 MB.
        answers: 64 << 20,
        values: 100,
        ..place::Bounds::of_extender()
    }
}

/// What is measured, at one moment as far as nothing changes meanwhile.
struct Views {
    fabric: FabricView,
    addresses: BTreeMap<String, u64>,
    ports: Vec<PortView>,
    stats: StatsView,
    links: Vec<LinkView>,
    guests: Vec<GuestView>,
    functions: Vec<FunctionView>,
    programs: Vec<ProgramView>,
    hosts: Vec<HostView>,
    chains: Vec<ChainView>,
}

impl Views {
    async fn of(inbox: &Inbox) -> Result<Views, Failure> {
        Ok(Views {
            fabric: inbox.ask(EngineRequest::Fabric).await?,
            addresses: inbox.ask(EngineRequest::AddressCounts).await?,
            ports: inbox.ask(EngineRequest::Ports).await?,
            stats: inbox.ask(EngineRequest::Stats).await?,
            links: inbox.ask(EngineRequest::Links).await?,
            guests: inbox.ask(EngineRequest::Guests).await?,
            functions: inbox.ask(EngineRequest::Functions).await?,
            programs: inbox.ask(EngineRequest::Programs).await?,
            hosts: inbox.ask(EngineRequest::Hosts).await?,
            chains: inbox.ask(EngineRequest::Chains).await?,
        })
    }

    /// The metrics as text, with the time since the scrape began.
    fn text(self, began: Instant) -> String {
        let mut all = Exposition::of(&self.fabric.name);
        fabric::write(&self, &mut all);
        ports::write(&self, &mut all);
        let Views { fabric, guests, functions, .. } = self;
        processes(&usage(&fabric, guests, functions), &mut all);
        let help = "How long this answer took.";
        let mut took = all.family(Type::Gauge, "ringway_scrape_duration_seconds", help, &[]);
        took.sample(&[], began.elapsed().as_secs_f64());
        all.into_text()
    }
}

/// Processor time and memory, as the kernel counts them.
fn processes(usage: &UsageView, all: &mut Exposition) {
    let running = || usage.processes.iter().filter(|process| process.pid != 0);
    let labels = &["process", "kind"];
    let help = "Processor time of a process of the fabric.";
    let mut family = all.family(Type::Counter, "ringway_process_cpu_seconds_total", help, labels);
    running().for_each(|process| family.seconds(&[&process.name, &process.kind], process.cpu));
    let help = "Memory of a process of the fabric, with its part of pages that it shares.";
    let mut family = all.family(Type::Gauge, "ringway_process_memory_bytes", help, labels);
    running().for_each(|process| family.sample(&[&process.name, &process.kind], process.memory));
}

/// Metrics of the fabric in Prometheus' text format.
#[utoipa::path(get, path = "/metrics",
    security(("token" = ["read"])), responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 503, body = ErrorBody, description = "The fabric is going down")))]
async fn metrics(State(inbox): State<Inbox>) -> Result<Response, Failure> {
    // The semaphore is never closed.
    let permit = SCRAPES.acquire().await;
    let began = Instant::now();
    let views = Views::of(&inbox).await?;
    let text = tokio::task::spawn_blocking(move || {
        let text = views.text(began);
        (text, permit)
    });
    let (text, permit) = text.await.map_err(|_| Failure::Down)?;
    tokio::spawn(async move {
        tokio::time::sleep(PAUSE).await;
        drop(permit);
    });
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

#[cfg(test)]
mod tests;
