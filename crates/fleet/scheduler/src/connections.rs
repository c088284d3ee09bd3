//! Connections of clients: at the limit, the longest idle one is closed for a new one.

use super::body::{Service, promised};
use super::routes::LARGEST;
use super::streamed::{Cut, IsStreamed};
use super::{Placer, extender_router};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ringway_host::Peer;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Time that a connection has to send a request, or to read an answer and send the next, before it may be closed for a
/// new one: kube-scheduler binds pods over many connections at once.
const GRACE: Duration = Duration::from_millis(250);

/// Time limits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Attack: a silent connection. Time limit for the head of its first request.
    pub first: Duration,
    /// Time limit from an answer until the head of the next request.
    pub idle: Duration,
    /// Attack: a request sent byte by byte. Time limit for a request's body, and for a client that does not read its
    /// answer.
    pub whole: Duration,
}

impl Default for Timeouts {
    /// Idle connections are kept longer than Go clients keep unused ones; kube-scheduler itself waits five
    /// seconds for an answer.
    fn default() -> Timeouts {
        let seconds = Duration::from_secs;
        Timeouts { first: seconds(1), idle: seconds(100), whole: seconds(60) }
    }
}

/// What the clients of a server may use.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time limits.
    pub timeouts: Timeouts,
    /// Time limit for an answer, if all answers have the same.
    pub answer: Option<Duration>,
    /// Attack: endless connections, which would use up this process's descriptors.
    pub connections: usize,
    /// Attack: an endless body. Largest size in bytes.
    pub body: usize,
    /// Attack: large bodies on many connections. Bytes of all large bodies.
    pub bytes: usize,
    /// Attack: large answers that nobody reads. Bytes of all of them that are not sent yet.
    pub answers: usize,
    /// Attack: short values, which take much more memory than their text. Largest number in a body.
    pub values: usize,
    /// Requests with large bodies that are parsed and answered at the same time; others wait.
    pub large: usize,
    /// Requests below this path may have long answers, and are answered on another thread.
    pub aside: Option<&'static str>,
}

/// Attack: clients that repeat at once what was refused, so that others wait for the processor. How long a refusal of a
/// body takes.
const REFUSAL: Duration = Duration::from_millis(250);

/// A thread's buffer for the heads of requests, in bytes. Attack: endless heads.
const HEAD: usize = 32 << 10;
/// Threads of such a server for requests that wait, as for the store.
const THREADS: usize = 4;

impl Bounds {
    /// Bounds of kube-scheduler's extender, which any local user reaches. A cluster of 5,000 nodes, the most that
    /// Kubernetes supports, has 1.3 MB of names at most.
    pub fn of_extender() -> Bounds {
        Bounds {
            timeouts: Timeouts::default(),
            answer: Some(Duration::from_secs(30)),
            connections: 256,
            body: 4 << 20,
            bytes: 12 << 20,
            answers: 8 << 20,
            values: 60_000,
            large: 1,
            aside: None,
        }
    }

    /// Bounds of the API, whose clients are trusted: they keep an error of one client from harming others.
    pub fn of_api() -> Bounds {
        let timeouts = Timeouts { first: Duration::from_secs(60), idle: HOUR, ..Timeouts::default() };
        Bounds {
            timeouts,
            // A command in a guest may take a day.
            answer: None,
            connections: 4096,
            body: LARGEST,
            bytes: 12 << 20,
            // One of a large inventory.
            answers: 96 << 20,
            values: 500_000,
            large: 1,
            aside: Some("/v1/place"),
        }
    }
}

/// Time that a client has to read the end of an answer whose connection is cut.
const LAST: Duration = Duration::from_secs(1);

/// How long a client of the API may keep a connection that it does not use.
const HOUR: Duration = Duration::from_secs(3600);

/// Serves kube-scheduler's extender until it is dropped.
pub async fn serve_extender(listener: TcpListener, place: Placer, bounds: Bounds) {
    let from = |address: &SocketAddr| Some(address.ip());
    serve(listener, from, extender_router(place), bounds, std::future::pending()).await;
}

/// Serves the extender on a thread of its own, so that nothing delays kube-scheduler's queries.
///
/// # Errors
/// The operating system's.
pub fn extender_thread(listener: std::net::TcpListener, place: Placer) -> io::Result<oneshot::Receiver<()>> {
    serve_thread("extender", listener, extender_router(place), Bounds::of_extender())
}

/// Serves a router at a TCP address on a thread of this name, so that its clients delay nothing else. The receiver
/// learns when it ends.
///
/// # Errors
/// The operating system's.
pub fn serve_thread(
    name: &str,
    listener: std::net::TcpListener,
    router: Router,
    bounds: Bounds,
) -> io::Result<oneshot::Receiver<()>> {
    listener.set_nonblocking(true)?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // Attack: endless requests, each with a thread.
    let runtime = runtime.enable_all().max_blocking_threads(THREADS).build()?;
    let (ended, ends) = oneshot::channel();
    std::thread::Builder::new().name(name.into()).spawn(move || {
        runtime.block_on(async {
            if let Ok(listener) = TcpListener::from_std(listener) {
                let from = |address: &SocketAddr| Some(address.ip());
                serve(listener, from, router, bounds, std::future::pending()).await;
            }
        });
        drop(ended);
    })?;
    Ok(ends)
}

/// Decides about requests of a connection before their bodies are received.
pub trait Gate: Send + Sync {
    /// Looks at the head of a request, and may add extensions; or refuses it, after a pause.
    ///
    /// # Errors
    /// The answer to the refused request.
    fn admit(&self, head: &mut Parts) -> Result<(), Box<Response>>;

    /// Changes an answer before it is sent, such as to add headers.
    fn finish(&self, answer: &mut Response);
}

/// Serves a router until `closing` ends; then requests that were received are answered.
///
/// `from` is the host of a client; those of one host get no more connections than those of another.
pub async fn serve<L: Listener<Io: AsFd>>(
    listener: L,
    from: impl Fn(&L::Addr) -> Option<IpAddr>,
    router: Router,
    bounds: Bounds,
    closing: impl Future<Output = ()>,
) {
    serve_gated(listener, |address| (from(address), None), router, bounds, closing).await;
}

/// Serves a router as [`serve`] does. `from` is the host of a client, and what decides about its requests.
pub async fn serve_gated<L: Listener<Io: AsFd>>(
    mut listener: L,
    from: impl Fn(&L::Addr) -> (Option<IpAddr>, Option<Arc<dyn Gate>>),
    router: Router,
    bounds: Bounds,
    closing: impl Future<Output = ()>,
) {
    let service = Arc::new(Service::new(router, bounds));
    let mut room = Room { most: bounds.connections, ..Room::default() };
    let (close, closed) = watch::channel(());
    let mut closing = pin!(closing);
    loop {
        let (stream, address) = tokio::select! {
            () = &mut closing => break,
            accepted = async { room.make_room().await; listener.accept().await } => accepted,
        };
        let (from, gate) = from(&address);
        let peer = if from.is_none() { ringway_host::peer(&stream).ok() } else { None };
        let connection = Connection::new((from, gate), peer, &room.changed);
        let served = serve_client(stream, service.clone(), connection.clone(), closed.clone());
        let task = room.tasks.spawn(served);
        room.connections.push((connection, task));
    }
    drop(close);
    while room.tasks.join_next().await.is_some() {}
}

/// Who sent a request, an extension of each.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Its host, if it is connected by TCP.
    pub address: Option<IpAddr>,
    /// Its process when it connected, if it is connected by a UNIX socket.
    pub peer: Option<Peer>,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The connection's request is complete, and the answer is being computed.
    Served,
    /// The connection sends a request, receives an answer, or does neither.
    Idle,
    /// The head of the connection's first request is not complete.
    New,
    /// The connection is closed.
    Closed,
}

struct Connection {
    from: Option<IpAddr>,
    peer: Option<Peer>,
    stage: Mutex<(Stage, Instant)>,
    changed: Arc<Notify>,
    /// Ends the connection: its client does not read an answer that is sent as it comes.
    cut: Cut,
    gate: Option<Arc<dyn Gate>>,
}

impl Connection {
    fn new(
        (from, gate): (Option<IpAddr>, Option<Arc<dyn Gate>>),
        peer: Option<Peer>,
        changed: &Arc<Notify>,
    ) -> Arc<Connection> {
        let stage = Mutex::new((Stage::New, Instant::now()));
        Arc::new(Connection { from, peer, stage, changed: changed.clone(), cut: Cut::default(), gate })
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
    most: usize,
    tasks: JoinSet<()>,
    connections: Vec<(Arc<Connection>, AbortHandle)>,
    changed: Arc<Notify>,
}

impl Room {
    /// Returns when there is room for another connection.
    async fn make_room(&mut self) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            if self.connections.len() < self.most {
                return;
            }
            self.connections.retain(|(connection, _)| connection.stage().0 != Stage::Closed);
            if self.connections.len() < self.most {
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

/// A client's address as far as the client can't choose it: of IPv6 the network.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

/// The connection to close for a new one: of the network with the most connections, preferably one that never
/// made a request, and of those the one that has waited longest. Connections being served are never closed.
/// Also returns since when it has waited.
fn idlest<'a>(all: impl Iterator<Item = &'a Connection> + Clone) -> Option<(usize, Instant)> {
    let mut of: HashMap<Option<IpAddr>, usize> = HashMap::new();
    let client = |connection: &Connection| connection.from.map(network);
    all.clone().for_each(|connection| *of.entry(client(connection)).or_default() += 1);
    let rank = |connection: &Connection| {
        let (stage, since) = *connection.stage();
        (stage != Stage::Served).then(|| (of.get(&client(connection)), stage, Reverse(since)))
    };
    let ranked = all.enumerate().filter_map(|(index, connection)| Some((rank(connection)?, index)));
    ranked.max().map(|((_, _, Reverse(since)), index)| (index, since))
}

async fn serve_client(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + AsFd + Unpin + Send + 'static,
    service: Arc<Service>,
    connection: Arc<Connection>,
    mut closing: watch::Receiver<()>,
) {
    let _guard = Guard(connection.clone());
    let timeouts = service.bounds.timeouts;
    // Attack: an answer that is never read. If the kernel lacks this option, or the socket is not TCP's, the connection
    // stays until its slot is needed.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, timeouts.whole.as_millis() as u32);
    let answers = {
        let connection = connection.clone();
        service_fn(move |request| answer(request, service.clone(), connection.clone()))
    };
    let mut http = http1::Builder::new();
    let served = http.timer(TokioTimer::new()).header_read_timeout(timeouts.idle).max_buf_size(HEAD);
    let mut served = pin!(served.serve_connection(TokioIo::new(stream), answers));
    // The end of a connection only concerns its client.
    let alone = async {
        let first = timeout(timeouts.first, served.as_mut()).await;
        if first.is_err() && connection.stage().0 != Stage::New {
            let _ = served.as_mut().await;
        }
    };
    let is_cut = tokio::select! {
        () = alone => return,
        // The sender is dropped.
        _ = closing.changed() => false,
        () = connection.cut.0.notified() => true,
    };
    served.as_mut().graceful_shutdown();
    match is_cut {
        true => drop(timeout(LAST, served).await),
        false => drop(served.await),
    }
}

async fn answer(
    request: Request<Incoming>,
    service: Arc<Service>,
    connection: Arc<Connection>,
) -> Result<Response, Infallible> {
    connection.enter(Stage::Idle);
    let mut answer = answer_admitted(request, &service, &connection).await;
    if let Some(gate) = &connection.gate {
        gate.finish(&mut answer);
    }
    Ok(answer)
}

/// Answers a request that the connection's gate admits.
async fn answer_admitted(
    request: Request<Incoming>,
    service: &Service,
    connection: &Arc<Connection>,
) -> Response {
    let length = promised(&request);
    let (mut head, body) = request.into_parts();
    head.extensions.insert(connection.cut.clone());
    head.extensions.insert(Client { address: connection.from, peer: connection.peer });
    // Attack: bodies of clients that are nobody. They are not received.
    if let Some(Err(refused)) = connection.gate.as_ref().map(|gate| gate.admit(&mut head)) {
        sleep(REFUSAL).await;
        return *refused;
    }
    let body = match service.receive(body, length.as_ref()).await {
        Ok(body) => body,
        Err(refused) => {
            sleep(REFUSAL).await;
            return refused.into_response();
        }
    };
    connection.enter(Stage::Served);
    let length = body.len();
    let answer = service.answer(Request::from_parts(head, Body::from(body)), length).await;
    let answer = answer.unwrap_or_else(IntoResponse::into_response);
    // An answer that is sent as it comes ends with its connection, which is not idle meanwhile.
    if answer.extensions().get::<IsStreamed>().is_none() {
        connection.enter(Stage::Idle);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idlest_connection_of_the_busiest_address_is_closed() {
        let changed = Arc::new(Notify::new());
        let begin = Instant::now();
        let [one, two] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|host| Some(IpAddr::from(host)));
        let connections = [
            (one, Stage::New, 0),
            (two, Stage::Served, 1),
            (two, Stage::Idle, 2),
            (two, Stage::New, 4),
            (two, Stage::New, 3),
        ];
        let mut all = Vec::from(connections.map(|(from, stage, since)| {
            let connection = Connection::new((from, None), None, &changed);
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

    #[test]
    fn all_addresses_of_a_network_of_ipv6_are_one_client() {
        let (changed, begin) = (Arc::new(Notify::new()), Instant::now());
        let hosts = ["10.0.0.1", "2001:db8::1", "2001:db8:0:1::1", "2001:db8::2"];
        let all = hosts.map(|host| Connection::new((Some(host.parse().unwrap()), None), None, &changed));
        for (connection, since) in all.iter().zip(0..) {
            *connection.stage() = (Stage::New, begin + Duration::from_secs(since));
        }
        let idlest = idlest(all.iter().map(|connection| &**connection));
        assert_eq!(idlest, Some((1, begin + Duration::from_secs(1))));
    }
}
