//! `kind = "ring-pci"`: a program of a guest, by a PCI device.

use super::{Described, Opening, PortControl};
use crate::file::{shape, socket};
use crate::open::{self, EngineHandle};
use ringway_host::PageChoice;
use ringway_port::ring_pci::{KIND, POLL, Settings};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port};
use std::io;
use std::os::fd::OwnedFd;

pub struct RingPci;

/// Shortest and longest interval at which a sleeping worker looks at the ring.
const POLLS: std::ops::RangeInclusive<u64> = 50_000..=200_000;
/// Words for where doorbells go: whether a worker looks for them.
const DOORBELLS: &[(&str, bool)] = &[("trapped", false), ("mapped", true)];

impl PortControl for RingPci {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let socket = Some(socket(section));
        let ring = shape(section);
        let settings = Settings {
            slots: ring.slots,
            slot_size: ring.slot_size,
            mapped: section.word("doorbells", DOORBELLS).unwrap_or(false),
            poll: section.duration("poll", POLLS, "100us").unwrap_or(POLL),
        };
        Described { kind: Kind::new(self.name(), &settings), socket, queues: 1 }
    }

    fn adopts(&self) -> bool {
        true
    }

    fn reconnects(&self) -> bool {
        false
    }

    fn open(&self, port: &Port, mut engine: EngineHandle, _pages: PageChoice) -> Opening {
        let listener = engine.listen(port)?;
        Ok(Some(tokio::spawn(open::vhost_user::serve(engine, listener))))
    }

    fn complete(&self, port: &Port, descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
        let settings: Settings = port.kind.settings().map_err(io::Error::other)?;
        descriptors.push(settings.memory().map_err(io::Error::other)?);
        Ok(())
    }

    fn notifies(&self) -> bool {
        true
    }
}
