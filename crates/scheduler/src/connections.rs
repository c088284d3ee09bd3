//! Connections to the extender's address: at the limit, the longest idle one is closed for a new one.

use super::routes::LARGEST;
use super::{Failed, Placer, extender_router};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// Attack: endless connections, which would use up this process's descriptors. Largest number of connections.
const CONNECTIONS: usize = 256;

/// Time that a connection has to send a request, or to read an answer and send the next, before it may be closed for a
/// new one: kube-scheduler binds pods over many connections at once.
const GRACE: Duration = Duration::from_millis(250);

/// Time limits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Attack: a silent connection. Time limit for the head of its first request.
    pub first: Duration,
    /// Time limit from an answer until the head of the next request.
    pub idle: Duration,
    /// Attack: a request sent byte by byte. Time limit for a request's body, and for a client that does not read its
    /// answer.
    pub whole: Duration,
}

impl Default for Patience {
    /// Idle connections are kept longer than Go clients keep unused ones; kube-scheduler itself waits five
    /// seconds for an answer.
    fn default() -> Patience {
        let seconds = Duration::from_secs;
        Patience { first: seconds(1), idle: seconds(100), whole: seconds(60) }
    }
}

/// Serves kube-scheduler's extender until it is dropped.
pub async fn serve_extender(mut listener: TcpListener, place: Placer, patience: Patience) {
    let router = extender_router(place);
    let mut room = Room::default();
    loop {
        let (stream, from) = axum::serve::Listener::accept(&mut listener).await;
        room.make_room().await;
        let connection = Connection::new(from.ip(), &room.changed);
        let task = room.tasks.spawn(serve(stream, router.clone(), connection.clone(), patience));
        room.connections.push((connection, task));
    }
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Its request is complete, and its answer is being computed.
    Served,
    /// It sends a request, receives an answer, or does neither.
    Idle,
    /// The head of its first request is not complete.
    New,
    /// It is closed.
    Closed,
}

struct Connection {
    from: IpAddr,
    stage: Mutex<(Stage, Instant)>,
    changed: Arc<Notify>,
}

impl Connection {
    fn new(from: IpAddr, changed: &Arc<Notify>) -> Arc<Connection> {
        let stage = Mutex::new((Stage::New, Instant::now()));
        Arc::new(Connection { from, stage, changed: changed.clone() })
    }

    fn stage(&self) -> MutexGuard<'_, (Stage, Instant)> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, stage: Stage) {
        *self.stage() = (stage, Instant::now());
        self.changed.notify_one();
    }
}

/// Marks a connection as closed, also when its task is aborted.
struct Guard(Arc<Connection>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.enter(Stage::Closed);
    }
}

/// All connections.
#[derive(Default)]
struct Room {
    tasks: JoinSet<()>,
    connections: Vec<(Arc<Connection>, AbortHandle)>,
    changed: Arc<Notify>,
}

impl Room {
    /// Returns when there is room for another connection.
    async fn make_room(&mut self) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.connections.retain(|(connection, _)| connection.stage().0 != Stage::Closed);
            if self.connections.len() < CONNECTIONS {
                return;
            }
            match idlest(self.connections.iter().map(|(connection, _)| &**connection)) {
                Some((index, since)) if since.elapsed() >= GRACE => self.connections.remove(index).1.abort(),
                Some((_, since)) => {
                    let _ = timeout(GRACE.saturating_sub(since.elapsed()), self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }
}

/// The connection to close for a new one: of the address with the most connections, preferably one that never
/// made a request, and of those the one that has waited longest. Connections being served are never closed.
/// Also returns since when it has waited.
fn idlest<'a>(all: impl Iterator<Item = &'a Connection> + Clone) -> Option<(usize, Instant)> {
    let mut of: HashMap<IpAddr, usize> = HashMap::new();
    all.clone().for_each(|connection| *of.entry(connection.from).or_default() += 1);
    let rank = |connection: &Connection| {
        let (stage, since) = *connection.stage();
        (stage != Stage::Served).then(|| (of.get(&connection.from), stage, Reverse(since)))
    };
    let ranked = all.enumerate().filter_map(|(index, connection)| Some((rank(connection)?, index)));
    ranked.max().map(|((_, _, Reverse(since)), index)| (index, since))
}

async fn serve(stream: TcpStream, router: Router, connection: Arc<Connection>, patience: Patience) {
    let _guard = Guard(connection.clone());
    // Attack: an answer that is never read. If the kernel lacks this option, the connection stays until its
    // slot is needed.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, patience.whole.as_millis() as u32);
    let service = {
        let connection = connection.clone();
        service_fn(move |request| answer(request, router.clone(), connection.clone(), patience.whole))
    };
    let mut http = http1::Builder::new();
    let served = http.timer(TokioTimer::new()).header_read_timeout(patience.idle);
    let mut served = pin!(served.serve_connection(TokioIo::new(stream), service));
    // The end of a connection only concerns its client.
    let first = timeout(patience.first, served.as_mut()).await;
    if first.is_err() && connection.stage().0 != Stage::New {
        let _ = served.await;
    }
}

async fn answer(
    request: Request<Incoming>,
    router: Router,
    connection: Arc<Connection>,
    whole: Duration,
) -> Result<Response, Infallible> {
    connection.enter(Stage::Idle);
    let (head, body) = request.into_parts();
    let body = match timeout(whole, to_bytes(Body::new(body), LARGEST)).await {
        Ok(Ok(body)) => Body::from(body),
        Ok(Err(error)) => return Ok(Failed::Wrong(error.to_string()).into_response()),
        Err(_) => return Ok(StatusCode::REQUEST_TIMEOUT.into_response()),
    };
    connection.enter(Stage::Served);
    let answer = TowerToHyperService::new(router).call(Request::from_parts(head, body)).await;
    connection.enter(Stage::Idle);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idlest_connection_of_the_busiest_address_is_closed() {
        let changed = Arc::new(Notify::new());
        let begin = Instant::now();
        let [one, two] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let connections = [
            (one, Stage::New, 0),
            (two, Stage::Served, 1),
            (two, Stage::Idle, 2),
            (two, Stage::New, 4),
            (two, Stage::New, 3),
        ];
        let mut all = Vec::from(connections.map(|(from, stage, since)| {
            let connection = Connection::new(from, &changed);
            *connection.stage() = (stage, begin + Duration::from_secs(since));
            connection
        }));
        let mut went = Vec::new();
        while let Some((index, _)) = idlest(all.iter().map(|connection| &**connection)) {
            let gone = all.remove(index);
            let (stage, since) = *gone.stage();
            went.push((gone.from, stage, since.duration_since(begin).as_secs()));
        }
        let expected =
            [(two, Stage::New, 3), (two, Stage::New, 4), (two, Stage::Idle, 2), (one, Stage::New, 0)];
        assert_eq!(went, expected);
        assert_eq!(all.len(), 1, "the one that is being served");
    }
}
