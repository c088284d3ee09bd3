//! The file as the port's peer.

use super::Settings;
use super::rx::CaptureRx;
use ringway_port::null::NullTx;
use ringway_port::{Context, Peer, PeerError, PortKind, Queue, State, exactly};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Writes frames to a file.
pub const KIND: PortKind = PortKind { name: "capture", open };

/// The file, as soon as it is open. The session thread holds the lock only to store it.
pub type SharedFile = Arc<Mutex<Option<File>>>;

struct Capture(SharedFile);

fn open(context: Context<'_>) -> Result<(Box<dyn Peer>, Vec<Queue>), PeerError> {
    let settings: Settings = context.port.kind.settings()?;
    let slot = SharedFile::default();
    let rx = CaptureRx::new(slot.clone(), settings.snap_len, context.counters[0].clone());
    Ok((Box::new(Capture(slot)), vec![Queue { tx: Box::new(NullTx), rx: Box::new(rx) }]))
}

impl Capture {
    fn replace(&mut self, file: Option<File>) {
        if let Ok(mut slot) = self.0.lock() {
            *slot = file;
        }
    }
}

impl Peer for Capture {
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let [file] = exactly(KIND.name, descriptors)?;
        self.replace(Some(file.into()));
        Ok(())
    }

    fn detach(&mut self) {
        self.replace(None);
    }

    fn state(&self) -> (State, String) {
        let up = self.0.lock().is_ok_and(|slot| slot.is_some());
        (if up { State::Up } else { State::Waiting }, String::new())
    }
}
