//! Placement's interface to the fabric of this host: rates of its ports, and the guests that it starts.

use crate::{DecisionView, Failed, PlaceRequest, Service};
use ringway_place::engine::Object;
use ringway_place::object::{Fact, Migration, PortLoad, Vm, VmStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Minimum time between two measurements of rates, in nanoseconds.
const WINDOW: u64 = 5_000_000_000;
/// Milliseconds after which rates expire.
const FRESH: u64 = 60_000;

/// The fabric of this host. Methods block, and must be called on a thread that may block.
pub trait Fabric: Send + Sync {
    /// Traffic of its ports so far.
    fn traffic(&self) -> Result<Traffic, Failed>;
    /// The guests and functions of its file.
    fn machines(&self) -> Result<Vec<Machine>, Failed>;
    /// Starts a guest or a function.
    fn start(&self, name: &str) -> Result<(), Failed>;
    /// Stops a guest or a function.
    fn stop(&self, name: &str) -> Result<(), Failed>;
}

/// Traffic of ports up to a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The time, in nanoseconds of the host's monotonic clock.
    pub at: u64,
    /// By name: frames and bytes, both directions together.
    pub ports: BTreeMap<String, (u64, u64)>,
}

/// A guest or a function of the fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its processors.
    pub cores: u32,
    /// Its memory in bytes.
    pub memory: u64,
    /// Whether it is running.
    pub runs: bool,
}

/// The fabric of this host, with its traffic at the last measurement.
pub(crate) struct FabricHandle {
    fabric: Box<dyn Fabric>,
    last: Mutex<Option<Traffic>>,
}

/// Live rates of the fabric.
#[derive(Default)]
pub(crate) struct Rates {
    /// Facts about this host.
    pub facts: Vec<Object>,
    /// Load of each port.
    pub ports: Vec<PortLoad>,
}

impl FabricHandle {
    pub fn new(fabric: Box<dyn Fabric>) -> FabricHandle {
        FabricHandle { fabric, last: Mutex::default() }
    }

    /// Rates of the fabric's ports since the last call, as facts about `host`: `fabric_mbps` and
    /// `fabric_pps`, totals in both directions, and for each port `port_NAME_mbps` and `port_NAME_pps`, with the names
    /// of [`fact_names`]. `None` if too little time passed.
    pub fn rates(&self, host: &str, now: u64) -> Result<Option<Rates>, Failed> {
        let traffic = self.fabric.traffic()?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_some_and(|last| traffic.at.saturating_sub(last.at) < WINDOW) {
            return Ok(None);
        }
        let found = last.as_ref().map(|last| rates(last, &traffic, host, now)).unwrap_or_default();
        *last = Some(traffic);
        Ok(Some(found))
    }

    /// The guests and functions of the fabric.
    pub fn machines(&self) -> Result<Vec<Machine>, Failed> {
        self.fabric.machines()
    }

    /// The guest or function of that name, if it exists.
    pub fn machine(&self, name: &str) -> Result<Option<Machine>, Failed> {
        Ok(self.machines()?.into_iter().find(|machine| machine.name == name))
    }

    /// Stops a guest or a function.
    pub fn stop(&self, name: &str) -> Result<(), Failed> {
        self.fabric.stop(name)
    }

    /// Places a guest or a function of the fabric and starts it; if it does not start, its reservation is
    /// released.
    pub fn start(&self, service: &Service, here: &str, name: &str) -> Result<DecisionView, Failed> {
        let known = service.engine.view(|model| model.vm(name).map(|slot| (*slot.vm).clone()))?;
        let Some(machine) = self.machine(name)? else {
            return Err(Failed::Unknown(nothing_to_start(name, known.is_some())));
        };
        // The guest can't be moved, whether or not an operator described it.
        let vm = Vm { migration: Migration::PinnedToHost, ..known.unwrap_or_else(|| vm(&machine)) };
        let request = PlaceRequest {
            vms: vec![name.into()],
            new: vec![vm],
            // Guests can only be started on this host.
            only: BTreeSet::from([here.to_string()]),
            ..PlaceRequest::default()
        };
        let decision = service.place(request)?;
        if let Some(choice) = decision.choices.iter().find(|choice| choice.host.is_none()) {
            return Err(Failed::Conflict(choice.why()));
        }
        match self.fabric.start(name) {
            Ok(()) => service.confirm(name)?,
            Err(error) => {
                service.release(name)?;
                return Err(error);
            }
        }
        Ok(decision)
    }
}

/// Advice for a name that is not in the fabric file; `known` if placement knows it.
fn nothing_to_start(name: &str, known: bool) -> String {
    let file = format!("describe it there as [guest.{name}] or [function.{name}] and run `ringway apply`");
    match known {
        true => format!(
            "{name} is known to placement only, which says where it may run and not what it is; the fabric's \
             file has no guest or function {name}: {file}; or start it yourself: `ringway place run {name}` \
             chooses a host, `ringway place confirm {name}` says that it runs there"
        ),
        false => format!("there is no guest or function {name} in the fabric; {file}"),
    }
}

/// A guest or a function as a VM. It can't be moved, since no other host runs guests.
fn vm(machine: &Machine) -> Vm {
    Vm {
        name: machine.name.clone(),
        cores: machine.cores.max(1),
        memory_mb: (machine.memory >> 20).max(1),
        migration: Migration::PinnedToHost,
        ..Vm::default()
    }
}

/// Objects to add so that VMs on `here` match the fabric's guests and functions: those that run without
/// having been placed use resources, and those that ended no longer do.
pub(crate) fn differences(machines: &[Machine], known: &BTreeMap<String, Vm>, here: &str) -> Vec<Object> {
    let mut changes = Vec::new();
    for machine in machines {
        let (known, runs) = (known.get(&machine.name), machine.runs);
        let counts = known.is_some_and(|vm| vm.runs() && vm.host.as_deref() == Some(here));
        if runs == counts {
            continue;
        }
        let old = known.cloned().unwrap_or_else(|| vm(machine));
        let (status, host) =
            if runs { (VmStatus::Up, Some(here.to_string())) } else { (VmStatus::Down, None) };
        let migration = if runs { Migration::PinnedToHost } else { old.migration };
        let last_host = if runs { old.last_host.clone() } else { Some(here.to_string()) };
        changes.push(Object::Vm(Box::new(Vm { status, host, migration, last_host, ..old })));
    }
    changes
}

/// Characters of a port in the name of a fact, which has 64 at most.
const LETTERS: usize = 50;

/// The names of ports in facts, each different: `_` replaces every character that is not a letter, digit or `_`, such
/// as the `/` of a link's ends and the `.` of a chain's. Where two ports would have the same name, and where one is
/// longer than 50 characters, `_` and eight hexadecimal digits that follow from the port's name distinguish it; a port
/// that needs no replacement keeps its name.
fn fact_names<'p>(ports: impl Iterator<Item = &'p str> + Clone) -> BTreeMap<&'p str, String> {
    let plain = |port: &str| -> String {
        let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        port.chars().map(allowed).collect()
    };
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    ports.clone().for_each(|port| *count.entry(plain(port)).or_default() += 1);
    let is_own = |port: &str| plain(port) == port && port.len() <= LETTERS;
    let mut taken: BTreeSet<String> = ports.clone().filter(|port| is_own(port)).map(plain).collect();
    let name = |port: &'p str| {
        let mut name = plain(port);
        if !is_own(port) {
            let (short, mut digits) = (name.chars().take(LETTERS - 9).collect::<String>(), hash(port));
            let is_ambiguous = name.len() > LETTERS || count[&name] > 1;
            name = if is_ambiguous { format!("{short}_{digits:08x}") } else { name };
            while !taken.insert(name.clone()) {
                digits = digits.wrapping_add(1);
                name = format!("{short}_{digits:08x}");
            }
        }
        (port, name)
    };
    ports.map(name).collect()
}

/// The FNV-1a hash of a name.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn rates(before: &Traffic, traffic: &Traffic, host: &str, now: u64) -> Rates {
    let seconds = traffic.at.saturating_sub(before.at).max(1) as f64 / 1e9;
    let fact = |name: String, value: f64| {
        let (until, pushed) = (Some(now.saturating_add(FRESH)), Some(now));
        Object::Fact(Fact { host: host.into(), name, value, until, pushed })
    };
    let mut rates = Rates::default();
    let (mut all_pps, mut all_mbps) = (0.0, 0.0);
    let names = fact_names(traffic.ports.keys().map(String::as_str));
    for (port, (frames, bytes)) in &traffic.ports {
        // A new or recreated port counts from zero.
        let (old_frames, old_bytes) = before.ports.get(port).copied().unwrap_or_default();
        let pps = frames.saturating_sub(old_frames) as f64 / seconds;
        let mbps = bytes.saturating_sub(old_bytes) as f64 * 8.0 / 1e6 / seconds;
        (all_pps, all_mbps) = (all_pps + pps, all_mbps + mbps);
        rates.ports.push(PortLoad { name: port.clone(), mbps: mbps as u64, pps: pps as u64 });
        let name = &names[port.as_str()];
        rates.facts.push(fact(format!("port_{name}_mbps"), mbps));
        rates.facts.push(fact(format!("port_{name}_pps"), pps));
    }
    rates.facts.push(fact("fabric_mbps".into(), all_mbps));
    rates.facts.push(fact("fabric_pps".into(), all_pps));
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(at: u64, ports: &[(&str, u64)]) -> Traffic {
        let port = |(name, frames): &(&str, u64)| (name.to_string(), (*frames, frames * 125_000));
        Traffic { at, ports: ports.iter().map(port).collect() }
    }

    #[test]
    fn ports_added_later_have_rates() {
        let (before, now) = (traffic(0, &[("a", 10)]), traffic(2_000_000_000, &[("a", 30), ("up-link", 4)]));
        let rates = rates(&before, &now, "h", 7);
        assert_eq!(rates.ports[0], PortLoad { name: "a".into(), mbps: 10, pps: 10 });
        let facts: BTreeMap<String, f64> = rates
            .facts
            .into_iter()
            .filter_map(
                |object| if let Object::Fact(fact) = object { Some((fact.name, fact.value)) } else { None },
            )
            .collect();
        let of = |name: &str| facts[name];
        assert_eq!((of("port_up_link_pps"), of("port_a_mbps")), (2.0, 10.0));
        assert_eq!((of("fabric_pps"), of("fabric_mbps")), (12.0, 12.0));
    }

    #[test]
    fn every_port_has_a_fact_name_of_its_own() {
        let long = "x".repeat(64);
        let ports =
            ["a", "up-link", "wan/l0", "wan/r0", "fw.in", "a-b", "a_b", "a.b", &long, "x-1", "f/2@1.é"];
        let names = fact_names(ports.iter().copied());
        let of = |port: &str| names[port].as_str();
        assert_eq!([of("a"), of("up-link"), of("wan/l0"), of("fw.in")], ["a", "up_link", "wan_l0", "fw_in"]);
        assert_eq!((of("a_b"), of("a-b")), ("a_b", "a_b_2a89df63"));
        let different: BTreeSet<&String> = names.values().collect();
        assert_eq!(different.len(), ports.len(), "{names:?}");
        // A port that is named as another's fact.
        let clash = ["a-b", "a_b", "a_b_2a89df63"];
        let names = fact_names(clash.iter().copied());
        assert_eq!(
            (names["a_b_2a89df63"].as_str(), names.values().collect::<BTreeSet<_>>().len()),
            (clash[2], 3)
        );
        let now = Traffic { at: 2, ports: ports.iter().map(|port| (port.to_string(), (1, 1))).collect() };
        for object in rates(&Traffic::default(), &now, "h", 7).facts {
            let Object::Fact(fact) = object else { continue };
            assert!(fact.check().is_ok(), "{fact:?}");
        }
    }

    #[test]
    fn guests_use_resources_only_while_running() {
        let mut known = BTreeMap::new();
        let now = |runs: bool, known: &BTreeMap<String, Vm>| {
            let machine = Machine { name: "g".into(), cores: 1, memory: 64 << 20, runs };
            match differences(&[machine], known, "here").pop() {
                Some(Object::Vm(vm)) => Some(*vm),
                _ => None,
            }
        };
        let vm = now(true, &known).unwrap();
        assert_eq!(
            (vm.host.as_deref(), vm.migration, vm.runs()),
            (Some("here"), Migration::PinnedToHost, true)
        );
        assert!(vm.memory_mb == 64 && vm.check().is_ok());
        known.insert("g".to_string(), vm);
        assert_eq!(now(true, &known), None);
        let vm = now(false, &known).unwrap();
        assert_eq!((vm.host, vm.status, vm.last_host.as_deref()), (None, VmStatus::Down, Some("here")));
    }
}
