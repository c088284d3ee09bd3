//! A pod's requests, as computed by kube-scheduler (KEP 753, k8s.io/component-helpers/resource): the sum of
//! containers and sidecars, or the largest request of an init container plus the sidecars started before it;
//! pod-level requests instead, if any; plus overhead.

use super::api::{Container, ContainerStatus, Pod, Quantities};
use super::quantity;
use serde_json::Value;

/// CPUs in thousandths, and memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub milli: u64,
    pub bytes: u64,
}

impl Requests {
    fn of(quantities: &Quantities) -> Result<Requests, String> {
        let read = |name: &str, value: &Option<Value>, how: fn(&Value) -> Option<u64>| match value {
            None => Ok(0),
            Some(value) => {
                how(value).ok_or_else(|| format!("`{value}` is not a quantity of {name} known here"))
            }
        };
        Ok(Requests {
            milli: read("cpu", &quantities.cpu, quantity::milli)?,
            bytes: read("memory", &quantities.memory, quantity::whole)?,
        })
    }

    fn and(self, other: Requests) -> Requests {
        Requests {
            milli: self.milli.saturating_add(other.milli),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn or(self, other: Requests) -> Requests {
        Requests { milli: self.milli.max(other.milli), bytes: self.bytes.max(other.bytes) }
    }
}

/// A container's request. During a resize it is the larger of the requested and the allocated one.
fn of_container(pod: &Pod, container: &Container, all: &[ContainerStatus]) -> Result<Requests, String> {
    let asks = Requests::of(&container.resources.requests)?;
    let status = all.iter().find(|status| status.name == container.name);
    let Some((status, has)) = status.and_then(|status| Some((status, status.resources.as_ref()?))) else {
        return Ok(asks);
    };
    let has = Requests::of(&has.requests)?.or(Requests::of(&status.allocated_resources)?);
    let resize = pod.status.conditions.iter().find(|condition| condition.kind == "PodResizePending");
    Ok(if resize.is_some_and(|resize| resize.reason == "Infeasible") { has } else { asks.or(has) })
}

/// A pod's requests.
pub fn effective(pod: &Pod) -> Result<Requests, String> {
    let (spec, status) = (&pod.spec, &pod.status);
    let mut all = Requests::default();
    for container in &spec.containers {
        all = all.and(of_container(pod, container, &status.container_statuses)?);
    }
    let (mut sidecars, mut most) = (Requests::default(), Requests::default());
    for container in &spec.init_containers {
        if container.restart_policy.as_deref() == Some("Always") {
            let own = of_container(pod, container, &status.init_container_statuses)?;
            (all, sidecars) = (all.and(own), sidecars.and(own));
            most = most.or(sidecars);
        } else {
            most = most.or(sidecars.and(Requests::of(&container.resources.requests)?));
        }
    }
    all = all.or(most);
    let whole = &spec.resources.requests;
    let instead = Requests::of(whole)?;
    all.milli = if whole.cpu.is_some() { instead.milli } else { all.milli };
    all.bytes = if whole.memory.is_some() { instead.bytes } else { all.bytes };
    Ok(all.and(Requests::of(&spec.overhead)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn taken(pod: Value) -> (u64, u64) {
        let Requests { milli, bytes } = effective(&serde_json::from_value(pod).unwrap()).unwrap();
        (milli, bytes >> 20)
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({ "name": cpu, "resources": { "requests": { "cpu": cpu, "memory": memory } } })
    }

    fn sidecar(cpu: &str, memory: &str) -> Value {
        let mut sidecar = container(cpu, memory);
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    }

    #[test]
    fn init_containers_and_sidecars_count_as_in_kubernetes() {
        let two = json!([container("100m", "64Mi"), container("0.2", "64Mi"), { "name": "without" }]);
        assert_eq!(taken(json!({ "spec": { "containers": two } })), (300, 128));
        // The largest init container, per resource.
        let init = json!([container("2", "16Mi"), container("50m", "1Gi")]);
        assert_eq!(taken(json!({ "spec": { "containers": two, "initContainers": init } })), (2000, 1024));
        // A sidecar runs together with the containers, and with later init containers.
        let init = json!([container("250m", "32Mi"), sidecar("100m", "32Mi"), container("350m", "32Mi")]);
        assert_eq!(taken(json!({ "spec": { "containers": two, "initContainers": init } })), (450, 160));
        let init = json!([sidecar("100m", "32Mi"), sidecar("100m", "32Mi"), container("1m", "1Mi")]);
        assert_eq!(taken(json!({ "spec": { "containers": two, "initContainers": init } })), (500, 192));
        assert_eq!(taken(json!({ "spec": { "containers": null } })), (0, 0));
    }

    #[test]
    fn pod_overhead_and_pod_level_requests_count() {
        let overhead = json!({ "cpu": "250m", "memory": "120Mi" });
        let containers = json!([container("1", "256Mi")]);
        let spec = json!({ "containers": containers, "overhead": overhead });
        assert_eq!(taken(json!({ "spec": spec })), (1250, 376));
        let resources = json!({ "requests": { "cpu": "3", "hugepages-2Mi": "4Mi" } });
        let spec = json!({ "containers": containers, "overhead": overhead, "resources": resources });
        assert_eq!(taken(json!({ "spec": spec })), (3250, 376));
    }

    #[test]
    fn a_resized_container_counts_its_larger_allocation() {
        let mut pod = json!({
            "spec": { "containers": [container("1", "100Mi")] },
            "status": { "containerStatuses": [{
                "name": "1",
                "resources": { "requests": { "cpu": "2", "memory": "50Mi" } },
                "allocatedResources": { "cpu": "500m", "memory": "200Mi" },
            }] },
        });
        assert_eq!(taken(pod.clone()), (2000, 200));
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("64");
        assert_eq!(taken(pod.clone()).0, 64_000);
        pod["status"]["conditions"] = json!([{ "type": "PodResizePending", "reason": "Infeasible" }]);
        assert_eq!(taken(pod).0, 2000);
    }

    #[test]
    fn invalid_quantities_are_reported() {
        let pod = json!({ "spec": { "containers": [container("much", "1")] } });
        let wrong = effective(&serde_json::from_value(pod).unwrap()).unwrap_err();
        assert_eq!(wrong, "`\"much\"` is not a quantity of cpu known here");
    }
}
