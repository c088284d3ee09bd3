//! Ports that programs open on switches: each is made for a program, and removed when the program leaves.

use super::{Engine, EngineError};
use crate::change::Change;
use crate::file::{Fabric, OpenAccess, SLOT_SIZE, SLOTS};
use crate::keeper::StoredEntry;
use crate::kinds::ring;
use crate::open::switch::{OpenRequest, SwitchSocket, kept_switch};
use crate::open::{Adopted, Newcomers};
use ringway_port::ring::Settings;
use ringway_ring::RingKind;
use ringway_spec::{Port, To, names};
use std::collections::{BTreeMap, VecDeque};
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;

/// Attack: programs that open ports which others have. Most that wait, for all switches.
const MOST_WAITING: usize = 64;
/// Attack: a program that requests a ring of gigabytes. Largest ring in bytes: 4096 slots of 2 KB in each direction
/// have room.
const LARGEST_RING: u64 = 20 << 20;

/// What concerns ports that programs open.
#[derive(Default)]
pub(super) struct OpenPorts {
    /// The sockets of switches, by name.
    sockets: BTreeMap<String, SwitchSocket>,
    /// Programs that have come, for which nothing is done yet: a change may be under way.
    arrived: VecDeque<OpenRequest>,
    /// Ports whose programs have left.
    left: Vec<String>,
    /// Programs that wait until others have left.
    waiting: VecDeque<OpenRequest>,
    /// Programs for which ports are about to be made.
    pub newcomers: Newcomers,
}

/// What becomes of a program.
enum Verdict {
    /// It gets this port.
    Open(Box<Port>),
    /// Another program has the port.
    Wait,
    /// It gets none, for this reason.
    Refuse(String),
    /// It never gets one, for this reason.
    RefuseAlways(String),
}

/// The name of a port that a program opens.
fn port_name(switch: &str, name: &str) -> String {
    // No other port has such a name.
    format!("{switch}:{name}")
}

impl Engine {
    /// Opens the socket of a switch, or goes on with one.
    fn open_switch(
        &mut self,
        switch: &str,
        open: &OpenAccess,
        adopted: Option<OwnedFd>,
    ) -> Result<(), EngineError> {
        let folder = self.run.switches();
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&folder);
        made.map_err(|error| EngineError::SwitchFolder { folder: folder.clone(), error })?;
        let path = folder.join(switch);
        let socket = SwitchSocket::open(switch, open, &path, (&self.inbox, &self.keeper), adopted)?;
        self.open_ports.sockets.insert(switch.into(), socket);
        Ok(())
    }

    /// Changes who may open ports on a switch. Ports that programs have opened stay.
    pub(super) async fn set_opening(
        &mut self,
        switch: &str,
        open: Option<&OpenAccess>,
    ) -> Result<(), EngineError> {
        if let Some(socket) = self.open_ports.sockets.remove(switch) {
            socket.close(switch, &self.keeper).await;
        }
        let opened = open.map_or(Ok(()), |open| self.open_switch(switch, open, None));
        if opened.is_err()
            && let Some(before) = self.fabric.openings.get(switch).cloned()
        {
            // The error to report is the first one.
            let _ = self.open_switch(switch, &before, None);
        }
        opened
    }

    /// Goes on with the sockets of switches.
    pub(super) fn adopt_switches(
        &mut self,
        openings: &BTreeMap<String, OpenAccess>,
        found: &mut BTreeMap<String, StoredEntry>,
    ) {
        for (switch, open) in openings {
            let kept = found.remove(&kept_switch(switch));
            let socket = kept.and_then(|kept| kept.descriptors.into_iter().next());
            match self.open_switch(switch, open, socket) {
                Ok(()) => drop(self.fabric.openings.insert(switch.clone(), open.clone())),
                Err(error) => tracing::error!(%error, "the switch's socket is made again"),
            }
        }
    }

    /// Closes the sockets of all switches.
    pub(super) async fn close_switches(&mut self) {
        self.open_ports.arrived.clear();
        self.open_ports.waiting.clear();
        for (switch, socket) in std::mem::take(&mut self.open_ports.sockets) {
            socket.close(&switch, &self.keeper).await;
        }
    }

    /// A program opens a port.
    pub(super) fn program_arrived(&mut self, request: OpenRequest) {
        self.open_ports.arrived.push_back(request);
    }

    /// The program of a port that it has opened has left.
    pub(super) fn program_left(&mut self, port: &str) {
        self.open_ports.left.push(port.into());
    }

    /// Removes the ports of programs that have left, and opens those of others. Not during a change.
    pub(super) async fn tend_open_ports(&mut self) {
        for port in std::mem::take(&mut self.open_ports.left) {
            self.remove_opened(&port).await;
        }
        while let Some(request) = self.open_ports.arrived.pop_front() {
            self.open_port(request).await;
        }
        self.open_for_waiting().await;
    }

    /// Handles a program that opens a port.
    async fn open_port(&mut self, mut request: OpenRequest) {
        // Dropped at the end: the switch's next program may come.
        let _decided = request.decided.take();
        let switch = request.switch.clone();
        match self.verdict(&request) {
            Verdict::Open(port) => self.make_opened(*port, request).await,
            Verdict::Wait => self.let_wait(request),
            Verdict::Refuse(why) => {
                tracing::info!(switch, why, "a program opens no port");
                request.newcomer.refuse(&why);
            }
            Verdict::RefuseAlways(why) => request.newcomer.refuse_always(&why),
        }
    }

    fn let_wait(&mut self, request: OpenRequest) {
        let waiting = &mut self.open_ports.waiting;
        waiting.retain(|other| !other.newcomer.is_gone());
        if waiting.len() < MOST_WAITING {
            waiting.push_back(request);
        } else {
            request.newcomer.refuse("another program has the port, and as many as may wait for ports do");
        }
    }

    fn verdict(&self, request: &OpenRequest) -> Verdict {
        let OpenRequest { switch, name, hello, .. } = request;
        let Some(OpenAccess { limit, .. }) = self.fabric.openings.get(switch) else {
            return Verdict::Refuse(format!("programs can't open ports on switch {switch} any more"));
        };
        if let Err((what, fix)) = names::name(name) {
            return Verdict::RefuseAlways(format!("{what}; {fix}"));
        }
        let whole = port_name(switch, name);
        if self.fabric.port(&whole).is_some() {
            return Verdict::Wait;
        }
        let settings = Settings { slots: SLOTS, slot_size: SLOT_SIZE };
        let ring = hello.geometry(RingKind::Port, &settings.geometry()).header();
        if ring.is_ok_and(|ring| ring.bytes > LARGEST_RING) {
            let most = LARGEST_RING >> 20;
            return Verdict::RefuseAlways(format!(
                "a ring of a port that a program opens has {most} MB at most"
            ));
        }
        let is_its = |port: &&Port| ring::opened(port).is_some_and(|(own, _)| own == switch);
        let count = self.fabric.ports.iter().filter(is_its).count();
        if count >= usize::from(*limit) {
            return Verdict::Refuse(format!(
                "programs have opened {count} ports on switch {switch}, of {limit} at most (`open-limit`)"
            ));
        }
        Verdict::Open(Box::new(ring::of_function(&whole, None, To::Switch(switch.clone()))))
    }

    /// Makes a port for a program.
    async fn make_opened(&mut self, port: Port, request: OpenRequest) {
        let name = port.name.clone();
        let target = self.fabric.clone();
        self.open_ports.newcomers.insert(name.clone(), (request.newcomer, request.hello));
        let made = self.make(&Change::AddPort(port), &target).await;
        self.is_changed = true;
        let left = self.open_ports.newcomers.remove(&name);
        match made {
            Ok(()) => tracing::info!(port = name, "a program opened the port"),
            Err(error) => {
                tracing::warn!(port = name, %error, "the port can't be opened");
                if let Some((newcomer, _)) = left {
                    newcomer.refuse(&error.to_string());
                }
            }
        }
    }

    /// What the opener of a port begins with.
    pub(super) fn begun(&mut self, port: &Port) -> Adopted {
        Adopted::new(self.open_ports.newcomers.remove(&port.name))
    }

    /// Removes a port whose program has left.
    async fn remove_opened(&mut self, name: &str) {
        if !self.fabric.port(name).and_then(ring::opened).is_some() {
            return;
        }
        let target = self.fabric.clone();
        if let Err(error) = self.make(&Change::RemovePort(name.into()), &target).await {
            tracing::error!(port = name, %error, "removing the port of a program that has left");
        }
        self.is_changed = true;
    }

    /// Opens ports for programs that waited until others had left.
    async fn open_for_waiting(&mut self) {
        let is_free =
            |fabric: &Fabric, one: &OpenRequest| fabric.port(&port_name(&one.switch, &one.name)).is_none();
        while let Some(at) = self.open_ports.waiting.iter().position(|one| is_free(&self.fabric, one)) {
            let Some(request) = self.open_ports.waiting.remove(at) else { return };
            if !request.newcomer.is_gone() {
                self.open_port(request).await;
            }
        }
    }
}

/// Adds the ports that programs have opened in `from` to `to`, which a file describes, where their switches still let
/// programs open ports.
pub(super) fn keep_opened(from: &Fabric, to: &mut Fabric) {
    let may_stay =
        |port: &&Port| ring::opened(port).is_some_and(|(switch, _)| to.openings.contains_key(switch));
    let opened: Vec<Port> = from.ports.iter().filter(may_stay).cloned().collect();
    to.ports.extend(opened);
}
