//! `[port.NAME]`.

use super::desired::{Cidr, Kind, Mac, Port, Shape, Socket, Tap, To, VhostUser};
use super::notify::notify;
use super::section::{Notes, Section, either};
use super::{LONGEST_HOLD, MAC_FIX, Notify, SOCKET_PATH, nearest};
use ringway_frame::LARGEST;
use ringway_port::source::SHORTEST;
use ringway_port::vhost_user::{PAIRS, Without};
use ringway_ring::{SLOTS_MAX, SLOTS_MIN};

/// Kinds and the keys that each has besides those of all.
const KINDS: [(&str, &[&str]); 6] = [
    (
        "vhost-user",
        &["socket", "role", "queues", "mac", "mtu", "without", "notify", "owner", "group", "mode"],
    ),
    ("tap", &["interface", "queues", "mac", "mtu", "offloads", "namespace", "address"]),
    ("ring", &["socket", "slots", "slot-size", "notify", "owner", "group", "mode"]),
    ("pipe", &["socket", "slots", "slot-size", "owner", "group", "mode"]),
    ("null", &[]),
    ("source", &["size", "to", "from", "rate"]),
];

/// Reads a port.
pub fn port(mut section: Section<'_>, notes: &Notes) -> Option<Port> {
    let name = section.path.strip_prefix("port.")?.to_string();
    let words: Vec<(&'static str, &'static str)> = KINDS.iter().map(|(kind, _)| (*kind, *kind)).collect();
    let kind = section.word("kind", &words);
    if kind.is_none() && !section.has("kind") {
        let list = either(KINDS.iter().map(|(kind, _)| *kind));
        section.missing("kind", &format!("add kind = \"...\": {list}"));
    }
    let to = section.string("switch", "main").map(To::Switch);
    let hold = section.duration("hold", 0..=LONGEST_HOLD, "100us");
    // Without its kind, the rest can't be judged; the port still stands, so that others may name it.
    let Some(word) = kind else {
        for (_, keys) in KINDS {
            section.accept(keys);
        }
        section.finish(|_| None);
        return Some(Port { name, kind: Kind::Null, to, worker: None, hold, notify: Notify::default() });
    };
    let notify = match word {
        "vhost-user" | "ring" => notify(&mut section),
        _ => Notify::default(),
    };
    let kind = match word {
        "vhost-user" => vhost_user(&mut section, notes),
        "tap" => tap(&mut section),
        "ring" => Kind::Ring { socket: socket(&mut section, "socket"), shape: shape(&mut section) },
        "pipe" => Kind::Pipe { socket: socket(&mut section, "socket"), shape: shape(&mut section) },
        "source" => Kind::Source {
            size: section.size("size", u64::from(SHORTEST)..=u64::from(LARGEST)).unwrap_or(60) as u32,
            to: mac(&mut section, "to").unwrap_or(Mac([2, 0, 0, 0, 0, 2])),
            from: mac(&mut section, "from").unwrap_or(Mac([2, 0, 0, 0, 0, 1])),
            rate: section.rate("rate", 1..=100_000_000),
        },
        _ => Kind::Null,
    };
    section.finish(|key| {
        let kinds: Vec<&str> =
            KINDS.iter().filter(|(_, keys)| keys.contains(&key)).map(|(kind, _)| *kind).collect();
        (!kinds.is_empty()).then(|| format!("kind \"{word}\" doesn't have it, only {}", either(kinds)))
    });
    Some(Port { name, kind, to, worker: None, hold, notify })
}

fn vhost_user(section: &mut Section<'_>, notes: &Notes) -> Kind {
    let socket = socket(section, "socket");
    let server = section.word("role", &[("server", true), ("client", false)]).unwrap_or(true);
    let without = section.strings("without", "[\"packed\"]").unwrap_or_default();
    for (index, feature) in without.iter().enumerate() {
        if !Without::names().any(|known| known == feature) {
            let fix = match nearest(feature, Without::names()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("use {}", either(Without::names())),
            };
            let at = notes.of(&format!("{}.without.{index}", section.path));
            notes.wrong(&at, format!("there is no feature \"{feature}\""), fix);
        }
    }
    Kind::VhostUser(VhostUser {
        socket,
        server,
        queues: section.number("queues", 1..=u64::from(PAIRS)).unwrap_or(1) as u16,
        mac: station(section, "mac"),
        mtu: section.number("mtu", 68..=65_535).map(|mtu| mtu as u16),
        without,
    })
}

fn tap(section: &mut Section<'_>) -> Kind {
    let interface = section.string("interface", "rw0");
    if interface.is_none() && !section.has("interface") {
        section.missing("interface", "add interface = \"rw0\", the name it is to have");
    }
    let interface = interface.unwrap_or_default();
    // Linux' IFNAMSIZ is 16 with the zero; dev_valid_name() forbids these characters.
    if interface.len() > 15 || interface.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        let fix = "use 15 bytes at most, without spaces, / and :";
        section.wrong("interface", format!("an interface can't be called \"{interface}\""), fix);
    }
    Kind::Tap(Tap {
        interface,
        queues: section.number("queues", 1..=128).unwrap_or(1) as u16,
        mac: station(section, "mac"),
        mtu: section.number("mtu", 68..=65_521).unwrap_or(1500) as u16,
        offloads: section.boolean("offloads").unwrap_or(true),
        namespace: section.string("namespace", "red"),
        address: section.string("address", "10.0.0.1/24").and_then(|text| cidr(section, "address", &text)),
    })
}

fn socket(section: &mut Section<'_>, key: &'static str) -> Socket {
    let name = section.path.rsplit('.').next().unwrap_or("port").to_string();
    let path = section.string(key, &format!("{name}.sock"));
    if path.is_none() && !section.has(key) {
        section.missing(key, &format!("add {key} = \"{name}.sock\""));
    }
    let path = path.unwrap_or_default();
    if path.len() > SOCKET_PATH {
        let fix = format!("a UNIX socket's path has {SOCKET_PATH} at most");
        section.wrong(key, format!("the socket's path has {} bytes", path.len()), fix);
    }
    if path.contains('\0') {
        section.wrong(key, "the socket's path has a zero byte", "take it out");
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
            section.wrong("mode", format!("\"{text}\" is not a mode"), fix);
        } else if mode.is_none() {
            section.wrong("mode", format!("\"{text}\" is not a mode"), "write it in octal, such as \"0660\"");
        }
        mode
    });
    (owner, group, mode)
}

fn shape(section: &mut Section<'_>) -> Shape {
    let slots = section.number("slots", u64::from(SLOTS_MIN)..=u64::from(SLOTS_MAX)).unwrap_or(512) as u32;
    if !slots.is_power_of_two() {
        let fix = format!("use a power of two, such as {}", slots.next_power_of_two());
        section.wrong("slots", format!("`slots` is {slots}"), fix);
    }
    let slot_size = section.size("slot-size", 64..=32 << 10).unwrap_or(2048) as u32;
    if !slot_size.is_multiple_of(64) {
        let fix = format!("use a multiple of 64, such as \"{}B\"", slot_size.next_multiple_of(64));
        section.wrong("slot-size", format!("`slot-size` is {slot_size}"), fix);
    }
    Shape { slots, slot_size }
}

fn mac(section: &mut Section<'_>, key: &'static str) -> Option<Mac> {
    let text = section.string(key, "02:00:00:00:00:01")?;
    let mac = Mac::read(&text);
    if mac.is_none() {
        section.wrong(key, format!("\"{text}\" is not an Ethernet address"), MAC_FIX);
    }
    mac
}

/// An address that one station can have.
fn station(section: &mut Section<'_>, key: &'static str) -> Option<Mac> {
    let mac = mac(section, key)?;
    if mac.is_group() || mac == Mac([0; 6]) {
        let fix = "use one such as \"02:00:00:00:00:01\": the first byte even, not all zero";
        section.wrong(key, format!("{mac} is not an address that a device can have"), fix);
        return None;
    }
    Some(mac)
}

/// Reads an interface's address.
pub fn cidr(section: &Section<'_>, key: &str, text: &str) -> Option<Cidr> {
    let cidr = Cidr::read(text);
    if cidr.is_none() {
        let fix = "write an address and a prefix length, such as \"10.0.0.1/24\" or \"fd00::1/64\"";
        section.wrong(key, format!("\"{text}\" is not an interface's address"), fix);
    }
    cidr
}
