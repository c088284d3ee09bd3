//! A configuration on several threads: each has a router with only the elements that run there.
//!
//! Every thread creates and configures all elements, so that names, numbers and errors are the same; then it
//! drops the elements of other threads, and initializes only the remaining ones. Calls from outside go to the
//! first thread, which calls the others; they call no other thread.
use super::{BuildError, Options, Router};
use crate::division::Member;
use crate::{Console, Division, ElementId, HandlerCall, HandlerError, Pieces, Progress, Registry};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::any::Any;
use ringway_click_lang::{Diagnostic, Graph};

/// A function to run on another thread's router, with its result.
pub type Job = Box<dyn FnOnce(&mut Router) -> Box<dyn Any + Send> + Send>;

/// The first thread's interface to the others.
pub trait Threads {
    /// Runs a function on a thread's router, between two turns, and waits for the result; `None` if the
    /// thread is gone.
    fn run(&self, thread: usize, job: Job) -> Option<Box<dyn Any + Send>>;
}

/// The assignment of elements to threads.
pub(super) struct Homes {
    division: Division,
    /// The thread of this router.
    own: usize,
    /// Set on the first thread.
    threads: Option<Box<dyn Threads>>,
    /// Packets dropped on other threads, as of the last query.
    drops: [u64; 2],
}

/// Result of initializing elements on another thread.
#[derive(Default)]
struct Begun {
    /// Whether all were initialized.
    good: bool,
    diagnostics: Vec<Diagnostic>,
    /// The elements with tasks.
    tasked: Vec<ElementId>,
}

impl Router {
    /// Checks a configuration for a number of threads, and configures its elements, without side effects.
    /// Continue with [`Router::begin`].
    ///
    /// # Errors
    /// [`BuildError`] with all errors.
    pub fn configured(
        graph: Graph,
        registry: &Registry,
        options: Options,
        threads: usize,
    ) -> Result<Self, BuildError> {
        let mut router = Self::unbuilt(graph, options);
        router.threads = Some(threads);
        if router.prepare(registry) { Ok(router) } else { router.finish(false) }
    }

    /// Number of threads available to the configuration, if it may be divided.
    pub fn threads(&self) -> Option<usize> {
        self.threads
    }

    /// Divides the configuration among its threads: as configured by `StaticThreadSched`, and evenly if there is a
    /// `BalancedThreadSched`.
    pub fn divide(&mut self) -> Division {
        let threads = self.threads.unwrap_or(1);
        let balanced = self.ids().any(|id| self.class(id).name == "BalancedThreadSched");
        let ends = self.graph.connections.iter().map(|c| (c.from.element, c.to.element));
        let members: Vec<Member<'_>> = self.ids().map(|id| self.member(id)).collect();
        let division = Division::new(&members, ends, threads, balanced);
        if let [stray, more @ ..] = division.strays() {
            self.warn_of(*stray, more.len(), &division);
        }
        self.note_homes(&division);
        division
    }

    fn note_homes(&mut self, division: &Division) {
        for id in self.ids() {
            self.info_mut(id).thread = division.home(id.index()).map(|home| home as i32);
        }
    }

    fn member(&self, id: ElementId) -> Member<'_> {
        let info = self.info(id);
        let pushed = info.inputs.iter().any(|port| !port.pull);
        let pulled = info.outputs.iter().any(|port| port.pull);
        Member {
            name: &info.name,
            configuration: &info.configuration,
            reach: info.class.reach,
            shares: self.element(id).and_then(crate::Element::shares),
            thread: info.thread.map(|thread| usize::try_from(thread).unwrap_or(0)),
            drives: !pushed && info.outputs.iter().any(|port| !port.pull)
                || !pulled && info.inputs.iter().any(|port| port.pull),
        }
    }

    fn warn_of(&mut self, stray: usize, more: usize, division: &Division) {
        let (id, home) = (ElementId(stray as u32), division.home(stray).unwrap_or(0));
        let requested = self.info(id).thread.unwrap_or(0);
        let others = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let text = format!(
            "'{}' runs on thread {home} instead of {requested}{others}: what is connected, \
             or named by one another, stays together",
            self.name(id)
        );
        let landmark = self.landmark(id).clone();
        self.report.borrow_mut().diagnostics.warning(landmark, text);
    }

    /// Drops the elements of other threads.
    pub fn live_on(&mut self, division: &Division, own: usize) {
        self.note_homes(division);
        for id in self.ids() {
            if division.home(id.index()).is_some_and(|home| home != own) {
                self.elements[id.index()] = None;
            }
        }
        self.stop_element = self.stop_element.filter(|id| self.element(*id).is_some());
        self.homes = Some(Box::new(Homes { division: division.clone(), own, threads: None, drops: [0; 2] }));
        // This thread has configured the same elements as the other threads, and a RandomSeed among them.
        self.random().diverge(own);
    }

    /// Its thread; 0 is the first.
    pub(super) fn thread(&self) -> usize {
        self.homes.as_ref().map_or(0, |homes| homes.own)
    }

    /// Gives the first thread's router access to the others.
    pub fn reach(&mut self, threads: Box<dyn Threads>) {
        if let Some(homes) = &mut self.homes {
            homes.threads = Some(threads);
        }
    }

    /// Prints to `console` from now on.
    pub fn print_to(&mut self, console: Box<dyn Console>) {
        self.console = console;
    }

    /// Initializes the elements of a router that was [configured](Router::configured), each on its thread, in
    /// the order of a single thread.
    ///
    /// # Errors
    /// [`BuildError`] with all errors.
    pub fn begin(mut self) -> Result<Self, BuildError> {
        let order = self.order();
        let others = self.others();
        let home =
            |id: &ElementId| self.homes.as_ref().map_or(Some(0), |homes| homes.division.home(id.index()));
        let stretches: Vec<(Option<usize>, Vec<ElementId>)> = order
            .chunk_by(|one, next| home(one) == home(next))
            .map(|ids| (home(&ids[0]), ids.to_vec()))
            .collect();
        let mut good = true;
        for (home, ids) in stretches {
            let remote: Vec<usize> =
                others.iter().copied().filter(|other| home.unwrap_or(*other) == *other).collect();
            if matches!(home, None | Some(0)) {
                good = ids.iter().all(|id| self.initialize_one(*id));
            }
            for thread in remote {
                let ids = ids.clone();
                let requested = self.ask(thread, move |router| router.initialize_some(&ids));
                let begun = requested.unwrap_or_else(|error| {
                    self.report_error(error.to_string());
                    Begun::default()
                });
                if home.is_some() {
                    good = begun.good;
                    self.report.borrow_mut().diagnostics.extend(begun.diagnostics);
                    begun.tasked.into_iter().for_each(|id| self.info_mut(id).tasked = true);
                }
            }
            if !good {
                return self.finish(false);
            }
        }
        for thread in others {
            if let Err(error) = self.ask(thread, Self::end_building) {
                self.report_error(error.to_string());
                return self.finish(false);
            }
        }
        self.finish(true)
    }

    fn initialize_some(&mut self, ids: &[ElementId]) -> Begun {
        self.report.take();
        let good = ids.iter().all(|id| self.initialize_one(*id));
        let diagnostics = self.report.take().diagnostics.iter().cloned().collect();
        let tasked = ids.iter().copied().filter(|id| !self.info(*id).tasks.is_empty());
        Begun { good, diagnostics, tasked: tasked.collect() }
    }

    /// Ends building: from now on it runs.
    fn end_building(&mut self) {
        self.building = false;
        self.run_deferred();
    }

    /// The threads besides the first; only on the first.
    fn others(&self) -> Vec<usize> {
        let homes = self.homes.as_ref().filter(|homes| homes.threads.is_some());
        homes.map_or_else(Vec::new, |homes| homes.division.others())
    }

    /// The thread of an element, if it is another one.
    pub(super) fn elsewhere(&self, id: ElementId) -> Option<usize> {
        let homes = self.homes.as_ref()?;
        homes.division.home(id.index()).filter(|home| *home != homes.own)
    }

    /// Runs a function on another thread's router.
    fn ask<R: Any + Send>(
        &self,
        thread: usize,
        job: impl FnOnce(&mut Router) -> R + Send + 'static,
    ) -> Result<R, HandlerError> {
        let threads = self.homes.as_ref().and_then(|homes| homes.threads.as_ref());
        let Some(threads) = threads else {
            return Err(HandlerError::failed(format!("only the first thread can ask thread {thread}")));
        };
        let answer = threads.run(thread, Box::new(|router| Box::new(job(router))));
        let answer = answer.and_then(|answer| answer.downcast().ok());
        answer.map(|answer| *answer).ok_or_else(|| HandlerError::failed(format!("thread {thread} has ended")))
    }

    /// Reads the next piece of a handler of an element that lives on another thread.
    pub(super) fn read_there(
        &mut self,
        thread: usize,
        call: &HandlerCall,
        pieces: &mut Pieces,
    ) -> Result<Progress, HandlerError> {
        self.visit(thread, call, pieces, Self::call_read_on)
    }

    /// Performs the next step of writing a handler of an element that lives on another thread.
    pub(super) fn write_there(
        &mut self,
        thread: usize,
        call: &HandlerCall,
        pieces: &mut Pieces,
    ) -> Result<Progress, HandlerError> {
        self.visit(thread, call, pieces, Self::call_write_on)
    }

    /// Its state between two steps stays on that thread, identified by this number.
    fn visit(
        &mut self,
        thread: usize,
        call: &HandlerCall,
        pieces: &mut Pieces,
        act: fn(&mut Self, &HandlerCall, &mut Pieces) -> Result<Progress, HandlerError>,
    ) -> Result<Progress, HandlerError> {
        let number: Option<u64> = pieces.kept();
        let first = number.is_none().then(|| call.clone());
        let (number, text) = self.ask(thread, move |router| {
            let (number, call, mut pieces) = router.visits.resume(number, first)?;
            let progress = act(router, &call, &mut pieces);
            router.run_deferred();
            let text = core::mem::take(&mut pieces.text);
            let more = progress? == Progress::More;
            Ok::<_, HandlerError>((more.then(|| router.visits.pause(number, call, pieces)), text))
        })??;
        pieces.text += &text;
        Ok(number.map_or(Progress::Done, |number| pieces.keep(Some(number))))
    }

    /// Repeats, on the other threads, a write to an element that each of them has, or to a handler of the
    /// router.
    pub(super) fn write_everywhere(&mut self, call: &HandlerCall) {
        for thread in self.others() {
            // The write fails if the thread has ended, which is reported elsewhere.
            let _ = self.write_there(thread, call, &mut Pieces::default());
        }
    }

    /// Calls an element that lives on another thread.
    pub(super) fn llrpc_there(
        &mut self,
        thread: usize,
        id: ElementId,
        command: u32,
        data: &[u8],
    ) -> Result<Vec<u8>, HandlerError> {
        let data = data.to_vec();
        self.ask(thread, move |router| {
            let answer = router.call_llrpc(id, command, &data);
            router.run_deferred();
            answer
        })?
    }

    /// Whether an element on another thread counts as a kind.
    pub(super) fn is_kind_there(&self, thread: usize, id: ElementId, kind: &str) -> bool {
        let kind = kind.to_string();
        self.ask(thread, move |router| router.is_kind(id, &kind)).unwrap_or(false)
    }

    /// Queries the other threads for the data of router-wide handlers.
    pub fn gather(&mut self) {
        let mut drops = [0; 2];
        for thread in self.others() {
            let Ok((changed, own)) = self.ask(thread, |router| router.own_part()) else { continue };
            for (id, configuration) in changed {
                self.info_mut(id).configuration = configuration;
            }
            drops[0] += own[0];
            drops[1] += own[1];
        }
        if let Some(homes) = &mut self.homes {
            homes.drops = drops;
        }
    }

    /// Changed configurations, and dropped packets.
    fn own_part(&mut self) -> (Vec<(ElementId, String)>, [u64; 2]) {
        let differs = |id: &ElementId| {
            let given = self.graph.elements.get(id.index()).map(|element| &element.configuration);
            self.element(*id).is_some() && given != Some(&self.info(*id).configuration)
        };
        let changed = self.ids().filter(differs);
        let changed = changed.map(|id| (id, self.info(id).configuration.clone())).collect();
        (changed, [self.looped, self.incomplete])
    }

    /// Packets dropped because they were in a loop, and packets that could not be completed, on all threads.
    pub(super) fn all_drops(&self) -> [u64; 2] {
        let others = self.homes.as_ref().map_or([0; 2], |homes| homes.drops);
        [self.looped + others[0], self.incomplete + others[1]]
    }

    /// Passes a line of another thread's chatter to the listeners.
    pub fn forward_chatter(&mut self, line: &str) {
        self.send_to_listeners("", line);
    }

    /// Whether any element listens to chatter.
    pub fn has_chatter_listeners(&self) -> bool {
        !self.chatter_listeners.is_empty()
    }
}
