//! Inventory files of placement, and decisions with their objects.

use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Engine, Object};
use ringway_place::inventory::{KnownObjects, read};
use ringway_place::store::Memory;
use std::sync::Arc;

/// Maximum number of objects; more only take time.
const MOST: usize = 300;

/// Parses `data` as an inventory. Accepted objects can be added, placed and balanced.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let objects = match read("fuzz.toml", text, &KnownObjects::default()) {
        Ok(objects) => objects,
        Err(problems) => {
            assert!(!problems.to_string().is_empty(), "a file was refused without a reason");
            return;
        }
    };
    if objects.len() > MOST {
        return;
    }
    let Ok(engine) = Engine::open(Arc::new(Memory::default())) else { return };
    let vms: Vec<String> = objects
        .iter()
        .filter_map(|object| if let Object::Vm(vm) = object { Some(vm.name.clone()) } else { None })
        .collect();
    if engine.put(objects).is_err() {
        return;
    }
    for vm in vms.into_iter().take(3) {
        let ask = PlacementRequest { vms: vec![vm.clone()], now: 1, ..PlacementRequest::default() };
        let tried = engine.attempt(&ask, Vec::new()).map(|(choices, _)| choices);
        let placed = engine.place(ask).map(|decision| decision.choices);
        // `try` and `place` make the same decision.
        match (tried, placed) {
            (Ok(tried), Ok(placed)) => assert_eq!(tried, placed),
            (Err(tried), Err(placed)) => assert_eq!(tried.to_string(), placed.to_string()),
            (tried, placed) => panic!("{vm}: tried {tried:?}, placed {placed:?}"),
        }
    }
    let clusters = engine.view(|model| {
        model.clusters().iter().map(|state| state.cluster.name.clone()).collect::<Vec<String>>()
    });
    for cluster in clusters.unwrap_or_default() {
        let _ = engine.preview(&cluster, 1_000_000, 2, 60_000);
        let _ = engine.balance(&cluster, 1_000_000);
    }
}

/// The example, and a small inventory with every kind of object.
pub fn seeds() -> Vec<Vec<u8>> {
    let small = "[cluster.default]\npolicy = \"chain_local\"\ncool-down = 5\ninterval = 1\n\
        [host.a]\ncount = 3\ncores = 8\nthreads = 16\nsockets = 2\nmemory-mb = 65536\nswap-mb = 1\n\
        labels = [\"x\"]\n\
        numa = [{ index = 0, cpus = 4, memory-mb = 100 }]\nhuge-pages = { 2048 = 10 }\nos = \"a - 1 - 2\"\n\
        ports = [{ name = \"p\", mbps = 1000, pps = 100000, numa = 0 }]\n\
        [vm.v]\ncores = 2\nmemory-mb = 2048\nkind = \"function\"\nchain = \"c\"\nnuma-local = true\n\
        ports = [{ mbps = 10, pps = 5 }]\nproperties = { FactFilter = \"t < 3\" }\n\
        [vm.w]\nhost = \"a-1\"\nstatus = \"up\"\ncpu-percent = 100\nha = true\nhuge-page-kb = 2048\n\
        [group.g]\nvms = [\"v\", \"w\"]\nvm-rule = \"negative\"\nvm-enforcing = true\n\
        [[fact]]\nhost = \"a-0\"\nname = \"t\"\nvalue = 2\n\
        [[load]]\nhost = \"a-1\"\ncpu-percent = 99\nover-since = 1\n\
        [[blacklist]]\nhost = \"a-2\"\nreason = \"x\"\nuntil = 9\n";
    vec![include_bytes!("../../examples/placement/inventory.toml").to_vec(), small.into()]
}
