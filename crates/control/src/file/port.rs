//! `[port.NAME]`.

use super::link::{self, Link};
use super::notify::notify;
use super::{LONGEST_HOLD, Reading, SOCKET_PATH};
use crate::kinds::{Described, KINDS, PortControl};
use crate::lookups::MAC_FIX;
use ringway_port::ring::Settings;
use ringway_ring::{SLOTS_MAX, SLOTS_MIN};
use ringway_spec::file::{Section, either};
use ringway_spec::{IpNet, Kind, MacAddress, Notify, Port, Socket, To};

/// Reads a port, whose kind is one of the project's or of `more`, and the link between it and its switch, if it has
/// one.
pub fn port(
    mut section: Section<'_>,
    (outside, diagnostics): Reading<'_>,
    more: &'static [&'static dyn PortControl],
    links: &mut Vec<Link>,
) -> Option<Port> {
    let name = section.path.strip_prefix("port.")?.to_string();
    let kinds = || KINDS.iter().chain(more).copied().filter(|kind| kind.is_in_file());
    let words: Vec<_> = kinds().map(|kind| (kind.name(), kind)).collect();
    let kind = section.word("kind", &words);
    if kind.is_none() && !section.has("kind") {
        let list = either(kinds().map(PortControl::name));
        section.missing("kind", &format!("add kind = \"...\": {list}"));
    }
    let to = section.string("switch", "main").map(To::Switch);
    links.extend(link::of_port(&mut section, to.as_ref(), outside, diagnostics));
    let hold = section.duration("hold", 0..=LONGEST_HOLD, "100us");
    // Without a kind the other keys can't be checked; the port is kept, so that references to it are valid.
    let Some(kind) = kind else {
        kinds().for_each(|kind| section.accept(kind.keys()));
        section.finish(|_| None);
        return Some(Port { hold, ..Port::new(&name, Kind::new("", &()), to) });
    };
    let notify = if kind.notifies() { notify(&mut section) } else { Notify::default() };
    let described = kind.read(&mut section, diagnostics);
    section.finish(|key| {
        let having = kinds().filter(|kind| kind.keys().contains(&key)).map(PortControl::name);
        let having: Vec<&str> = having.collect();
        let word = kind.name();
        (!having.is_empty()).then(|| format!("kind \"{word}\" doesn't have it, only {}", either(having)))
    });
    let Described { kind, socket, queues } = described;
    Some(Port { socket, queues, hold, notify, ..Port::new(&name, kind, to) })
}

/// Reads the key `socket` and the keys for its owner, group and mode.
pub fn socket(section: &mut Section<'_>) -> Socket {
    let key = "socket";
    let name = section.path.rsplit('.').next().unwrap_or("port").to_string();
    let path = section.string(key, &format!("{name}.sock"));
    if path.is_none() && !section.has(key) {
        section.missing(key, &format!("add {key} = \"{name}.sock\""));
    }
    let path = path.unwrap_or_default();
    if path.len() > SOCKET_PATH {
        let fix = format!("a UNIX socket's path has {SOCKET_PATH} at most");
        section.error(key, format!("the socket's path has {} bytes", path.len()), fix);
    }
    if path.contains('\0') {
        section.error(key, "the socket's path has a zero byte", "take it out");
    }
    let (owner, group, mode) = rights(section);
    Socket { path: path.into(), owner, group, mode }
}

fn rights(section: &mut Section<'_>) -> (Option<String>, Option<String>, Option<u32>) {
    let owner = section.string("owner", "libvirt-qemu");
    let group = section.string("group", "kvm");
    let mode = section.string("mode", "0660").and_then(|text| {
        let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777);
        if text == "server" || text == "client" {
            let fix = format!("write role = \"{text}\"; `mode` is the socket's permissions");
            section.error("mode", format!("\"{text}\" is not a mode"), fix);
        } else if mode.is_none() {
            section.error("mode", format!("\"{text}\" is not a mode"), "write it in octal, such as \"0660\"");
        }
        mode
    });
    (owner, group, mode)
}

/// Default slots of each direction of a ring.
pub const SLOTS: u32 = 512;
/// Default bytes of a slot.
pub const SLOT_SIZE: u32 = 2048;

/// Reads the geometry of a ring.
pub fn shape(section: &mut Section<'_>) -> Settings {
    let slots = section
        .number("slots", u64::from(SLOTS_MIN)..=u64::from(SLOTS_MAX))
        .unwrap_or(u64::from(SLOTS)) as u32;
    if !slots.is_power_of_two() {
        let fix = format!("use a power of two, such as {}", slots.next_power_of_two());
        section.error("slots", format!("`slots` is {slots}"), fix);
    }
    let slot_size = section.size("slot-size", 64..=32 << 10).unwrap_or(u64::from(SLOT_SIZE)) as u32;
    if !slot_size.is_multiple_of(64) {
        let fix = format!("use a multiple of 64, such as \"{}B\"", slot_size.next_multiple_of(64));
        section.error("slot-size", format!("`slot-size` is {slot_size}"), fix);
    }
    Settings { slots, slot_size }
}

/// Reads an Ethernet address.
pub fn mac(section: &mut Section<'_>, key: &'static str) -> Option<MacAddress> {
    let text = section.string(key, "02:00:00:00:00:01")?;
    let mac = text.parse().ok();
    if mac.is_none() {
        section.error(key, format!("\"{text}\" is not an Ethernet address"), MAC_FIX);
    }
    mac
}

/// Reads a unicast Ethernet address.
pub fn station(section: &mut Section<'_>, key: &'static str) -> Option<MacAddress> {
    let mac = mac(section, key)?;
    if !mac.is_unicast() {
        let fix = "use one such as \"02:00:00:00:00:01\": the first byte even, not all zero";
        section.error(key, format!("{mac} is not an address that a device can have"), fix);
        return None;
    }
    Some(mac)
}

/// Reads an interface's address.
pub fn cidr(section: &Section<'_>, key: &str, text: &str) -> Option<IpNet> {
    let cidr = text.parse().ok();
    if cidr.is_none() {
        let fix = "write an address and a prefix length, such as \"10.0.0.1/24\" or \"fd00::1/64\"";
        section.error(key, format!("\"{text}\" is not an interface's address"), fix);
    }
    cidr
}
