//! `image` in `[function.NAME]`: a program of its own in a virtual machine.

use super::Outside;
use super::port::station;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Function, Image, Isolation, Program, addresses};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

/// Keys that only a program has.
const OWN: [&str; 6] = ["address", "addresses", "gateway", "gateways", "mac", "arguments"];
/// Keys that only a configuration has.
const OTHERS: [&str; 7] = ["config", "click", "devices", "fallback", "snapshots", "burst", "instances"];
/// Most bytes of settings and parameters, with their names and lengths: an image is checked with room for them.
const SETTINGS: usize = 64 << 10;
/// Bytes of the lengths of a name and a value.
const LENGTHS: usize = 16;
/// The address that a DHCP server gives.
const DHCP: &str = "dhcp";

/// Reads the keys of a program; none if the function has a configuration.
pub fn program(section: &mut Section<'_>) -> Option<Program> {
    let file = section.string("image", "web.tiny").map(PathBuf::from);
    let mut settings = Vec::new();
    let addresses = addresses(section);
    let gateways = gateways(section, &addresses);
    let mac = station(section, "mac").map(|mac| mac.to_string());
    let arguments = section.words("arguments", "[\"one\", \"two\"]").unwrap_or_default();
    let mut set = |name: &str, values: Vec<String>| {
        settings.extend(values.into_iter().map(|value| (name.to_string(), value)));
    };
    set("address", addresses);
    set("gateway", gateways);
    set("mac", mac.into_iter().collect());
    set("argument", arguments);
    if !section.has("image") {
        for key in OWN.into_iter().filter(|key| section.has(key)) {
            let what = format!("only a program has `{key}`, and {} has no `image`", section.path);
            section.error(key, what, "add image = \"FILE\", made by `ringway tiny build`, or remove it");
        }
        return None;
    }
    for key in OTHERS.into_iter().filter(|key| section.has(key)) {
        let what = format!("{} has an `image`, and `{key}`", section.path);
        section.error(key, what, "keep one: a program has no configuration");
    }
    Some(Program { file: file?, image: Image::default(), settings })
}

/// The addresses of a program: those of an interface, or `dhcp`.
fn addresses(section: &mut Section<'_>) -> Vec<String> {
    let texts = section.one_or_many("address", "addresses", "10.0.0.2/24");
    let key = if section.has("addresses") { "addresses." } else { "address." };
    for (at, text) in texts.iter().enumerate().filter(|(_, text)| *text != DHCP) {
        let place = format!("{key}{at}");
        let read =
            addresses::interface_address(text).map_err(|(what, fix)| (what, format!("{fix}; or \"{DHCP}\"")));
        section.checked(&place, read);
    }
    texts
}

/// The next hops of a program with these addresses.
fn gateways(section: &mut Section<'_>, own: &[String]) -> Vec<String> {
    let texts = section.one_or_many("gateway", "gateways", "10.0.0.1");
    let key = if section.has("gateways") { "gateways." } else { "gateway." };
    // With an address from a DHCP server, or a wrong one, its network is not known.
    let nets: Option<Vec<_>> = own.iter().map(|text| addresses::interface_address(text).ok()).collect();
    for (at, text) in texts.iter().enumerate() {
        section.checked(&format!("{key}{at}"), addresses::gateway(text, nets.as_deref()));
    }
    texts
}

/// What separates a program from the rest of the fabric.
pub fn isolation(section: &mut Section<'_>) -> Isolation {
    let isolation = section.word("isolation", Isolation::ALL).unwrap_or(Isolation::Vm);
    if isolation != Isolation::Vm {
        let what = format!("{} has an `image`, which runs in a VM", section.path);
        section.error("isolation", what, "leave `isolation` out");
    }
    Isolation::Vm
}

/// Bytes of settings in the order that a program gets.
fn bytes(settings: &[(String, String)]) -> usize {
    settings.iter().map(|(name, value)| name.len() + value.len() + LENGTHS).sum()
}

/// Reads and checks the image of a program.
pub fn load(function: &mut Function, outside: &Outside<'_>, diagnostics: &Diagnostics) {
    let key = format!("function.{}.image", function.name);
    let Some(program) = &mut function.program else { return };
    let file = program.file.clone();
    let bytes = bytes(&program.settings) + bytes(&function.parameters);
    if bytes > SETTINGS {
        let what =
            format!("the settings and parameters have {bytes} bytes; a program has at most {SETTINGS}");
        diagnostics.error(&diagnostics.of(&key), what, "make `arguments` or `parameters` shorter");
    }
    match (outside.read)(&outside.folder.join(&file)) {
        Ok(bytes) => program.image = Image(Arc::new(bytes)),
        Err(error) => {
            let fix = match error.kind() {
                ErrorKind::NotFound => {
                    "it is relative to the folder of this file; `ringway tiny build` makes it"
                }
                _ => "name a file that `ringway tiny build` made",
            };
            return diagnostics.error(&diagnostics.of(&key), format!("{}: {error}", file.display()), fix);
        }
    }
    for complaint in (outside.check)(function) {
        let what = format!("{}: {}", file.display(), complaint.what);
        diagnostics.error(&diagnostics.of(&key), what, "");
    }
}
