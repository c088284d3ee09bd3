//! Building routers from texts: the first one, and replacements at run time.
use super::check::check_system;
use super::host::{Host, Libraries};
use ringway_click::{Clock, Console, Options, Rebuild, Registry, Router, Succession};
use ringway_click_lang::{Diagnostics, Element, Graph, Landmark, Source};
use ringway_elements::platform::Uses;

/// Name of the driver's own ControlSocket.
pub(super) const SOCKET: &str = "click_driver@@ControlSocket";

/// Environment for reading configurations.
pub(super) struct Reader {
    pub(super) registry: Registry,
    pub(super) variables: Vec<(String, String)>,
    /// Where required files are.
    pub(super) libraries: Libraries,
    /// Arguments of a ControlSocket each, which is added to the configuration.
    pub(super) sockets: Vec<String>,
}

/// Environment for building routers.
pub(super) struct Builder {
    pub(super) reader: Reader,
    /// The uses of a function's ports: each port must be used, at most once a direction.
    pub(super) uses: Option<Uses>,
    pub(super) burst: usize,
    pub(super) console: Box<dyn Fn() -> Box<dyn Console>>,
    /// The state of a resident function.
    pub(super) resident: Option<Resident>,
}

/// What the configurations of a resident function have in common.
pub(super) struct Resident {
    /// Name of the next configuration in messages.
    pub(super) title: String,
    /// Bytes of packets from which no further ones are made.
    pub(super) memory: usize,
}

impl Reader {
    /// Reads a configuration: the graph, if it is valid, and the diagnostics.
    pub(super) fn read(&self, text: &str, file: &str) -> (Option<Graph>, Diagnostics) {
        let mut host = Host::new(&self.registry).with(self.libraries.clone());
        let source = Source { variables: &self.variables, ..Source::new(text, file) };
        let mut parsed = source.read(&mut host);
        for (number, socket) in self.sockets.iter().enumerate() {
            let behind = if number > 0 { format!("@{number}") } else { String::new() };
            parsed.graph.elements.push(Element {
                name: format!("{SOCKET}{behind}"),
                class: "ControlSocket".into(),
                configuration: socket.clone(),
                landmark: Landmark::new("click", 0),
            });
        }
        let graph = (parsed.diagnostics.errors() == 0).then_some(parsed.graph);
        (graph, parsed.diagnostics)
    }

    /// Reads a configuration on a separate thread, while `place` keeps running.
    fn read_aside(&self, text: &str, file: &str, place: &mut Succession) -> (Option<Graph>, Diagnostics) {
        std::thread::scope(|scope| {
            let named = std::thread::Builder::new().name("configuration".into());
            let reading = named.spawn_scoped(scope, || self.read(text, file));
            let Ok(reading) = reading else { return self.read(text, file) };
            while !reading.is_finished() {
                place.breathe();
                std::thread::yield_now();
            }
            reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Builder {
    /// The graph of a configuration that was read, if there are no errors.
    pub(super) fn accept(&self, read: (Option<Graph>, Diagnostics), file: &str) -> Result<Graph, String> {
        let (graph, mut diagnostics) = read;
        if let (Some(graph), Some(uses)) = (&graph, &self.uses) {
            uses.check(graph, file, &mut diagnostics);
        }
        if let (Some(graph), Some(_)) = (&graph, &self.uses) {
            check_system(graph, self.resident.is_some(), &mut diagnostics);
        }
        graph.filter(|_| diagnostics.errors() == 0).ok_or_else(|| self.message(&diagnostics))
    }

    /// An error message; of a function with columns and suggestions, else in Click's words.
    pub(super) fn message(&self, error: &impl std::fmt::Display) -> String {
        if self.uses.is_some() { format!("{error:#}") } else { error.to_string() }
    }

    /// The options of a router with this text.
    pub(super) fn options(&self, clock: Clock, source: String) -> Options {
        Options { burst: self.burst, clock, console: (self.console)(), seed: seed(), source }
    }
}

/// A seed for a router's random numbers.
/// Attack: elements make their secrets from these numbers, and a seed taken from the clock could be guessed. The clock
/// is only used if the operating system has no random numbers.
fn seed() -> u64 {
    ringway_host::random().unwrap_or_else(|_| ringway_host::since_1970())
}

impl Rebuild for Builder {
    fn rebuild(&mut self, text: &str, mut place: Succession) -> Result<Router, String> {
        let title = self.resident.as_mut().map(|resident| std::mem::take(&mut resident.title));
        let file = title.filter(|title| !title.is_empty()).unwrap_or("config".into());
        let graph = self.accept(self.reader.read_aside(text, &file, &mut place), &file)?;
        let options = self.options(place.clock(), text.to_string());
        let built = place.build(graph, &self.reader.registry, options);
        let router = built.map_err(|error| self.message(&error))?;
        if let Some(resident) = &self.resident {
            router.pool().limit(resident.memory);
        }
        Ok(router)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_do_not_follow_the_clock() {
        let seeds: Vec<u64> = (0..16).map(|_| seed()).collect();
        // Seeds of the clock have the same highest bits for hours.
        assert!(seeds.iter().any(|other| other >> 44 != seeds[0] >> 44), "{seeds:x?}");
    }
}
