//! `kind = "vhost-user"`: a guest, by virtio-net.

use super::{Described, GuestSide, Opening, PortControl};
use crate::file::{socket, station};
use crate::migration::MovingPort;
use crate::open::{self, EngineHandle};
use ringway_host::PageChoice;
use ringway_linux_guests::{Attachment, Interface};
use ringway_port::vhost_user::{KIND, MEMORY, PAIRS, Settings, Without};
use ringway_spec::file::{Diagnostics, Section, either, nearest};
use ringway_spec::{Kind, MacAddress, Port};

pub struct VhostUser;

impl PortControl for VhostUser {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, diagnostics: &Diagnostics) -> Described {
        let socket = Some(socket(section));
        let server = section.word("role", &[("server", true), ("client", false)]).unwrap_or(true);
        let queues = section.number("queues", 1..=u64::from(PAIRS)).unwrap_or(1) as u16;
        let settings = Settings {
            server,
            mac: station(section, "mac"),
            mtu: section.number("mtu", 68..=65_535).map(|mtu| mtu as u16),
            without: without(section, diagnostics),
            memory: section.size("memory", 1 << 20..=8 << 40).unwrap_or(MEMORY),
            carrier: section.boolean("carrier").unwrap_or(true),
        };
        Described { kind: Kind::new(self.name(), &settings), socket, queues }
    }

    fn adopts(&self) -> bool {
        true
    }

    fn continues(&self, port: &Port, records: &[&[u8]]) -> Result<(), String> {
        ringway_port::vhost_user::continues(port, records.iter().copied())
    }

    fn open(&self, port: &Port, mut engine: EngineHandle, _pages: PageChoice) -> Opening {
        let settings: Settings = engine.settings(port)?;
        if settings.server {
            let listener = engine.listen(port)?;
            return Ok(Some(tokio::spawn(open::vhost_user::serve(engine, listener))));
        }
        let path = port.socket.clone().unwrap_or_default().path;
        Ok(Some(tokio::spawn(open::vhost_user::connect(engine, path))))
    }

    fn notifies(&self) -> bool {
        true
    }

    fn changes(&self, from: &Port, to: &Port) -> bool {
        let new = to.kind.settings::<Settings>();
        new.is_ok_and(|new| self.with_carrier(from, new.carrier).as_ref() == Some(to))
    }

    fn with_carrier(&self, port: &Port, carrier: bool) -> Option<Port> {
        let settings = Settings { carrier, ..port.kind.settings().ok()? };
        Some(Port { kind: Kind::new(self.name(), &settings), ..port.clone() })
    }

    fn mac(&self, port: &Port) -> Option<MacAddress> {
        port.kind.settings::<Settings>().ok()?.mac
    }

    fn serves_guests(&self) -> bool {
        true
    }

    fn guest_side(&self, port: &Port) -> Option<GuestSide> {
        let Settings { server, mac, memory, .. } = port.kind.settings().ok()?;
        let attachment =
            Attachment::VhostUser { socket: port.socket.as_ref()?.path.clone(), listen: !server };
        let mac = mac.map(|mac| mac.to_string());
        let interface = Interface { mac, queues: port.queues, ..Interface::new(attachment) };
        Some(GuestSide { interface, nic: "virtio", memory })
    }

    fn moving(&self, port: &Port) -> Option<MovingPort> {
        let Settings { mtu, without, memory, .. } = port.kind.settings().ok()?;
        Some(MovingPort { name: port.name.clone(), queues: port.queues, mtu, without, memory })
    }
}

/// Names of features that are not offered.
fn without(section: &mut Section<'_>, diagnostics: &Diagnostics) -> Vec<String> {
    let without = section.strings("without", "[\"packed\"]").unwrap_or_default();
    for (index, feature) in without.iter().enumerate() {
        if !Without::names().any(|known| known == feature) {
            let fix = match nearest(feature, Without::names()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("use {}", either(Without::names())),
            };
            let at = diagnostics.of(&format!("{}.without.{index}", section.path));
            diagnostics.error(&at, format!("there is no feature \"{feature}\""), fix);
        }
    }
    without
}
