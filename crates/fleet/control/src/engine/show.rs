//! The engine's views of the running fabric.

use super::{Engine, suspect};
use crate::api::{
    ChainView, Counts, FabricView, FunctionView, PortStats, PortView, StatsView, SwitchView, WorkerView,
};
use crate::data::PageError;
use crate::kinds;
use ringway_fabric::proto::{PortState, Reply, Request, State};
use ringway_fabric::worker_node;
use ringway_frame::{Counters, FIRST_REASONS, Reason, RingPlace};
use ringway_spec::{Chain, Port, Switch, To, printable};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::time::Duration;

/// Problem of a worker if the system refuses `io_setup`.
const HELPED: &str =
    "peers' eventfds are signalled by a thread each: io_setup was refused, see `ringway doctor`";

/// How long a query waits for the current state from `data`.
const STATE_TIMEOUT: Duration = Duration::from_millis(500);

impl Engine {
    /// The state of `data`; the last known one if `data` does not answer, and an empty one while it is not running.
    pub(super) async fn state(&mut self) -> State {
        let Some(data) = &mut self.data else { return State::default() };
        if let Ok(posted) = data.post(Request::State, Vec::new())
            && let Ok(Ok(Reply::State(state))) = tokio::time::timeout(STATE_TIMEOUT, posted).await
        {
            self.last_state = state;
        }
        self.last_state.clone()
    }

    /// The number of addresses that each switch knows; nothing if `data` does not answer.
    pub(super) async fn address_counts(&mut self) -> BTreeMap<String, u64> {
        let posted = self.data.as_mut().and_then(|data| data.post(Request::AddressCounts, Vec::new()).ok());
        let Some(posted) = posted else { return BTreeMap::new() };
        match tokio::time::timeout(STATE_TIMEOUT, posted).await {
            Ok(Ok(Reply::AddressCounts(counts))) => counts,
            _ => BTreeMap::new(),
        }
    }

    pub(super) async fn fabric_view(&mut self) -> FabricView {
        let state = self.state().await;
        let node = |name: &str| worker_node(self.fabric.workers.iter().find(|worker| worker.name == name)?);
        let worker = |worker: ringway_fabric::proto::WorkerState| WorkerView {
            node: node(&worker.name),
            name: worker.name,
            queues: worker.queues,
            active: worker.active,
            turns: worker.turns,
            sleeps: worker.sleeps,
            busy: worker.busy,
            note: match (worker.held, worker.helped) {
                (held, _) if !held.is_empty() => held,
                (_, true) => HELPED.into(),
                (_, false) => String::new(),
            },
        };
        FabricView {
            name: self.fabric.name.clone(),
            file: self.file.clone(),
            run: self.run.path().display().to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            data_pid: self.data.as_ref().map_or(0, |data| data.pid),
            restarts: self.restarts,
            uptime: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            switches: self.switch_views(),
            workers: state.workers.into_iter().map(worker).collect(),
            ports: self.fabric.ports.len(),
            guests: self.guests.len(),
            functions: self.functions.len(),
        }
    }

    fn switch_views(&self) -> Vec<SwitchView> {
        let view = |switch: &Switch| {
            let on = Some(To::Switch(switch.name.clone()));
            let ports =
                self.fabric.ports.iter().filter(|port| port.to == on).map(|port| port.name.clone()).collect();
            let flows = self.flow_count(&switch.name);
            SwitchView { name: switch.name.clone(), lookup: switch.lookup.name().into(), ports, flows }
        };
        self.fabric.switches.iter().map(view).collect()
    }

    /// Every chain. Frames pass it while all of its functions run, or start with the first frame.
    pub(super) fn chain_views(&self) -> Vec<ChainView> {
        let functions = self.functions.view();
        let view = |chain: &Chain| {
            // A running instance represents a function that multiplies, if there is one.
            let best = |name: &String| {
                let its = self.fabric.members(name);
                let its = its.filter_map(|own| functions.iter().find(|one| one.name == own.name));
                let its: Vec<&FunctionView> = its.collect();
                its.iter().find(|one| one.state == "running").or(its.first()).copied()
            };
            let mut its = chain.functions.iter().filter_map(best);
            let down = its.find(|function| !matches!(&*function.state, "running" | "dormant"));
            let why = |function: &FunctionView| {
                let because = if function.reason.is_empty() { "" } else { ": " };
                format!("function {} is {}{because}{}", function.name, function.state, function.reason)
            };
            ChainView {
                name: chain.name.clone(),
                state: if down.is_none() { "up" } else { "down" }.into(),
                ports: chain.ports.to_vec(),
                functions: chain.functions.clone(),
                reason: down.map(why).unwrap_or_default(),
            }
        };
        self.fabric.chains.iter().map(view).collect()
    }

    pub(super) async fn port_views(&mut self) -> Vec<PortView> {
        let mut states: BTreeMap<String, PortState> =
            self.state().await.ports.into_iter().map(|state| (state.name.clone(), state)).collect();
        for port in &self.fabric.ports {
            if let (Some(live), Some(state)) =
                (self.running_ports.get_mut(&port.name), states.remove(&port.name))
            {
                live.state = Some(state);
            }
        }
        self.fabric.ports.iter().map(|port| self.port_view(port)).collect()
    }

    fn port_view(&self, port: &Port) -> PortView {
        let live = self.running_ports.get(&port.name);
        let state = live.and_then(|live| live.state.clone());
        let programs = live.map_or(0, |live| live.programs);
        let kind = kinds::find(port.kind.name(), self.host.kinds);
        let (state, worker, detail) = match state {
            _ if kind.is_some_and(|kind| !kind.is_in_data()) => {
                let state = ["waiting", "attached", "up"].get(programs).copied().unwrap_or("up");
                (state.to_string(), String::new(), format!("{programs} of 2 programs"))
            }
            _ if self.suspects.has(&port.name) => ("down".into(), String::new(), String::new()),
            Some(state) => (state.state, state.worker, state.detail),
            None => ("waiting".into(), String::new(), String::new()),
        };
        let peer = kind.map(|kind| kind.peer(port)).unwrap_or_default();
        PortView {
            name: port.name.clone(),
            kind: port.kind.name().into(),
            state,
            peer,
            to: match &port.to {
                Some(To::Switch(switch)) => format!("switch {switch}"),
                Some(To::Patch(peer)) => format!("patch {peer}"),
                None => String::new(),
            },
            worker,
            detail,
            policy: crate::file::policy_texts(&port.policy),
            reason: match self.suspects.has(&port.name) {
                true => suspect::reason(&port.name),
                false => live.map(|live| printable(&live.reason).into_owned()).unwrap_or_default(),
            },
        }
    }

    pub(super) fn stats(&self) -> Result<StatsView, PageError> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let at = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        let mut ports = Vec::new();
        for port in &self.fabric.ports {
            // Frames of a port without queues pass directly between programs, uncounted.
            let Some(live) = self.running_ports.get(&port.name).filter(|live| live.queues > 0) else {
                continue;
            };
            let mut stats = PortStats { name: port.name.clone(), ..PortStats::default() };
            for queue in 0..u32::from(live.queues) {
                let counts = counts(&self.page.read(live.counters + queue)?);
                stats.total.add(&counts);
                stats.queues.push(counts);
            }
            ports.push(stats);
        }
        Ok(StatsView { at, ports })
    }
}

/// The word of the frames that were answered.
const ANSWERED: usize = (offset_of!(Counters, tx_place) + offset_of!(RingPlace, answered)) / 8;

/// Names the words of an entry of the counters page.
pub(super) fn counts(words: &[u64; Counters::WORDS]) -> Counts {
    let [tx_frames, tx_bytes, rx_frames, rx_bytes, kicks, interrupts, bursts, faults, drops @ ..] = words;
    let (tx, rest) = drops.split_at(FIRST_REASONS);
    let (rx, rest) = rest.split_at(FIRST_REASONS);
    let (iotlb, rest) = rest.split_at(5);
    let (memory, peer) = rest.split_at(2);
    let named = |counts: &[u64], place: usize| {
        let later = (place + offset_of!(RingPlace, later_drops)) / 8;
        let counts = counts.iter().chain(&words[later.min(Counters::WORDS)..]);
        let pairs = Reason::ALL.iter().zip(counts).filter(|(_, count)| **count > 0);
        pairs.map(|(reason, count)| (reason.name().to_string(), *count)).collect()
    };
    Counts {
        tx_frames: *tx_frames,
        tx_bytes: *tx_bytes,
        rx_frames: *rx_frames,
        rx_bytes: *rx_bytes,
        kicks: *kicks,
        interrupts: *interrupts,
        bursts: *bursts,
        faults: *faults,
        tx_drops: named(tx, offset_of!(Counters, tx_place)),
        rx_drops: named(rx, offset_of!(Counters, rx_place)),
        iotlb_hits: iotlb[0].wrapping_add(iotlb[4]),
        iotlb_misses: iotlb[1],
        iotlb_invalidations: iotlb[2],
        iotlb_faults: iotlb[3],
        memory_resident: memory[0],
        memory_grown: memory[1],
        moved: peer[0],
        session_pauses: peer[1],
        // Behind what is kept of a session.
        unlearned: peer[4],
        joined: peer[5],
        answered: words[ANSWERED],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::add;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn counter_names_match_the_data_path() {
        let counters = Counters::default();
        add(&counters.rx_bytes, 1500);
        add(&counters.faults, 2);
        add(&counters.iotlb_hits, 7);
        add(&counters.iotlb_rx_hits, 8);
        add(&counters.iotlb_misses, 5);
        add(&counters.iotlb_faults, 6);
        add(&counters.memory_resident, 10);
        add(&counters.memory_grown, 9);
        add(&counters.moved, 11);
        add(&counters.session_pauses, 12);
        add(&counters.unlearned, 15);
        add(&counters.joined, 16);
        add(&counters.tx_place.answered, 17);
        counters.drop_tx(Reason::Short, 3);
        counters.drop_rx(Reason::BadSource, 4);
        counters.drop_tx(Reason::Isolated, 13);
        counters.drop_rx(Reason::WrongVlan, 14);
        let Counters { tx_frames, tx_bytes, rx_frames, rx_bytes, kicks, interrupts, bursts, faults, .. } =
            &counters;
        let head = [tx_frames, tx_bytes, rx_frames, rx_bytes, kicks, interrupts, bursts, faults];
        let Counters { iotlb_hits, iotlb_misses, iotlb_invalidations, iotlb_faults, iotlb_rx_hits, .. } =
            &counters;
        let Counters { memory_resident, memory_grown, moved, session_pauses, .. } = &counters;
        let Counters { session, settings, unlearned, joined, .. } = &counters;
        let tail = [iotlb_hits, iotlb_misses, iotlb_invalidations, iotlb_faults, iotlb_rx_hits];
        let tail = tail.into_iter().chain([memory_resident, memory_grown, moved, session_pauses]);
        let tail = tail.chain([session, settings, unlearned, joined]);
        let all = head.into_iter().chain(&counters.tx_drops).chain(&counters.rx_drops).chain(tail);
        let mut words = [0; Counters::WORDS];
        words.iter_mut().zip(all).for_each(|(word, counter)| *word = counter.load(Relaxed));
        for (place, of) in [
            (&counters.tx_place, offset_of!(Counters, tx_place)),
            (&counters.rx_place, offset_of!(Counters, rx_place)),
        ] {
            let later = words[(of + offset_of!(RingPlace, later_drops)) / 8..].iter_mut();
            later.zip(&place.later_drops).for_each(|(word, counter)| *word = counter.load(Relaxed));
        }
        words[ANSWERED] = counters.tx_place.answered.load(Relaxed);
        let counts = counts(&words);
        assert_eq!((counts.rx_bytes, counts.faults, counts.drops()), (1500, 2, 34));
        assert_eq!((counts.memory_resident, counts.memory_grown), (10, 9));
        assert_eq!((counts.moved, counts.session_pauses), (11, 12));
        assert_eq!((counts.unlearned, counts.joined, counts.answered), (15, 16, 17));
        assert_eq!((counts.iotlb_hits, counts.iotlb_misses, counts.iotlb_faults), (15, 5, 6));
        assert_eq!(counts.tx_drops, BTreeMap::from([("short".to_string(), 3), ("isolated".to_string(), 13)]));
        assert_eq!(
            counts.rx_drops,
            BTreeMap::from([("bad-source".to_string(), 4), ("wrong-vlan".to_string(), 14)])
        );
    }
}
