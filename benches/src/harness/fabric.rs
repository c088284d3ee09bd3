//! A fabric whose workers run in this process.

use crate::Failure;
use ringway_fabric::Fabric;
use ringway_fabric::proto::Event;
use ringway_frame::{Counters, CountersPage};
use ringway_host::listener::{Access, Listener};
use ringway_host::wait_readable;
use ringway_port::tap;
use ringway_port::vhost_user::{KIND, MEMORY, Settings};
use ringway_spec::{Kind, Poll, Port, Switch, To, Worker};
use ringway_switch::learning;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The switch of all ports.
pub const SWITCH: &str = "bench";
/// How long frames wait for a full destination: the fabric's own default.
const HOLD: u64 = 100_000;
/// How long a worker polls a silent queue: the fabric's own default.
const SPIN: u64 = 50_000;

/// A fabric with one switch, which learns addresses unless it has another lookup.
pub struct Harness {
    /// The fabric.
    pub fabric: Fabric,
    page: Arc<Vec<Counters>>,
    next: u32,
}

impl Harness {
    /// Starts a fabric with room for `queues` queues and a worker on each of `cores`.
    pub fn start(cores: &[usize], queues: usize, poll: Poll) -> Result<Harness, Failure> {
        let lookup =
            Kind::new("learning", &learning::Settings { ageing: 300, entries: 4096, refuse_moves: false });
        Harness::with(cores, queues, poll, lookup)
    }

    /// As [`Harness::start`], with another lookup.
    pub fn with(cores: &[usize], queues: usize, poll: Poll, lookup: Kind) -> Result<Harness, Failure> {
        let worker = |core: &usize| Worker {
            name: format!("bench-{core}"),
            core: Some(*core),
            node: None,
            poll,
            spin: SPIN,
            hold: HOLD,
        };
        let page: Arc<Vec<Counters>> = Arc::new((0..queues).map(|_| Counters::default()).collect());
        let workers: Vec<Worker> = cores.iter().map(worker).collect();
        let mut fabric = Fabric::start(&workers, page.clone(), ringway_host::random()?, &[])?;
        fabric.add_switch(Switch { name: SWITCH.into(), lookup, forward_reserved: false, snooping: None })?;
        Ok(Harness { fabric, page, next: 0 })
    }

    /// Adds a port to the switch.
    pub fn add(&mut self, name: &str, kind: Kind) -> Result<(), Failure> {
        self.add_port(Port::new(name, kind, Some(To::Switch(SWITCH.into()))))
    }

    /// Adds a port; without a `hold` of its own, frames wait for it as long as by default.
    pub fn add_port(&mut self, port: Port) -> Result<(), Failure> {
        let queues = port.queues;
        self.fabric.add_port(held(port), self.next)?;
        self.next += u32::from(queues);
        Ok(())
    }

    /// Gives a port another policy: `port` is as it was added but for that.
    pub fn change_policy(&mut self, port: Port) -> Result<(), Failure> {
        Ok(self.fabric.change_port(held(port))?)
    }

    /// Adds a port to a TAP interface of the same name, which it creates.
    pub fn add_tap(&mut self, name: &str, to: To) -> Result<(), Failure> {
        let settings = tap::Settings {
            interface: name.into(),
            mac: None,
            mtu: 1500,
            offloads: true,
            namespace: None,
            host: None,
            addresses: Vec::new(),
            gateways: Vec::new(),
        };
        self.add_port(Port::new(name, Kind::new(tap::KIND.name, &settings), Some(to)))?;
        self.attach(name, tap::open(&settings, 1)?)
    }

    /// The counters of all queues.
    pub fn page(&self) -> Arc<Vec<Counters>> {
        self.page.clone()
    }

    /// The sum of one counter over all queues.
    pub fn sum(&self, which: impl Fn(&Counters) -> u64) -> u64 {
        self.page.counters().iter().map(which).sum()
    }

    /// Interrupts sent by the fabric, and kicks received.
    pub fn notifications(&self) -> u64 {
        self.sum(|counters| counters.interrupts.load(Relaxed) + counters.kicks.load(Relaxed))
    }

    /// Nanoseconds that the workers spent on turns that moved frames.
    pub fn busy(&self) -> u64 {
        self.fabric.state().workers.iter().map(|worker| worker.busy).sum()
    }

    /// Serves the fabric's sessions while `work` runs on a separate thread.
    pub fn serve_while<T: Send>(
        &mut self,
        work: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        self.serve_beside(|_| Ok(()), work)
    }

    /// Serves the fabric's sessions while `work` runs on a separate thread. `each` is called before sessions are
    /// served, at least every millisecond: it may attach peers.
    pub fn serve_beside<T: Send>(
        &mut self,
        each: impl Fn(&mut Harness) -> Result<(), Failure>,
        work: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(work);
            let mut gone = None;
            while !thread.is_finished() {
                each(self)?;
                gone = gone.or(self.serve(Duration::from_millis(1))?);
            }
            let result = thread.join().map_err(|_| "a thread of the benchmark failed")?;
            result.map_err(|error| match gone {
                Some(gone) => format!("{error}; {gone}").into(),
                None => error,
            })
        })
    }

    /// Serves sessions until `is` returns true, or fails after `bound`.
    pub fn serve_until(&mut self, bound: Duration, is: impl Fn(&Harness) -> bool) -> Result<(), Failure> {
        let end = Instant::now() + bound;
        while !is(self) {
            if let Some(gone) = self.serve(Duration::from_millis(5))? {
                return Err(gone.into());
            }
            if Instant::now() > end {
                return Err(format!("ports did not come up: {:?}", self.fabric.state().ports).into());
            }
        }
        Ok(())
    }

    /// Accepts and serves until `is` returns true, or fails after `bound`.
    pub fn serve_accepting(
        &mut self,
        listeners: &[(&str, Listener)],
        bound: Duration,
        is: impl Fn(&Harness) -> bool,
    ) -> Result<(), Failure> {
        let end = Instant::now() + bound;
        while !is(self) {
            self.accept(listeners)?;
            if Instant::now() > end {
                return Err(format!("front-ends do not connect: {:?}", self.fabric.state().ports).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether every port is up.
    pub fn is_up(&self) -> bool {
        self.fabric.state().ports.iter().all(|port| port.state == "up")
    }

    /// Connects waiting front-ends of `listeners`, each to its port, and serves them.
    pub fn accept(&mut self, listeners: &[(&str, Listener)]) -> Result<(), Failure> {
        for (port, listener) in listeners {
            if let Some(socket) = listener.accept()? {
                self.attach(port, vec![socket])?;
            }
        }
        // A guest's first connection may be a probe, closed at once.
        self.serve(Duration::ZERO).map(drop)
    }

    /// Serves messages for `time`; returns the reason if a port lost its peer.
    fn serve(&mut self, time: Duration) -> Result<Option<String>, Failure> {
        let (ids, fds): (Vec<_>, Vec<_>) = self.fabric.sessions().map(|(id, fd)| (id, fd.as_fd())).unzip();
        if fds.is_empty() {
            std::thread::sleep(time);
            return Ok(None);
        }
        let ready = wait_readable(&fds, Some(time.as_nanos() as u64))?;
        drop(fds);
        let ready = ids.into_iter().zip(ready).filter(|(_, ready)| *ready);
        let events: Vec<Event> = ready.filter_map(|(id, _)| self.fabric.serve(id)).collect();
        Ok(events.into_iter().find_map(|event| match event {
            Event::Detached { port, reason, .. } => Some(format!("port {port}: {reason}")),
            Event::Changed(_)
            | Event::Wanted { .. }
            | Event::FlowsExpired { .. }
            | Event::Pressed { .. }
            | Event::Worker { .. }
            | Event::Function { .. } => None,
        }))
    }

    /// Attaches a peer to a port.
    pub fn attach(&mut self, port: &str, descriptors: Vec<OwnedFd>) -> Result<(), Failure> {
        Ok(self.fabric.attach(port, descriptors)?)
    }
}

/// A port as a fabric of benchmarks has it.
fn held(port: Port) -> Port {
    Port { hold: port.hold.or(Some(HOLD)), ..port }
}

/// A vhost-user port.
pub fn vhost_user() -> Kind {
    let (without, memory, carrier) = (Vec::new(), MEMORY, true);
    let settings = Settings { server: true, mac: None, mtu: None, without, memory, carrier };
    Kind::new(KIND.name, &settings)
}

/// Listens at `path` for front-ends.
pub fn listen(path: &Path) -> Result<Listener, Failure> {
    Ok(Listener::bind(path, Access { mode: Some(0o666), ..Access::default() })?)
}
