//! kube-scheduler's extender (k8s.io/kube-scheduler/extender/v1): filter, best, prioritize, bind; with node names
//! only, so it must be configured with `nodeCacheCapable: true`.

use super::kubernetes::{Kubernetes, Pod, is_of_pod, name_of, vm, vm_name};
use super::metrics::Verb;
use super::pods::KEPT;
use super::routes::{body, decided, work};
use super::{Failed, PlaceRequest, Placer, Service};
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use ringway_place::decide::{Choice, PlacementRequest, Trace};
use ringway_place::engine::{EngineError, Gone, Object};
use ringway_place::object::Vm;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

/// The highest priority of a node.
const HIGHEST: f64 = 10.0;

/// A pod and nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "PascalCase")]
pub struct ExtenderArgs {
    /// The pod as a Kubernetes object.
    #[schema(value_type = Object)]
    pub pod: Pod,
    /// Names of nodes.
    pub node_names: Option<Vec<String>>,
}

/// The nodes that can take a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "PascalCase")]
pub struct ExtenderFilterResult {
    /// Suitable nodes.
    pub node_names: Option<Vec<String>>,
    /// Unsuitable nodes, with reasons.
    pub failed_nodes: BTreeMap<String, String>,
    /// Nodes that can't take the pod even if pods are evicted, with reasons.
    pub failed_and_unresolvable_nodes: BTreeMap<String, String>,
    /// The error; empty if none.
    pub error: String,
}

/// A node's priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority {
    /// The node.
    pub host: String,
    /// Its priority, 0 to 10; higher is better.
    pub score: i64,
}

/// A pod and its node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ExtenderBindingArgs {
    /// The pod.
    #[serde(rename = "PodName")]
    pub pod_name: String,
    /// Its namespace.
    #[serde(rename = "PodNamespace")]
    pub pod_namespace: String,
    /// Its UID.
    #[serde(rename = "PodUID")]
    pub pod_uid: String,
    /// The node.
    #[serde(rename = "Node")]
    pub node: String,
}

/// Whether a pod was bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct BindingResult {
    /// The error; empty if none.
    pub error: String,
}

/// Result of judging nodes for a pod.
#[derive(Default)]
struct Judged {
    trace: Trace,
    /// Nodes of the pod's cluster.
    nodes: BTreeSet<String>,
    /// Nodes rejected without asking a policy, with reasons.
    others: BTreeMap<String, String>,
    /// Unknown nodes.
    missing: BTreeSet<String>,
    /// The node with the highest priority.
    best: Option<String>,
}

/// The purpose of a query about a pod's nodes.
#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    /// The possible nodes.
    Filter,
    /// The possible nodes and their priorities.
    Prioritize,
    /// The node with the highest priority.
    Best,
}

/// Attack: endless names. Largest number of nodes in a request; Kubernetes supports 5,000.
const MOST: usize = 20_000;

fn names(args: &ExtenderArgs) -> Result<BTreeSet<String>, Failed> {
    if args.node_names.as_ref().is_some_and(|names| names.len() > MOST) {
        return Err(Failed::Wrong(format!("`NodeNames` has more than {MOST} names")));
    }
    // Attack: a node listed a million times. Duplicates are removed.
    let names = args.node_names.iter().flatten().cloned().collect();
    let missing = || Failed::Wrong("`NodeNames` is missing; set nodeCacheCapable: true".into());
    args.node_names.as_ref().map(|_| names).ok_or_else(missing)
}

/// Number of named nodes.
fn named(args: &Result<Json<ExtenderArgs>, JsonRejection>) -> usize {
    args.as_ref().map_or(0, |args| args.node_names.as_ref().map_or(0, Vec::len))
}

/// Judges nodes for a pod, and remembers the pod. Its cluster is the first node's.
///
/// The decision is stored when it is made: the suitable nodes, or that there are none. The latter is stored
/// once, not on each retry of kube-scheduler.
fn evaluate(service: &Service, args: &ExtenderArgs, purpose: Purpose) -> Result<Judged, Failed> {
    let kubernetes = service.kubernetes.get();
    kubernetes.map_or(Ok(()), |kubernetes| kubernetes.check_synced())?;
    let (nodes, pod) = (names(args)?, &args.pod);
    let name = name_of(&pod.metadata);
    let (known, own) = service.engine.view(|model| {
        let cluster = |name: &String| {
            let id = model.host(name)?;
            Some(model.state(id.cluster).cluster.name.clone())
        };
        let known: Vec<_> = nodes.iter().map(|node| (node.clone(), cluster(node))).collect();
        (known, model.vm(&name).map(|slot| slot.vm.clone()))
    })?;
    let mut judged = Judged::default();
    let first = known.iter().find_map(|(_, cluster)| cluster.clone());
    for (node, cluster) in known {
        let intolerable = kubernetes.and_then(|kubernetes| kubernetes.intolerable(&node, pod));
        match (cluster, intolerable) {
            (None, _) => drop(judged.missing.insert(node)),
            (_, Some(why)) => drop(judged.others.insert(node, why)),
            (cluster, None) if cluster == first => drop(judged.nodes.insert(node)),
            (Some(cluster), None) => {
                let why = format!("it is of cluster {cluster}, others that were named are not");
                drop(judged.others.insert(node, why));
            }
        }
    }
    let cluster = first.unwrap_or_default();
    let vm = Vm { cluster, ..vm(pod, "default", own.as_deref()).map_err(Failed::Wrong)? };
    if judged.nodes.is_empty() {
        return Ok(judged);
    }
    (judged.best, judged.trace) = advice(service, &vm, &judged.nodes, &pod.metadata.uid, purpose)?;
    Ok(judged)
}

/// A policy's choice and judgement of nodes for a pod, which is remembered.
fn advice(
    service: &Service,
    vm: &Vm,
    nodes: &BTreeSet<String>,
    uid: &str,
    purpose: Purpose,
) -> Result<(Option<String>, Trace), Failed> {
    // Attack: endless names and annotations, which would be remembered.
    vm.check().map_err(EngineError::from)?;
    let now = service.clock.now();
    // kube-scheduler chooses among equal nodes, except for `best`.
    let seed = (purpose != Purpose::Best).then_some(0);
    // The pod's own reservation from an earlier cycle is ignored.
    let ask = PlaceRequest { new: vec![vm.clone()], seed, ..PlaceRequest::default() }.ask(now);
    let ask = PlacementRequest { only: nodes.clone(), ..ask };
    service.pods.see(vm.clone(), uid, now);
    let is_kept = |choices: &[Choice]| match choices.iter().find(|choice| choice.host.is_none()) {
        Some(refused) => service.pods.is_news(&vm.name, &refused.why()),
        None => purpose != Purpose::Filter,
    };
    let (mut decision, mut traces) = service.engine.advise(&ask, vec![vm.clone()], is_kept)?;
    Ok((decision.choices.pop().and_then(|choice| choice.host), traces.pop().unwrap_or_default()))
}

/// Waits briefly for nodes that kube-scheduler already knows and Ringway does not.
async fn await_nodes(place: &Placer, args: &Result<Json<ExtenderArgs>, JsonRejection>) {
    let opened = place.open_service();
    let kubernetes = opened.as_ref().and_then(|service| service.kubernetes.get());
    if let (Some(kubernetes), Ok(names)) =
        (kubernetes, args.as_deref().map_err(drop).and_then(|it| names(it).map_err(drop)))
    {
        kubernetes.await_nodes(&names).await;
    }
}

/// Filters nodes for kube-scheduler.
#[utoipa::path(post, tag = "extender", path = "/v1/place/extender/filter",
    security(("token" = ["operate"])), request_body = ExtenderArgs,
    responses((status = 200, body = ExtenderFilterResult)))]
pub async fn filter(
    State(place): State<Placer>,
    args: Result<Json<ExtenderArgs>, JsonRejection>,
) -> Json<ExtenderFilterResult> {
    answer_filter(place, args, Purpose::Filter).await
}

/// A filter that leaves only the node with the highest priority, so that kube-scheduler rates none: one request a pod,
/// in place of `filter` and `prioritize`.
#[utoipa::path(post, tag = "extender", path = "/v1/place/extender/best",
    security(("token" = ["operate"])), request_body = ExtenderArgs,
    responses((status = 200, body = ExtenderFilterResult)))]
pub async fn best(
    State(place): State<Placer>,
    args: Result<Json<ExtenderArgs>, JsonRejection>,
) -> Json<ExtenderFilterResult> {
    answer_filter(place, args, Purpose::Best).await
}

async fn answer_filter(
    place: Placer,
    args: Result<Json<ExtenderArgs>, JsonRejection>,
    purpose: Purpose,
) -> Json<ExtenderFilterResult> {
    let (began, metrics) = (Instant::now(), place.metrics.clone());
    await_nodes(&place, &args).await;
    let nodes = named(&args);
    let filtered = move |service: &Service| {
        let Judged { trace, nodes, others, missing, best } = evaluate(service, &body(args)?, purpose)?;
        let (mut passed, mut result) = (Vec::new(), ExtenderFilterResult::default());
        for host in trace.hosts.into_iter().filter(|host| nodes.contains(&host.host)) {
            match host.rejected.first() {
                None => passed.push(host.host),
                Some(verdict) => {
                    let why = format!("{}: {}", verdict.filter, verdict.reason);
                    result.failed_nodes.insert(host.host, why);
                }
            }
        }
        result.node_names = Some(if purpose == Purpose::Best { best.into_iter().collect() } else { passed });
        result.failed_nodes.extend(others);
        for node in missing {
            result.failed_and_unresolvable_nodes.insert(node, "Ringway does not know this node".into());
        }
        Ok(result)
    };
    let result = decided(place, nodes, filtered).await;
    metrics.answered(
        if purpose == Purpose::Best { Verb::Best } else { Verb::Filter },
        began,
        result.is_err(),
    );
    result.unwrap_or_else(|failed| {
        Json(ExtenderFilterResult { error: failed.to_string(), ..ExtenderFilterResult::default() })
    })
}

/// Rates nodes for kube-scheduler.
#[utoipa::path(post, tag = "extender", path = "/v1/place/extender/prioritize",
    security(("token" = ["operate"])), request_body = ExtenderArgs,
    responses((status = 200, body = Vec<HostPriority>)))]
pub async fn prioritize(
    State(place): State<Placer>,
    args: Result<Json<ExtenderArgs>, JsonRejection>,
) -> Result<Json<Vec<HostPriority>>, Failed> {
    let (began, metrics) = (Instant::now(), place.metrics.clone());
    let nodes = named(&args);
    let prioritized = |service: &Service| {
        let Judged { trace, nodes, others, missing, .. } =
            evaluate(service, &body(args)?, Purpose::Prioritize)?;
        let scores: BTreeMap<&str, f64> =
            trace.hosts.iter().filter_map(|host| Some((host.host.as_str(), host.score?))).collect();
        let least = scores.values().copied().fold(f64::MAX, f64::min);
        let most = scores.values().copied().fold(f64::MIN, f64::max);
        let priority = |node: &String| match scores.get(node.as_str()) {
            Some(_) if most <= least => HIGHEST,
            Some(score) => ((score - least) / (most - least) * HIGHEST).round(),
            None => 0.0,
        };
        let all = nodes.iter().chain(others.keys()).chain(&missing);
        Ok(all.map(|node| HostPriority { host: node.clone(), score: priority(node) as i64 }).collect())
    };
    let result = decided(place, nodes, prioritized).await;
    metrics.answered(Verb::Prioritize, began, result.is_err());
    result
}

/// Binds a pod to a node, here and in Kubernetes, with the requests from the last `filter` or `prioritize`,
/// or those of the VM `NAMESPACE.NAME`. Refused if Kubernetes is not watched.
#[utoipa::path(post, tag = "extender", path = "/v1/place/extender/bind",
    security(("token" = ["operate"])), request_body = ExtenderBindingArgs,
    responses((status = 200, body = BindingResult)))]
pub async fn bind(
    State(place): State<Placer>,
    args: Result<Json<ExtenderBindingArgs>, JsonRejection>,
) -> Json<BindingResult> {
    let (began, metrics) = (Instant::now(), place.metrics.clone());
    let bound = async {
        let args = body(args)?;
        let asked = args.clone();
        let Json((kubernetes, fresh)) =
            decided(place.clone(), 1, move |service| reserve(service, &asked)).await?;
        let ExtenderBindingArgs { pod_name, pod_namespace, pod_uid, node } = &args;
        let namespace = if pod_namespace.is_empty() { "default" } else { pod_namespace };
        let done = kubernetes.bind(namespace, pod_name, pod_uid, node).await;
        let Err((error, is_certain)) = done else { return Ok(()) };
        if is_certain {
            let name = vm_name(namespace, pod_name);
            let Json(()) = work(place, move |service| give_back(service, &name, fresh)).await?;
        }
        Err(Failed::Conflict(format!("the API server: {error}")))
    };
    let result: Result<(), Failed> = bound.await;
    metrics.answered(Verb::Bind, began, result.is_err());
    Json(BindingResult { error: result.err().map(|failed| failed.to_string()).unwrap_or_default() })
}

/// Reserves a node for a pod. Does not wait until the reservation is durable, since the binding in Kubernetes is. Also
/// returns whether the VM was created for this reservation.
fn reserve(service: &Service, args: &ExtenderBindingArgs) -> Result<(Arc<Kubernetes>, bool), Failed> {
    let nobody = || {
        let what = "nothing here writes bindings to Kubernetes: run `ringway place kubernetes --kubeconfig \
            FILE` as the extender, or leave bindVerb out, so that kube-scheduler does";
        Failed::Conflict(what.into())
    };
    let kubernetes = service.kubernetes.get().ok_or_else(nobody)?;
    kubernetes.check_synced()?;
    let (name, now) = (vm_name(&args.pod_namespace, &args.pod_name), service.clock.now());
    let (own, has_node) = service
        .engine
        .view(|model| (model.vm(&name).map(|slot| slot.vm.clone()), model.host(&args.node).is_some()))?;
    if !has_node {
        let node = args.node.escape_debug();
        return Err(Failed::Unknown(format!("there is no node {node}")));
    }
    // Attack: binding a running pod again, which would lose its accounting.
    if let Some(running) = own.as_ref().filter(|vm| vm.runs()) {
        let node = running.host.as_deref().unwrap_or_default();
        return Err(Failed::Conflict(format!("pod {} runs on {node} already", name.escape_debug())));
    }
    let own = own.filter(|vm| !is_of_pod(vm));
    let (vm, fresh) = (service.pods.seen(&name, &args.pod_uid, now), own.is_none());
    if vm.is_none() && fresh {
        return Err(Failed::Unknown(no_description_of(&name)));
    }
    if let Some(vm) = vm {
        service.engine.mirror(vec![Object::Vm(Box::new(vm))], &[])?;
    }
    let only = BTreeSet::from([args.node.clone()]);
    let request = PlaceRequest { vms: vec![name.clone()], only, stay: true, ..PlaceRequest::default() };
    let (decision, _) = service.engine.begin(request.ask(now))?;
    if decision.placed() {
        return Ok((kubernetes.clone(), fresh));
    }
    give_back(service, &name, fresh)?;
    Err(Failed::Conflict(decision.choices.last().map(Choice::why).unwrap_or_default()))
}

/// Releases the reservation of a pod that was not bound.
fn give_back(service: &Service, name: &str, fresh: bool) -> Result<(), Failed> {
    // Another scheduler may have bound it meanwhile.
    if service.engine.view(|model| model.vm(name).is_some_and(|slot| slot.vm.runs()))? {
        return Ok(());
    }
    if fresh {
        service.engine.mirror(Vec::new(), &[Gone::Vm(name.into())])?;
        return Ok(());
    }
    match service.engine.release(name) {
        // Its lease may have ended, or nothing was reserved.
        Ok(()) | Err(EngineError::NoPending(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Advice for a pod with unknown requests.
fn no_description_of(name: &str) -> String {
    let minutes = KEPT / 60_000;
    format!(
        "no request within {minutes} minutes described pod {}: let kube-scheduler call `filter` or \
         `prioritize` before, or add it as a VM of that name",
        name.escape_debug()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_place::engine::Object;
    use ringway_place::object::Host;
    use serde_json::json;

    fn service() -> Service {
        let service = Service::in_memory().unwrap();
        let host = |name: &str, cores, memory_mb| {
            let host = Host { name: name.into(), cores, threads: cores, memory_mb, ..Host::default() };
            Object::Host(Box::new(host))
        };
        service.put(vec![host("n1", 4, 2048), host("n2", 8, 16_384), host("n3", 8, 8192)]).unwrap();
        service
    }

    fn args() -> ExtenderArgs {
        let pod = json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": { "containers": [
            { "resources": { "requests": { "cpu": "1500m", "memory": "2Gi" } } },
            { "resources": { "requests": { "cpu": 1, "memory": "1500M" } } },
            { "name": "without" }
        ] } });
        serde_json::from_value(json!({ "Pod": pod, "NodeNames": ["n1", "n2", "n3", "gone"] })).unwrap()
    }

    async fn bind_to(place: &Placer, pod: &str, node: &str) -> BindingResult {
        let binding = json!({ "PodName": pod, "PodNamespace": "shop", "PodUID": "u", "Node": node });
        bind(State(place.clone()), Ok(Json(serde_json::from_value(binding).unwrap()))).await.0
    }

    #[tokio::test]
    async fn best_leaves_the_node_that_the_policy_prefers() {
        let service = service();
        let place = Placer::on(service.clone());
        let reply = best(State(place.clone()), Ok(Json(args()))).await.0;
        assert_eq!(reply.node_names, Some(vec!["n2".to_string()]));
        assert!(reply.failed_nodes["n1"].starts_with("Memory: "), "{reply:?}");
        assert!(reply.failed_and_unresolvable_nodes.contains_key("gone"), "{reply:?}");
        let stored = service.decisions(9).unwrap();
        assert_eq!((stored.len(), stored[0].choices[0].host.as_deref()), (1, Some("n2")));
        let large = ExtenderArgs { node_names: Some(vec!["n1".into()]), ..args() };
        for _ in 0..2 {
            let none = best(State(place.clone()), Ok(Json(large.clone()))).await.0;
            assert_eq!((none.node_names, none.error.as_str()), (Some(Vec::new()), ""));
        }
        assert_eq!(service.decisions(9).unwrap().len(), 2, "a retry is not stored");
    }

    /// Without an API server, bindings can't be reported.
    #[tokio::test]
    async fn binding_requires_a_followed_kubernetes_cluster() {
        let service = service();
        let place = Placer::on(service.clone());
        assert_eq!(filter(State(place.clone()), Ok(Json(args()))).await.0.error, "");
        let error = bind_to(&place, "web", "n2").await.error;
        assert!(error.contains("run `ringway place kubernetes --kubeconfig FILE`"), "{error}");
        assert!(service.vms().unwrap().is_empty());
        assert!(service.hosts().unwrap().iter().all(|row| row.pending == 0));
    }

    /// The decision is stored when it is made, and not again if nothing changed.
    #[tokio::test]
    async fn decisions_are_stored_when_they_are_made() {
        let service = service();
        let place = Placer::on(service.clone());
        let large = ExtenderArgs { node_names: Some(vec!["n1".into()]), ..args() };
        for _ in 0..3 {
            let reply = filter(State(place.clone()), Ok(Json(large.clone()))).await.0;
            assert!(reply.failed_nodes["n1"].starts_with("Memory: "), "{reply:?}");
        }
        let stored = service.decisions(9).unwrap();
        assert_eq!(stored.len(), 1);
        assert!(!stored[0].placed && stored[0].choices[0].vms == ["shop.web"]);
        assert!(prioritize(State(place.clone()), Ok(Json(args()))).await.is_ok());
        let stored = service.decisions(9).unwrap();
        assert_eq!((stored.len(), stored[0].choices[0].host.as_deref()), (2, Some("n2")));
        let explained = service.explain(stored[0].id).unwrap();
        assert_eq!((explained.note.as_str(), explained.traces[0].hosts.len()), ("", 3));
        assert!(service.vms().unwrap().is_empty(), "advice reserves nothing");
    }

    #[tokio::test]
    async fn a_node_of_another_cluster_is_reported() {
        let service = service();
        let host = Host { name: "n9".into(), cluster: "far".into(), ..Host::default() };
        service.put(vec![Object::Host(Box::new(host))]).unwrap();
        let asked = ExtenderArgs { node_names: Some(vec!["n2".into(), "n9".into()]), ..args() };
        let reply = filter(State(Placer::on(service)), Ok(Json(asked))).await.0;
        assert_eq!(reply.node_names, Some(vec!["n2".to_string()]));
        assert!(reply.failed_nodes["n9"].starts_with("it is of cluster far"), "{reply:?}");
    }

    #[tokio::test]
    async fn replies_have_the_json_fields_of_kubernetes() {
        let service = service();
        let place = Placer::on(service.clone());
        let reply = filter(State(place.clone()), Ok(Json(args()))).await.0;
        let reply = serde_json::to_value(reply).unwrap();
        assert_eq!(reply["NodeNames"], json!(["n2", "n3"]));
        assert_eq!(reply["FailedAndUnresolvableNodes"]["gone"], "Ringway does not know this node");
        assert!(reply["FailedNodes"]["n1"].as_str().unwrap().starts_with("Memory: "), "{reply}");
        assert_eq!(reply["Error"], "");
        let Ok(Json(scores)) = prioritize(State(place.clone()), Ok(Json(args()))).await else { panic!() };
        let scores = serde_json::to_value(scores).unwrap();
        let of = |node: &str| {
            scores.as_array().unwrap().iter().find(|s| s["Host"] == node).unwrap()["Score"].clone()
        };
        assert_eq!((of("n2"), of("n3"), of("n1"), of("gone")), (json!(10), json!(0), json!(0), json!(0)));
        assert_eq!(serde_json::to_value(BindingResult::default()).unwrap(), json!({ "Error": "" }));
        let missing = ExtenderArgs { node_names: None, ..args() };
        let reply = filter(State(place), Ok(Json(missing))).await.0;
        assert!(reply.error.contains("nodeCacheCapable"), "{reply:?}");
    }
}
