//! Replacing a configuration at run time.
use super::{BuildError, Options, Router};
use crate::{Clock, Context, Element, ElementId, HandlerError, Pieces, Progress, Registry};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::{Rc, Weak};
use alloc::string::String;
use alloc::vec::Vec;
use ringway_click_lang::Graph;

/// Time slice in nanoseconds for reconfiguring an element; tasks then run for a multiple of it.
const CONFIGURED: u64 = 100_000;
const SHARE: u64 = 3;

/// Builds routers for the `hotconfig` handler of one that runs.
pub trait Rebuild {
    /// Builds a router from a configuration, by [`Succession::build`].
    ///
    /// # Errors
    /// The errors, one per line.
    fn rebuild(&mut self, text: &str, place: Succession) -> Result<Router, String>;
}

/// Lets a router handle packets for a while; `false` if nobody wants the one that is being built any more, which then
/// fails soon.
pub type Breath = Box<dyn FnMut() -> bool>;

/// The handle of a running router for building its replacement.
pub struct Succession {
    clock: Clock,
    /// Names and classes of its elements.
    predecessors: BTreeMap<String, &'static str>,
    breath: Option<Breath>,
}

impl Succession {
    /// Lets the running router handle packets, if possible.
    pub fn breathe(&mut self) {
        if let Some(breath) = &mut self.breath {
            // If it is not wanted any more, building it shows that.
            breath();
        }
    }

    /// The clock of the router that runs, for the new one's options.
    pub fn clock(&self) -> Clock {
        self.clock.fork()
    }

    /// Builds the replacement: its elements know that they will take over from those of the same name and
    /// class.
    ///
    /// # Errors
    /// [`BuildError`] with all errors.
    pub fn build(self, graph: Graph, registry: &Registry, options: Options) -> Result<Router, BuildError> {
        let mut router = Router::unbuilt(graph, options);
        (router.clock, router.predecessors, router.breath) = (self.clock, self.predecessors, self.breath);
        let mut router = router.complete(registry)?;
        router.breath = None;
        Ok(router)
    }
}

/// A requested replacement of the running configuration.
pub(super) struct PendingSwap {
    text: String,
    /// Held by the requesting call.
    asker: Weak<()>,
    built: Option<Result<Box<Router>, String>>,
}

/// A replacement to be built while the router runs.
pub struct Replacement {
    text: String,
    rebuild: Box<dyn Rebuild>,
    place: Succession,
}

impl Replacement {
    /// The first configuration of a driver that runs other things too: it replaces nothing.
    pub fn first(text: String, rebuild: Box<dyn Rebuild>, clock: Clock) -> Self {
        let place = Succession { clock, predecessors: BTreeMap::new(), breath: None };
        Self { text, rebuild, place }
    }

    /// Builds it; `breath` lets the running router handle packets now and then, or ends building. Pass the result to
    /// [`Router::replaced`].
    pub fn build(self, breath: Breath) -> (Box<dyn Rebuild>, Result<Router, String>) {
        let Self { text, mut rebuild, place } = self;
        let built = rebuild.rebuild(&text, Succession { breath: Some(breath), ..place });
        (rebuild, built)
    }
}

impl Router {
    /// Adds a `hotconfig` handler.
    pub fn allow_reconfigure(&mut self, rebuild: Box<dyn Rebuild>) {
        self.rebuild = Some(rebuild);
    }

    pub(crate) fn breathe(&mut self) {
        if let Some(breath) = &mut self.breath {
            self.unwanted |= !breath();
        } else if let Some(since) = self.breathed {
            self.breathe_itself(since);
        }
    }

    /// Runs tasks while one of its elements is being reconfigured.
    fn breathe_itself(&mut self, since: u64) {
        let now = self.clock.glance();
        let passed = now.saturating_sub(since);
        if passed < CONFIGURED {
            return;
        }
        self.breathed = None;
        let mut last = now;
        while self.tasks.scheduled > 0 && self.runcount > 0 && !self.is_replaced() {
            self.turn_began = last;
            self.run_tasks(super::run::TASKS);
            last = self.clock.glance();
            if last.saturating_sub(now) >= passed * SHARE {
                break;
            }
        }
        self.breathed = Some(last);
    }

    fn succession(&self) -> Succession {
        let mut predecessors = BTreeMap::new();
        predecessors.extend(self.infos.iter().map(|info| (info.name.clone(), info.class.name)));
        Succession { clock: self.clock.fork(), predecessors, breath: None }
    }

    /// The `hotconfig` handler for calls from the configuration itself, which can't wait: the driver switches
    /// to the new router immediately afterwards.
    pub(super) fn hotconfig(&mut self, text: &str) -> Result<(), HandlerError> {
        let Some(mut rebuild) = self.rebuild.take() else {
            return Err(HandlerError::failed("another configuration is being built"));
        };
        let built = rebuild.rebuild(text, self.succession());
        self.rebuild = Some(rebuild);
        let built = built.map_err(|wrong| HandlerError::failed(wrong.trim_end()))?;
        self.successor = Some(Box::new(built));
        Ok(())
    }

    /// The handler for other callers: the driver builds the new router while this one runs
    /// ([`Router::replacement`]).
    pub(super) fn hotconfig_on(&mut self, text: &str, pieces: &mut Pieces) -> Result<Progress, HandlerError> {
        let asker: Option<Rc<()>> = pieces.kept();
        let Some(asker) = asker else {
            if self.pending_swap.is_some() {
                // Another replacement is first.
                return Ok(Progress::More);
            }
            let asker = Rc::new(());
            self.pending_swap =
                Some(PendingSwap { text: text.into(), asker: Rc::downgrade(&asker), built: None });
            return Ok(pieces.keep(Some(asker)));
        };
        let Some(pending_swap) = &mut self.pending_swap else {
            return Err(HandlerError::failed("another configuration came first"));
        };
        let Some(built) = pending_swap.built.take() else { return Ok(pieces.keep(Some(asker))) };
        self.pending_swap = None;
        self.successor = Some(built.map_err(|wrong| HandlerError::failed(wrong.trim_end()))?);
        Ok(Progress::Done)
    }

    /// The replacement to build, if a `hotconfig` handler was written.
    pub fn replacement(&mut self) -> Option<Replacement> {
        let pending_swap = self.pending_swap.as_mut()?;
        if pending_swap.built.is_some() {
            if pending_swap.asker.strong_count() == 0 {
                self.adopt();
            }
            return None;
        }
        let rebuild = self.rebuild.take()?;
        let text = core::mem::take(&mut pending_swap.text);
        Some(Replacement { text, rebuild, place: self.succession() })
    }

    /// Takes the result of [`Replacement::build`]. The caller is answered, and then the new router takes
    /// over.
    pub fn replaced(&mut self, rebuild: Box<dyn Rebuild>, built: Result<Router, String>) {
        self.rebuild = Some(rebuild);
        if let Some(pending_swap) = &mut self.pending_swap {
            pending_swap.built = Some(built.map(Box::new));
        }
    }

    /// Makes the built replacement the successor.
    fn adopt(&mut self) {
        let built = self.pending_swap.take().and_then(|pending_swap| pending_swap.built);
        self.successor = built.and_then(Result::ok);
    }

    /// Whether a replacement was requested that has not taken over yet.
    pub(crate) fn is_being_replaced(&self) -> bool {
        self.pending_swap.is_some()
    }

    /// Whether another router is about to take over, so that nothing new should begin.
    pub fn is_replaced(&self) -> bool {
        self.successor.is_some()
    }

    /// The router that takes over, if there is one, with the state of elements of the same name.
    pub fn successor(&mut self) -> Option<Self> {
        let mut next = *self.successor.take()?;
        next.rebuild = self.rebuild.take();
        let own = core::mem::replace(&mut next.clock, Clock::simulated());
        next.clock = core::mem::replace(&mut self.clock, own);
        if let Clock::Simulated(now) = self.clock {
            next.clock.jump(now);
        }
        if self.pool.has_offloads() {
            next.pool.expect_offloads();
        }
        for id in next.ids() {
            let Some(old) = self.find(next.name(id)).filter(|_| next.has_predecessor(id)) else { continue };
            let Some(mut from) = self.take(old) else { continue };
            if let Some(mut to) = next.take(id) {
                next.hand_state(id, &mut *from, &mut *to);
                next.put(id, to);
            }
            self.put(old, from);
        }
        next.predecessors.clear();
        next.ticks = self.ticks;
        next.set_profile(self.profile.is_some());
        next.settle();
        Some(next)
    }

    /// Gives an element that takes the place of another the counters and the state of that one.
    pub(super) fn hand_state(&mut self, id: ElementId, from: &mut dyn Element, to: &mut dyn Element) {
        for handler in self.info(id).handlers.clone().iter() {
            handler.carry(from, to);
        }
        let mut cx = Context::new(self, id, true);
        to.take_state(from, &mut cx);
        cx.flush();
    }

    /// Notifies its elements, once, that the router ends.
    pub(super) fn end(&mut self) {
        if core::mem::replace(&mut self.ended, true) {
            return;
        }
        for id in self.ids().collect::<Vec<_>>().into_iter().rev() {
            self.enter(id, |element, cx| element.cleanup(cx));
        }
    }

    /// Stops the router after another one has taken over, and frees part of its memory.
    pub fn dispose(&mut self) -> Progress {
        self.end();
        while let Some(last) = self.elements.last_mut() {
            if let Some(element) = last
                && element.dispose() == Progress::More
            {
                return Progress::More;
            }
            self.elements.pop();
            self.infos.pop();
            if self.elements.len().is_multiple_of(crate::LINES) {
                return Progress::More;
            }
        }
        Progress::Done
    }

    /// Whether an element will take over from one of the same name and class.
    pub(crate) fn has_predecessor(&self, id: ElementId) -> bool {
        self.predecessors.get(self.name(id)) == Some(&self.class(id).name)
    }
}
