//! Building routers from texts in a guest: the first one, and replacements at run time.

use super::listener::MonitorListener;
use super::platform;
use super::ports::PortAccess;
use crate::clock::GuestTime;
use crate::start::FunctionStart;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::{Class, Clock, Console, Options, Reach, Rebuild, Registry, Router, Succession};
use ringway_click_lang::{Element, Environment, Graph, Landmark, Source, config};
use ringway_elements::platform::control_socket::ControlSocket;
use ringway_elements::platform::{FromPort, PACKAGES, ToPort, Uses, devices};

static CLASSES: [Class; 3] = [
    devices::source(Class::new("FromPort", || Box::<FromPort<PortAccess>>::default())),
    devices::sink(Class::new("ToPort", || Box::<ToPort<PortAccess>>::default())),
    Class::new("ControlSocket", || Box::<ControlSocket<MonitorListener>>::default()).reach(Reach::Whole),
];
static DEVICES: [Class; devices::COUNT] = devices::classes(
    || Box::new(FromPort::<PortAccess>::of_device()),
    || Box::new(ToPort::<PortAccess>::of_device()),
);

/// All element classes of an image that has `more` besides the project's.
pub fn registry(more: &[&'static Class]) -> Registry {
    let mut registry = ringway_elements::classes();
    registry.add(&CLASSES.each_ref());
    registry.add(&DEVICES.each_ref());
    registry.add(more);
    registry
}

/// Prints by the monitor.
struct Printer;

impl Console for Printer {
    fn chatter(&mut self, line: &str) {
        platform::with(|platform| platform.print(line.as_bytes()));
    }

    fn output(&mut self, bytes: &[u8]) {
        for line in bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n') {
            platform::with(|platform| platform.print(line));
        }
    }
}

/// Element classes and packages; there are no files, and so no libraries.
struct Image<'a>(&'a Registry);

impl Environment for Image<'_> {
    fn has_class(&self, name: &str) -> bool {
        self.0.find(name).is_some()
    }

    fn classes(&self) -> Vec<&str> {
        self.0.iter().map(|class| class.name).collect()
    }

    fn has_package(&mut self, name: &str) -> bool {
        PACKAGES.contains(&name) || self.has_class(name)
    }

    fn library(&mut self, _: &str, _: &str) -> Option<(String, Result<String, String>)> {
        None
    }
}

/// Environment for building routers.
pub(super) struct Builder {
    registry: Registry,
    start: FunctionStart,
    uses: Uses,
    seed: u64,
}

impl Builder {
    pub(super) fn new(start: FunctionStart, uses: Uses, classes: &[&'static Class]) -> Builder {
        let seed = start.seed;
        Builder { registry: registry(classes), start, uses, seed }
    }

    /// The graph of a configuration, if there are no errors.
    fn read(&self, text: &str, file: &str) -> Result<Graph, String> {
        let source = Source { variables: &self.start.parameters, ..Source::new(text, file) };
        let mut parsed = source.read(&mut Image(&self.registry));
        if parsed.diagnostics.errors() == 0 {
            if platform::with(|platform| platform.has_programs()).unwrap_or_default() {
                let place = config::quote(self.start.handlers.as_bytes());
                parsed.graph.elements.push(Element {
                    name: "click_driver@@ControlSocket".into(),
                    class: "ControlSocket".into(),
                    configuration: format!("UNIX, {place}"),
                    landmark: Landmark::new("click", 0),
                });
            }
            self.uses.check(&parsed.graph, file, &mut parsed.diagnostics);
        }
        match parsed.diagnostics.errors() {
            0 => Ok(parsed.graph),
            _ => Err(format!("{:#}", parsed.diagnostics)),
        }
    }

    fn options(&mut self, clock: Clock, source: String) -> Options {
        self.seed = self.seed.wrapping_add(1);
        let generation = platform::with(|platform| platform.generation).unwrap_or_default();
        let (burst, seed) = (self.start.burst as usize, self.seed ^ generation);
        Options { burst, clock, console: Box::new(Printer), seed, source }
    }

    /// The graph of the first configuration.
    pub(super) fn parse(&self) -> Result<Graph, String> {
        self.read(&self.start.text, &self.start.title)
    }

    /// The first router, with handlers for changing it.
    pub(super) fn first(
        mut self,
        graph: Graph,
        time: GuestTime,
        ticks: fn() -> u64,
    ) -> Result<Router, String> {
        let text = self.start.text.clone();
        let options = self.options(Clock::Real(Box::new(time)), text);
        let mut router =
            Router::build(graph, &self.registry, options).map_err(|error| format!("{error:#}"))?;
        router.allow_profile(ticks);
        router.allow_reconfigure(Box::new(self));
        Ok(router)
    }
}

impl Rebuild for Builder {
    fn rebuild(&mut self, text: &str, place: Succession) -> Result<Router, String> {
        let graph = self.read(text, "config")?;
        let options = self.options(place.clock(), text.to_string());
        place.build(graph, &self.registry, options).map_err(|error| format!("{error:#}"))
    }
}
