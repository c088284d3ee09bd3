//! `[port.NAME]`.

use super::link::{self, Link};
use super::notify::notify;
use super::policy::policy;
use super::{LONGEST_HOLD, Reading};
use crate::kinds::{Described, KINDS, PortControl};
use ringway_port::ring::Settings;
use ringway_ring::{SLOTS_MAX, SLOTS_MIN};
use ringway_spec::file::{Section, either};
use ringway_spec::{Kind, MacAddress, Notify, Port, Socket, To, addresses, names};
use std::path::Path;

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
    let policy = policy(&mut section);
    // Without a kind the other keys can't be checked; the port is kept, so that references to it are valid.
    let Some(kind) = kind else {
        kinds().for_each(|kind| section.accept(&kind.keys()));
        section.finish(|_| None);
        return Some(Port { hold, policy, ..Port::new(&name, Kind::new("", &()), to) });
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
    Some(Port { socket, queues, hold, notify, policy, ..Port::new(&name, kind, to) })
}

/// Reads the key `socket` and the keys for its owner, group and mode.
pub fn socket(section: &mut Section<'_>) -> Socket {
    let key = "socket";
    let name = section.path.rsplit('.').next().unwrap_or("port").to_string();
    let example = format!("{name}.sock");
    let path = section.parsed(key, &example, |text| {
        names::socket_path(text, &format!("{key} = \"{example}\"")).map(Path::to_path_buf)
    });
    if path.is_none() && !section.has(key) {
        section.missing(key, &format!("add {key} = \"{example}\""));
    }
    let (owner, group, mode) = rights(section);
    Socket { path: path.unwrap_or_default(), owner, group, mode }
}

fn rights(section: &mut Section<'_>) -> (Option<String>, Option<String>, Option<u32>) {
    let account = |text: &str| names::account(text).map(String::from);
    let owner = section.parsed("owner", "libvirt-qemu", account);
    let group = section.parsed("group", "kvm", account);
    (owner, group, octal(section, "mode", "0660"))
}

/// Reads a socket's permission bits: a string of octal digits.
pub(super) fn octal(section: &mut Section<'_>, key: &'static str, example: &str) -> Option<u32> {
    let text = section.string(key, example)?;
    let is_octal = text.bytes().all(|byte| (b'0'..b'8').contains(&byte));
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    if mode.is_none() {
        let fix = match &*text {
            "server" | "client" => format!("write role = \"{text}\"; `{key}` is the socket's permissions"),
            _ => format!("write it in octal, such as \"{example}\""),
        };
        section.error(key, format!("\"{text}\" is not a mode"), fix);
    }
    mode
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

/// Reads the Ethernet address of a station.
pub fn station(section: &mut Section<'_>, key: &'static str) -> Option<MacAddress> {
    section.parsed(key, "02:00:00:00:00:01", addresses::station)
}
