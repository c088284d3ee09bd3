//! Nodes as hosts, and pods as VMs.

use super::api::{Metadata, Node, Pod, Taint, Toleration};
use super::quantity;
use super::requests::effective;
use ringway_place::model::GUEST_OVERHEAD;
use ringway_place::object::{Host, HostStatus, Migration, Vm, VmKind, VmStatus};
use std::collections::BTreeMap;

/// Labels of hosts and VMs that were created from nodes and pods, and are deleted with them.
const OF_NODE: &str = "ringway/node";
const OF_POD: &str = "ringway/pod";
/// Attack: endless labels and taints. Largest number of labels, and of bytes of either, read per object.
const LABELS: usize = 256;
const BYTES: usize = 64 << 10;
/// Attack: an endless zone name. A label's value has at most 63 bytes.
const ZONE: usize = 63;
/// Attack: endless facts. Largest number read per node.
const FACTS: usize = 64;
/// Largest accepted number of CPUs, and of MB of memory.
const MOST_CPUS: u64 = 65_536;
const MOST_MB: u64 = 1 << 30;

/// The name of a pod's VM.
pub fn vm_name(namespace: &str, name: &str) -> String {
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    format!("{namespace}.{name}")
}

/// The name of a pod's VM.
pub fn name_of(metadata: &Metadata) -> String {
    vm_name(&metadata.namespace, &metadata.name)
}

/// Whether a VM was created from a pod.
pub fn is_of_pod(vm: &Vm) -> bool {
    vm.labels.iter().any(|label| label == OF_POD)
}

/// Whether a host was created from a node.
pub fn is_of_node(host: &Host) -> bool {
    host.labels.iter().any(|label| label == OF_NODE)
}

/// The first elements of `all`, up to [`BYTES`] bytes in total.
fn first<T>(all: impl Iterator<Item = T>, size: impl Fn(&T) -> usize) -> impl Iterator<Item = T> {
    all.scan(BYTES, move |left, it| {
        *left = left.checked_sub(size(&it))?;
        Some(it)
    })
}

fn labels(metadata: &Metadata) -> impl Iterator<Item = String> {
    let labels = first(metadata.labels.iter().take(LABELS), |(key, value)| key.len() + value.len());
    labels.map(|(key, value)| format!("{key}={value}"))
}

/// A pod as a VM that does not run, with the pod's requests. Without requests, it has those of a manually
/// added VM of its name, or no CPUs and the least memory. The annotations `ringway/policy` and
/// `ringway/chain` set its policy and chain.
pub fn vm(pod: &Pod, cluster: &str, known: Option<&Vm>) -> Result<Vm, String> {
    let metadata = &pod.metadata;
    if metadata.name.is_empty() {
        return Err("`Pod.metadata.name` is missing".into());
    }
    let least = || Vm {
        kind: VmKind::Function,
        memory_mb: 1,
        milli_cpus: Some(0),
        migration: Migration::PinnedToHost,
        cluster: cluster.into(),
        labels: vec![OF_POD.into()],
        ..Vm::default()
    };
    let mut vm = known.filter(|vm| !is_of_pod(vm)).cloned().unwrap_or_else(least);
    vm.name = name_of(metadata);
    (vm.status, vm.host) = (VmStatus::Down, None);
    let taken = effective(pod)?;
    if taken.milli > 0 {
        let cores = taken.milli.div_ceil(1000).min(MOST_CPUS) as u32;
        (vm.sockets, vm.cores, vm.threads) = (1, cores, 1);
        vm.milli_cpus = Some(taken.milli.min(MOST_CPUS * 1000) as u32);
    }
    if taken.bytes > 0 {
        vm.memory_mb = taken.bytes.div_ceil(1 << 20);
    }
    let annotations = metadata.annotations.clone();
    vm.policy = annotations.policy.or(vm.policy);
    vm.chain = annotations.chain.or(vm.chain);
    vm.labels.retain(|label| !label.contains('='));
    vm.labels.extend(labels(metadata));
    Ok(vm)
}

/// A pod that is bound, on its node.
pub fn bound(mut vm: Vm, node: &str) -> Vm {
    (vm.status, vm.host) = (VmStatus::Up, Some(node.into()));
    vm
}

/// Whether a pod uses resources of its node.
pub fn is_on_node(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

/// A node as a host: its capacity, of which the part that is not allocatable is reserved. Its status is up as
/// long as the node exists: taints mark unusable nodes, and some pods tolerate them. A manually added host of
/// its name keeps its other settings.
pub fn host(node: &Node, cluster: &str, known: Option<&Host>) -> Host {
    let least =
        || Host { cluster: cluster.into(), labels: vec![OF_NODE.into()], reserved_mb: 0, ..Host::default() };
    let mut host = known.cloned().unwrap_or_else(least);
    let capacity = &node.status.capacity;
    let allocatable = &node.status.allocatable;
    let read = |all: &Option<serde_json::Value>, how: fn(&serde_json::Value) -> Option<u64>| {
        all.as_ref().and_then(how).unwrap_or(0)
    };
    let usable = read(&allocatable.cpu, quantity::milli).min(MOST_CPUS * 1000);
    let cores = read(&capacity.cpu, quantity::milli).max(usable).div_ceil(1000).clamp(1, MOST_CPUS);
    host.name.clone_from(&node.metadata.name);
    host.status = HostStatus::Up;
    (host.cores, host.threads) = (cores as u32, host.threads.max(cores as u32));
    if known.is_none_or(is_of_node) {
        (host.sockets, host.threads) = (1, cores as u32);
    }
    host.sockets = host.sockets.min(host.cores);
    host.reserved_milli_cpus = (cores * 1000 - usable) as u32;
    // A node's reservation already includes oVirt's overhead for the host itself.
    let own = GUEST_OVERHEAD as u64;
    let usable = (read(&allocatable.memory, quantity::whole) >> 20).min(MOST_MB - own) + own;
    host.memory_mb = (read(&capacity.memory, quantity::whole) >> 20).clamp(usable, MOST_MB);
    host.reserved_mb = host.memory_mb - usable;
    let text = |key: &str| node.metadata.labels.get(key).cloned();
    let zone = text("topology.kubernetes.io/zone").filter(|zone| zone.len() <= ZONE);
    host.fault_domain = zone.unwrap_or(host.fault_domain);
    host.labels.retain(|label| !label.contains('='));
    host.labels.extend(labels(&node.metadata));
    host
}

/// A name valid in expressions.
fn fact_name(prefix: &str, key: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    prefix.chars().chain(key.chars().map(letter)).take(64).collect()
}

/// Whether a fact is one of those created from nodes.
pub fn is_fact_of_node(name: &str) -> bool {
    ["node_", "label_", "taint_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Facts about a node: whether it is ready, and schedulable, and its limit of pods; labels that are numbers,
/// true or false, or empty; taints, larger for stricter ones.
pub fn facts(node: &Node) -> BTreeMap<String, f64> {
    let ready = |condition: &super::api::Condition| condition.kind == "Ready" && condition.status == "True";
    let truth = |truth: bool| f64::from(u8::from(truth));
    let pods = node.status.allocatable.pods.as_ref().and_then(quantity::whole).unwrap_or(0);
    let label = |(key, value): (&String, &String)| {
        let value = match value.as_str() {
            "" | "true" => 1.0,
            "false" => 0.0,
            number => number.parse().ok().filter(|number: &f64| number.is_finite())?,
        };
        Some((fact_name("label_", key), value))
    };
    let taint = |taint: &Taint| {
        let effects = ["PreferNoSchedule", "NoSchedule", "NoExecute"];
        let strictness = effects.iter().position(|effect| *effect == taint.effect).map_or(0, |at| at + 1);
        (fact_name("taint_", &taint.key), strictness as f64)
    };
    let own = [
        ("node_ready".to_string(), truth(node.status.conditions.iter().any(ready))),
        ("node_unschedulable".to_string(), truth(node.spec.unschedulable)),
        ("node_pods".to_string(), pods as f64),
    ];
    let labels = node.metadata.labels.iter().filter_map(label);
    own.into_iter().chain(node.spec.taints.iter().map(taint)).chain(labels).take(FACTS).collect()
}

/// Taints that exclude pods without a matching toleration.
pub fn strict_taints(node: &Node) -> Vec<Taint> {
    let strict = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let strict = node.spec.taints.iter().filter(strict).take(FACTS);
    first(strict, |taint| taint.key.len() + taint.value.len()).cloned().collect()
}

/// The first taint that a pod does not tolerate, in words.
pub fn intolerable(taints: &[Taint], tolerations: &[Toleration]) -> Option<String> {
    let taint = taints.iter().find(|taint| !tolerations.iter().any(|it| tolerates(it, taint)))?;
    let Taint { key, value, effect } = taint;
    let value = if value.is_empty() { String::new() } else { format!("={value}") };
    Some(format!("the pod does not tolerate its taint {key}{value}:{effect}"))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let Toleration { key, operator, value, effect } = toleration;
    let exists = operator == "Exists";
    (effect.is_empty() || *effect == taint.effect)
        && (*key == taint.key || (key.is_empty() && exists))
        && (exists || *value == taint.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": { "name": "n1", "labels": {
                "topology.kubernetes.io/zone": "a", "example.com/speed": "2.5", "spot": "true",
                "node-role.kubernetes.io/control-plane": "", "kubernetes.io/arch": "amd64",
            } },
            "spec": { "taints": [
                { "key": "dedicated", "value": "gpu", "effect": "NoSchedule" },
                { "key": "slow", "effect": "PreferNoSchedule" },
            ] },
            "status": {
                "capacity": { "cpu": "4", "memory": "16Gi", "pods": "110" },
                "allocatable": { "cpu": "3920m", "memory": "15000Mi", "pods": "100" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        }))
        .unwrap()
    }

    fn pod(spec: serde_json::Value) -> Pod {
        let metadata = json!({ "name": "web", "namespace": "shop", "labels": { "app": "web" } });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn a_node_reserves_its_unallocatable_resources() {
        let made = host(&node(), "edge", None);
        made.check().unwrap();
        assert_eq!(
            (made.name.as_str(), made.cluster.as_str(), made.fault_domain.as_str()),
            ("n1", "edge", "a")
        );
        assert_eq!((made.cores, made.threads, made.reserved_milli_cpus), (4, 4, 80));
        assert_eq!(made.memory_mb - made.reserved_mb - GUEST_OVERHEAD as u64, 15_000);
        assert!(is_of_node(&made) && made.labels.contains(&"kubernetes.io/arch=amd64".to_string()));
        assert_eq!(host(&node(), "edge", Some(&made)), made, "nothing is added twice");
        // Manual settings stay, and are not deleted with the node.
        let own = Host { sockets: 2, threads: 8, labels: vec!["rack-1".into()], ..Host::default() };
        let known = host(&node(), "edge", Some(&own));
        assert_eq!((known.sockets, known.cores, known.threads, known.cluster.as_str()), (2, 4, 8, "default"));
        assert!(!is_of_node(&known) && known.labels[0] == "rack-1");
        host(&Node::default(), "edge", None).check().unwrap_err();
        let mut full = node();
        full.status.capacity = full.status.allocatable.clone();
        let full = host(&full, "edge", None);
        assert_eq!((full.cores, full.reserved_milli_cpus, full.memory_mb), (4, 80, 15_065));
    }

    #[test]
    fn labels_and_taints_become_facts() {
        let facts: Vec<(String, f64)> = facts(&node()).into_iter().collect();
        let of = |name: &str, value: f64| (name.to_string(), value);
        let expected = [
            of("label_example_com_speed", 2.5),
            of("label_node_role_kubernetes_io_control_plane", 1.0),
            of("label_spot", 1.0),
            of("node_pods", 100.0),
            of("node_ready", 1.0),
            of("node_unschedulable", 0.0),
            of("taint_dedicated", 2.0),
            of("taint_slow", 1.0),
        ];
        assert_eq!(facts, expected);
        assert!(facts.iter().all(|(name, _)| is_fact_of_node(name)));
    }

    #[test]
    fn taints_are_tolerated_as_in_kubernetes() {
        let taints = strict_taints(&node());
        let tolerated = |tolerations: serde_json::Value| {
            intolerable(&taints, &pod(json!({ "tolerations": tolerations })).spec.tolerations).is_none()
        };
        assert_eq!(
            intolerable(&taints, &[]).unwrap(),
            "the pod does not tolerate its taint dedicated=gpu:NoSchedule"
        );
        assert!(tolerated(json!([{ "key": "dedicated", "value": "gpu", "effect": "NoSchedule" }])));
        assert!(tolerated(json!([{ "key": "dedicated", "operator": "Exists" }])));
        assert!(tolerated(json!([{ "operator": "Exists" }])));
        assert!(!tolerated(json!([{ "key": "dedicated", "value": "tpu" }])));
        assert!(!tolerated(json!([{ "key": "dedicated", "value": "gpu", "effect": "NoExecute" }])));
        assert!(!tolerated(json!([{ "value": "gpu" }])));
    }

    #[test]
    fn a_pod_becomes_a_vm_with_its_requests() {
        let requests = json!({ "requests": { "cpu": "1500m", "memory": "1500M" } });
        let web = pod(json!({ "containers": [{ "resources": requests }] }));
        let made = vm(&web, "edge", None).unwrap();
        made.check().unwrap();
        assert_eq!(
            (made.name.as_str(), made.cores, made.milli_cpus, made.memory_mb),
            ("shop.web", 2, Some(1500), 1431)
        );
        assert_eq!(made.labels, [OF_POD, "app=web"]);
        let nothing = vm(&pod(json!({})), "edge", Some(&made)).unwrap();
        assert_eq!((nothing.cores, nothing.milli_cpus, nothing.memory_mb), (1, Some(0), 1));
        let own = Vm { cores: 8, memory_mb: 6000, ha: true, ..Vm::default() };
        let known = vm(&pod(json!({})), "edge", Some(&own)).unwrap();
        assert_eq!((known.cores, known.milli_cpus, known.memory_mb, known.ha), (8, None, 6000, true));
        assert!(!is_of_pod(&known));
        assert!(vm(&Pod::default(), "edge", None).is_err());
    }

    #[test]
    fn sizes_from_kubernetes_are_bounded() {
        let long = "x".repeat(1 << 10);
        let many: BTreeMap<String, String> = (0..9999).map(|at| (format!("k{at}"), long.clone())).collect();
        let size = |labels: &[String]| labels.iter().map(String::len).sum::<usize>();
        let taint = json!({ "key": long, "value": long.repeat(9), "effect": "NoSchedule" });
        let mut node = node();
        node.metadata.labels = many.clone();
        node.metadata.labels.insert("topology.kubernetes.io/zone".into(), long.repeat(99));
        node.spec.taints = serde_json::from_value(vec![taint; 9999].into()).unwrap();
        let made = host(&node, "edge", None);
        made.check().unwrap();
        assert!(size(&made.labels) < BYTES + LABELS && made.fault_domain.len() <= ZONE);
        assert_eq!((strict_taints(&node).len(), facts(&node).len()), (BYTES / 10 / 1024, 4));
        let mut web = pod(json!({}));
        // The longest possible names of Kubernetes are valid.
        (web.metadata.namespace, web.metadata.name) = ("n".repeat(63), "p".repeat(253));
        web.metadata.labels = many;
        let made = vm(&web, "edge", None).unwrap();
        made.check().unwrap();
        assert!(size(&made.labels) < BYTES + LABELS);
        web.metadata.annotations.chain = Some(long);
        vm(&web, "edge", None).unwrap().check().unwrap_err();
    }
}
