//! The extender of kube-scheduler (k8s.io/kube-scheduler/extender/v1): filter, prioritize, bind; node names
//! only, so it has
//! to be configured with `nodeCacheCapable: true`.

use super::pods::KEPT;
use super::routes::{body, work};
use super::{Failed, Place, PlaceRequest, Service};
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use ringway_place::decide::Trace;
use ringway_place::object::{Kind, Vm, VmStatus};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// The highest priority of a node.
const HIGHEST: f64 = 10.0;

/// A pod and nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "PascalCase")]
pub struct ExtenderArgs {
    /// The pod, as Kubernetes has it.
    #[schema(value_type = Object)]
    pub pod: serde_json::Value,
    /// Names of nodes.
    pub node_names: Option<Vec<String>>,
}

/// The nodes that can take a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "PascalCase")]
pub struct ExtenderFilterResult {
    /// Nodes that can.
    pub node_names: Option<Vec<String>>,
    /// Nodes that can't, and why.
    pub failed_nodes: BTreeMap<String, String>,
    /// Nodes that can't, whoever were evicted, and why.
    pub failed_and_unresolvable_nodes: BTreeMap<String, String>,
    /// What went wrong; empty for nothing.
    pub error: String,
}

/// A node's priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority {
    /// The node.
    pub host: String,
    /// Its priority, 0 to 10; the most wins.
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
    /// What went wrong; empty for nothing.
    pub error: String,
}

/// A quantity of Kubernetes in its unit: `500m`, `2`, `1Gi`, `1500M`, `2e3`.
fn quantity(value: &serde_json::Value) -> Option<f64> {
    let text = match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    if let Some(exponent) =
        text[end..].strip_prefix(['e', 'E']).filter(|rest| !rest.is_empty() && *rest != "i")
    {
        let exponent: i32 = exponent.parse().ok()?;
        return Some(number * 10f64.powi(exponent.clamp(-400, 400)));
    }
    let factor = match &text[end..] {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        "Pi" => 1_125_899_906_842_624.0,
        "Ei" => 1_152_921_504_606_846_976.0,
        _ => return None,
    };
    Some(number * factor)
}

/// The name of a pod's VM.
fn vm_name(namespace: &str, name: &str) -> String {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    format!("{namespace}.{name}")
}

/// A pod as a VM: what its containers request, together; where they request nothing, as much as the VM of its name
/// that `known` finds, or the least. Annotations `ringway/policy` and `ringway/chain` are its policy and its chain.
fn vm(pod: &serde_json::Value, known: impl FnOnce(&str) -> Result<Option<Vm>, Failed>) -> Result<Vm, Failed> {
    let text = |pointer: &str| pod.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default();
    let name = text("/metadata/name");
    if name.is_empty() {
        return Err(Failed::Wrong("`Pod.metadata.name` is missing".into()));
    }
    let (mut cpus, mut bytes) = (0.0, 0.0);
    let containers = pod.pointer("/spec/containers").and_then(|value| value.as_array());
    for container in containers.into_iter().flatten() {
        let request = |what: &str| {
            let requests = container.pointer("/resources/requests");
            match requests.and_then(|requests| requests.get(what)) {
                Some(value) => quantity(value).ok_or_else(|| {
                    Failed::Wrong(format!("`{value}` is not a quantity of {what} known here"))
                }),
                None => Ok(0.0),
            }
        };
        cpus += request("cpu")?;
        bytes += request("memory")?;
    }
    let annotation = |key: &str| {
        let annotations = pod.pointer("/metadata/annotations");
        annotations.and_then(|all| all.get(key)).and_then(|value| value.as_str()).map(str::to_string)
    };
    let name = vm_name(text("/metadata/namespace"), name);
    let least = || Vm { kind: Kind::Function, memory_mb: 1, ..Vm::default() };
    // Somebody may have put more in about it than a pod says.
    let mut vm = known(&name)?.unwrap_or_else(least);
    (vm.status, vm.host) = (VmStatus::Down, None);
    if cpus > 0.0 {
        (vm.sockets, vm.cores, vm.threads) = (1, (cpus.ceil() as u32).max(1), 1);
    }
    if bytes > 0.0 {
        vm.memory_mb = ((bytes / 1_048_576.0).ceil() as u64).max(1);
    }
    vm.policy = annotation("ringway/policy").or(vm.policy);
    vm.chain = annotation("ringway/chain").or(vm.chain);
    Ok(Vm { name, ..vm })
}

/// What comes of judging nodes for a pod.
#[derive(Default)]
struct Judged {
    trace: Trace,
    /// Nodes of the pod's cluster.
    nodes: BTreeSet<String>,
    /// Nodes of other clusters, each with its own.
    elsewhere: BTreeMap<String, String>,
    /// Nodes that are not known.
    missing: BTreeSet<String>,
}

/// The VM of a name, if there is one.
fn vm_of(service: &Service, name: &str) -> Result<Option<Vm>, Failed> {
    Ok(service.engine.view(|model| model.vm(name).map(|slot| (*slot.vm).clone()))?)
}

/// Judges nodes for a pod, and remembers it. Its cluster is the first node's.
///
/// Attack: a node a million times. Each is there once.
fn judge(service: &Service, args: ExtenderArgs) -> Result<Judged, Failed> {
    let nodes: BTreeSet<String> = args
        .node_names
        .ok_or_else(|| Failed::Wrong("`NodeNames` is missing; set nodeCacheCapable: true".into()))?
        .into_iter()
        .collect();
    let known = service.engine.view(|model| {
        let cluster = |name: &String| {
            let id = model.host(name)?;
            Some(model.state(id.cluster).cluster.name.clone())
        };
        nodes.iter().map(|node| (node.clone(), cluster(node))).collect::<Vec<_>>()
    })?;
    let mut vm = vm(&args.pod, |name| vm_of(service, name))?;
    let mut judged = Judged::default();
    let first = known.iter().find_map(|(_, cluster)| cluster.clone());
    for (node, cluster) in known {
        match cluster {
            None => drop(judged.missing.insert(node)),
            cluster if cluster == first => drop(judged.nodes.insert(node)),
            Some(cluster) => drop(judged.elsewhere.insert(node, cluster)),
        }
    }
    let Some(cluster) = first else { return Ok(judged) };
    vm.cluster = cluster;
    // The pod's own reservation from an earlier cycle must not be in its way.
    let (new, only) = (vec![vm.clone()], judged.nodes.clone());
    let explained = service.attempt(PlaceRequest { new, only, seed: Some(0), ..PlaceRequest::default() })?;
    judged.trace = explained.traces.into_iter().next().unwrap_or_default();
    let uid = args.pod.pointer("/metadata/uid").and_then(|uid| uid.as_str()).unwrap_or_default();
    service.pods.see(vm, uid, service.clock.now());
    Ok(judged)
}

/// Filters nodes for kube-scheduler.
#[utoipa::path(post, path = "/v1/place/extender/filter", request_body = ExtenderArgs,
    responses((status = 200, body = ExtenderFilterResult)))]
pub async fn filter(
    State(place): State<Place>,
    args: Result<Json<ExtenderArgs>, JsonRejection>,
) -> Json<ExtenderFilterResult> {
    let filtered = |service: &Service| {
        let Judged { trace, nodes, elsewhere, missing } = judge(service, body(args)?)?;
        let mut result =
            ExtenderFilterResult { node_names: Some(Vec::new()), ..ExtenderFilterResult::default() };
        for host in trace.hosts.into_iter().filter(|host| nodes.contains(&host.host)) {
            match host.rejected.first() {
                None => result.node_names.get_or_insert_default().push(host.host),
                Some(verdict) => {
                    let why = format!("{}: {}", verdict.filter, verdict.reason);
                    result.failed_nodes.insert(host.host, why);
                }
            }
        }
        for (node, cluster) in elsewhere {
            result
                .failed_nodes
                .insert(node, format!("it is of cluster {cluster}, others that were named are not"));
        }
        for node in missing {
            result.failed_and_unresolvable_nodes.insert(node, "Ringway does not know this node".into());
        }
        Ok(result)
    };
    match work(place, filtered).await {
        Ok(result) => result,
        Err(failed) => {
            Json(ExtenderFilterResult { error: failed.to_string(), ..ExtenderFilterResult::default() })
        }
    }
}

/// Gives nodes priorities for kube-scheduler.
#[utoipa::path(post, path = "/v1/place/extender/prioritize", request_body = ExtenderArgs,
    responses((status = 200, body = Vec<HostPriority>)))]
pub async fn prioritize(
    State(place): State<Place>,
    args: Result<Json<ExtenderArgs>, JsonRejection>,
) -> Result<Json<Vec<HostPriority>>, Failed> {
    work(place, |service| {
        let Judged { trace, nodes, elsewhere, missing } = judge(service, body(args)?)?;
        let scores: BTreeMap<&str, f64> =
            trace.hosts.iter().filter_map(|host| Some((host.host.as_str(), host.score?))).collect();
        let least = scores.values().copied().fold(f64::MAX, f64::min);
        let most = scores.values().copied().fold(f64::MIN, f64::max);
        let priority = |node: &String| match scores.get(node.as_str()) {
            Some(_) if most <= least => HIGHEST,
            Some(score) => ((score - least) / (most - least) * HIGHEST).round(),
            None => 0.0,
        };
        let all = nodes.iter().chain(elsewhere.keys()).chain(&missing);
        Ok(all.map(|node| HostPriority { host: node.clone(), score: priority(node) as i64 }).collect())
    })
    .await
}

/// Reserves a node for a pod: for what `filter` or `prioritize` was last told that it requests, or for the VM
/// `NAMESPACE.NAME` that was put in.
#[utoipa::path(post, path = "/v1/place/extender/bind", request_body = ExtenderBindingArgs,
    responses((status = 200, body = BindingResult)))]
pub async fn bind(
    State(place): State<Place>,
    args: Result<Json<ExtenderBindingArgs>, JsonRejection>,
) -> Json<BindingResult> {
    let bound = |service: &Service| {
        let args = body(args)?;
        let name = vm_name(&args.pod_namespace, &args.pod_name);
        let seen = service.pods.seen(&name, &args.pod_uid, service.clock.now());
        let known = vm_of(service, &name)?.is_some();
        if service.engine.view(|model| model.host(&args.node).is_none())? {
            let node = args.node.escape_debug();
            return Err(Failed::Unknown(format!("there is no node {node}; put it in as a host first")));
        }
        let request = match seen {
            Some(vm) => PlaceRequest { new: vec![vm], ..PlaceRequest::default() },
            None if known => PlaceRequest { vms: vec![name.clone()], ..PlaceRequest::default() },
            None => return Err(Failed::Unknown(nobody(&name))),
        };
        let only = BTreeSet::from([args.node]);
        let decision = service.place(PlaceRequest { only, stay: true, ..request })?;
        if decision.placed {
            return Ok(BindingResult::default());
        }
        if !known {
            service.remove("vm", &name)?;
        }
        Ok(BindingResult { error: decision.choices.last().map(|choice| choice.why()).unwrap_or_default() })
    };
    match work(place, bound).await {
        Ok(result) => result,
        Err(failed) => Json(BindingResult { error: failed.to_string() }),
    }
}

/// What to do about a pod of which nobody said what it takes.
fn nobody(name: &str) -> String {
    let minutes = KEPT / 60_000;
    format!(
        "nobody said within {minutes} minutes what pod {} takes: let kube-scheduler ask `filter` or \
         `prioritize` before, or put it in as a VM of that name",
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

    #[test]
    fn a_pod_is_what_its_containers_request() {
        let vm = vm(&args().pod, |_| Ok(None)).unwrap();
        assert_eq!((vm.name.as_str(), vm.cores, vm.memory_mb), ("shop.web", 3, 3479));
        let read = |text: &str| quantity(&json!(text));
        assert_eq!((read("5e3"), read("2E"), read("1Pi")), (Some(5000.0), Some(2e18), Some(2f64.powi(50))));
        for wrong in ["", "-1", "1x", "1ee3", "e3", "1e99999999999", "Gi", "NaN", "1..2"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    async fn bind_to(place: &Place, pod: &str, node: &str) -> BindingResult {
        let binding = json!({ "PodName": pod, "PodNamespace": "shop", "PodUID": "u", "Node": node });
        bind(State(place.clone()), Ok(Json(serde_json::from_value(binding).unwrap()))).await.0
    }

    /// What is reserved is what the pod wants, under the policy that it wants.
    #[tokio::test]
    async fn what_is_bound_is_what_was_asked_about() {
        let service = service();
        let place = Place::on(service.clone());
        let error = bind_to(&place, "web", "n2").await.error;
        assert!(error.contains("what pod shop.web takes: let kube-scheduler ask `filter`"), "{error}");
        assert!(service.vms().unwrap().is_empty());
        let mut asked = args();
        asked.pod["metadata"]["annotations"] =
            json!({ "ringway/policy": "packing", "ringway/chain": "edge" });
        asked.pod["metadata"]["uid"] = json!("u");
        assert_eq!(filter(State(place.clone()), Ok(Json(asked))).await.0.error, "");
        let error = bind_to(&place, "web", "gone").await.error;
        assert_eq!(error, "there is no node gone; put it in as a host first");
        let error = bind_to(&place, "web", "n1").await.error;
        assert!(error.contains("Memory removed 1"), "{error}");
        assert!(service.vms().unwrap().is_empty(), "what is refused leaves nothing");
        assert_eq!(bind_to(&place, "web", "n3").await.error, "");
        let vm = service.vms().unwrap().remove(0);
        assert_eq!((vm.cores, vm.memory_mb, vm.policy.as_deref()), (3, 3479, Some("packing")));
        assert_eq!(service.decisions(1).unwrap()[0].choices[0].policy, "packing");
        let row = service.hosts().unwrap().remove(2);
        assert_eq!((row.pending, row.vcpus), (1, 3.0));
    }

    #[tokio::test]
    async fn a_vm_that_was_put_in_is_bound_as_it_is() {
        let service = service();
        let place = Place::on(service.clone());
        let own = Vm { name: "shop.web".into(), cores: 8, memory_mb: 6000, ha: true, ..Vm::default() };
        service.put(vec![Object::Vm(Box::new(own.clone()))]).unwrap();
        let error = bind_to(&place, "web", "n1").await.error;
        assert!(error.contains("removed 1"), "{error}");
        assert_eq!(service.vms().unwrap()[0], own);
        assert_eq!(bind_to(&place, "web", "n3").await.error, "");
        assert_eq!(service.hosts().unwrap()[2].vcpus, 8.0);
        // What the pod says holds over it, and what it doesn't say stays.
        let pod = json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": { "containers": [
            { "resources": { "requests": { "memory": "1Gi" } } } ] } });
        let asked = ExtenderArgs { pod, node_names: Some(vec!["n2".into()]) };
        let Ok(Json(scores)) = prioritize(State(place.clone()), Ok(Json(asked))).await else { panic!() };
        assert_eq!(scores[0].score, 10);
        assert_eq!(bind_to(&place, "web", "n2").await.error, "");
        assert_eq!(service.vms().unwrap(), [Vm { memory_mb: 1024, ..own }]);
    }

    #[tokio::test]
    async fn a_node_of_another_cluster_is_said() {
        let service = service();
        let host = Host { name: "n9".into(), cluster: "far".into(), ..Host::default() };
        service.put(vec![Object::Host(Box::new(host))]).unwrap();
        let asked = ExtenderArgs { node_names: Some(vec!["n2".into(), "n9".into()]), ..args() };
        let reply = filter(State(Place::on(service)), Ok(Json(asked))).await.0;
        assert_eq!(reply.node_names, Some(vec!["n2".to_string()]));
        assert!(reply.failed_nodes["n9"].starts_with("it is of cluster far"), "{reply:?}");
    }

    #[tokio::test]
    async fn replies_have_the_shape_that_kubernetes_reads() {
        let service = service();
        let place = Place::on(service.clone());
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
        let reply = bind_to(&place, "web", "n2").await;
        assert_eq!(serde_json::to_value(reply).unwrap(), json!({ "Error": "" }));
        assert_eq!(service.hosts().unwrap()[1].pending, 1);
        let missing = ExtenderArgs { node_names: None, ..args() };
        let reply = filter(State(place), Ok(Json(missing))).await.0;
        assert!(reply.error.contains("nodeCacheCapable"), "{reply:?}");
    }
}
