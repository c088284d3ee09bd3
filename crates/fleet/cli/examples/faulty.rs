//! `ringway` with a kind of port that fails as tests want it: a file says how.
//!
//! With `1` in its file, `data` crashes when the port gets a frame; with `2`, `control` panics when it shows the port.
#![allow(clippy::unwrap_used, clippy::panic, reason = "it fails by intention")]

use ringway_control::kinds::{Described, PortControl};
use ringway_control::open::{EngineHandle, OpenError};
use ringway_frame::{Burst, Caps, LARGEST, Lost, Needs, RxQueue};
use ringway_host::PageChoice;
use ringway_mem::Turn;
use ringway_port::null::NullTx;
use ringway_port::{Context, Peer, PeerError, PortKind, Queue, State, exactly};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

const KIND: PortKind = PortKind { name: "faulty", open };

/// The kinds of this program.
const KINDS: &[&dyn PortControl] = &[&Faulty];

fn main() -> ExitCode {
    ringway_cli::main(ringway_cli::Kinds { control: KINDS, data: &[KIND], ..Default::default() })
}

struct Faulty;

impl PortControl for Faulty {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<String>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let file = section.string("file", "/tmp/fault").unwrap_or_default();
        Described { kind: Kind::new(self.name(), &file), socket: None, queues: 1 }
    }

    fn open(
        &self,
        port: &Port,
        mut engine: EngineHandle,
        _pages: PageChoice,
    ) -> Result<Option<JoinHandle<()>>, OpenError> {
        let file = File::open(self.peer(port)).map_err(|error| engine.no_door(error))?;
        engine.arrived(vec![file.into()], true);
        Ok(Some(tokio::spawn(async move {
            loop {
                engine.wait().await;
            }
        })))
    }

    fn peer(&self, port: &Port) -> String {
        let file: String = port.kind.settings().unwrap();
        if std::fs::read(&file).unwrap() == b"2" {
            std::fs::write(&file, "0").unwrap();
            panic!("as its file wants it");
        }
        file
    }
}

type SharedFile = Arc<Mutex<Option<File>>>;

struct FaultyPeer(SharedFile);

fn open(_context: Context<'_>) -> Result<(Box<dyn Peer>, Vec<Queue>), PeerError> {
    let file = SharedFile::default();
    let rx = Box::new(FaultyRx(file.clone()));
    Ok((Box::new(FaultyPeer(file)), vec![Queue { tx: Box::new(NullTx), rx }]))
}

impl Peer for FaultyPeer {
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let [file] = exactly(KIND.name, descriptors)?;
        *self.0.lock().unwrap() = Some(file.into());
        Ok(())
    }

    fn detach(&mut self) {
        *self.0.lock().unwrap() = None;
    }

    fn state(&self) -> (State, String) {
        (if self.0.lock().unwrap().is_some() { State::Up } else { State::Waiting }, String::new())
    }
}

struct FaultyRx(SharedFile);

impl RxQueue for FaultyRx {
    fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
        Some(Caps { offloads: Needs::NONE, largest: LARGEST })
    }

    fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        which.len()
    }

    fn put(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, _which: &[u16]) -> Lost {
        let mut byte = [0];
        if let Some(file) = &*self.0.lock().unwrap()
            && file.read_at(&mut byte, 0).is_ok()
            && byte == *b"1"
        {
            std::process::abort();
        }
        Lost::default()
    }

    fn publish(&mut self, _turn: &Turn<'_>) {}
}
