//! Routers from texts: the first, and those that replace it while it runs.
use super::Host;
use ringway_click::{Clock, Console, Options, Rebuild, Registry, Router};
use ringway_click_lang::{Diagnostics, Element, Graph, Landmark, Source};

/// What routers are built with.
pub(super) struct Builder {
    pub(super) registry: Registry,
    pub(super) variables: Vec<(String, String)>,
    /// Where required files are looked for, instead of where the environment says.
    pub(super) path: Option<String>,
    /// Arguments of a ControlSocket each, which is added to the configuration.
    pub(super) sockets: Vec<String>,
    pub(super) burst: usize,
    pub(super) console: Box<dyn Fn() -> Box<dyn Console>>,
}

impl Builder {
    /// Reads a configuration: the graph, if it can be used, and what is to be said of it.
    pub(super) fn parse(&self, text: &str, file: &str) -> (Option<Graph>, String) {
        let (graph, said) = self.read(text, file);
        (graph, said.to_string())
    }

    /// The same; what is to be said one by one.
    pub(super) fn read(&self, text: &str, file: &str) -> (Option<Graph>, Diagnostics) {
        let mut host = Host::new(&self.registry).along(self.path.clone());
        let source = Source { variables: &self.variables, ..Source::new(text, file) };
        let mut parsed = source.read(&mut host);
        for (number, socket) in self.sockets.iter().enumerate() {
            let behind = if number > 0 { format!("@{number}") } else { String::new() };
            parsed.graph.elements.push(Element {
                name: format!("click_driver@@ControlSocket{behind}"),
                class: "ControlSocket".into(),
                configuration: socket.clone(),
                landmark: Landmark::new("click", 0),
            });
        }
        let graph = (parsed.diagnostics.errors() == 0).then_some(parsed.graph);
        (graph, parsed.diagnostics)
    }

    /// The options of a router with this text.
    pub(super) fn options(&self, clock: Clock, source: String) -> Options {
        let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
        Options { burst: self.burst, clock, console: (self.console)(), seed, source }
    }
}

impl Rebuild for Builder {
    fn rebuild(&mut self, text: &str, running: &mut Router) -> Result<Router, String> {
        let (graph, said) = self.parse(text, "config");
        let graph = graph.ok_or(said)?;
        let options = self.options(running.clock().fork(), text.to_string());
        let built = running.build_successor(graph, &self.registry, options);
        built.map_err(|error| error.to_string())
    }
}
