//! `kind = "e1000"`: a guest, by an emulated network card.

use super::{Described, GuestSide, Opening, PortControl};
use crate::file::{socket, station};
use crate::open::{self, EngineHandle};
use ringway_host::{PageChoice, kvm, memfd, peer};
use ringway_linux_guests::{Attachment, Interface};
use ringway_port::e1000::{KIND, MEMORY, MODELS, Model, PAGES, Settings, Techniques};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, MacAddress, Port};
use std::io;
use std::os::fd::OwnedFd;

pub struct E1000;

impl PortControl for E1000 {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let socket = Some(socket(section));
        let models: Vec<_> = MODELS.iter().map(|model| (model.name, model)).collect();
        let mac = station(section, "mac");
        if mac.is_none() && !section.has("mac") {
            section.missing("mac", "add mac = \"02:00:00:00:00:01\", the card's address");
        }
        let model = section.word("model", &models).unwrap_or(&MODELS[0]);
        let settings = Settings {
            model: model.name.into(),
            mac,
            mtu: section.number("mtu", 68..=9000).map(|mtu| mtu as u16),
            memory: section.size("memory", 1 << 20..=8 << 40).unwrap_or(MEMORY),
            carrier: section.boolean("carrier").unwrap_or(true),
            techniques: techniques(section, model),
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
        let Settings { model, techniques, .. } = port.kind.settings().map_err(io::Error::other)?;
        let client = descriptors.first().and_then(|socket| peer(socket).ok());
        if techniques.maps(&model, || client.is_some_and(|client| kvm::is_used_by(client.process))) {
            descriptors.push(memfd("registers", PAGES).map_err(io::Error::other)?);
        }
        Ok(())
    }

    fn with_carrier(&self, port: &Port, carrier: bool) -> Option<Port> {
        let settings = Settings { carrier, ..port.kind.settings().ok()? };
        Some(Port { kind: Kind::new(self.name(), &settings), ..port.clone() })
    }

    fn changes(&self, from: &Port, to: &Port) -> bool {
        let (Ok(own), Ok(new)) = (from.kind.settings::<Settings>(), to.kind.settings::<Settings>()) else {
            return false;
        };
        let settings = Settings { carrier: new.carrier, techniques: new.techniques, ..own };
        Port { kind: Kind::new(self.name(), &settings), ..from.clone() } == *to
    }

    fn mac(&self, port: &Port) -> Option<MacAddress> {
        port.kind.settings::<Settings>().ok()?.mac
    }

    fn serves_guests(&self) -> bool {
        true
    }

    fn guest_side(&self, port: &Port) -> Option<GuestSide> {
        let Settings { model, memory, .. } = port.kind.settings().ok()?;
        let nic = Model::of(&model)?.driver;
        let socket = port.socket.as_ref()?.path.clone();
        // The card has its address in its EEPROM.
        let interface = Interface::new(Attachment::VfioUser { socket, driver: nic.into() });
        Some(GuestSide { interface, nic, memory })
    }
}

/// Longest window of moderation, in nanoseconds.
const LONGEST: u64 = 1_000_000_000;
/// Shortest and longest interval at which a sleeping worker looks at mapped doorbells.
const POLL: std::ops::RangeInclusive<u64> = 50_000..=200_000;

/// Words for where doorbells go.
const DOORBELLS: &[(&str, Option<bool>)] =
    &[("auto", None), ("mapped", Some(true)), ("trapped", Some(false))];

/// Reads the techniques of a card.
fn techniques(section: &mut Section<'_>, model: &Model) -> Techniques {
    let usual = Techniques::default();
    let Some(mut table) = section.table("techniques", "{ moderate = \"50us\" }") else { return usual };
    let read = Techniques {
        moderate: table.duration("moderate", 0..=LONGEST, "50us").unwrap_or(usual.moderate),
        timers: table.boolean("timers").unwrap_or(usual.timers),
        combine: table.boolean("combine").unwrap_or(usual.combine),
        batch: table.boolean("batch").unwrap_or(usual.batch),
        mapped: table.word("doorbells", DOORBELLS).unwrap_or(usual.mapped),
        poll: table.duration("poll", POLL, "100us").unwrap_or(usual.poll),
        in_place: table.boolean("in-place").unwrap_or(usual.in_place),
        csb: table.boolean("csb").unwrap_or(usual.csb),
        cached: table.boolean("cached").unwrap_or(usual.cached),
    };
    let may_map: fn(&Model) -> bool = |model| model.may_map;
    let needs = [
        (read.mapped == Some(true), "doorbells", may_map),
        (read.in_place, "in-place", may_map),
        (read.csb, "csb", |model| model.has_csb),
    ];
    for (_, key, has) in needs.iter().filter(|(is_set, _, has)| *is_set && !has(model)) {
        let others = MODELS.iter().filter(|other| has(other)).map(|other| other.name);
        let others: Vec<&str> = others.collect();
        let what = format!("`{key}` is for {}; {} has no registers for it", others.join(", "), model.name);
        table.error(key, what, "leave it out");
    }
    table.finish(|_| None);
    read
}
