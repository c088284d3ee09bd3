//! `[function.NAME]`.

use super::{Fabric, Outside};
use ringway_spec::file::units::{self, Wrong};
use ringway_spec::file::{Diagnostics, Key, Section, Value, either};
use ringway_spec::{Configuration, Function, Isolation, names};
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Bytes of memory of a virtual machine, which has all of it below the devices.
const VM_MEMORY: RangeInclusive<u64> = 32 << 20..=2000 << 20;

/// Largest configuration in bytes. Attack: an endless configuration.
pub const LARGEST: usize = 16 << 20;
/// The shortest time after which an idle function ends, in nanoseconds.
const LEAST_IDLE: u64 = 100_000_000;

/// The keys of a function, in the order in which they are read.
pub static KEYS: &[Key] = &[
    Key::new("config", Value::File, "this, `click` or `image`", "the file of its configuration"),
    Key::new("click", Value::Text, "this, `config` or `image`", "the text of its configuration"),
    Key::new("port", Value::Text, "required", "a port of kind `ring` that no guest or function has")
        .list("ports")
        .more("`FromPort` and `ToPort` name them. Of a function in a chain: the names of its two ends"),
    Key::new("parameters", Value::Pairs, "none", "the configuration's parameters, names and values")
        .more("for `$NAME` in the configuration"),
    Key::new("devices", Value::Pairs, "none", "its devices, and the port that each stands for")
        .more("the configuration's `FromDevice(eth0)` is the port of `{ eth0 = \"a\" }`"),
    Key::new("image", Value::File, "none", "the image of a program, which runs in a VM instead")
        .more("with it, the next four keys: see [tiny-programs.md](tiny-programs.md#run-it)"),
    Key::new("address", Value::Text, "none", "of a program: its address, such as 10.0.0.2/24, or `dhcp`")
        .list("addresses"),
    Key::new("gateway", Value::Text, "none", "of a program: its next hop").list("gateways"),
    Key::new("mac", Value::Text, "from the names of it and its port", "of a program: its MAC address"),
    Key::new("arguments", Value::Texts, "none", "of a program: its arguments"),
    Key::new(
        "isolation",
        Value::Words(|| Isolation::ALL.iter().map(|(word, _)| *word).collect()),
        "`\"process\"`",
        "what separates it from the rest of the fabric: `process`, `vm` or `worker`",
    )
    .more(
        "`\"process\"`: a confined process of its own; `\"vm\"`: a virtual machine of its own, see \
         [vms.md](vms.md); `\"worker\"`: none, it runs on a worker of the data path, for configurations \
         that you trust; see [functions.md](functions.md#isolation)",
    ),
    Key::new(
        "fallback",
        Value::Words(|| vec![Isolation::Process.name()]),
        "none",
        "of a VM: `process`: it runs as a process where the host has no KVM",
    ),
    Key::new("snapshots", Value::Boolean, "`true`", "of a VM: whether snapshots of it may be taken")
        .more("and so clones made; `false` for a function whose secrets no other one may have"),
    Key::new("memory", Value::Size(32 << 20..=1 << 40), "`\"256MB\"`", "its memory limit")
        .more("at least 32 MB; of a VM its memory, at most 2000 MB"),
    Key::new(
        "start",
        Value::Words(|| vec!["true", "false", FIRST_FRAME]),
        "`true`",
        "whether it starts at once, or with the first frame for it: `true`, `false` or `first-frame`",
    )
    .more("see [functions.md](functions.md#start-with-the-first-frame)"),
    Key::new("instances", Value::Table, "none", "how it multiplies under load, in a chain")
        .more("a table, such as `{ min = 1, max = 4 }`: see [functions.md](functions.md#multiply-under-load)")
        .without_option(),
    Key::new(
        "idle",
        Value::Duration(LEAST_IDLE..=86_400_000_000_000),
        "none",
        "with `first-frame`: the time without frames after which it ends until the next frame for it",
    )
    .more("from `\"100ms\"` to a day"),
    Key::new("core", Value::Number(0..=65_535), "none", "the core that it is pinned to"),
    Key::new(
        "burst",
        Value::Number(1..=Function::BURST as u64),
        "`64`",
        "largest number of frames that it handles at once",
    ),
];

/// Only a virtual machine has snapshots: the error, and the remedy.
const NO_SNAPSHOTS: (&str, &str) =
    ("only a function with isolation \"vm\" has snapshots", "remove `snapshots`");

/// The value of `start` for a function that starts with the first frame for it.
const FIRST_FRAME: &str = "first-frame";

/// Reads the number, size or duration of a key.
fn quantity(section: &mut Section<'_>, name: &str, example: &str) -> Option<u64> {
    section.quantity(KEYS.iter().find(|key| key.name == name)?, example)
}

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
    let parameters = section.pairs("parameters", "{ NAME = \"value\" }");
    let devices = section.pairs("devices", "{ eth0 = \"a\" }");
    let program = super::image::program(&mut section);
    let isolation = match has_program {
        true => super::image::isolation(&mut section),
        false => section.word("isolation", Isolation::ALL).unwrap_or_default(),
    };
    let fallback = section.word("fallback", &[("process", Isolation::Process)]);
    let snapshots = snapshots(&mut section, isolation);
    let memory = match isolation {
        Isolation::Vm => section.size("memory", VM_MEMORY),
        _ => quantity(&mut section, "memory", "256MB"),
    };
    let (start, first_frame) = start(&mut section);
    let instance = super::instances::instances(&mut section, &name);
    let idle = quantity(&mut section, "idle", "30s");
    // A wrong value is one all the same for the rules of other keys.
    let idle = idle.unwrap_or(if section.has("idle") { LEAST_IDLE } else { 0 });
    let function = Function {
        name,
        configuration: Configuration { file, source: None, text: text.unwrap_or_default() },
        program,
        isolation,
        fallback: fallback.is_some(),
        snapshots,
        parameters,
        ports,
        // A chain may say so.
        chained: false,
        devices,
        memory: memory.unwrap_or(Function::MEMORY),
        core: quantity(&mut section, "core", "1").map(|core| core as usize),
        burst: quantity(&mut section, "burst", "64").map_or(Function::BURST, |burst| burst as u32),
        start,
        first_frame,
        idle,
        instance,
    };
    rules(&function, &mut |key, (what, fix)| section.error(key, what, fix));
    section.finish(|key| match key {
        "socket" | "switch" => Some("it belongs to the function's port".into()),
        "chain" => Some("a chain names its functions: [chain.NAME] functions = [...]".into()),
        _ => None,
    });
    Some(function)
}

/// What is wrong with the values of a function, whoever described it: `report` takes the key, the error, and the
/// remedy.
/// What it is in a fabric is checked there.
pub fn rules(function: &Function, report: &mut dyn FnMut(&str, Wrong)) {
    let Function { name, program, isolation, ports, parameters, devices, .. } = function;
    let mut wrong = |key: &str, what: String, fix: &str| report(key, (what, fix.into()));
    if ports.len() > usize::from(u8::MAX) {
        wrong("ports", format!("function.{name} has {} ports", ports.len()), "255 are the most");
    }
    if *isolation == Isolation::Worker && function.core.is_some() {
        let what = format!("function.{name} has a core, but isolation \"worker\"");
        wrong("core", what, "remove it; the core is its worker's");
    }
    if function.fallback && *isolation != Isolation::Vm && program.is_none() {
        let what = "only a function with isolation \"vm\" can fall back to a process";
        wrong("fallback", what.into(), "remove `fallback`");
    }
    if !function.snapshots && *isolation != Isolation::Vm {
        wrong("snapshots", NO_SNAPSHOTS.0.into(), NO_SNAPSHOTS.1);
    }
    if function.idle > 0 && !function.first_frame {
        let what = "a function that ends when it is idle starts with its first frame";
        wrong("idle", what.into(), "add start = \"first-frame\", or leave `idle` out");
    } else if function.idle > 0 && function.instance.is_some() {
        wrong("idle", "a function that multiplies keeps an instance".into(), "leave `idle` out");
    }
    for (index, (parameter, _)) in parameters.iter().enumerate() {
        if let Err(wrong) = names::parameter(parameter) {
            report(&format!("parameters.{index}"), wrong);
        }
    }
    for (index, (device, port)) in devices.iter().enumerate().filter(|(_, (_, port))| !ports.contains(port)) {
        let what = format!("device {} is the port \"{}\"", device.escape_debug(), port.escape_debug());
        let own = either(ports.iter().map(|port| &**port));
        report(&format!("devices.{index}"), (what, format!("use one of the function's ports: {own}")));
    }
    ranges(function, report);
}

/// The values that are out of range.
fn ranges(function: &Function, report: &mut dyn FnMut(&str, Wrong)) {
    let Function { memory, core, burst, idle, .. } = function;
    let mut checked = |key: &str, checked: Result<(), Wrong>| {
        if let Err(wrong) = checked {
            report(key, wrong);
        }
    };
    if function.isolation == Isolation::Vm {
        checked("memory", units::within("memory", *memory, &VM_MEMORY, units::show_size));
    }
    let numbers = [
        ("memory", (function.isolation != Isolation::Vm).then_some(*memory)),
        ("core", core.map(|core| core as u64)),
        ("burst", Some(u64::from(*burst))),
        ("idle", Some(*idle).filter(|idle| *idle > 0)),
    ];
    for (name, value) in numbers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let key = KEYS.iter().find(|key| key.name == name);
        checked(name, key.map_or(Ok(()), |key| key.check(value)));
    }
}

/// Whether snapshots may be taken.
fn snapshots(section: &mut Section<'_>, isolation: Isolation) -> bool {
    let snapshots = section.boolean("snapshots");
    // `rules` refuses `false`.
    if snapshots == Some(true) && isolation != Isolation::Vm {
        section.error("snapshots", NO_SNAPSHOTS.0, NO_SNAPSHOTS.1);
    }
    snapshots.unwrap_or(true)
}

/// When the function starts: whether with the fabric, and whether with the first frame instead.
fn start(section: &mut Section<'_>) -> (bool, bool) {
    match section.text("start").as_deref() {
        None | Some("true") => (true, false),
        Some("false") => (false, false),
        Some(FIRST_FRAME) => (true, true),
        Some(other) => {
            let what = format!("`start` is \"{}\"", other.escape_debug());
            section.error("start", what, "use true, false or \"first-frame\"");
            (true, false)
        }
    }
}

/// Reads and checks the configurations of all functions.
pub fn configurations(fabric: &mut Fabric, text: &str, outside: &Outside<'_>, diagnostics: &Diagnostics) {
    for function in fabric.functions.iter_mut().filter(|function| !function.is_further_instance()) {
        if function.program.is_some() {
            super::image::load(function, outside, diagnostics);
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
pub(super) fn within(
    text: &str,
    at: &std::ops::Range<usize>,
    inner: &str,
    complaint: &Complaint,
) -> Option<usize> {
    let start = at.start + text.get(at.clone())?.find(inner)?;
    let mut place = start;
    for line in inner.split_inclusive('\n').take(complaint.line.checked_sub(1)?) {
        place += line.len();
    }
    let place = (place + complaint.column.saturating_sub(1)).min(start + inner.len());
    text.is_char_boundary(place).then_some(place)
}
