//! `[guest.NAME]`.

use ringway_spec::file::Section;
use ringway_spec::{Guest, GuestKind, addresses, names};
use std::path::PathBuf;

/// Network cards, named after their drivers in Linux.
const NICS: [(&str, &str); 4] =
    [("virtio", "virtio"), ("e1000", "e1000"), ("e1000e", "e1000e"), ("8139cp", "8139cp")];
/// Default memory of a guest, in bytes.
const MEMORY: u64 = 256 << 20;
/// Least memory of a User-Mode Linux guest: Debian's kernel and our initial file system start in 80 MB at every boot,
/// and in 64 MB not at every one.
const LEAST_UML: u64 = 96 << 20;
/// Least memory of a QEMU guest, whose kernel may be any.
const LEAST: u64 = 16 << 20;

/// Reads a guest.
pub fn guest(mut section: Section<'_>) -> Option<Guest> {
    let name = section.path.strip_prefix("guest.")?.to_string();
    let kind = section.word("kind", &[("uml", GuestKind::Uml), ("qemu", GuestKind::Qemu)]);
    if kind.is_none() && !section.has("kind") {
        section.missing("kind", "add kind = \"uml\" or kind = \"qemu\"");
    }
    let ports = section.one_or_many("port", "ports", "a");
    if ports.is_empty() && !section.has("port") && !section.has("ports") {
        section.missing("port", "add port = \"...\", the name of a port of kind vhost-user or e1000");
    }
    let texts = section.one_or_many("address", "addresses", "10.0.0.1/24");
    let key = if section.has("addresses") { "addresses" } else { "address" };
    if texts.len() > ports.len() && !ports.is_empty() {
        let what = format!("{} has {} addresses and {} ports", section.path, texts.len(), ports.len());
        section.error(key, what, "addresses belong to ports in their order");
    }
    let addresses = texts
        .iter()
        .enumerate()
        .filter_map(|(index, text)| {
            section.checked(&format!("{key}.{index}"), addresses::interface_address(text))
        })
        .collect();
    let nic = section.word("nic", &NICS).map(String::from);
    let mut file = |key, example| section.string(key, example).map(PathBuf::from);
    let program = file("program", "/usr/bin/qemu-system-x86_64");
    let (kernel, modules) = (file("kernel", "/boot/vmlinuz"), file("modules", "/lib/modules/6.1.0"));
    let (initrd, init) = (file("initrd", "initrd.img"), file("init", "init.sh"));
    let least = if kind == Some(GuestKind::Uml) { LEAST_UML } else { LEAST };
    let guest = Guest {
        name,
        kind: kind.unwrap_or(GuestKind::Uml),
        ports,
        nic,
        program,
        memory: section.size("memory", least..=1 << 40).unwrap_or(MEMORY),
        cpus: section.number("cpus", 1..=256).unwrap_or(1) as u32,
        kernel,
        modules,
        initrd,
        init,
        append: section.strings("append", "[\"quiet\"]").unwrap_or_default(),
        addresses,
        user: section.parsed("user", "vm1", |text| names::account(text).map(String::from)),
        start: section.boolean("start").unwrap_or(true),
    };
    if guest.kind == GuestKind::Uml && guest.cpus > 1 {
        section.error("cpus", "a User-Mode Linux guest has one processor", "leave `cpus` out");
    }
    if guest.kind == GuestKind::Uml && guest.program.is_some() {
        section.error("program", "User-Mode Linux is the program itself", "name it by `kernel`");
    }
    // A guest's memory is mapped in whole pages.
    if !guest.memory.is_multiple_of(4096) {
        section.error("memory", "`memory` is not a multiple of 4KB", "round it");
    }
    section.finish(|key| match key {
        "mac" | "socket" | "queues" => Some("it belongs to the guest's port".into()),
        _ => None,
    });
    Some(guest)
}
