//! The driver: reads a configuration, runs it, and reads handlers at the end.
mod builder;
mod check;
pub mod clickpath;
mod confined;
mod drive;
pub mod function;
mod host;
mod hosted;
mod options;
mod pace;
mod recorder;
pub mod reference;
pub mod resident;
mod signals;
mod stopwatch;
mod terminal;
mod threads;

use crate::file::CONFIGURATION;
use builder::{Builder, Reader};
pub(crate) use check::complaints;
pub use check::{Complaint, Configuration, check, check_for_image};
pub use drive::drive;
use host::Libraries;
pub use host::{Host, Machine, PROVIDED};
use hosted::Hosted;
pub use options::{Options, Usage};
pub use recorder::Recorder;
pub use terminal::Terminal;

use ringway_click::{BuildError, Class, Clock, Console, Documentation, Rebuild, Registry, Router};
use ringway_click_lang::{Diagnostics, Graph, archive};
use ringway_host::read_whole;
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::sync::OnceLock;
use stopwatch::Stopwatch;
use threads::{OtherThreads, Plan, Reach};

/// Element classes of a program besides the project's, and their documentation.
#[derive(Clone, Copy, Default)]
pub struct OwnClasses {
    /// The classes; one replaces a class of the project of the same name.
    pub classes: &'static [&'static Class],
    /// Their documentation.
    pub documentation: Documentation,
}

static OWN: OnceLock<OwnClasses> = OnceLock::new();

/// Adds classes to the project's, for the whole process and once, before a configuration is read: [`registry`] and
/// functions have them.
pub fn add_classes(own: OwnClasses) {
    // A later call has no effect.
    let _ = OWN.set(own);
}

/// The classes that were added to the project's.
fn own_classes() -> OwnClasses {
    OWN.get().copied().unwrap_or_default()
}

/// All element classes.
pub fn registry() -> Registry {
    let mut registry = project_registry();
    let OwnClasses { classes, documentation } = own_classes();
    registry.add(classes);
    registry.document(documentation);
    registry
}

/// The project's element classes.
fn project_registry() -> Registry {
    let mut registry = ringway_elements::registry();
    registry.add(crate::elements::CLASSES);
    registry.document(crate::elements::DOCUMENTATION);
    registry
}

/// The element classes of functions, where devices stand for ports.
pub(crate) fn function_registry() -> Registry {
    let mut registry = registry();
    registry.add(&crate::elements::DEVICES.each_ref());
    registry
}

/// Runs Click's program with these arguments, without the program's name. Returns its exit status.
pub fn run(arguments: &[String], console: impl Console + Clone + Send + 'static) -> u8 {
    run_with(registry(), arguments, console)
}

/// Runs Click's program; messages about the configuration have columns, and suggestions for misspelt names.
pub fn run_explaining(arguments: &[String], console: impl Console + Clone + Send + 'static) -> u8 {
    run_as(registry(), arguments, console, true)
}

/// [`run`] with additional element classes, for programs with their own elements.
pub fn run_with(
    registry: Registry,
    arguments: &[String],
    console: impl Console + Clone + Send + 'static,
) -> u8 {
    run_as(registry, arguments, console, false)
}

fn run_as(
    registry: Registry,
    arguments: &[String],
    console: impl Console + Clone + Send + 'static,
    explain: bool,
) -> u8 {
    let mut console = console;
    match Options::parse(arguments) {
        Ok(options) => {
            if let Some(classes) = &options.elements {
                return reference::print(&registry, classes, &mut console);
            }
            let own = console.clone();
            let own = Rc::new(move || Box::new(Hosted(own.clone())) as Box<dyn Console + Send>);
            Driver { options, registry, console: &mut console, own, explain, others: None }.run()
        }
        Err(Usage::Help) => {
            console.output(options::HELP.as_bytes());
            0
        }
        Err(Usage::Version) => {
            console.output(concat!("click (Ringway) ", env!("CARGO_PKG_VERSION"), "\n").as_bytes());
            0
        }
        Err(Usage::Wrong(reason)) => {
            console.chatter(&format!("{reason}\nUsage: click [OPTION]... [ROUTERFILE]"));
            console.chatter("Try 'click --help' for more information.");
            1
        }
    }
}

struct Driver<'a> {
    options: Options,
    registry: Registry,
    console: &'a mut dyn Console,
    /// Creates the router's console.
    own: Rc<dyn Fn() -> Box<dyn Console + Send>>,
    /// The router's other threads, if any.
    others: Option<Rc<OtherThreads>>,
    /// Whether messages have columns and suggestions.
    explain: bool,
}

impl Driver<'_> {
    fn run(mut self) -> u8 {
        let (text, file) = match self.read() {
            Ok(read) => read,
            Err(reason) => {
                self.console.chatter(&reason);
                return 1;
            }
        };
        let Some(mut router) = self.build(text, &file) else { return 1 };
        let mut status = 0;
        if let Some(path) = self.options.output.take() {
            router.gather();
            status |= u8::from(!self.write_out(&path, &router.flat_configuration()));
        }
        let stopwatch = Stopwatch::default();
        let idle = router.is_empty();
        let router = Rc::new(RefCell::new(router));
        if !self.options.quit && !idle {
            self.pin();
            match self.others.take() {
                Some(others) => others.drive(&mut router.borrow_mut()),
                None => drive(&router),
            }
        } else if !self.options.quit && self.options.warnings {
            self.console.chatter(&format!("warning: {file}: configuration has no elements, exiting"));
        }
        if self.options.time {
            self.console.output(stopwatch.line().as_bytes());
        }
        let router = &mut router.borrow_mut();
        if self.options.profile {
            self.console.output(router.profile_table().as_bytes());
        }
        status |= u8::from(!self.read_handlers(router));
        if self.options.exit_handler.is_none() {
            router.finish_elements();
            status |= u8::from(router.has_failed());
        }
        match self.options.exit_handler.take() {
            Some(call) => self.exit_status(router, &call),
            None => status,
        }
    }

    /// The configuration's text and its name.
    fn read(&mut self) -> Result<(String, String), String> {
        if let Some(text) = self.options.expression.take() {
            return Ok((text, "config".into()));
        }
        let (name, bytes) = match self.options.file.as_deref() {
            None | Some("-") => ("<stdin>", read_whole(std::io::stdin(), CONFIGURATION)),
            Some(path) => (path, File::open(path).and_then(|file| read_whole(file, CONFIGURATION))),
        };
        let name = name.to_string();
        let bytes = bytes.map_err(|error| format!("{name}: {error}"))?;
        let bytes = configuration(bytes).map_err(|error| format!("{name}: {error}"))?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), name))
    }

    fn build(&mut self, text: String, file: &str) -> Option<Router> {
        let options = &self.options;
        let builder = Builder {
            reader: Reader {
                registry: std::mem::replace(&mut self.registry, Registry::empty()),
                variables: options.variables.clone(),
                libraries: Libraries::Along(options.path.clone()),
                sockets: options.sockets.clone(),
            },
            uses: None,
            burst: options.burst,
            console: {
                let own = self.own.clone();
                Box::new(move || own())
            },
            resident: None,
        };
        let machine = Machine::default();
        let clock = match options.simulated {
            Some(start) => Clock::Simulated(start),
            None => Clock::Real(Box::new(machine.clone())),
        };
        // Simulated time has a single order of events, and so a single thread.
        let threads = if options.simulated.is_some() { 1 } else { options.threads };
        let (graph, diagnostics) = builder.reader.read(&text, file);
        self.say_all(&diagnostics);
        let (graph, options) = (graph?, builder.options(clock, text));
        let registry = &builder.reader.registry;
        let built = match threads {
            1 => Router::build(graph, registry, options),
            _ => self.build_divided(graph, registry, options, machine),
        };
        match built {
            Ok(mut router) => {
                if self.options.warnings {
                    self.say_all(&router.diagnostics());
                }
                if self.options.profile {
                    router.allow_profile(ringway_host::ticks);
                    router.set_profile(true);
                }
                if self.options.reconfigure {
                    let rebuild: Box<dyn Rebuild> =
                        if self.others.is_some() { Box::new(threads::Refusal) } else { Box::new(builder) };
                    router.allow_reconfigure(rebuild);
                }
                Some(router)
            }
            Err(error) => {
                self.say_all(&error.diagnostics);
                None
            }
        }
    }

    /// Builds the router of a configuration for several threads. If one thread runs everything, there are no
    /// others.
    fn build_divided(
        &mut self,
        graph: Graph,
        registry: &Registry,
        options: ringway_click::Options,
        machine: Machine,
    ) -> Result<Router, BuildError> {
        let (threads, core) = (self.options.threads, self.options.affinity);
        let (burst, seed) = (options.burst, options.seed);
        let mut router = Router::configured(graph, registry, options, threads)?;
        let division = router.divide();
        if !division.is_whole() {
            let console = &*self.own;
            let graph = router.graph();
            let plan = Plan { threads, graph, registry, burst, machine, seed, core, console };
            let others =
                OtherThreads::new(&plan, &division).map_err(|error| BuildError::other(error.to_string()))?;
            router.live_on(&division, 0);
            router.reach(Box::new(Reach(others.clone())));
            self.others = Some(others);
        }
        router.begin()
    }

    /// Pins this thread to its core, if configured.
    fn pin(&mut self) {
        if let Some(core) = self.options.affinity
            && let Err(error) = ringway_host::pin(core)
            && self.options.warnings
        {
            self.console.chatter(&format!("warning: --affinity: {error}"));
        }
    }

    fn say_all(&mut self, diagnostics: &Diagnostics) {
        let lines = if self.explain { format!("{diagnostics:#}") } else { diagnostics.to_string() };
        if !lines.is_empty() {
            self.console.chatter(lines.trim_end_matches('\n'));
        }
    }

    fn write_out(&mut self, path: &str, text: &str) -> bool {
        if path == "-" {
            self.console.output(text.as_bytes());
            return true;
        }
        let written = std::fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
        if let Err(error) = &written {
            self.console.chatter(&format!("{path}: {error}"));
        }
        written.is_ok()
    }

    /// Reads the handlers that `-h` names. Returns whether all could be read.
    fn read_handlers(&mut self, router: &mut Router) -> bool {
        let wanted = std::mem::take(&mut self.options.handlers);
        let mut calls = Vec::new();
        let mut good = true;
        let mut several = wanted.len() > 1;
        for handler in wanted {
            let Some((element, name)) = handler.rsplit_once('.') else {
                calls.push(handler);
                continue;
            };
            if element.is_empty() || name.is_empty() {
                self.console.chatter(&format!("'{handler}' is no handler; write ELEMENT.HANDLER"));
                good = false;
                continue;
            }
            match self.elements(router, element, name) {
                Some(found) => {
                    several |= element.contains(['*', '?', '[']) || router.find(element).is_none();
                    calls.extend(found.into_iter().map(|element| format!("{element}.{name}")));
                }
                None => good = false,
            }
        }
        for call in calls {
            match self.read_handler(router, &call) {
                Ok(value) if several => self.console.output(format!("{call}:\n{value}\n").as_bytes()),
                Ok(value) => self.console.output(value.as_bytes()),
                Err(reason) => {
                    self.console.chatter(&reason);
                    good = false;
                }
            }
        }
        good
    }

    fn read_handler(&mut self, router: &mut Router, call: &str) -> Result<String, String> {
        let parsed = router.parse_call(call, "").map_err(|error| error.to_string())?;
        let handlers = router.handlers(parsed.element);
        let handler = handlers.iter().find(|handler| handler.name == parsed.handler);
        let handler = match handler {
            Some(handler) if handler.read_visible() => handler,
            Some(handler) if handler.write_visible() => return Err(format!("'{call}' is a write handler")),
            _ => return Err(format!("no '{call}' handler")),
        };
        let mut value = router.read(call).map_err(|error| error.to_string())?;
        if !handler.raw && !value.is_empty() && !value.ends_with('\n') {
            value.push('\n');
        }
        Ok(value)
    }

    /// The elements that match a name, pattern or class.
    fn elements(&mut self, router: &Router, wanted: &str, handler: &str) -> Option<Vec<String>> {
        if router.find(wanted).is_some() {
            return Some(vec![wanted.to_string()]);
        }
        let pattern = wanted.contains(['*', '?', '[']);
        let matches = |id: &ringway_click::ElementId| {
            if pattern { options::glob(wanted, router.name(*id)) } else { router.is_kind(*id, wanted) }
        };
        let found: Vec<_> = router.ids().filter(matches).collect();
        if found.is_empty() {
            let kind = if pattern { "matching" } else { "named" };
            self.console.chatter(&format!("no element {kind} '{wanted}'"));
            return None;
        }
        let readable = |id: &ringway_click::ElementId| {
            router.handlers(Some(*id)).iter().any(|own| own.name == handler && own.read_visible())
        };
        Some(found.into_iter().filter(readable).map(|id| router.name(id).to_string()).collect())
    }

    fn exit_status(&mut self, router: &mut Router, call: &str) -> u8 {
        let text = match router.read(call) {
            Ok(text) => text,
            Err(error) => {
                self.console.chatter(&error.to_string());
                return u8::MAX;
            }
        };
        if let Some(status) = ringway_click_lang::config::integer(text.trim()) {
            return status as u8;
        }
        match ringway_click::arg::parse_bool(text.trim()) {
            Some(good) => u8::from(!good),
            None => {
                self.console.chatter("exit handler value should be integer");
                u8::MAX
            }
        }
    }
}

/// Extracts the configuration from the output of Click's tools: an archive has it as the member `config`.
fn configuration(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    if !archive::is_archive(&bytes) {
        return Ok(bytes);
    }
    let members = archive::parse(&bytes).map_err(|error| error.to_string())?;
    let config = members.into_iter().find(|member| member.name == "config");
    config.map(|member| member.data).ok_or_else(|| "archive has no 'config' section".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_click_lang::archive::Member;

    #[test]
    fn an_archive_contains_its_configuration_as_config() {
        let member = |name: &str, data: &str| Member {
            name: name.into(),
            date: 0,
            uid: 0,
            gid: 0,
            mode: 0o644,
            data: data.into(),
        };
        let both = archive::unparse(&[member("notes", "x"), member("config", "Idle -> Discard;")]);
        assert_eq!(configuration(both).as_deref(), Ok(b"Idle -> Discard;".as_slice()));
        assert!(configuration(archive::unparse(&[member("notes", "x")])).is_err());
        assert!(configuration(b"!<arch>\nshort".to_vec()).is_err());
        assert_eq!(configuration(b"Idle;".to_vec()).as_deref(), Ok(b"Idle;".as_slice()));
    }
}
