//! What is behind a port, whatever its kind.

use crate::proto::{self, Kind};
use ringway_frame::{CountersRef, LARGEST};
use ringway_host::{EventFd, HostError, Mapping};
use ringway_port::ring::RingPort;
use ringway_port::tap::{AttachError, Lost, TapPort};
use ringway_port::vhost_user::{Backend, BackendError, State, Without};
use ringway_port::{Doorbell, Queue, null, ring, source, tap, vhost_user};
use ringway_ring::{Policy, RingMemory};
use ringway_wire::MacAddress;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// Why a device can't be made, or its peer not be attached.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// An address that can't be read.
    #[error("`{0}` is no Ethernet address")]
    Mac(String),
    /// A feature with no such name.
    #[error("there is no feature `{0}` to leave out")]
    Feature(String),
    /// A source that can't be.
    #[error(transparent)]
    Source(#[from] source::SourceError),
    /// The front-end's socket can't be used.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Not the descriptors that the kind needs.
    #[error("a peer of kind {kind} comes with {wanted} descriptors, not {given}")]
    Descriptors {
        /// Kind of the port.
        kind: &'static str,
        /// How many it needs.
        wanted: usize,
        /// How many there were.
        given: usize,
    },
    /// The interface doesn't fit.
    #[error(transparent)]
    Tap(#[from] AttachError),
    /// The ring is none of ours.
    #[error("the ring: {0}")]
    Ring(ringway_ring::LayoutError),
    /// The system refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The kind has no peer.
    #[error("a port of kind {0} has no peer to attach")]
    NoPeer(&'static str),
}

/// A peer is gone.
pub struct Gone {
    /// Why, for people.
    pub reason: String,
    /// It broke its protocol.
    pub fault: bool,
}

/// Where what a worker saw of a peer waits for the thread that serves the port.
pub struct Alarm {
    bell: Arc<EventFd>,
    gone: Mutex<Option<Gone>>,
}

impl Alarm {
    fn new(bell: &Arc<EventFd>) -> Arc<Alarm> {
        Arc::new(Alarm { bell: bell.clone(), gone: Mutex::new(None) })
    }

    fn raise(&self, gone: Gone) {
        // Held for a store only, by either side.
        if let Ok(mut place) = self.gone.lock() {
            *place = Some(gone);
        }
        self.bell.signal();
    }

    fn take(&self) -> Option<Gone> {
        self.gone.lock().ok().and_then(|mut gone| gone.take())
    }
}

/// What is behind a port.
pub enum Device {
    /// A guest.
    VhostUser(Box<Backend>),
    /// A program.
    Ring {
        /// Where programs attach.
        port: Box<RingPort>,
        /// Its faults.
        alarm: Arc<Alarm>,
        /// A program is attached.
        attached: bool,
    },
    /// The host's stack.
    Tap {
        /// Where the interface attaches.
        port: Box<TapPort>,
        /// Its end.
        alarm: Arc<Alarm>,
    },
    /// Nobody: it works by itself.
    Lone,
}

impl Device {
    /// The device and its queues, one for each of `counters`. `bell` rings when [`Device::check`] is worth calling.
    pub fn new(
        spec: &proto::Port,
        doorbells: Vec<Arc<dyn Doorbell>>,
        counters: &[CountersRef],
        bell: &Arc<EventFd>,
    ) -> Result<(Device, Vec<Queue>), DeviceError> {
        match &spec.kind {
            Kind::VhostUser { queues, mac, mtu, without } => {
                let mac = mac.as_deref().map(parse_mac).transpose()?.map(|mac| mac.0);
                let without = Without::named(without.iter().map(String::as_str));
                let without = without.map_err(|name| DeviceError::Feature(name.into()))?;
                let policy = spec.notify.into();
                let config = vhost_user::Config { mac, mtu: *mtu, queues: *queues, without, policy };
                let (backend, queues) = vhost_user::new(config, doorbells, counters.to_vec());
                Ok((Device::VhostUser(Box::new(backend)), queues))
            }
            Kind::Ring => Ok(ring_device(doorbells, counters, bell, spec.notify.into())),
            Kind::Null => Ok((Device::Lone, null::queues(&null::Config::default()))),
            Kind::Source { size, to, from, rate } => {
                let config = source::Config::new((*size).min(LARGEST), parse_mac(from)?, parse_mac(to)?);
                let config = source::Config { rate: *rate, ..config };
                Ok((Device::Lone, vec![source::queue(&config)?]))
            }
            Kind::Tap { mtu, offloads, .. } => {
                let alarm = Alarm::new(bell);
                let told = alarm.clone();
                let lost: Lost = Arc::new(move || {
                    let reason = "the interface is gone".to_string();
                    told.raise(Gone { reason, fault: false });
                });
                let config = tap::Config { mtu: *mtu, offloads: *offloads };
                let (port, queues) = TapPort::new(config, doorbells, counters, &lost)?;
                Ok((Device::Tap { port: Box::new(port), alarm }, queues))
            }
        }
    }

    /// The peer is there.
    pub fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), DeviceError> {
        match self {
            Device::VhostUser(backend) => {
                let [socket] = exactly("vhost-user", descriptors)?;
                Ok(backend.connect(socket)?)
            }
            Device::Ring { port, attached, .. } => {
                let [memory, kick, call] = exactly("ring", descriptors)?;
                let memory =
                    RingMemory::attach(Mapping::sealed(&memory)?.region()).map_err(DeviceError::Ring)?;
                port.attach(memory, kick, call);
                *attached = true;
                Ok(())
            }
            Device::Tap { port, .. } => Ok(port.attach(descriptors)?),
            Device::Lone => Err(DeviceError::NoPeer("null or source")),
        }
    }

    /// The peer is gone or is to go; none of its memory is touched when this returns.
    pub fn detach(&mut self) {
        match self {
            Device::VhostUser(backend) => backend.disconnect(),
            Device::Ring { port, attached, .. } => {
                port.detach();
                *attached = false;
            }
            Device::Tap { port, .. } => port.detach(),
            Device::Lone => {}
        }
    }

    /// How many of its queues its peer receives on now.
    pub fn receiving(&self) -> u32 {
        match self {
            Device::VhostUser(backend) => backend.receiving().into(),
            Device::Ring { .. } | Device::Tap { .. } | Device::Lone => u32::MAX,
        }
    }

    /// Readable while its session has something to do, if it has one.
    pub fn session(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Device::VhostUser(backend) => backend.fd(),
            Device::Ring { .. } | Device::Tap { .. } | Device::Lone => None,
        }
    }

    /// Serves the session, and looks whether the peer broke a rule that a worker saw.
    pub fn check(&mut self) -> Result<(), Gone> {
        match self {
            Device::VhostUser(backend) => {
                if backend.fd().is_none() {
                    return Ok(());
                }
                let result = backend.readable();
                if let Some(refused) = backend.refused() {
                    tracing::info!(%refused, "a front-end's request was refused");
                }
                result.map_err(|error| Gone { reason: error.to_string(), fault: error.is_fault() })
            }
            Device::Ring { port, alarm, attached } => {
                let Some(gone) = alarm.take() else { return Ok(()) };
                port.detach();
                *attached = false;
                Err(gone)
            }
            Device::Tap { port, alarm } => {
                let Some(gone) = alarm.take() else { return Ok(()) };
                port.detach();
                Err(gone)
            }
            Device::Lone => Ok(()),
        }
    }

    /// What it is doing, and what was negotiated, for people.
    pub fn state(&self) -> (&'static str, String) {
        match self {
            Device::VhostUser(backend) => {
                let state = match backend.state() {
                    State::Waiting => "waiting",
                    State::Attached => "attached",
                    State::Up => "up",
                };
                (state, backend.detail())
            }
            Device::Ring { attached: false, .. } => ("waiting", String::new()),
            Device::Tap { port, .. } if !port.is_attached() => ("waiting", String::new()),
            Device::Ring { .. } | Device::Tap { .. } | Device::Lone => ("up", String::new()),
        }
    }
}

fn ring_device(
    doorbells: Vec<Arc<dyn Doorbell>>,
    counters: &[CountersRef],
    bell: &Arc<EventFd>,
    policy: Policy,
) -> (Device, Vec<Queue>) {
    let alarm = Alarm::new(bell);
    let told = alarm.clone();
    let broken = move |fault: ring::Fault| told.raise(Gone { reason: fault.to_string(), fault: true });
    let counters = counters.first().cloned().unwrap_or_else(CountersRef::private);
    let silent: Arc<dyn Doorbell> = Arc::new(ringway_port::Silent);
    let doorbell = doorbells.into_iter().next().unwrap_or(silent);
    let config = ring::Config { counters, doorbell, broken: Arc::new(broken), policy };
    let (port, queues) = RingPort::new(config);
    (Device::Ring { port: Box::new(port), alarm, attached: false }, queues)
}

fn exactly<const N: usize>(kind: &'static str, given: Vec<OwnedFd>) -> Result<[OwnedFd; N], DeviceError> {
    let count = given.len();
    given.try_into().map_err(|_| DeviceError::Descriptors { kind, wanted: N, given: count })
}

fn parse_mac(text: &str) -> Result<MacAddress, DeviceError> {
    text.parse().map_err(|_| DeviceError::Mac(text.into()))
}
