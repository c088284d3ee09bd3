//! From a flat configuration to a router.
use super::{Info, Router};
use crate::arg::{Args, Names};
use crate::random::Random;
use crate::sort;
use crate::{Clock, Console, Context, Element, ElementId, Failed, PACKETS, Pool, Registry};
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use ringway_click_lang::near::proposal;
use ringway_click_lang::{Diagnostics, Graph, config};

/// Attack: a configuration whose compounds multiply. Largest number of elements of a router.
const MOST_ELEMENTS: usize = 1 << 20;
/// Arguments to split before packets are handled again.
const SPLIT: usize = 64;

/// How a router runs.
pub struct Options {
    /// Number of packets handled at once, 1 to [`PACKETS`]; 1 keeps the order of effects exactly Click's.
    pub burst: usize,
    /// Its time.
    pub clock: Clock,
    /// Its console.
    pub console: Box<dyn Console>,
    /// Seed of its random numbers.
    pub seed: u64,
    /// The configuration's source text, for the `config` handler.
    pub source: String,
}

impl Options {
    /// Options of a simulation, which is reproducible.
    pub fn simulated(burst: usize, console: impl Console + 'static, source: &str) -> Self {
        Self { burst, clock: Clock::simulated(), console: Box::new(console), seed: 1, source: source.into() }
    }
}

/// Why building failed: the messages, and Click's last line.
#[derive(Debug)]
pub struct BuildError {
    /// The messages.
    pub diagnostics: Diagnostics,
}

impl BuildError {
    /// An error that is not about the configuration.
    pub fn other(text: String) -> Self {
        let mut diagnostics = Diagnostics::new(1);
        diagnostics.error(None, text);
        Self { diagnostics }
    }
}

impl core::fmt::Display for BuildError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.diagnostics.fmt(f)
    }
}

impl core::error::Error for BuildError {}

impl Router {
    /// Checks a configuration, then creates, configures and initializes its elements. Warnings are in
    /// [`Router::diagnostics`].
    ///
    /// # Errors
    /// [`BuildError`] with all errors.
    pub fn build(graph: Graph, registry: &Registry, options: Options) -> Result<Self, BuildError> {
        Self::unbuilt(graph, options).complete(registry)
    }

    /// Checks a configuration and configures its elements, without side effects, then drops them. Returns all
    /// messages.
    pub fn check(graph: Graph, registry: &Registry, options: Options) -> Diagnostics {
        let mut router = Self::unbuilt(graph, options);
        let _ = router.make_elements(registry) && router.check_graph() && router.configure();
        router.diagnostics()
    }

    /// A router without elements.
    pub(super) fn unbuilt(graph: Graph, options: Options) -> Self {
        let names = Rc::new(Names::new(&graph, options.console.devices()));
        let mut router = Self {
            elements: Vec::new(),
            infos: Vec::new(),
            firsts: Vec::new(),
            graph,
            source: options.source,
            names,
            burst: options.burst.clamp(1, PACKETS),
            pool: Pool::new(),
            clock: options.clock,
            console: options.console,
            tasks: Default::default(),
            timers: Default::default(),
            notes: Vec::new(),
            interests: Vec::new(),
            signals: Vec::new(),
            chatter_listeners: Vec::new(),
            emitted: Vec::new(),
            spare: Vec::new(),
            work: Vec::new(),
            blocked: Default::default(),
            deferred: Default::default(),
            budget: u32::MAX,
            ticks: None,
            profile: None,
            complaints: Default::default(),
            failed: false,
            lends: Default::default(),
            lent: 0,
            looped: 0,
            incomplete: 0,
            runcount: 1,
            stop_element: None,
            report: Rc::default(),
            building: true,
            random: Random::new(1),
            turn_began: 0,
            turn_wall: None,
            rebuild: None,
            pending_swap: None,
            breath: None,
            unwanted: false,
            visits: Default::default(),
            classes: Vec::new(),
            reconfiguring: false,
            reused: Default::default(),
            breathed: None,
            ended: false,
            successor: None,
            predecessors: Default::default(),
            threads: None,
            homes: None,
        };
        router.seed(options.seed);
        router
    }

    /// Makes its elements.
    pub(super) fn complete(self, registry: &Registry) -> Result<Self, BuildError> {
        let mut router = self;
        let built = router.prepare(registry) && router.initialize();
        router.finish(built)
    }

    /// Creates and configures the elements. Returns whether there were no errors.
    pub(super) fn prepare(&mut self, registry: &Registry) -> bool {
        self.make_elements(registry) && self.check_graph() && self.configure()
    }

    pub(super) fn finish(self, built: bool) -> Result<Self, BuildError> {
        let mut router = self;
        router.building = false;
        let mut report = router.report.borrow_mut();
        if built {
            drop(report);
            router.settle();
            return Ok(router);
        }
        report.diagnostics.error(None, "Router could not be initialized!");
        let diagnostics = core::mem::take(&mut report.diagnostics);
        drop(report);
        Err(BuildError { diagnostics })
    }

    /// Messages from building.
    pub fn diagnostics(&self) -> Diagnostics {
        self.report.borrow().diagnostics.clone()
    }

    fn make_elements(&mut self, registry: &Registry) -> bool {
        let mut good = true;
        self.classes = registry.iter().map(|class| class.name).collect();
        if self.graph.elements.len() > MOST_ELEMENTS {
            self.report.borrow_mut().diagnostics.error(None, "too many elements");
            return false;
        }
        for element in &self.graph.elements {
            let Some(class) = registry.find(&element.class) else {
                let text = format!("unknown element class '{}'", element.class);
                let hint = proposal(&element.class, registry.iter().map(|class| class.name));
                let diagnostics = &mut self.report.borrow_mut().diagnostics;
                diagnostics.error(element.landmark.clone(), text);
                diagnostics.hint(hint);
                good = false;
                continue;
            };
            self.elements.push(Some((class.make)()));
            self.infos.push(Info {
                name: element.name.clone(),
                class,
                configuration: element.configuration.clone(),
                landmark: element.landmark.clone(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                handlers: Rc::from([]),
                handler_infos: Vec::new(),
                tasks: Vec::new(),
                thread: None,
                tasked: false,
                completes: false,
            });
        }
        if !good {
            self.elements.clear();
            self.infos.clear();
        }
        good
    }

    pub(super) fn order(&self) -> Vec<ElementId> {
        let mut order: Vec<ElementId> = self.ids().collect();
        sort::by_number(&mut order, |id| self.class(*id).phase.abs_diff(i32::MIN).into());
        order
    }

    fn configure(&mut self) -> bool {
        let mut good = true;
        for id in self.order() {
            if self.unwanted {
                return false;
            }
            let configuration = core::mem::take(&mut self.info_mut(id).configuration);
            good &= self.stage(id, "configuring", |router, element| {
                router.configure_one(id, element, &configuration)
            });
            let changed = &mut self.info_mut(id).configuration;
            if changed.is_empty() {
                *changed = configuration;
            }
            self.breathe();
        }
        for id in self.ids().collect::<Vec<_>>() {
            let own = self.element(id).map(Element::handlers).unwrap_or_default();
            self.add_handlers(id, own);
        }
        good
    }

    /// Configures an element, which is taken out of the router meanwhile.
    pub(super) fn configure_one(
        &mut self,
        id: ElementId,
        element: &mut dyn Element,
        configuration: &str,
    ) -> Result<(), Failed> {
        let mut args = Args::new(self.names.clone(), self.name(id), self.report.clone());
        for (number, argument) in config::arguments(configuration).enumerate() {
            args.add(argument);
            if number % SPLIT == SPLIT - 1 {
                self.breathe();
            }
        }
        let result = element.configure(&mut args, &mut Context::new(self, id, true));
        result.and(args.result())
    }

    fn initialize(&mut self) -> bool {
        self.order().into_iter().all(|id| {
            self.breathe();
            !self.unwanted && self.initialize_one(id)
        })
    }

    pub(super) fn initialize_one(&mut self, id: ElementId) -> bool {
        self.stage(id, "initializing", |router, element| {
            element.initialize(&mut Context::new(router, id, true))
        })
    }

    /// Calls a function for an element under a heading for its messages. Returns whether it succeeded.
    fn stage(
        &mut self,
        id: ElementId,
        doing: &str,
        act: impl FnOnce(&mut Self, &mut dyn Element) -> Result<(), Failed>,
    ) -> bool {
        let context = format!("While {doing} '{}':", self.declaration(id));
        self.report.borrow_mut().begin(self.landmark(id).clone(), context);
        let Some(mut element) = self.take(id) else { return false };
        let result = act(self, &mut *element);
        self.put(id, element);
        self.pass_on(id, 0);
        let mut report = self.report.borrow_mut();
        let failures = report.failures();
        if result.is_err() && failures == 0 {
            report.error("unspecified error");
        }
        report.end();
        result.is_ok() && failures == 0
    }
}
