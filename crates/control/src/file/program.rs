//! `image` in `[function.NAME]`: a program of its own in a virtual machine.

use super::Outside;
use super::port::station;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Function, Image, IpNet, Isolation, Program};
use std::io::ErrorKind;
use std::net::IpAddr;
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
    let addresses = checked(
        section,
        ["address", "addresses", "10.0.0.2/24"],
        |address| address == DHCP || address.parse::<IpNet>().is_ok(),
        ["no address with a prefix length", "write \"10.0.0.2/24\", \"fd00::2/64\" or \"dhcp\""],
    );
    let gateways = checked(
        section,
        ["gateway", "gateways", "10.0.0.1"],
        |gateway| gateway.parse::<IpAddr>().is_ok(),
        ["no address", "write the next hop's address, such as \"10.0.0.1\""],
    );
    let mac = station(section, "mac").map(|mac| mac.to_string());
    let arguments = section.strings("arguments", "[\"one\", \"two\"]").unwrap_or_default();
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

/// The values of a key, whose other name is for several; `example` is one. Those that are not good are `what`.
fn checked(
    section: &mut Section<'_>,
    [one, many, example]: [&'static str; 3],
    is_good: impl Fn(&str) -> bool,
    [what, fix]: [&str; 2],
) -> Vec<String> {
    let values = section.one_or_many(one, many, example);
    for (at, value) in values.iter().enumerate().filter(|(_, value)| !is_good(value)) {
        let key = if section.has(many) { format!("{many}.{at}") } else { one.into() };
        section.error(&key, format!("\"{}\" is {what}", value.escape_debug()), fix);
    }
    values
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
