//! `[function.NAME]`.

use super::{Fabric, Outside};
use ringway_spec::file::{Diagnostics, Section, either};
use ringway_spec::{Configuration, Function, Isolation, names};
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Default memory of a function, in bytes.
pub const MEMORY: u64 = 256 << 20;
/// Bytes of memory that a function may have. A virtual machine has all of its memory below the devices.
pub fn memory_range(isolation: Isolation) -> RangeInclusive<u64> {
    let most = if isolation == Isolation::Vm { 2000 << 20 } else { 1 << 40 };
    32 << 20..=most
}

/// Largest configuration in bytes. Attack: an endless configuration.
pub const LARGEST: usize = 16 << 20;
/// Numbers of frames that a function may handle at once; the default is the largest.
pub const BURSTS: RangeInclusive<u64> = 1..=64;

/// Times without a frame after which a function may end, in nanoseconds.
const IDLE: RangeInclusive<u64> = 100_000_000..=86_400_000_000_000;

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The file with the error; the configuration's own file if empty.
    pub file: String,
    /// Line, from 1; 0 if unknown.
    pub line: usize,
    /// Column in bytes, from 1; 0 if unknown.
    pub column: usize,
    /// The error.
    pub what: String,
}

/// Reads a function.
pub fn function(mut section: Section<'_>) -> Option<Function> {
    let name = section.path.strip_prefix("function.")?.to_string();
    let has_program = section.has("image");
    let file = section.string("config", "firewall.click").map(PathBuf::from);
    let text = section.string("click", "FromPort(a) -> ToPort(b);");
    if section.has("config") && section.has("click") {
        section.error("click", format!("{} has both `config` and `click`", section.path), "keep one");
    } else if !section.has("config") && !section.has("click") && !has_program {
        let fix = "add config = \"FILE\" or click = \"\"\"...\"\"\", or a program's image = \"FILE\"";
        section.missing("config", fix);
    }
    let ports = section.one_or_many("port", "ports", "a");
    if ports.is_empty() && !section.has("port") && !section.has("ports") {
        section.missing("port", "add port = \"...\" or ports = [...], names of ring ports");
    }
    if ports.len() > usize::from(u8::MAX) {
        section.error("ports", format!("{} has {} ports", section.path, ports.len()), "255 are the most");
    }
    let parameters = parameters(&mut section);
    let devices = devices(&mut section, &ports);
    let program = super::program::program(&mut section);
    let isolation = match has_program {
        true => super::program::isolation(&mut section),
        false => section.word("isolation", Isolation::ALL).unwrap_or_default(),
    };
    if isolation == Isolation::Worker && section.has("core") {
        let what = format!("{} has a core, but isolation \"worker\"", section.path);
        section.error("core", what, "remove it; the core is its worker's");
    }
    let fallback = section.word("fallback", &[("process", Isolation::Process)]);
    if fallback.is_some() && isolation != Isolation::Vm && !has_program {
        let what = "only a function with isolation \"vm\" can fall back to a process";
        section.error("fallback", what, "remove `fallback`");
    }
    let snapshots = snapshots(&mut section, isolation);
    let memory = section.size("memory", memory_range(isolation)).unwrap_or(MEMORY);
    let (start, first_frame) = start(&mut section);
    let instance = super::instances::instances(&mut section, &name);
    let idle = idle(&mut section, first_frame, instance.is_some());
    let function = Function {
        name,
        configuration: Configuration { file, text: text.unwrap_or_default() },
        program,
        isolation,
        fallback: fallback.is_some(),
        snapshots,
        parameters,
        ports,
        // A chain may say so.
        chained: false,
        devices,
        memory,
        core: section.number("core", 0..=65_535).map(|core| core as usize),
        burst: section.number("burst", BURSTS).unwrap_or(*BURSTS.end()) as u32,
        start,
        first_frame,
        idle,
        instance,
    };
    section.finish(|key| match key {
        "socket" | "switch" => Some("it belongs to the function's port".into()),
        "chain" => Some("a chain names its functions: [chain.NAME] functions = [...]".into()),
        _ => None,
    });
    Some(function)
}

/// Whether snapshots may be taken.
fn snapshots(section: &mut Section<'_>, isolation: Isolation) -> bool {
    let snapshots = section.boolean("snapshots");
    if snapshots.is_some() && isolation != Isolation::Vm {
        let what = "only a function with isolation \"vm\" has snapshots";
        section.error("snapshots", what, "remove `snapshots`");
    }
    snapshots.unwrap_or(true)
}

/// Reads the parameters.
fn parameters(section: &mut Section<'_>) -> Vec<(String, String)> {
    let parameters = section.pairs("parameters", "{ NAME = \"value\" }");
    for (index, (parameter, _)) in parameters.iter().enumerate() {
        section.checked(&format!("parameters.{index}"), names::parameter(parameter));
    }
    parameters
}

/// When the function starts: whether with the fabric, and whether with the first frame instead.
fn start(section: &mut Section<'_>) -> (bool, bool) {
    match section.text("start").as_deref() {
        None | Some("true") => (true, false),
        Some("false") => (false, false),
        Some("first-frame") => (true, true),
        Some(other) => {
            let what = format!("`start` is \"{}\"", other.escape_debug());
            section.error("start", what, "use true, false or \"first-frame\"");
            (true, false)
        }
    }
}

/// Nanoseconds after which an idle function ends; 0 if it does not.
fn idle(section: &mut Section<'_>, first_frame: bool, multiplies: bool) -> u64 {
    let idle = section.duration("idle", IDLE, "30s");
    if section.has("idle") && !first_frame {
        let fix = "add start = \"first-frame\", or leave `idle` out";
        section.error("idle", "a function that ends when it is idle starts with its first frame", fix);
    } else if section.has("idle") && multiplies {
        section.error("idle", "a function that multiplies keeps an instance", "leave `idle` out");
    }
    idle.unwrap_or(0)
}

/// Reads the devices that stand for ports of the function.
fn devices(section: &mut Section<'_>, ports: &[String]) -> Vec<(String, String)> {
    let devices = section.pairs("devices", "{ eth0 = \"a\" }");
    for (index, (device, port)) in devices.iter().enumerate() {
        if !ports.contains(port) {
            let what = format!("device {} is the port \"{}\"", device.escape_debug(), port.escape_debug());
            let fix =
                format!("use one of the function's ports: {}", either(ports.iter().map(|port| &**port)));
            section.error(&format!("devices.{index}"), what, fix);
        }
    }
    devices
}

/// Reads and checks the configurations of all functions.
pub fn configurations(fabric: &mut Fabric, text: &str, outside: &Outside<'_>, diagnostics: &Diagnostics) {
    for function in fabric.functions.iter_mut().filter(|function| !function.is_further_instance()) {
        if function.program.is_some() {
            super::program::load(function, outside, diagnostics);
            continue;
        }
        let path = format!("function.{}", function.name);
        let inline = function.configuration.file.is_none();
        let key = if inline { format!("{path}.click") } else { format!("{path}.config") };
        if !diagnostics.has(&key) {
            continue;
        }
        if let Some(file) = &function.configuration.file {
            match read(&outside.folder.join(file), outside) {
                Ok(text) => function.configuration.text = text,
                Err(error) => {
                    let what = format!("{}: {error}", file.display());
                    let fix = match error.kind() {
                        ErrorKind::NotFound => "it is relative to the folder of this file",
                        _ => "name a file with Click's language in it",
                    };
                    diagnostics.error(&diagnostics.of(&key), what, fix);
                    continue;
                }
            }
        }
        for complaint in (outside.check)(function) {
            let at = diagnostics.of(&key);
            let own = complaint.file.is_empty() || complaint.file == function.title();
            let place = inline.then(|| within(text, &at, &function.configuration.text, &complaint)).flatten();
            match place {
                Some(place) if own => diagnostics.error(&(place..place), complaint.what, ""),
                // The string has escapes, so that positions in its value do not match positions in the file.
                _ if inline && own => diagnostics.error(&at, complaint.what, ""),
                _ => {
                    let file = if own { shown(outside, function) } else { complaint.file };
                    diagnostics.error_in(
                        (file, complaint.line.max(1), complaint.column.max(1)),
                        &at,
                        complaint.what,
                    );
                }
            }
        }
    }
    super::instances::copy_configurations(fabric);
}

/// The path of the configuration's file, for messages.
fn shown(outside: &Outside<'_>, function: &Function) -> String {
    let file = function.configuration.file.clone().unwrap_or_default();
    outside.folder.join(file).display().to_string()
}

fn read(path: &Path, outside: &Outside<'_>) -> io::Result<String> {
    String::from_utf8((outside.read)(path)?).map_err(io::Error::other)
}

/// The offset in the file's `text` of a complaint about `inner`, the value of the string at `at`.
fn within(text: &str, at: &std::ops::Range<usize>, inner: &str, complaint: &Complaint) -> Option<usize> {
    let start = at.start + text.get(at.clone())?.find(inner)?;
    let mut place = start;
    for line in inner.split_inclusive('\n').take(complaint.line.checked_sub(1)?) {
        place += line.len();
    }
    let place = (place + complaint.column.saturating_sub(1)).min(start + inner.len());
    text.is_char_boundary(place).then_some(place)
}
