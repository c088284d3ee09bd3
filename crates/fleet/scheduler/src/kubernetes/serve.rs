//! `ringway place kubernetes`: placement for a Kubernetes cluster in a separate process, without a fabric.

use super::{BackOff, KubeconfigError, Kubernetes};
use crate::{Bounds, Failed, Placer, Service, extender_thread, keep, router};
use ringway_host::listener::{Access, Listener, OpenError};
use ringway_place::engine::Object;
use ringway_place::object::{Cluster, Executor};
use ringway_place::store::StoreError;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

/// Why placement can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The API's socket can't be created.
    #[error("the control socket: {0}")]
    Api(#[from] OpenError),
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The kubeconfig can't be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The policy can't be used.
    #[error("{0}")]
    Placement(String),
    /// The extender's address can't be used.
    #[error("the extender of kube-scheduler: {0}: {1}; use another address with --listen")]
    Extender(SocketAddr, io::Error),
    /// The system refused.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Options of the server.
pub struct Options {
    /// Path of the kubeconfig.
    pub kubeconfig: PathBuf,
    /// A context of the kubeconfig instead of its current one.
    pub context: Option<String>,
    /// The cluster to which nodes belong.
    pub cluster: String,
    /// The cluster's new policy, if it should change.
    pub policy: Option<String>,
    /// Address of kube-scheduler's extender. Clients are not authenticated.
    pub listen: SocketAddr,
    /// The run directory, with the store; the caller has locked it.
    pub run: PathBuf,
    /// The API's socket; [`socket`] of the run directory if none.
    pub api: Option<PathBuf>,
    /// An in-memory placement service instead of the one in the run directory.
    pub service: Option<Service>,
}

/// The API's socket in a run directory. Its name differs from a fabric's.
pub fn socket(run: &Path) -> PathBuf {
    run.join("place.sock")
}

/// Serves until a signal ends it.
pub fn run(options: Options) -> Result<(), ServeError> {
    ringway_host::keep_little_memory();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(options))
}

async fn serve(options: Options) -> Result<(), ServeError> {
    let service = match options.service {
        Some(service) => service,
        None => Service::open(&options.run.join("placement.redb"))?,
    };
    let refused = |error: Failed| ServeError::Placement(error.to_string());
    cluster(&service, &options.cluster, options.policy).map_err(refused)?;
    let path = options.api.unwrap_or_else(|| socket(&options.run));
    let api = Listener::bind(&path, Access { mode: Some(0o600), ..Access::default() })?;
    let failed = |error| ServeError::Extender(options.listen, error);
    let extender = std::net::TcpListener::bind(options.listen).map_err(failed)?;
    let at = extender.local_addr()?;
    let (context, cluster) = (options.context.as_deref(), &options.cluster);
    let back_off = BackOff::default();
    let _following = Kubernetes::follow(&service, &options.kubeconfig, context, cluster, back_off)?;
    let place = Placer::on(service);
    let kept = keep(place.clone());
    let listener = UnixListener::from_std(api.as_fd().try_clone_to_owned()?.into())?;
    tracing::info!(%at, socket = %path.display(), "placement for Kubernetes is served");
    if !at.ip().is_loopback() {
        tracing::warn!(%at, "clients are not authenticated: anyone who reaches it can bind pods");
    }
    let extended = extender_thread(extender, place.clone())?;
    let (mut interrupted, mut terminated) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (router, bounds) = (router(place.clone()), Bounds::of_api());
    let served = crate::serve(listener, |_| None, router, bounds, std::future::pending());
    tokio::select! {
        () = served => {}
        _ = extended => {}
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    kept.abort();
    tracing::info!("down");
    Ok(())
}

/// Creates the cluster, with the requested policy. Pods are never moved.
fn cluster(service: &Service, name: &str, policy: Option<String>) -> Result<(), Failed> {
    let known = service.engine.view(|model| model.cluster(name).map(|(_, state)| state.cluster.clone()))?;
    let new = Cluster { name: name.into(), interval: 0, executor: Executor::Outside, ..Cluster::default() };
    let mut cluster = known.as_deref().cloned().unwrap_or(new);
    cluster.policy = policy.unwrap_or(cluster.policy);
    match known.as_deref() == Some(&cluster) {
        true => Ok(()),
        false => service.put(vec![Object::Cluster(cluster)]).map(drop),
    }
}
