//! The `control` process: brings a fabric up, serves it, and takes it down.

use crate::api;
use crate::audit::{AuditFile, AuditLog, audited};
use crate::captures;
use crate::engine::{Engine, EngineError, EngineParts, Inbox, Message, Messages, descriptor, inbox};
use crate::file::{ApiSettings, Complaint, Fabric, Host};
use crate::guests;
use crate::hosts::Hosts;
use crate::keeper::process::PANICKED;
use crate::keeper::{Keeper, NO_DESCRIPTORS, StoredEntry};
use crate::metrics;
use crate::migration;
use crate::migration::identity::{FabricIdentity, identified};
use crate::placement;
use crate::run_dir::{RunDir, RunDirError, api_socket, capture_socket, upgrade_socket};
use crate::tcp_api::{self, TcpApi, TcpApiError, TcpSockets};
use crate::upgrade;
use ringway_host::listener::{Access, Listener, OpenError};
use ringway_scheduler as place;
use ringway_spec::Function;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Why the fabric did not come up.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Its run directory can't be used.
    #[error(transparent)]
    Run(#[from] RunDirError),
    /// The API's socket can't be made.
    #[error("the control socket: {0}")]
    Api(#[from] OpenError),
    /// The fabric of the file can't be brought up on this host.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The extender's address can't be used.
    #[error("the extender of kube-scheduler: {0}: {1}; use another address with --extender")]
    Extender(SocketAddr, io::Error),
    /// The file of the audit log can't be used.
    #[error("the audit log {0}: {1}; name another file by `audit` in [fabric]")]
    Audit(PathBuf, io::Error),
    /// The address of the metrics can't be used.
    #[error("the metrics: {0}: {1}; use another address with --metrics, or in [metrics]")]
    Metrics(SocketAddr, io::Error),
    /// The TCP address of the API can't be used.
    #[error("the API: {0}: {1}; use another address with --listen, or in [api]")]
    ApiAddress(SocketAddr, io::Error),
    /// The TCP address of the page can't be used.
    #[error("the page: {0}: {1}; use another address with --page")]
    Page(SocketAddr, io::Error),
    /// The API can't be served by TCP.
    #[error(transparent)]
    TcpApi(#[from] TcpApiError),
    /// The system refused.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// How `control` starts this program as other processes.
#[derive(Clone)]
pub struct Program {
    /// The arguments that make it a `data` process.
    pub data: Vec<OsString>,
    /// The arguments that make it a function's process.
    pub function: Vec<OsString>,
    /// The arguments that make it run an unmodified program, before those that say which.
    pub exec: Vec<OsString>,
    /// Returns all errors in a function's configuration.
    pub check: fn(&Function) -> Vec<Complaint>,
}

/// TCP addresses at which a fabric is served besides its socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpAddresses {
    /// Of kube-scheduler's extender. Clients are not authenticated.
    pub extender: Option<SocketAddr>,
    /// Of the metrics, instead of the file's. Clients are not authenticated.
    pub metrics: Option<SocketAddr>,
    /// Of the API, instead of the file's. Clients have tokens or certificates.
    pub api: Option<SocketAddr>,
    /// Of the page for browsers, which uses the API with a token.
    pub page: Option<SocketAddr>,
}

/// What `control` is started with.
pub struct Options {
    /// The fabric to bring up, as described by its file, or as it was.
    pub fabric: Fabric,
    /// The file, absolute.
    pub file: PathBuf,
    /// The file's text.
    pub text: String,
    /// Holds what outlives this process.
    pub keeper: Keeper,
    /// What a former process had, which this one goes on with.
    pub found: Option<BTreeMap<String, StoredEntry>>,
    /// Its run directory.
    pub run: PathBuf,
    /// The API's socket; `api.sock` in the run directory if none.
    pub api: Option<PathBuf>,
    /// TCP addresses at which it is served.
    pub tcp: TcpAddresses,
    /// Properties of the host that files are checked against.
    pub host: Host,
    /// This program.
    pub program: Program,
}

/// Removes a folder that was created for the fabric, unless it contains other files.
struct CreatedFolder(Option<PathBuf>);

impl Drop for CreatedFolder {
    fn drop(&mut self) {
        let _ = self.0.take().map(std::fs::remove_dir);
    }
}

/// Brings the fabric up, calls `ready`, and serves until the fabric is shut down.
pub fn run(options: Options, ready: impl FnOnce()) -> Result<(), ControlError> {
    ringway_host::keep_little_memory();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if options.keeper.is_process() {
        end_by_panic();
    }
    let mut served = Box::pin(serve(options, ready));
    runtime.block_on(std::future::poll_fn(|context| {
        IS_ENGINE.set(true);
        let polled = served.as_mut().poll(context);
        IS_ENGINE.set(false);
        polled
    }))
}

thread_local! {
    /// Whether this thread runs the engine now, not a task beside it, such as that of a client.
    static IS_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Makes a panic of the engine end this process at once, so that another one goes on with the fabric: unwinding would
/// take it down. The message is printed before.
fn end_by_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        if IS_ENGINE.get() {
            std::process::exit(PANICKED.into());
        }
    }));
}

async fn serve(mut options: Options, ready: impl FnOnce()) -> Result<(), ControlError> {
    let keeper = options.keeper.clone();
    if let Some(found) = options.found.take() {
        return serve_again(options, found, ready).await;
    }
    let run = RunDir::take(&options.run)?;
    keeper.put_value(RUN, &run.made().is_some(), [run.lock()]);
    let identity = identity(&options.fabric.name, None, &keeper);
    // Dropped after the API's socket.
    let _created = CreatedFolder(run.made().map(PathBuf::from));
    let folder = options.file.parent().map(PathBuf::from).unwrap_or_default();
    let fabric = options.fabric.resolve(run.path(), &folder);
    // Before anything is started.
    guests::check(fabric.guests.iter(), &fabric, options.host.kinds).await.map_err(EngineError::from)?;
    let file_of_places = run.path().join("placement.redb");
    let audit = AuditFile::of(fabric.audit.as_deref(), run.path());
    audit.check().map_err(|error| ControlError::Audit(audit.path.clone(), error))?;
    let path = options.api.unwrap_or_else(|| api_socket(run.path()));
    let access = Access { mode: Some(0o600), ..Access::default() };
    let listener = Listener::bind(&path, access)?;
    let for_captures = Listener::bind(&capture_socket(run.path()), access)?;
    let for_upgrades = match keeper.is_process() {
        true => Some(Listener::bind(&upgrade_socket(run.path()), access)?),
        false => None,
    };
    let extender = bind(options.tcp.extender, ControlError::Extender)?;
    let for_metrics = bind(options.tcp.metrics.or(fabric.metrics), ControlError::Metrics)?;
    keeper.put(API, "", [&listener]);
    keeper.put(CAPTURES, "", [&for_captures]);
    keeper.put(UPGRADES, "", &for_upgrades);
    keeper.put(EXTENDER, "", &extender);
    keeper.put(METRICS, "", &for_metrics);
    let api_by_tcp = open_tcp_api(fabric.api.as_ref(), options.tcp, run.path(), &keeper)?;
    let (inbox, messages) = inbox();
    signals(&inbox)?;
    let here = placement::ThisFabric::new(inbox.clone(), tokio::runtime::Handle::current());
    let place = place::Placer::at(file_of_places, fabric.placement.clone(), Box::new(here));
    let file = options.file.display().to_string();
    let (host, program) = (options.host, options.program);
    let own = EngineParts {
        host,
        run,
        program,
        inbox: inbox.clone(),
        place: place.clone(),
        keeper: keeper.clone(),
    };
    let mut engine = Engine::start(&fabric, (file, options.text), own).await?;
    if let Err(error) = engine.move_to(&fabric).await {
        engine.down().await;
        return Err(error.into());
    }
    let tcp = (extender, for_metrics, api_by_tcp);
    let sockets = Sockets { path, api: listener, captures: for_captures, upgrades: for_upgrades, tcp };
    let ready = || {
        ready();
        keeper.serving(Vec::new());
    };
    attend((engine, messages), sockets, (inbox, place), (audit, identity), ready).await
}

/// Who this fabric is: as the keeper has it, or, of one that is brought up, anew.
fn identity(name: &str, kept: Option<StoredEntry>, keeper: &Keeper) -> FabricIdentity {
    let identity = kept.map_or_else(migration::ticket, |kept| kept.text);
    keeper.put(IDENTITY, &identity, NO_DESCRIPTORS);
    FabricIdentity::new(name, &identity)
}

/// Names of what the keeper holds.
const RUN: &str = "run";
const IDENTITY: &str = "identity";
const API: &str = "api";
const CAPTURES: &str = "captures";
const EXTENDER: &str = "extender";
const METRICS: &str = "metrics";
const TCP_API: &str = "tcp-api";
const PAGE: &str = "tcp-page";
const UPGRADES: &str = "upgrades";

/// The API at its TCP addresses, if it has any: as the file says, at the addresses of the command line if that has
/// some.
fn open_tcp_api(
    file: Option<&ApiSettings>,
    addresses: TcpAddresses,
    run: &Path,
    keeper: &Keeper,
) -> Result<Option<TcpApi>, ControlError> {
    let api = addresses.api.or(file.map(|file| file.address));
    let sockets = TcpSockets {
        api: bind(api, ControlError::ApiAddress)?,
        page: bind(addresses.page, ControlError::Page)?,
    };
    keeper.put(TCP_API, "", &sockets.api);
    keeper.put(PAGE, "", &sockets.page);
    tcp_api_at(sockets, file, run, false)
}

/// The API at these sockets. `again`: a former process served it.
fn tcp_api_at(
    sockets: TcpSockets,
    file: Option<&ApiSettings>,
    run: &Path,
    again: bool,
) -> Result<Option<TcpApi>, ControlError> {
    let Some(first) = sockets.api.as_ref().or(sockets.page.as_ref()) else { return Ok(None) };
    let settings = match file {
        Some(settings) => settings.clone(),
        None => ApiSettings::at(first.local_addr()?),
    };
    Ok(Some(TcpApi::new(sockets, &settings, run, again)?))
}

/// Listens on a TCP address, if there is one.
fn bind(
    address: Option<SocketAddr>,
    failed: impl Fn(SocketAddr, io::Error) -> ControlError,
) -> Result<Option<TcpListener>, ControlError> {
    address.map(|address| TcpListener::bind(address).map_err(|error| failed(address, error))).transpose()
}

/// The sockets at which a fabric is served.
struct Sockets {
    path: PathBuf,
    api: Listener,
    captures: Listener,
    upgrades: Option<Listener>,
    /// Of kube-scheduler's extender, of the metrics and of the API.
    tcp: (Option<TcpListener>, Option<TcpListener>, Option<TcpApi>),
}

/// Goes on with the fabric of a process that crashed.
async fn serve_again(
    options: Options,
    mut found: BTreeMap<String, StoredEntry>,
    ready: impl FnOnce(),
) -> Result<(), ControlError> {
    let made = found.get(RUN).is_some_and(|run| run.text == "true");
    let identity = identity(&options.fabric.name, found.remove(IDENTITY), &options.keeper);
    let hosts = Hosts::of_former(&options.fabric, &found);
    let run = RunDir::adopt(&options.run, descriptor(&mut found, RUN)?, made, &hosts)?;
    let _created = CreatedFolder(run.made().map(PathBuf::from));
    let path = options.api.unwrap_or_else(|| api_socket(run.path()));
    let listener = Listener::adopt(&path, descriptor(&mut found, API)?)?;
    let for_captures = Listener::adopt(&capture_socket(run.path()), descriptor(&mut found, CAPTURES)?)?;
    let upgrades = upgrade_socket(run.path());
    let upgrades = match descriptor(&mut found, UPGRADES) {
        Ok(socket) => Listener::adopt(&upgrades, socket)?,
        Err(_) => Listener::bind(&upgrades, Access { mode: Some(0o600), ..Access::default() })?,
    };
    options.keeper.put(UPGRADES, "", [&upgrades]);
    let [extender, for_metrics, api, page] = [EXTENDER, METRICS, TCP_API, PAGE]
        .map(|name| descriptor(&mut found, name).ok().map(TcpListener::from));
    let tcp_sockets = TcpSockets { api, page };
    // Its files may have changed meanwhile, and the fabric must go on. The keeper has the sockets for the next process.
    let api_by_tcp = tcp_api_at(tcp_sockets, options.fabric.api.as_ref(), run.path(), true);
    let api_by_tcp = api_by_tcp.unwrap_or_else(|error| {
        tracing::error!(%error, "the API is not served at its TCP address until the next upgrade");
        None
    });
    let (inbox, mut messages) = inbox();
    signals(&inbox)?;
    let here = placement::ThisFabric::new(inbox.clone(), tokio::runtime::Handle::current());
    let (fabric, file_of_places) = (options.fabric, run.path().join("placement.redb"));
    let audit = AuditFile::of(fabric.audit.as_deref(), run.path());
    let place = place::Placer::at(file_of_places, fabric.placement.clone(), Box::new(here));
    let file = options.file.display().to_string();
    let (host, program, keeper) = (options.host, options.program, options.keeper);
    let own = EngineParts {
        host,
        run,
        program,
        inbox: inbox.clone(),
        place: place.clone(),
        keeper: keeper.clone(),
    };
    let adopted = Engine::adopt(&fabric, (file, options.text), found, (own, &mut messages)).await;
    let (engine, notes) = match adopted {
        Ok(adopted) => adopted,
        Err(error) => {
            tracing::error!(%error, "this program can't go on with the fabric");
            // Without destructors, which would remove what the former program goes on with.
            std::process::exit(1);
        }
    };
    let tcp = (extender, for_metrics, api_by_tcp);
    let sockets = Sockets { path, api: listener, captures: for_captures, upgrades: Some(upgrades), tcp };
    let ready = || {
        ready();
        keeper.serving(notes.unwrap_or_default());
    };
    attend((engine, messages), sockets, (inbox, place), (audit, identity), ready).await
}

/// Serves the API of a fabric that is up, until it is shut down.
async fn attend(
    (engine, messages): (Engine, Messages),
    Sockets { path, api: listener, captures: for_captures, upgrades, tcp }: Sockets,
    (inbox, place): (Inbox, place::Placer),
    (file, identity): (AuditFile, FabricIdentity),
    ready: impl FnOnce(),
) -> Result<(), ControlError> {
    // Accepts clients only now, so that none sees a fabric that is only partly up.
    let socket = std::os::unix::net::UnixListener::from(listener.as_fd().try_clone_to_owned()?);
    let socket = tokio::net::UnixListener::from_std(socket)?;
    let (over, stopped) = oneshot::channel::<()>();
    let captures = tokio::spawn(captures::serve(for_captures, inbox.clone()));
    let upgrades = upgrades.map(|listener| tokio::spawn(upgrade::serve(listener, inbox.clone())));
    let (extender, for_metrics, api_by_tcp) = tcp;
    let routes = || {
        let router = api::router(inbox.clone()).merge(place::router(place.clone()));
        TcpApi::routes(api_by_tcp.as_ref(), router)
    };
    let audit = AuditLog::at(file.path.clone())?;
    let router = identified(audited(routes(), audit.clone(), |router| router), &identity);
    let for_tcp = identified(audited(routes(), audit.clone(), tcp_api::authorised), &identity);
    let by_tcp = api_by_tcp.map(|api| api.serve(for_tcp)).transpose()?;
    // The addresses are logged before `ready` is called.
    extender.iter().for_each(send_address);
    // The threads end with this process.
    extender.map(|listener| place::extender_thread(listener, place.clone())).transpose()?;
    if let Some(listener) = for_metrics {
        log_metrics_address(&listener);
        let is_loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let router = metrics::router(inbox.clone(), is_loopback);
        place::serve_thread("metrics", listener, router, metrics::bounds())?;
    }
    let kept = place::keep(place);
    let served = tokio::spawn(place::serve(socket, |_| None, router, place::Bounds::of_api(), async {
        // The sender is dropped when the engine is done, which is received as an error.
        let _ = stopped.await;
    }));
    tracing::info!(socket = %path.display(), "up");
    ready();
    engine.serve(messages).await;
    kept.abort();
    drop(over);
    drop(listener);
    for task in [Some(captures), upgrades].into_iter().flatten() {
        task.abort();
        // The task was aborted, which is not an error.
        let _ = task.await;
    }
    // Gives the answer to the shutdown request time to be sent; connections that stay open longer are cut off.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), served).await;
    if let Some(by_tcp) = by_tcp {
        by_tcp.end().await;
    }
    audit.flush().await;
    file.remove();
    tracing::info!("down");
    Ok(())
}

/// Logs the address of kube-scheduler's extender, whose port the system may have chosen.
fn send_address(listener: &TcpListener) {
    if let Ok(at) = listener.local_addr() {
        tracing::info!(%at, "the extender of kube-scheduler is served");
        if !at.ip().is_loopback() {
            tracing::warn!(%at, "clients are not authenticated: anyone who reaches it can reserve hosts");
        }
    }
}

/// Logs the address of the metrics, whose port the system may have chosen.
fn log_metrics_address(listener: &TcpListener) {
    if let Ok(at) = listener.local_addr() {
        tracing::info!(%at, "metrics are served");
        if !at.ip().is_loopback() {
            tracing::warn!(%at, "clients are not authenticated: anyone who reaches it sees counters");
        }
    }
}

/// Handles the signals that end the fabric.
fn signals(inbox: &Inbox) -> Result<(), io::Error> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut signal = signal(kind)?;
        let inbox = inbox.clone();
        tokio::spawn(async move {
            while signal.recv().await.is_some() {
                // Fails only if the engine is shutting down already.
                let _ = inbox.send(Message::Down);
            }
        });
    }
    Ok(())
}
