//! Rates of ports and links: one reader of the counters, once a second, for all who watch, and none if nobody does.

use super::{Counts, ErrorBody, LinkView, PortView, StatsView};
use crate::engine::{EngineRequest, Failure, Inbox};
use crate::tcp_api::{Caller, StreamPlace};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use ringway_host::since_1970;
use ringway_scheduler::{Cut, Feed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use utoipa::{OpenApi, ToSchema};

/// Attack: watchers without end. Clients that may watch at the same time.
const MOST_WATCHERS: usize = 64;
static WATCHERS: Semaphore = Semaphore::const_new(MOST_WATCHERS);
/// Time between two readings of the counters.
const PERIOD: Duration = Duration::from_secs(1);

/// The newest rates as an event, for all who watch.
type Newest = Arc<watch::Sender<Arc<str>>>;
/// That of the reader, while there is one.
static READER: Mutex<Option<Newest>> = Mutex::new(None);

#[derive(OpenApi)]
#[openapi(paths(rates), components(schemas(RatesView)))]
struct Description;

/// The description of the path.
pub fn description() -> utoipa::openapi::OpenApi {
    Description::openapi()
}

/// The path.
pub fn routes() -> Router<Inbox> {
    Router::new().route("/v1/rates", get(rates))
}

/// What passed between two readings of the counters. Rates are frames or bytes a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RatesView {
    /// When the counters were read, in nanoseconds since 1970.
    pub time: u64,
    /// Time since the reading before.
    pub seconds: f64,
    /// Of every port, in the order of the file.
    pub ports: Vec<PortRates>,
    /// Of both directions of every link.
    pub links: Vec<LinkRates>,
}

/// The rates of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortRates {
    /// Its name.
    pub name: String,
    /// Its state, such as `up`.
    pub state: String,
    /// Frames that its peer sent.
    pub tx_frames: f64,
    /// Their bytes.
    pub tx_bytes: f64,
    /// Frames that its peer got.
    pub rx_frames: f64,
    /// Their bytes.
    pub rx_bytes: f64,
    /// Dropped frames a second, by reason; reasons without any are omitted.
    pub drops: BTreeMap<String, f64>,
    /// Dropped frames since the port is there, by reason.
    pub dropped: BTreeMap<String, u64>,
}

/// The rates of a direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LinkRates {
    /// The link's name.
    pub name: String,
    /// The port that sends.
    pub from: String,
    /// The port that receives.
    pub to: String,
    /// Frames that left it.
    pub frames: f64,
    /// Their bytes.
    pub bytes: f64,
    /// Dropped frames.
    pub drops: f64,
    /// Frames in its queue, now.
    pub queued: u64,
}

/// What is read at one moment.
struct Reading {
    stats: StatsView,
    ports: Vec<PortView>,
    links: Vec<LinkView>,
}

impl Reading {
    async fn of(inbox: &Inbox) -> Result<Reading, Failure> {
        Ok(Reading {
            stats: inbox.ask(EngineRequest::Stats).await?,
            ports: inbox.ask(EngineRequest::Ports).await?,
            links: inbox.ask(EngineRequest::Links).await?,
        })
    }
}

/// Dropped frames of a port by reason, both directions together.
fn dropped(counts: &Counts) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for (reason, count) in counts.tx_drops.iter().chain(&counts.rx_drops).filter(|(_, count)| **count > 0) {
        *all.entry(reason.clone()).or_default() += count;
    }
    all
}

/// The rates between two readings. What was added meanwhile counts from 0; a counter that began anew has the rate 0.
fn between(before: &Reading, after: &Reading) -> RatesView {
    let seconds = after.stats.at.saturating_sub(before.stats.at).max(1) as f64 / 1e9;
    // One decimal place is enough, and short.
    let rate =
        |before: u64, after: u64| (after.saturating_sub(before) as f64 / seconds * 10.0).round() / 10.0;
    let earlier: BTreeMap<&str, &Counts> =
        before.stats.ports.iter().map(|port| (&*port.name, &port.total)).collect();
    let states: BTreeMap<&str, &str> = after.ports.iter().map(|port| (&*port.name, &*port.state)).collect();
    let none = Counts::default();
    let ports = after.stats.ports.iter().map(|port| {
        let (old, new) = (*earlier.get(&*port.name).unwrap_or(&&none), &port.total);
        let (drops_before, dropped) = (dropped(old), dropped(new));
        let drops = dropped.iter().map(|(reason, count)| {
            (reason.clone(), rate(drops_before.get(reason).copied().unwrap_or(0), *count))
        });
        PortRates {
            name: port.name.clone(),
            state: states.get(&*port.name).map_or_else(String::new, |state| (*state).into()),
            tx_frames: rate(old.tx_frames, new.tx_frames),
            tx_bytes: rate(old.tx_bytes, new.tx_bytes),
            rx_frames: rate(old.rx_frames, new.rx_frames),
            rx_bytes: rate(old.rx_bytes, new.rx_bytes),
            drops: drops.filter(|(_, rate)| *rate > 0.0).collect(),
            dropped,
        }
    });
    let links = after.links.iter().flat_map(|link| {
        let old = before.links.iter().find(|old| old.name == link.name);
        link.directions.iter().enumerate().map(move |(index, new)| {
            let old = old.and_then(|old| old.directions.get(index));
            let of = |read: fn(&super::DirectionView) -> u64| rate(old.map_or(0, read), read(new));
            LinkRates {
                name: link.name.clone(),
                from: new.from.clone(),
                to: new.to.clone(),
                frames: of(|one| one.received),
                bytes: of(|one| one.received_bytes),
                drops: of(|one| one.drops.values().sum()),
                queued: new.queued,
            }
        })
    });
    RatesView { time: since_1970(), seconds, ports: ports.collect(), links: links.collect() }
}

fn reader() -> MutexGuard<'static, Option<Newest>> {
    READER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to watch: what is read already, or a reader that begins now.
fn watched(inbox: &Inbox) -> watch::Receiver<Arc<str>> {
    let mut reader = reader();
    if let Some(newest) = &*reader {
        return newest.subscribe();
    }
    let (newest, receiver) = watch::channel(Arc::from(""));
    let newest = Arc::new(newest);
    *reader = Some(newest.clone());
    tokio::spawn(read_all(inbox.clone(), newest));
    receiver
}

/// Reads the counters until nobody watches, or the fabric is down.
async fn read_all(inbox: Inbox, newest: Newest) {
    let mut before: Option<Reading> = None;
    while let Ok(after) = Reading::of(&inbox).await {
        if let Some(before) = &before {
            let rates = serde_json::to_string(&between(before, &after)).unwrap_or_default();
            newest.send_replace(format!("event: rates\ndata: {rates}\n\n").into());
        }
        before = Some(after);
        tokio::time::sleep(PERIOD).await;
        let mut reader = reader();
        if newest.receiver_count() == 0 {
            *reader = None;
            return;
        }
    }
    *reader() = None;
}

/// Rates of ports and links each second, as a stream of server-sent events named `rates`. A client that reads slowly
/// misses some.
#[utoipa::path(get, path = "/v1/rates", security(("token" = ["read"])), responses(
    (status = 200, body = String, content_type = "text/event-stream"),
    (status = 503, body = ErrorBody, description = "Too many clients watch")))]
async fn rates(
    State(inbox): State<Inbox>,
    cut: Option<Extension<Cut>>,
    caller: Option<Extension<Caller>>,
) -> Result<Response, Failure> {
    let own = StreamPlace::of(caller.as_deref())?;
    let Ok(place) = WATCHERS.try_acquire() else {
        let what = format!("{MOST_WATCHERS} clients watch rates already; end one of them");
        return Err(Failure::request(StatusCode::SERVICE_UNAVAILABLE, what));
    };
    let cut = cut.map(|Extension(cut)| cut).unwrap_or_default();
    let (feed, response) = Feed::new(cut, "text/event-stream");
    let mut newest = watched(&inbox);
    tokio::spawn(async move {
        let _places = (place, own);
        loop {
            let changed = tokio::select! {
                changed = newest.changed() => changed.is_ok(),
                () = feed.gone() => return,
            };
            if !changed {
                return feed.end("");
            }
            let text = newest.borrow_and_update().clone();
            if !feed.send(text.as_bytes().to_vec()).await {
                return;
            }
        }
    });
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{DirectionView, PortStats};

    fn reading(at: u64, frames: u64, drops: u64) -> Reading {
        let counts = Counts {
            tx_frames: frames,
            tx_bytes: 64 * frames,
            rx_drops: [("no-room".to_string(), drops)].into(),
            ..Counts::default()
        };
        let port = PortStats { name: "a".into(), total: counts, ..PortStats::default() };
        let one = DirectionView { from: "a".into(), received: frames, ..DirectionView::default() };
        let link = LinkView { name: "wan".into(), directions: vec![one] };
        Reading { stats: StatsView { at, ports: vec![port] }, ports: Vec::new(), links: vec![link] }
    }

    #[test]
    fn rates_are_differences_and_never_negative() {
        let rates = between(&reading(0, 100, 5), &reading(500_000_000, 150, 7));
        let PortRates { tx_frames, tx_bytes, drops, dropped, .. } = &rates.ports[0];
        assert_eq!((rates.seconds, *tx_frames, *tx_bytes), (0.5, 100.0, 6400.0));
        assert_eq!((drops["no-room"], dropped["no-room"]), (4.0, 7));
        assert_eq!(rates.links[0].frames, 100.0);
        let anew = between(&reading(0, 100, 5), &reading(1_000_000_000, 10, 0));
        assert_eq!((anew.ports[0].tx_frames, anew.ports[0].drops.len()), (0.0, 0));
        let added =
            Reading { stats: StatsView { at: 0, ports: Vec::new() }, ports: Vec::new(), links: Vec::new() };
        assert_eq!(between(&added, &reading(1_000_000_000, 10, 0)).ports[0].tx_frames, 10.0);
    }
}
