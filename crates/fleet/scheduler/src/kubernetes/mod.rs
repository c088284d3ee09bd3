//! Kubernetes: nodes become hosts, bound pods become VMs, and bindings are written to it.

mod accounts;
mod api;
mod client;
mod describe;
mod health;
mod kubeconfig;
mod quantity;
mod requests;
mod serve;
mod watch;

pub use api::Pod;
pub(super) use describe::{is_of_pod, name_of, vm, vm_name};
pub use kubeconfig::KubeconfigError;
pub use serve::{Options, ServeError, run, socket};
pub use watch::BackOff;

use super::{Failed, Service};
use accounts::{Accounts, Nodes};
use api::{Node, Watched};
use client::{Client, ClientError};
use health::Health;
use hyper::Method;
use hyper::body::Bytes;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch as channel};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};
use watch::{Update, Watcher};

/// Largest number of updates that are applied together, and that are queued; further ones wait in their connection.
const BATCH: usize = 1024;
/// How long to wait for a node that kube-scheduler already knows.
const NODE_WAIT: Duration = Duration::from_millis(500);
/// Interval for deleting abandoned pods, and delay after an error of the store.
const SWEEP: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(1);

/// Placement's connection to Kubernetes.
pub struct Kubernetes {
    client: Arc<Client>,
    nodes: Arc<Nodes>,
    health: Arc<Health>,
    /// Signalled when nodes were applied.
    changes: channel::Receiver<()>,
}

/// The watching tasks; dropping it ends them.
pub struct Following(Vec<JoinHandle<()>>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Kubernetes {
    /// Watches the API server of the kubeconfig at `path`; `service` then has its nodes, by default in
    /// `cluster`, and its bound pods.
    pub fn follow(
        service: &Service,
        path: &Path,
        context: Option<&str>,
        cluster: &str,
        back_off: BackOff,
    ) -> Result<Following, KubeconfigError> {
        let client = Arc::new(Client::new(kubeconfig::read(path, context)?));
        let (nodes, health) = (Arc::<Nodes>::default(), Arc::<Health>::default());
        let (changed, changes) = channel::channel(());
        let accounts = Accounts::new(service.clone(), cluster.into(), nodes.clone(), health.clone());
        let kubernetes = Kubernetes { client: client.clone(), nodes, health: health.clone(), changes };
        service.kubernetes.set(Arc::new(kubernetes)).unwrap_or_default();
        let (to_nodes, of_nodes) = mpsc::channel(BATCH);
        let (to_pods, of_pods) = mpsc::channel(BATCH);
        let nodes = Watcher { client: client.clone(), health: health.clone(), updates: to_nodes, back_off };
        let pods = Watcher { client, health: health.clone(), updates: to_pods, back_off };
        Ok(Following(vec![
            tokio::spawn(nodes.run()),
            tokio::spawn(pods.run()),
            tokio::spawn(keep(accounts, health, of_nodes, of_pods, changed)),
        ]))
    }

    /// Fails until all nodes and pods have been listed: earlier decisions would be wrong.
    pub fn check_synced(&self) -> Result<(), Failed> {
        if self.health.is_synced() {
            return Ok(());
        }
        let why = self.health.troubles().join("; ");
        Err(Failed::Conflict(format!("not in step with Kubernetes yet: {why}")))
    }

    /// Waits briefly for nodes that kube-scheduler knows and Ringway does not.
    pub async fn await_nodes(&self, names: &BTreeSet<String>) {
        let mut changes = self.changes.clone();
        let all_there = async {
            while !names.iter().all(|name| self.nodes.has(name)) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        // A missing node is reported later.
        let _ = timeout(NODE_WAIT, all_there).await;
    }

    /// Why a node's taints exclude a pod, if they do.
    pub fn intolerable(&self, node: &str, pod: &Pod) -> Option<String> {
        self.nodes.intolerable(node, pod)
    }

    /// Binds a pod to a node. An error tells whether the binding certainly does not exist.
    pub async fn bind(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        node: &str,
    ) -> Result<(), (String, bool)> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        // Attack: a name that contains path components.
        if [namespace, name].iter().any(|name| name.is_empty() || !name.chars().all(plain)) {
            return Err(("the pod's name or its namespace can't be one".into(), true));
        }
        let mut metadata = json!({ "name": name, "namespace": namespace });
        if !uid.is_empty() {
            metadata["uid"] = uid.into();
        }
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
        let body = Bytes::from(binding.to_string());
        let done = self.client.exchange(Method::POST, &path, body).await;
        let count = if done.is_ok() { &self.health.bound } else { &self.health.unbound };
        count.fetch_add(1, Relaxed);
        done.map(drop).map_err(|error: ClientError| (error.to_string(), error.is_refusal()))
    }

    /// Current errors, one per line.
    pub fn troubles(&self) -> Vec<String> {
        self.health.troubles()
    }

    /// Its metrics in Prometheus' format.
    pub fn write_metrics(&self, into: &mut String) {
        self.health.write(into);
    }
}

/// Updates applied together.
enum Batch {
    Nodes(Vec<Update<Node>>),
    Pods(Vec<Update<Pod>>),
    /// Nothing new: delete abandoned pods.
    Sweep,
}

/// When to sweep, from `first` on.
fn sweeps(first: Instant) -> Interval {
    let mut sweep = interval_at(first, SWEEP);
    // One is enough after the process was stopped.
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    sweep
}

/// Applies updates in order.
async fn keep(
    accounts: Accounts,
    health: Arc<Health>,
    mut of_nodes: mpsc::Receiver<Update<Node>>,
    mut of_pods: mpsc::Receiver<Update<Pod>>,
    changed: channel::Sender<()>,
) {
    let accounts = Arc::new(Mutex::new(accounts));
    let mut sweep = sweeps(Instant::now());
    loop {
        let (mut nodes, mut pods) = (Vec::new(), Vec::new());
        let batch = tokio::select! {
            // Nodes first, since pods refer to them.
            biased;
            count = of_nodes.recv_many(&mut nodes, BATCH) => match count {
                0 => return,
                _ => Batch::Nodes(nodes),
            },
            count = of_pods.recv_many(&mut pods, BATCH) => match count {
                0 => return,
                _ => Batch::Pods(pods),
            },
            _ = sweep.tick() => Batch::Sweep,
        };
        let whole = batch.whole();
        take_over(&accounts, &health, Arc::new(batch)).await;
        whole.iter().for_each(|kind| health.feed(kind).synced());
        changed.send_replace(());
    }
}

impl Batch {
    /// The kind with a complete list.
    fn whole(&self) -> Option<&'static str> {
        match self {
            Batch::Nodes(all) if all.iter().any(|it| matches!(it, Update::All(_))) => Some(Node::NAME),
            Batch::Pods(all) if all.iter().any(|it| matches!(it, Update::All(_))) => Some(Pod::NAME),
            _ => None,
        }
    }
}

/// Applies a batch, repeatedly while the store fails, since later updates must not overtake it.
async fn take_over(accounts: &Arc<Mutex<Accounts>>, health: &Health, batch: Arc<Batch>) {
    let mut reported = None;
    loop {
        let (accounts, batch) = (accounts.clone(), batch.clone());
        // Applying waits for decisions in progress.
        let task = spawn_blocking(move || {
            let mut accounts = accounts.lock().unwrap_or_else(PoisonError::into_inner);
            match &*batch {
                Batch::Nodes(nodes) => accounts.nodes(nodes),
                Batch::Pods(pods) => accounts.pods(pods),
                Batch::Sweep => accounts.sweep(),
            }
        });
        let error = match task.await {
            Ok(Ok(())) => return health.stored(None),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        let error = format!("nodes and pods can't be taken over: {error}");
        if reported.replace(error.clone()).as_ref() != Some(&error) {
            tracing::error!("{error}");
        }
        health.stored(Some(error));
        sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn after_a_standstill_one_sweep_is_enough() {
        // The process was stopped for ten intervals.
        let mut sweep = sweeps(Instant::now().checked_sub(10 * SWEEP).unwrap());
        let mut is_due = async || timeout(Duration::ZERO, sweep.tick()).await.is_ok();
        assert_eq!((is_due().await, is_due().await), (true, false));
    }
}
