//! Replacing a configuration while it runs.
use super::{BuildError, Options, Router};
use crate::{Clock, HandlerError, Registry};
use alloc::boxed::Box;
use alloc::string::String;
use ringway_click_lang::Graph;

/// Builds routers for the `hotconfig` handler of one that runs.
pub trait Rebuild {
    /// Builds a router of a configuration, by [`Router::build_successor`].
    ///
    /// # Errors
    /// What is wrong, a line each.
    fn rebuild(&mut self, text: &str, running: &mut Router) -> Result<Router, String>;
}

impl Router {
    /// Gives it a `hotconfig` handler.
    pub fn allow_reconfigure(&mut self, rebuild: Box<dyn Rebuild>) {
        self.rebuild = Some(rebuild);
    }

    /// Builds the router that is to take this one's place: its elements know that they will take over from those of
    /// the same name and class.
    ///
    /// # Errors
    /// [`BuildError`] with everything that is wrong.
    pub fn build_successor(
        &mut self,
        graph: Graph,
        registry: &Registry,
        options: Options,
    ) -> Result<Self, BuildError> {
        let mut router = Self::unbuilt(graph, options);
        router.clock = self.clock.fork();
        router.predecessors = self.infos.iter().map(|info| (info.name.clone(), info.class.name)).collect();
        router.complete(registry)
    }

    /// What the `hotconfig` handler does: the router that it builds takes this one's place as soon as the driver
    /// looks.
    pub(super) fn hotconfig(&mut self, text: &str) -> Result<(), HandlerError> {
        let Some(mut rebuild) = self.rebuild.take() else { return Err(HandlerError::missing("hotconfig")) };
        let built = rebuild.rebuild(text, self);
        self.rebuild = Some(rebuild);
        let built = built.map_err(|wrong| HandlerError::failed(wrong.trim_end()))?;
        self.successor = Some(Box::new(built));
        Ok(())
    }

    /// Whether another router is about to take its place, so that nothing should begin any more.
    pub fn is_replaced(&self) -> bool {
        self.successor.is_some()
    }

    /// The router that takes this one's place, if there is one; it has taken over what elements of the same name
    /// know.
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
            next.enter(id, |element, cx| element.take_state(&mut *from, cx));
            self.put(old, from);
        }
        next.predecessors.clear();
        next.settle();
        Some(next)
    }

    /// Whether an element will take over from one of the same name and class.
    pub(crate) fn has_predecessor(&self, id: crate::ElementId) -> bool {
        self.predecessors.get(self.name(id)) == Some(&self.class(id).name)
    }
}
