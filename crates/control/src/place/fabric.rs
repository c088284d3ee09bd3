//! What placement takes from the fabric of this host: live rates of its ports; and guests that it starts.

use super::{DecisionView, Failed, PlaceRequest, Service};
use crate::api::{Counts, FunctionView, GuestView, StatsView, Trouble};
use crate::engine::{Ask, Failure, Inbox, Message};
use crate::file::Fabric;
use ringway_place::engine::Object;
use ringway_place::object::{Fact, Migration, PortLoad, Vm, VmStatus};
use ringway_spec::{Function, Guest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

/// Rates are of this long at least, in nanoseconds.
const WINDOW: u64 = 5_000_000_000;
/// After so many milliseconds rates are stale.
const FRESH: u64 = 60_000;

/// The fabric of this host.
pub struct Link {
    inbox: Inbox,
    last: Mutex<Option<StatsView>>,
}

/// Live rates of the fabric.
#[derive(Default)]
pub struct Rates {
    /// Facts about this host.
    pub facts: Vec<Object>,
    /// What each port carries.
    pub ports: Vec<PortLoad>,
}

fn failed(failure: Failure) -> Failed {
    let of = |trouble: Trouble| trouble.error;
    match failure {
        Failure::Unknown(trouble) => Failed::Unknown(of(trouble)),
        Failure::Wrong(trouble) | Failure::Request(_, trouble) => Failed::Wrong(of(trouble)),
        Failure::Conflict(trouble) => Failed::Conflict(of(trouble)),
        Failure::Down => Failed::Conflict("the fabric is going down".into()),
    }
}

impl Link {
    /// The fabric behind `inbox`.
    pub fn new(inbox: Inbox) -> Link {
        Link { inbox, last: Mutex::default() }
    }

    /// Asks the fabric. Only where a thread may wait.
    fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<Result<T, Failure>>) -> Ask) -> Result<T, Failed> {
        let (answer, answered) = oneshot::channel();
        let down = || failed(Failure::Down);
        self.inbox.send(Message::Ask(ask(answer))).map_err(|_| down())?;
        answered.blocking_recv().map_err(|_| down())?.map_err(failed)
    }

    /// Rates of the fabric's ports since the last time, as facts about `host`: `fabric_mbps` and `fabric_pps`, of what
    /// enters and leaves all ports, and for each port `port_NAME_mbps` and `port_NAME_pps`. None if too little time
    /// passed.
    pub fn rates(&self, host: &str, now: u64) -> Result<Option<Rates>, Failed> {
        let stats = self.ask(Ask::Stats)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match last.as_ref() {
            Some(before) if stats.at.saturating_sub(before.at) < WINDOW => return Ok(None),
            before => before.cloned().unwrap_or_default(),
        };
        let first = last.is_none();
        let rates = if first { Rates::default() } else { rates(&before, &stats, host, now) };
        *last = Some(stats);
        Ok(Some(rates))
    }

    /// The guests as they are.
    pub fn guests(&self) -> Result<Vec<GuestView>, Failed> {
        self.ask(Ask::Guests)
    }

    /// The functions as they are.
    pub fn functions(&self) -> Result<Vec<FunctionView>, Failed> {
        self.ask(Ask::Functions)
    }

    /// Whether the fabric has a guest or a function of that name.
    pub fn runs(&self, name: &str) -> Result<bool, Failed> {
        let fabric = self.described()?;
        Ok(fabric.guest(name).is_some() || fabric.function(name).is_some())
    }

    /// The fabric as it is described now, whatever it came up with.
    pub fn described(&self) -> Result<Box<Fabric>, Failed> {
        self.ask(Ask::Described)
    }

    /// Places a guest or a function of the fabric and starts it; what was reserved is given back if it does not start.
    pub fn start(&self, service: &Service, here: &str, name: &str) -> Result<DecisionView, Failed> {
        let fabric = self.described()?;
        type Order = fn(String, oneshot::Sender<Result<(), Failure>>) -> Ask;
        let (own, order): (Vm, Order) = match (fabric.guest(name), fabric.function(name)) {
            (Some(guest), _) => (vm(guest), Ask::StartGuest),
            (None, Some(function)) => (vm_of(function), Ask::StartFunction),
            (None, None) => {
                let known = service.engine.view(|model| model.vm(name).is_some())?;
                return Err(Failed::Unknown(nothing_to_start(name, known)));
            }
        };
        let known = service.engine.view(|model| model.vm(name).map(|slot| (*slot.vm).clone()))?;
        // Described by somebody or not, nobody can move it.
        let vm = Vm { migration: Migration::PinnedToHost, ..known.unwrap_or(own) };
        let request = PlaceRequest {
            vms: vec![name.into()],
            new: vec![vm],
            // Nobody starts guests on other hosts yet.
            only: BTreeSet::from([here.to_string()]),
            ..PlaceRequest::default()
        };
        let decision = service.place(request)?;
        if let Some(choice) = decision.choices.iter().find(|choice| choice.host.is_none()) {
            return Err(Failed::Conflict(choice.why()));
        }
        match self.ask(|answer| order(name.into(), answer)) {
            Ok(()) => service.confirm(name)?,
            Err(error) => {
                service.release(name)?;
                return Err(error);
            }
        }
        Ok(decision)
    }
}

/// What to do about a name that the fabric's file does not have; `known` if placement knows it all the same.
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

/// A guest as a VM. Nobody can move it: no other host runs guests yet.
pub fn vm(guest: &Guest) -> Vm {
    Vm {
        name: guest.name.clone(),
        cores: guest.cpus.max(1),
        memory_mb: (guest.memory >> 20).max(1),
        migration: Migration::PinnedToHost,
        ..Vm::default()
    }
}

/// A function as a VM: its process has one thread.
fn vm_of(function: &Function) -> Vm {
    Vm {
        name: function.name.clone(),
        cores: 1,
        memory_mb: (function.memory >> 20).max(1),
        migration: Migration::PinnedToHost,
        ..Vm::default()
    }
}

/// What has to be put in so that VMs on `here` are as the guests and functions of the fabric are: those that run
/// without having been placed take what they take, those that ended take nothing any more.
pub fn differences(
    guests: &[GuestView],
    functions: &[FunctionView],
    fabric: &Fabric,
    known: &BTreeMap<String, Vm>,
    here: &str,
) -> Vec<Object> {
    let mut changes = Vec::new();
    let guests = guests.iter().filter_map(|view| {
        let runs = matches!(view.state.as_str(), "starting" | "running" | "stopping");
        Some((vm(fabric.guest(&view.name)?), runs))
    });
    let functions = functions.iter().filter_map(|view| {
        // One that ended is about to be started again.
        Some((vm_of(fabric.function(&view.name)?), view.state != "stopped"))
    });
    for (own, runs) in guests.chain(functions) {
        let known = known.get(&own.name);
        let counts = known.is_some_and(|vm| vm.runs() && vm.host.as_deref() == Some(here));
        if runs == counts {
            continue;
        }
        let old = known.cloned().unwrap_or(own);
        let (status, host) =
            if runs { (VmStatus::Up, Some(here.to_string())) } else { (VmStatus::Down, None) };
        let migration = if runs { Migration::PinnedToHost } else { old.migration };
        let last_host = if runs { old.last_host.clone() } else { Some(here.to_string()) };
        changes.push(Object::Vm(Box::new(Vm { status, host, migration, last_host, ..old })));
    }
    changes
}

/// What enters and leaves a port.
fn total(counts: &Counts) -> (u64, u64) {
    (counts.tx_frames + counts.rx_frames, counts.tx_bytes + counts.rx_bytes)
}

fn rates(before: &StatsView, stats: &StatsView, host: &str, now: u64) -> Rates {
    let seconds = stats.at.saturating_sub(before.at).max(1) as f64 / 1e9;
    let fact = |name: String, value: f64| {
        let (until, pushed) = (Some(now.saturating_add(FRESH)), Some(now));
        Object::Fact(Fact { host: host.into(), name, value, until, pushed })
    };
    let old: BTreeMap<&str, (u64, u64)> =
        before.ports.iter().map(|port| (port.name.as_str(), total(&port.total))).collect();
    let mut rates = Rates::default();
    let (mut all_pps, mut all_mbps) = (0.0, 0.0);
    for port in &stats.ports {
        let (frames, bytes) = total(&port.total);
        // A port that is new counts from nothing; one that was made anew counts from nothing again.
        let (old_frames, old_bytes) = old.get(port.name.as_str()).copied().unwrap_or_default();
        let pps = frames.saturating_sub(old_frames) as f64 / seconds;
        let mbps = bytes.saturating_sub(old_bytes) as f64 * 8.0 / 1e6 / seconds;
        (all_pps, all_mbps) = (all_pps + pps, all_mbps + mbps);
        rates.ports.push(PortLoad { name: port.name.clone(), mbps: mbps as u64, pps: pps as u64 });
        // A fact's name has letters, digits and `_`, 64 at most.
        let name: String = port.name.replace('-', "_").chars().take(50).collect();
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
    use crate::api::PortStats;

    fn stats(at: u64, ports: &[(&str, u64)]) -> StatsView {
        let port = |(name, frames): &(&str, u64)| {
            let total = Counts { tx_frames: *frames, rx_bytes: frames * 125_000, ..Counts::default() };
            PortStats { name: name.to_string(), total, ..PortStats::default() }
        };
        StatsView { at, ports: ports.iter().map(port).collect() }
    }

    #[test]
    fn ports_that_come_later_have_rates_too() {
        let (before, now) = (stats(0, &[("a", 10)]), stats(2_000_000_000, &[("a", 30), ("up-link", 4)]));
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

    fn guest(name: &str, state: &str) -> GuestView {
        let text = String::new;
        GuestView {
            name: name.into(),
            kind: "uml".into(),
            state: state.into(),
            note: text(),
            pid: 1,
            ports: Vec::new(),
            console: text(),
            reason: text(),
        }
    }

    #[test]
    fn guests_take_what_they_take_while_they_run() {
        let text = "[switch.s]\n[port.p]\nkind = \"vhost-user\"\nsocket = \"p.sock\"\nswitch = \"s\"\n\
            [guest.g]\nkind = \"uml\"\nport = \"p\"\nmemory = \"64MB\"\n";
        let host = crate::file::Host {
            cores: vec![0],
            base: Some("/run".into()),
            run: None,
            find: None,
            kinds: &[],
        };
        let fabric = crate::file::read("f.toml", text, &host).unwrap();
        let mut known = BTreeMap::new();
        let now = |state: &str, known: &BTreeMap<String, Vm>| {
            let mut changes =
                differences(&[guest("g", state), guest("x", "running")], &[], &fabric, known, "here");
            match changes.pop() {
                Some(Object::Vm(vm)) => Some(*vm),
                _ => None,
            }
        };
        let vm = now("running", &known).unwrap();
        assert_eq!(
            (vm.host.as_deref(), vm.migration, vm.runs()),
            (Some("here"), Migration::PinnedToHost, true)
        );
        assert!(vm.memory_mb > 60 && vm.check().is_ok());
        known.insert("g".to_string(), vm);
        assert_eq!(now("starting", &known), None);
        let vm = now("ended", &known).unwrap();
        assert_eq!((vm.host, vm.status, vm.last_host.as_deref()), (None, VmStatus::Down, Some("here")));
    }
}
