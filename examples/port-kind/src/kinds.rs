//! The control side: reads the port's keys, and opens its file.

use crate::capture::{KIND, Settings};
use ringway_control::kinds::{Described, Opening, PortControl};
use ringway_control::open::EngineHandle;
use ringway_host::PageChoice;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port};
use ringway_wire::pcap::{Header, LONGEST};
use std::fs::File;
use std::io::Write;

/// The kinds of this program.
pub const KINDS: &[&dyn PortControl] = &[&Capture];

/// `kind = "capture"`: frames are written to a file in pcap's format.
struct Capture;

impl PortControl for Capture {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), ringway_spec::SettingsError> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let file = section.string("file", "/tmp/frames.pcap");
        if file.is_none() && !section.has("file") {
            section.missing("file", "add file = \"/tmp/frames.pcap\", which is overwritten");
        }
        let snap_len = section.size("snap-len", 1..=u64::from(LONGEST)).unwrap_or(u64::from(LONGEST)) as u32;
        let settings = Settings { file: file.unwrap_or_default().into(), snap_len };
        Described { kind: Kind::new(self.name(), &settings), socket: None, queues: 1 }
    }

    fn open(&self, port: &Port, mut engine: EngineHandle, _pages: PageChoice) -> Opening {
        let settings: Settings = engine.settings(port)?;
        let header = Header { snap_len: settings.snap_len, ..Header::ethernet() };
        let mut file = File::create(&settings.file).map_err(|error| engine.no_door(error))?;
        file.write_all(&header.to_bytes()).map_err(|error| engine.no_door(error))?;
        // The file is the port's only peer. A restarted `data` can continue with it.
        engine.arrived(vec![file.into()], true);
        Ok(Some(tokio::spawn(async move {
            loop {
                engine.wait().await;
            }
        })))
    }

    fn claims(&self, port: &Port) -> Option<(&'static str, String)> {
        Some(("file", self.peer(port)))
    }

    fn peer(&self, port: &Port) -> String {
        let settings = port.kind.settings::<Settings>();
        settings.map(|settings| settings.file.display().to_string()).unwrap_or_default()
    }
}
