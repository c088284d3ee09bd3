//! Hosts and VMs in the protocol's form (`python/PROTOCOL.md`).

use ringway_place::object::{Migration, VmKind, VmStatus};
use ringway_place::unit::{HostView, VmView};
use serde_json::{Map, Value, json};

/// A host, but for its slot.
pub(super) fn host(view: &HostView) -> Map<String, Value> {
    let host = &view.host;
    let percent = |figure: f64| if figure.is_finite() { figure } else { 0.0 };
    let taken = host.memory_mb as i64 - host.reserved_mb as i64 - view.schedulable_mb;
    let (name, version) = host.os.split_once('-').unwrap_or((&host.os, ""));
    let entry = json!({
        "id": host.name,
        "name": host.name,
        "cluster": host.cluster,
        "state": host.status,
        "power_managed": host.power_managed,
        "fault_domain": host.fault_domain,
        "cpu_sockets": host.sockets,
        "cpu_cores": host.cores,
        "cpu_threads": host.threads,
        "cpu_load": percent(view.cpu_load),
        "memory": host.memory_mb,
        "memory_free": view.free_mb,
        "memory_committed": taken.max(0),
        "max_scheduling_memory": view.schedulable_mb,
        "swap": host.swap_mb,
        "huge_pages": host.huge_pages.iter().map(|(size, total)| (size.to_string(), json!({"total": total})))
            .collect::<Map<_, _>>(),
        "numa": host.numa.iter().map(|node| json!({"cpus": node.cpus, "memory": node.memory_mb}))
            .collect::<Vec<_>>(),
        "ports": host.ports.iter().map(|port| {
            let numa = port.numa.unwrap_or(0);
            json!({"name": port.name, "numa": numa, "bandwidth": port.mbps, "pps": port.pps})
        }).collect::<Vec<_>>(),
        // Pending VMs already use resources.
        "vms_active": view.vms.len() + view.pending_vms.len(),
        "vms_total": view.vms.len() + view.pending_vms.len(),
        "spm": host.spm,
        "ha_score": host.ha_agent.as_ref().map_or(0, |agent| agent.score),
        "os_type": name.trim(),
        "os_version": version.trim(),
        "labels": host.labels,
        "aggregates": host.aggregates,
        "facts": view.facts.iter().filter(|(_, figure)| figure.is_finite())
            .map(|(name, figure)| (name.clone(), json!(figure))).collect::<Map<_, _>>(),
    });
    object(entry)
}

/// A VM; `slot` is its host's.
pub(super) fn vm(view: &VmView, slot: Option<usize>) -> Map<String, Value> {
    let state = match view.status {
        VmStatus::Down => "down",
        VmStatus::Up => "up",
        VmStatus::Paused => "paused",
        VmStatus::Migrating => "migrating",
    };
    let entry = json!({
        "id": view.name,
        "name": view.name,
        "host": slot,
        "state": state,
        "kind": if view.kind == VmKind::Function { "function" } else { "vm" },
        "cpus": view.vcpus(),
        "cpu_load": view.cpu_percent.unwrap_or(0),
        "memory": view.memory_mb,
        "huge_page": view.huge_page_kb.unwrap_or(0),
        "ha": view.ha,
        "migratable": view.migration == Migration::Migratable,
        "chain": view.chain.as_deref().unwrap_or(""),
        "chain_index": view.chain_index,
        "labels": view.labels,
        "properties": view.properties,
    });
    object(entry)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
