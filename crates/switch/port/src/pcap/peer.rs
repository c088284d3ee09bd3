//! The port's files, which `control` has opened.

use super::image::{Frames, ReplayError};
use super::rx::{RecordRx, Recording};
use super::tx::ReplayTx;
use super::{Settings, Shared};
use crate::{Context, Opened, Peer, PeerError, PortKind, Queue, State};
use ringway_frame::CountersRef;
use ringway_host::Mapping;
use ringway_mem::Published;
use ringway_ring::capture::Geometry;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A port that replays and records.
pub const KIND: PortKind = PortKind { name: "pcap", open };

struct PcapPeer {
    shared: Arc<Shared>,
    settings: Settings,
    is_attached: bool,
    /// Number of peers so far.
    count: u64,
}

fn open(context: Context<'_>) -> Opened {
    let settings: Settings = context.port.kind.settings()?;
    let doorbell = context.doorbells.first().cloned().ok_or(PeerError::NoPeer(KIND.name))?;
    let shared = Arc::new(Shared {
        frames: Published::new(Arc::new(Frames::default())),
        recording: Published::new(Arc::new(None)),
        counters: context.counters.first().cloned().unwrap_or_else(CountersRef::private),
        doorbell,
    });
    let tx = Box::new(ReplayTx::new(shared.clone(), settings.speed, settings.repeat));
    let rx = Box::new(RecordRx::new(shared.clone()));
    Ok((Box::new(PcapPeer { shared, settings, is_attached: false, count: 0 }), vec![Queue { tx, rx }]))
}

impl Peer for PcapPeer {
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let Settings { file, record, .. } = &self.settings;
        let wanted = usize::from(file.is_some()) + usize::from(record.is_some());
        if descriptors.len() != wanted {
            return Err(PeerError::Descriptors { kind: KIND.name, wanted, given: descriptors.len() });
        }
        let number = self.count + 1;
        let mut descriptors = descriptors.iter();
        let image = file.as_ref().and_then(|_| descriptors.next());
        let memory = record.as_ref().and_then(|_| descriptors.next());
        let frames = match image {
            Some(image) => Frames::of(Mapping::sealed(image)?.words(), number).map_err(PeerError::kind)?,
            None => Frames::none(number),
        };
        let recording = match memory {
            Some(memory) => {
                let memory = Mapping::sealed(memory)?;
                let geometry =
                    Geometry::of(memory.words()).ok_or_else(|| PeerError::kind(ReplayError::Image))?;
                Some(Recording { memory, geometry, number })
            }
            None => None,
        };
        self.count = number;
        self.shared.recording.replace(Arc::new(recording)).defer();
        self.shared.frames.replace(Arc::new(frames)).defer();
        self.is_attached = true;
        self.shared.doorbell.wake();
        Ok(())
    }

    fn detach(&mut self) {
        self.shared.frames.replace(Arc::new(Frames::default())).defer();
        self.shared.recording.replace(Arc::new(None)).defer();
        self.is_attached = false;
    }

    fn state(&self) -> (State, String) {
        (if self.is_attached { State::Up } else { State::Waiting }, String::new())
    }
}
