//! The fabric file: parses TOML into a desired state, or reports all of its errors. Does no I/O itself; the caller
//! supplies a function that finds plugin units.

mod api;
mod chain;
mod cross_checks;
mod desired;
mod external_names;
pub(crate) mod flows;
mod function;
mod guest;
mod host;
mod image;
mod instances;
mod link;
mod mirror;
mod notify;
mod objects;
mod opening;
mod placement;
mod policy;
mod port;
mod program;
mod request;
mod save;
mod unique;

pub use api::{API_ADDRESS, ApiSettings};
pub use desired::Fabric;
pub(crate) use external_names::number;
pub use function::{Complaint, KEYS as FUNCTION_KEYS};
pub(crate) use objects::{RemoveError, with_port, with_switch, without_port, without_switch};
pub use objects::{TypedKeys, port_keys, switch_keys};
pub(crate) use objects::{table_name, table_of};
pub use opening::OpenAccess;
pub use policy::keys as policy_keys;
pub(crate) use policy::{SetError, texts as policy_texts, with_port_keys};
pub use port::{SLOT_SIZE, SLOTS, shape, socket, station};
pub(crate) use program::account;
pub(crate) use request::{
    Described, check as check_function, describe as describe_function, load as load_function,
    read as read_function, source,
};

pub(crate) use save::{Added, edited};

use crate::kinds::PortControl;
use crate::lookups;
use ringway_host::Node;
use ringway_scheduler::Placement;
use ringway_scheduler::plugins::{Found, Options};
use ringway_spec::file::units::Wrong;
use ringway_spec::file::{Diagnostics, Problems, Section, either, nearest, parse};
use ringway_spec::{Function, HugePages, Poll, Snooping, Switch, Worker, addresses, names};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Largest file in bytes. Attack: an endless file sent at run time.
pub const LARGEST: usize = 4 << 20;

/// Attack: a file of a million tables and lists of few bytes each, which take a hundred times as much memory once they
/// are parsed. Largest number of tables, keys and entries of lists.
const VALUES: usize = 100_000;

/// Attack: tens of thousands of empty tables, each of which becomes an object of a kilobyte. Largest number of objects
/// of a kind.
const OBJECTS: usize = 16_384;

/// Properties of the host that the file is checked against.
#[derive(Clone, Default)]
pub struct Host {
    /// Cores that workers may be pinned to.
    pub cores: Vec<usize>,
    /// NUMA nodes that workers may be on; none if the kernel does not show any.
    pub nodes: Vec<Node>,
    /// The parent of run directories, if known; relative socket paths are relative to the run directory.
    pub base: Option<PathBuf>,
    /// The run directory if it is fixed already; overrides the file's.
    pub run: Option<PathBuf>,
    /// Finds plugin units, which may block for a while; if absent, there are none.
    pub find: Option<fn(&Options) -> Found>,
    /// Kinds of port that are not the project's.
    pub kinds: &'static [&'static dyn PortControl],
}

impl Host {
    /// The run directory of a fabric, if known.
    fn run_of(&self, fabric: &Fabric) -> Option<PathBuf> {
        let own = || self.base.as_ref().map(|base| base.join(&fabric.name));
        self.run.clone().or_else(|| fabric.run.clone()).or_else(own)
    }
}

/// Access to the things outside the file that it names: users, files of guests, configurations of functions.
pub struct Outside<'a> {
    /// The folder that files are relative to.
    pub folder: &'a Path,
    /// Reads a file of limited size.
    pub read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
    /// Returns the type of the file at a path.
    pub look: &'a dyn Fn(&Path) -> std::io::Result<std::fs::FileType>,
    /// Whether no other user can change what a path leads to.
    pub own: &'a dyn Fn(&Path) -> std::io::Result<()>,
    /// Returns all errors in a function's configuration.
    pub check: &'a dyn Fn(&Function) -> Vec<Complaint>,
}

impl<'a> Outside<'a> {
    /// Access to this host; files are relative to `folder`.
    pub fn of_this_host(folder: &'a Path, check: &'a dyn Fn(&Function) -> Vec<Complaint>) -> Outside<'a> {
        Outside {
            folder,
            read: &|path| ringway_host::read_file(path, function::LARGEST),
            look: &|path| std::fs::metadata(path).map(|seen| seen.file_type()),
            own: &ringway_host::check_own_path,
            check,
        }
    }
}

/// Parses the text of a file, called `file` in messages. Users, files and configurations that it names are not checked.
pub fn read(file: &str, text: &str, host: &Host) -> Result<Fabric, Problems> {
    read_with(file, text, host, None)
}

/// Parses the text of a file, and checks the users, files and configurations that it names.
pub fn read_with(
    file: &str,
    text: &str,
    host: &Host,
    outside: Option<&Outside<'_>>,
) -> Result<Fabric, Problems> {
    let diagnostics = Diagnostics::default();
    let values = text.bytes().filter(|byte| b"[=,".contains(byte)).count();
    if text.len() <= LARGEST && values > VALUES {
        let what = format!("the file has {values} tables, keys and entries of lists");
        diagnostics.error(&(0..0), what, format!("the limit is {VALUES}"));
    }
    let table = parse(if diagnostics.has_errors() { "" } else { text }, LARGEST, &diagnostics);
    let mut fabric =
        (!diagnostics.has_errors()).then(|| whole(table.get_ref(), (file, host, outside), &diagnostics));
    if let Some(fabric) = &mut fabric {
        flows::read(fabric, 0, (text, outside), &diagnostics);
    }
    if let (Some(fabric), Some(outside)) = (&mut fabric, outside) {
        function::configurations(fabric, text, outside, &diagnostics);
        external_names::check(fabric, outside, host, &diagnostics);
    }
    let warnings = Problems { file: file.into(), text: text.into(), list: diagnostics.take_warnings() };
    let list = diagnostics.into_problems();
    match fabric {
        Some(mut fabric) if list.is_empty() => {
            fabric.warnings = warnings.render(false).lines().map(String::from).collect();
            Ok(fabric)
        }
        _ => Err(Problems { file: file.into(), text: text.into(), list }),
    }
}

/// Names of the tables that a file may have.
const TABLES: [&str; 17] = [
    "fabric",
    "api",
    "metrics",
    "switch",
    "port",
    "host",
    "patch",
    "link",
    "chain",
    "guest",
    "function",
    "program",
    "worker",
    "policy",
    "cluster",
    "plugins",
    "placement",
];

fn whole(
    top: &DeTable<'_>,
    (file, host, outside): (&str, &Host, Option<&Outside<'_>>),
    diagnostics: &Diagnostics,
) -> Fabric {
    for (key, _) in top.iter() {
        let name = key.get_ref();
        if !TABLES.contains(&&**name) {
            let fix = match nearest(name, TABLES) {
                Some(near) => {
                    format!(
                        "did you mean [{near}{}]?",
                        if matches!(near, "fabric" | "api" | "metrics" | "placement") { "" } else { ".NAME" }
                    )
                }
                None => format!("a file has {}", either(TABLES)),
            };
            diagnostics.error(&key.span(), format!("there is no table `{name}`"), fix);
        }
    }
    let mut fabric = head(top, diagnostics);
    let (patches, mut links) = (patches(top, diagnostics), link::links(top, outside, diagnostics));
    let chains = chain::chains(top, diagnostics);
    for section in named(top, "switch", diagnostics) {
        switch(section, &mut fabric, diagnostics);
    }
    for section in named(top, "port", diagnostics) {
        fabric.ports.extend(port::port(section, (outside, diagnostics), host.kinds, &mut links));
    }
    for section in named(top, "host", diagnostics) {
        host::host(section, (outside, diagnostics), &mut fabric, &mut links);
    }
    for section in named(top, "program", diagnostics) {
        program::program(section, diagnostics, &mut fabric);
    }
    for section in named(top, "guest", diagnostics) {
        fabric.guests.extend(guest::guest(section));
    }
    for section in named(top, "function", diagnostics) {
        fabric.functions.extend(function::function(section));
    }
    fabric.placement = placement::placement(top, file, host, diagnostics);
    let mut assigned = BTreeMap::new();
    for section in named(top, "worker", diagnostics) {
        worker(section, &mut fabric.workers, &mut assigned, diagnostics);
    }
    if fabric.workers.is_empty() {
        fabric.workers.push(Worker {
            name: "worker".into(),
            core: None,
            node: None,
            poll: Poll::Adaptive,
            spin: SPIN,
            hold: HOLD,
        });
    }
    let partial = cross_checks::Partial { patches, links, chains, assigned };
    cross_checks::check(&mut fabric, partial, host, diagnostics);
    let is_empty = fabric.ports.is_empty() && fabric.openings.is_empty();
    if is_empty && fabric.placement == Placement::default() {
        diagnostics.warn(&(0..0), "no port is described: nothing can connect");
    }
    fabric
}

/// Default time that an adaptive worker polls a queue after its last frame, in nanoseconds.
const SPIN: u64 = 50_000;
/// Default time that frames wait for a full destination, in nanoseconds.
const HOLD: u64 = 100_000;
/// Longest time that frames may wait for a full destination, in nanoseconds.
const LONGEST_HOLD: u64 = 10_000_000_000;

/// Default time that a function created at run time, or new in a running chain, may take to start.
/// Attack: a configuration that takes long to build.
pub const START_LIMIT: Duration = Duration::from_secs(10);
/// The range of that time, in nanoseconds.
const START_LIMITS: RangeInclusive<u64> = 100_000_000..=600_000_000_000;

/// The tables `[what.NAME]`, in the order of the file.
fn named<'t>(top: &'t DeTable<'t>, what: &str, diagnostics: &'t Diagnostics) -> Vec<Section<'t>> {
    let Some((key, value)) = top.get_key_value(what) else { return Vec::new() };
    let DeValue::Table(tables) = value.get_ref() else {
        diagnostics.error(&key.span(), format!("`{what}` is not a table"), format!("write [{what}.NAME]"));
        return Vec::new();
    };
    if tables.len() > OBJECTS {
        let found = format!("the file has {} tables [{what}.NAME]", tables.len());
        diagnostics.error(&key.span(), found, format!("the limit is {OBJECTS}"));
        return Vec::new();
    }
    let mut list = Vec::new();
    let mut entries: Vec<_> = tables.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in entries {
        if let Some(section) = one(what, name.get_ref(), name.span(), value, diagnostics) {
            list.push(section);
        }
    }
    list
}

fn one<'t>(
    what: &str,
    name: &str,
    at: Range<usize>,
    value: &'t Spanned<DeValue<'t>>,
    diagnostics: &'t Diagnostics,
) -> Option<Section<'t>> {
    let DeValue::Table(table) = value.get_ref() else {
        diagnostics.error(
            &at,
            format!("[{what}] has no key `{name}`"),
            format!("each {what} has a table [{what}.NAME]"),
        );
        return None;
    };
    if let Err((what, fix)) = names::name(name) {
        diagnostics.error(&at, what, fix);
        return None;
    }
    Some(Section::new(format!("{what}.{name}"), at, table, diagnostics))
}

fn head(top: &DeTable<'_>, diagnostics: &Diagnostics) -> Fabric {
    let mut fabric = Fabric {
        name: "default".into(),
        run: None,
        huge_pages: HugePages::Auto,
        start_limit: START_LIMIT,
        switches: Vec::new(),
        openings: BTreeMap::new(),
        ports: Vec::new(),
        guests: Vec::new(),
        hosts: Vec::new(),
        functions: Vec::new(),
        programs: Vec::new(),
        chains: Vec::new(),
        metrics: metrics(top, diagnostics),
        api: api::api(top, diagnostics),
        audit: None,
        placement: Placement::default(),
        workers: Vec::new(),
        warnings: Vec::new(),
    };
    let Some((key, value)) = top.get_key_value("fabric") else { return fabric };
    let DeValue::Table(table) = value.get_ref() else {
        diagnostics.error(&key.span(), "`fabric` is not a table", "write [fabric]");
        return fabric;
    };
    let mut section = Section::new("fabric".into(), key.span(), table, diagnostics);
    if let Some(name) = section.parsed("name", "demo", |text| names::name(text).map(String::from)) {
        fabric.name = name;
    }
    fabric.run = section.parsed("run", "/run/ringway/demo", names::run_directory);
    fabric.audit = section.parsed("audit", "/var/log/ringway/demo.audit", audit_log);
    let pages = [
        ("auto", HugePages::Auto),
        ("2MB", HugePages::Mb2),
        ("1GB", HugePages::Gb1),
        ("off", HugePages::Off),
    ];
    fabric.huge_pages = section.word("huge-pages", &pages).unwrap_or_default();
    let limit = section.duration("start-limit", START_LIMITS, "10s");
    fabric.start_limit = limit.map_or(START_LIMIT, Duration::from_nanos);
    section.finish(|_| None);
    fabric
}

/// The file of an audit log.
fn audit_log(text: &str) -> Result<PathBuf, Wrong> {
    let path = Path::new(text);
    // A path that ends in `/` has the name of a folder, which can't be written.
    if path.file_name().is_none() || text.ends_with('/') || text.contains('\0') {
        return Err((format!("{} can't be a file", names::shown(text)), "name a file to write".into()));
    }
    Ok(path.into())
}

/// The address of `[metrics]`.
fn metrics(top: &DeTable<'_>, diagnostics: &Diagnostics) -> Option<SocketAddr> {
    let (key, value) = top.get_key_value("metrics")?;
    let DeValue::Table(table) = value.get_ref() else {
        diagnostics.error(&key.span(), "`metrics` is not a table", "write [metrics]");
        return None;
    };
    let mut section = Section::new("metrics".into(), key.span(), table, diagnostics);
    let address = section.parsed("address", METRICS_ADDRESS, addresses::endpoint);
    if address.is_none() && !section.has("address") {
        section.missing("address", &format!("add address = \"{METRICS_ADDRESS}\""));
    }
    section.finish(|_| None);
    address
}

/// An address for metrics, that of this host alone.
pub const METRICS_ADDRESS: &str = "127.0.0.1:9468";

/// A patch: its name and its ports.
type Patch = (String, Vec<String>);

fn patches(top: &DeTable<'_>, diagnostics: &Diagnostics) -> Vec<Patch> {
    let mut list = Vec::new();
    for mut section in named(top, "patch", diagnostics) {
        let ports = joined(&mut section, "a patch");
        list.extend(ports.map(|ports| (section.path.clone(), ports)));
        section.finish(|_| None);
    }
    list
}

/// What is outside the file, and the errors found so far.
type Reading<'a> = (Option<&'a Outside<'a>>, &'a Diagnostics);

/// The ports that `what`, a patch, a link or a chain, joins.
fn joined(section: &mut Section<'_>, what: &str) -> Option<Vec<String>> {
    let example = "[\"a\", \"b\"]";
    let ports = section.strings("ports", example);
    match ports.as_ref().map(Vec::len) {
        Some(2) => {}
        Some(count) => {
            let has = format!("{} has {count} port{}", section.path, if count == 1 { "" } else { "s" });
            section.error("ports", has, format!("{what} joins exactly two; for more, use a switch"));
        }
        None if section.has("ports") => {}
        None => section.missing("ports", &format!("add ports = {example}")),
    }
    ports
}

/// Adds a switch to `fabric`, and who may open ports on it.
fn switch(mut section: Section<'_>, fabric: &mut Fabric, diagnostics: &Diagnostics) {
    let name = section.path.trim_start_matches("switch.").to_string();
    let words: Vec<_> = lookups::all().map(|keys| (keys.name(), keys)).collect();
    let known = section.word("lookup", &words);
    if known.is_none() && section.has("lookup") {
        lookups::all().for_each(|keys| section.accept(&keys.keys()));
    }
    let Some(keys) = known.or(lookups::all().next()) else { return };
    let lookup = keys.read(&mut section, diagnostics);
    let open = opening::opening(&mut section);
    let forward_reserved = section.boolean("forward-reserved").unwrap_or(false);
    let snooping = snooping(&mut section);
    section.finish(|key| match lookups::all().find(|keys| keys.keys().contains(&key)) {
        Some(owner) => Some(format!("only lookup = \"{}\" has it", owner.name())),
        None if key == "ports" => Some(format!("each port names its switch: switch = \"{name}\"")),
        None => None,
    });
    fabric.openings.extend(open.map(|open| (name.clone(), open)));
    fabric.switches.push(Switch { name, lookup, forward_reserved, snooping });
}

/// Reads whether a switch snoops.
fn snooping(section: &mut Section<'_>) -> Option<Snooping> {
    let snoops = section.boolean("multicast-snooping").unwrap_or(false);
    let fast_leave = section.boolean("multicast-fast-leave");
    if fast_leave.is_some() && !snoops {
        let what = "`multicast-fast-leave` is there without `multicast-snooping`";
        section.error("multicast-fast-leave", what, "add multicast-snooping = true");
    }
    snoops.then(|| Snooping { fast_leave: fast_leave.unwrap_or(false) })
}

fn worker(
    mut section: Section<'_>,
    list: &mut Vec<Worker>,
    assigned: &mut BTreeMap<String, (String, String)>,
    diagnostics: &Diagnostics,
) {
    let name = section.path.trim_start_matches("worker.").to_string();
    let core = section.number("core", 0..=65_535).map(|core| core as usize);
    let node = section.number("node", 0..=1023).map(|node| node as u16);
    let words = [("adaptive", Poll::Adaptive), ("always", Poll::Always), ("never", Poll::Never)];
    let poll = section.word("poll", &words).unwrap_or_default();
    let spin = section.duration("spin", 0..=1_000_000_000, "50us").unwrap_or(SPIN);
    let hold = section.duration("hold", 0..=LONGEST_HOLD, "100us").unwrap_or(HOLD);
    for (index, port) in section.strings("ports", "[\"a\"]").unwrap_or_default().into_iter().enumerate() {
        let place = format!("{}.ports.{index}", section.path);
        if let Some((_, other)) = assigned.get(&port) {
            diagnostics.error(
                &diagnostics.of(&place),
                format!("port {port} is on worker {other} too"),
                "keep one",
            );
        } else {
            assigned.insert(port, (place, name.clone()));
        }
    }
    section.finish(|_| None);
    // The kernel truncates thread names to 15 bytes; messages have the whole name.
    list.push(Worker { name, core, node, poll, spin, hold });
}
