//! The device behind a session: registers, the ring in its memory, and its interrupt.

use super::Settings;
use super::tx::TimedTx;
use crate::pci_session::{BackendError, PciDevice, area, check_eventfd, refused, regions};
use crate::ring::{self, Fault, RingPort};
use crate::session_loop::Served;
use crate::{Doorbell, Exits, Queue, RegisterExits, SocketError};
use ringway_frame::CountersRef;
use ringway_host::{Budget, Epoll, EventFd, Mapping, Signal};
use ringway_mem::{Memory, Region};
use ringway_nic::Accesses;
use ringway_nic::shared_ring::{self, SharedRing};
use ringway_ring::{Geometry, LayoutError, RingMemory};
use ringway_vfio_user::{
    self as vfio_user, Device, DmaMap, DmaRange, Irq, IrqAction, IrqType, Offer, Refused, RegionDoorbell,
    errno, pci,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Key of the socket in the session's epoll.
const SOCKET: u64 = 0;
/// Ranges of guest memory that a client may announce; none is used. QEMU accepts at most 65535.
const RANGES: u32 = 65_535;

/// What a client has of its own.
struct Session {
    epoll: Epoll,
    /// The file of the ring's memory, which the client maps.
    file: Arc<OwnedFd>,
    region: Region,
    /// The ring's memory as it was made last.
    ring: RingMemory,
    /// Signalled by a monitor on KVM in place of writes to the doorbell.
    kick: Arc<OwnedFd>,
    /// The eventfd of the interrupt, and what signals it.
    call: Option<(Arc<OwnedFd>, Arc<Signal>)>,
}

/// What a worker found that the guest's program did to its ring.
#[derive(Default)]
pub(super) struct Faults(Mutex<Option<Fault>>);

impl Faults {
    /// Called by a worker; does not block, since the lock is held only for one store.
    pub fn record(&self, fault: Fault) {
        if let Ok(mut place) = self.0.lock() {
            *place = Some(fault);
        }
    }

    fn take(&self) -> Option<Fault> {
        self.0.lock().ok().and_then(|mut fault| fault.take())
    }
}

/// A device as its session serves it.
pub(super) struct RingDevice {
    settings: Settings,
    geometry: Geometry,
    model: SharedRing,
    port: RingPort,
    session: Option<Session>,
    /// Whether a program uses the ring, for the TX queue.
    used: Arc<AtomicBool>,
    doorbell: Arc<dyn Doorbell>,
    counters: CountersRef,
    faults: Arc<Faults>,
    /// Why a ring was ended last, for the log.
    ended: Option<Fault>,
    /// Frames sent and received, and interrupts, before the client connected.
    before: [u64; 3],
}

impl RingDevice {
    /// A device without a client, and its queues.
    pub fn new(
        settings: Settings,
        config: ring::Config,
        faults: Arc<Faults>,
    ) -> Result<(RingDevice, Vec<Queue>), LayoutError> {
        let geometry = settings.geometry();
        let model = SharedRing::new(Arc::default(), geometry.header()?.bytes);
        let (doorbell, counters) = (config.doorbell.clone(), config.counters.clone());
        let (port, mut queues) = RingPort::new(config);
        let used = Arc::new(AtomicBool::new(false));
        if settings.mapped {
            let timed = |Queue { tx, rx }| {
                let tx = Box::new(TimedTx::new(tx, settings.poll, used.clone()));
                Queue { tx, rx }
            };
            queues = queues.into_iter().map(timed).collect();
        }
        let device = RingDevice {
            settings,
            geometry,
            model,
            port,
            session: None,
            used,
            doorbell,
            counters,
            faults,
            ended: None,
            before: [0; 3],
        };
        Ok((device, queues))
    }

    /// The port of the ring.
    pub fn port(&self) -> &RingPort {
        &self.port
    }

    /// Makes the ring anew for a program, and uses it from now on.
    fn begin_ring(&mut self) -> Result<(), LayoutError> {
        // Workers use the former ring no longer when this returns.
        self.port.detach();
        // A fault of the former ring does not end this one.
        self.ended = self.faults.take().or(self.ended.take());
        let Some(session) = &mut self.session else { return Ok(()) };
        session.ring = RingMemory::create_again(session.region.clone(), &self.geometry)?;
        self.used.store(true, Relaxed);
        let call = session.call.as_ref().map(|(_, signal)| signal.clone());
        self.port.open(session.ring.clone(), session.kick.clone(), call);
        self.model.set_used(true);
        Ok(())
    }

    /// Ends the use of the ring, and tells its program; its next reset begins another.
    pub fn end_ring(&mut self) {
        self.used.store(false, Relaxed);
        self.port.detach();
        self.model.set_used(false);
        if let Some(session) = &self.session {
            session.ring.close();
            session.call.iter().for_each(|(_, signal)| signal.send());
        }
    }

    /// Ends the ring if a worker found that its program violated the rules.
    pub fn collect_fault(&mut self) {
        if let Some(fault) = self.faults.take() {
            self.end_ring();
            self.ended = Some(fault);
        }
    }

    /// Why a ring was ended since the previous call, for the log.
    pub fn take_ended(&mut self) -> Option<Fault> {
        self.ended.take()
    }

    fn counted(&self) -> [u64; 3] {
        let counters = &self.counters;
        [&counters.tx_frames, &counters.rx_frames, &counters.interrupts].map(|count| count.load(Relaxed))
    }
}

impl Served for RingDevice {
    fn epoll(&self) -> Option<&Epoll> {
        self.session.as_ref().map(|session| &session.epoll)
    }

    fn budget(&self) -> &Arc<Budget> {
        self.port.budget()
    }

    fn is_running(&self) -> bool {
        self.model.is_used()
    }
}

impl PciDevice for RingDevice {
    /// Attack: a client that keeps its mapping after it disconnected. Each client gets another `file`.
    fn begin_session(&mut self, socket: BorrowedFd<'_>, file: Option<OwnedFd>) -> Result<(), BackendError> {
        let file = file.ok_or(LayoutError::Size)?;
        let epoll = Epoll::new().map_err(SocketError::from)?;
        epoll.add_level(socket, SOCKET).map_err(SocketError::from)?;
        let region = Mapping::sealed(&file).map_err(SocketError::from)?.region();
        let ring = RingMemory::create(region.clone(), &self.geometry)?;
        // Nobody uses it before the first reset.
        ring.close();
        let memory = Arc::new(Memory::new(vec![region.clone()])?);
        self.model = SharedRing::new(memory, ring.header().bytes);
        let kick = Arc::new(EventFd::new().map_err(SocketError::from)?.into_fd());
        self.before = self.counted();
        self.faults.take();
        self.ended = None;
        self.port.budget().renew();
        self.session = Some(Session { epoll, file: Arc::new(file), region, ring, kick, call: None });
        Ok(())
    }

    fn offer(&self) -> Offer {
        let mut regions = regions(self.model.identity(), self.model.config());
        let [registers, _, memory] = shared_ring::BARS.map(usize::from);
        if let Some(session) = &self.session {
            // The rest of the BAR, behind the ring, has no file.
            let areas = vec![vfio_user::Area { offset: 0, size: session.ring.header().bytes }];
            regions[memory].mapping =
                Some(vfio_user::Mapping { file: session.file.clone(), offset: 0, areas });
            let (offset, eventfd) = (shared_ring::DOORBELL.into(), session.kick.clone());
            regions[registers].doorbells = vec![RegionDoorbell { offset, size: 4, eventfd }];
        }
        let mut irqs = vec![IrqType::default(); pci::IRQS];
        irqs[pci::MSIX as usize] = IrqType { count: 1, flags: IrqType::EVENTFD | IrqType::NORESIZE };
        Offer { regions, irqs, maps: RANGES }
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.session.iter().flat_map(|session| session.call.iter().map(|(fd, _)| fd.as_fd()))
    }

    fn clear(&mut self) {
        self.end_ring();
        self.session = None;
        self.model = SharedRing::new(Arc::default(), self.model_bytes());
    }

    fn exits(&self) -> Exits {
        let row = |(name, Accesses { reads, writes }): (&str, Accesses)| RegisterExits {
            name: name.into(),
            reads,
            writes,
            mapped: name == "MEMORY",
        };
        let now = self.counted();
        let [tx_frames, rx_frames, raised] = [0, 1, 2].map(|at| now[at].wrapping_sub(self.before[at]));
        let registers = self.model.accesses().into_iter().map(row).collect();
        let tx_doorbells = self.model.doorbells();
        Exits { registers, tx_frames, rx_frames, tx_doorbells, raised, ..Exits::default() }
    }

    fn detail(&self) -> String {
        let Settings { slots, slot_size, mapped, .. } = self.settings;
        let interrupts = match self.session.as_ref().map(|session| session.call.is_some()) {
            Some(true) => " msi-x",
            Some(false) => " no-interrupts",
            None => "",
        };
        let doorbells = if mapped { " mapped" } else { "" };
        format!("{slots} slots of {slot_size}{interrupts}{doorbells}")
    }
}

impl RingDevice {
    fn model_bytes(&self) -> u64 {
        // The sizes were checked when the device was made.
        self.geometry.header().map_or(0, |header| header.bytes)
    }
}

impl Device for RingDevice {
    /// The device accesses no memory of the guest.
    fn dma_map(&mut self, _map: DmaMap, _file: Option<OwnedFd>) -> Result<(), Refused> {
        Ok(())
    }

    fn dma_unmap(&mut self, _ranges: &[DmaRange]) {}

    fn read(&mut self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Refused> {
        self.model.read(area(region)?, offset, bytes);
        Ok(())
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let asked = self.model.write(area(region)?, offset, bytes);
        if asked.end && !asked.reset {
            self.end_ring();
        } else if asked.reset {
            self.begin_ring().map_err(|error| refused(errno::EIO, error))?;
        } else if asked.kick {
            self.doorbell.wake();
        }
        Ok(())
    }

    fn set_eventfd(&mut self, _irq: Irq, action: IrqAction, fd: Option<OwnedFd>) -> Result<(), Refused> {
        check_eventfd(fd.as_ref())?;
        if action != IrqAction::Trigger {
            return match fd {
                Some(_) => Err(refused(errno::ENOTSUP, "the interrupt can't be masked")),
                None => Ok(()),
            };
        }
        let fd = fd.map(Arc::new);
        let signal = fd.clone().map(|fd| self.port.signal(fd)).transpose();
        let signal = signal.map_err(|error| refused(errno::EIO, error))?;
        self.port.set_call(signal.clone());
        if let Some(session) = &mut self.session {
            // What came before went to the former one, or to none.
            signal.iter().for_each(|signal| signal.send());
            session.call = fd.zip(signal);
        }
        Ok(())
    }

    fn act(&mut self, _irq: Irq, action: IrqAction) {
        if let (IrqAction::Trigger, Some(session)) = (action, &self.session) {
            session.call.iter().for_each(|(_, signal)| signal.send());
        }
    }

    fn reset(&mut self) {
        self.end_ring();
        self.model.reset();
    }
}
