//! Calling handlers.
use super::runtime_handlers::{COMMON, GLOBAL, GRAPH, HOTCONFIG, PROFILE, TASK, TIMEWARP, UNLISTED, own};
use super::{Reused, Router};
use crate::{
    Context, Element, ElementId, Handler, HandlerCall, HandlerError, HandlerInfo, Note, Pieces, Progress,
    Reach, Task,
};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click_lang::config;

/// Attack: a control connection that writes endlessly. Largest value in bytes.
const LARGEST_WRITE: usize = 1 << 24;
/// Attack: handlers that call each other in a loop. Largest number of deferred writes.
const MOST_DEFERRED: usize = 1000;

impl Router {
    /// Records the handlers that an element declares, and those of every element.
    pub(super) fn add_handlers(&mut self, id: ElementId, mut handlers: Vec<Handler>) {
        let live = self.class(id).live;
        let mut infos: Vec<HandlerInfo> = COMMON.iter().map(|common| common.info.clone()).collect();
        for info in &mut infos {
            info.writable &= live;
        }
        for handler in &mut handlers {
            match infos.iter_mut().find(|common| common.name == handler.info().name) {
                Some(common) => {
                    handler.combine(common);
                    common.clone_from(handler.info());
                }
                None => infos.push(handler.info().clone()),
            }
        }
        let info = self.info_mut(id);
        (info.handlers, info.handler_infos) = (handlers.into(), infos);
    }

    /// The handlers of an element; of the router with none.
    pub fn handlers(&self, element: Option<ElementId>) -> Vec<HandlerInfo> {
        let Some(id) = element else { return self.own_handlers() };
        let info = self.info(id);
        let tasks = if info.tasks.is_empty() && !info.tasked { &[] } else { TASK };
        info.handler_infos.iter().chain(tasks.iter().map(|task| &task.info)).cloned().collect()
    }

    /// Whether an element has a handler of this name.
    pub fn has_handler(&self, id: ElementId, name: &str) -> bool {
        self.info(id).handler_infos.iter().any(|own| own.name == name)
    }

    /// Whether a call's handler is one that all elements have.
    pub fn is_common(&self, call: &HandlerCall) -> bool {
        let declared = call.element.and_then(|id| self.declared(id, &call.handler, false));
        declared.is_none() && own(COMMON, &call.handler).is_some()
    }

    fn own_handlers(&self) -> Vec<HandlerInfo> {
        let replaceable = self.rebuild.is_some() || self.pending_swap.is_some();
        let mut infos: Vec<HandlerInfo> = GLOBAL.iter().map(|global| global.info.clone()).collect();
        let profiled = self.is_profilable();
        infos.retain(|info| match &*info.name {
            HOTCONFIG => replaceable,
            PROFILE | GRAPH => profiled,
            _ => true,
        });
        for info in infos.iter_mut().filter(|info| info.name == TIMEWARP) {
            info.writable = self.clock.speed().is_some();
        }
        infos
    }

    /// The last declared handler of this name with a function for reading, or for writing.
    fn declared(&self, id: ElementId, name: &str, write: bool) -> Option<(Rc<[Handler]>, usize)> {
        let handlers = self.info(id).handlers.clone();
        let place =
            |name: &str| handlers.iter().rposition(|own| own.info().name == name && own.answers(write));
        let tasks = if self.info(id).tasks.is_empty() { &[] } else { TASK };
        let common = || COMMON.iter().chain(tasks).chain(UNLISTED).any(|common| common.info.name == name);
        let found = place(name).or_else(|| if common() { None } else { place("*") })?;
        Some((handlers, found))
    }

    /// `element.handler`, or `handler` if it is the router's.
    pub fn full_name(&self, call: &HandlerCall) -> String {
        match call.element {
            Some(id) => format!("{}.{}", self.name(id), call.handler),
            None => call.handler.clone(),
        }
    }

    /// Parses `element.handler value` or `handler value`; the element is searched from `context` outwards.
    ///
    /// # Errors
    /// [`HandlerError::NoElement`].
    pub fn parse_call(&self, text: &str, context: &str) -> Result<HandlerCall, HandlerError> {
        let (name, value) = config::shift_word(text);
        let (element, handler) = match name.rsplit_once('.') {
            Some((element, handler)) if !element.is_empty() => {
                let id = self.names.find(element, context);
                (Some(id.ok_or_else(|| HandlerError::NoElement(element.to_string()))?), handler)
            }
            _ => (None, name),
        };
        Ok(HandlerCall { element, handler: handler.to_string(), value: value.to_string() })
    }

    /// The handler of a call, if it is writable (or readable).
    ///
    /// # Errors
    /// [`HandlerError::NoHandler`], [`HandlerError::NoParameters`].
    pub fn check_call(&self, call: &HandlerCall, write: bool) -> Result<HandlerInfo, HandlerError> {
        let mut handlers = self.handlers(call.element);
        let unlisted = if call.element.is_some() { UNLISTED } else { &[] };
        handlers.extend(unlisted.iter().map(|unlisted| unlisted.info.clone()));
        let place = |name: &str| handlers.iter().position(|handler| handler.name == name);
        let found = place(&call.handler).or_else(|| place("*")).map(|place| handlers.swap_remove(place));
        let way = if write { "write" } else { "read" };
        match found.filter(|handler| if write { handler.writable } else { handler.readable }) {
            None => Err(HandlerError::NoHandler(self.full_name(call), way)),
            Some(handler) if !write && !handler.parameters && !call.value.is_empty() => {
                Err(HandlerError::NoParameters(self.full_name(call)))
            }
            Some(handler) => Ok(handler),
        }
    }

    /// Reads a handler.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn call_read(&mut self, call: &HandlerCall) -> Result<String, HandlerError> {
        let mut pieces = Pieces::default();
        while self.call_read_on(call, &mut pieces)? == Progress::More {}
        Ok(pieces.text)
    }

    /// Reads the next piece of a handler.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn call_read_on(
        &mut self,
        call: &HandlerCall,
        pieces: &mut Pieces,
    ) -> Result<Progress, HandlerError> {
        self.check_call(call, false)?;
        let Some(id) = call.element else {
            let read = own(GLOBAL, &call.handler).and_then(|global| global.read);
            return read
                .map(|read| pieces.whole(read(self)))
                .ok_or_else(|| HandlerError::missing(&call.handler));
        };
        if let Some(thread) = self.elsewhere(id) {
            return self.read_there(thread, call, pieces);
        }
        let Some((handlers, at)) = self.declared(id, &call.handler, false) else {
            let tables = [COMMON, TASK, UNLISTED];
            let read = tables.iter().find_map(|table| own(table, &call.handler));
            let answer = read.and_then(|common| common.read).and_then(|read| read(self, id));
            return answer.map(|text| pieces.whole(text)).ok_or_else(|| HandlerError::missing(&call.handler));
        };
        let request = (call.handler.as_str(), call.value.as_str(), false);
        let read = self.enter(id, |element, cx| handlers[at].call(element, request, pieces, cx));
        read.unwrap_or_else(|| Err(HandlerError::Busy(self.full_name(call))))
    }

    /// Writes a handler. If its element is running, the write is deferred until it returns.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn call_write(&mut self, call: &HandlerCall) -> Result<(), HandlerError> {
        if (call.element, call.handler.as_str()) == (None, HOTCONFIG) {
            // A caller that can't wait has the new router built at once.
            return self.check_call(call, true).and_then(|_| self.hotconfig(&call.value));
        }
        let mut pieces = Pieces::default();
        while self.call_write_on(call, &mut pieces)? == Progress::More {}
        Ok(())
    }

    /// Performs the next step of writing a handler.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn call_write_on(
        &mut self,
        call: &HandlerCall,
        pieces: &mut Pieces,
    ) -> Result<Progress, HandlerError> {
        self.check_call(call, true)?;
        if call.value.len() > LARGEST_WRITE {
            return Err(HandlerError::failed("value too large"));
        }
        let Some(id) = call.element else {
            let write = own(GLOBAL, &call.handler).and_then(|global| global.write);
            return write.ok_or_else(|| HandlerError::missing(&call.handler))?(self, call, pieces);
        };
        if let Some(thread) = self.elsewhere(id) {
            return self.write_there(thread, call, pieces);
        }
        if self.class(id).reach == Reach::Each {
            self.write_everywhere(call);
        }
        let Some((handlers, at)) = self.declared(id, &call.handler, true) else {
            let write = own(COMMON, &call.handler).or_else(|| own(TASK, &call.handler));
            let write = write.and_then(|common| common.write);
            write.ok_or_else(|| HandlerError::missing(&call.handler))?(self, id, &call.value)?;
            return Ok(Progress::Done);
        };
        let request = (call.handler.as_str(), call.value.as_str(), true);
        match self.enter(id, |element, cx| handlers[at].call(element, request, pieces, cx)) {
            Some(done) => done,
            None if self.deferred.len() < MOST_DEFERRED => {
                self.deferred.push_back(call.clone());
                Ok(Progress::Done)
            }
            None => Err(HandlerError::Busy(self.full_name(call))),
        }
    }

    /// Makes a low-level remote procedure call to an element.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn call_llrpc(&mut self, id: ElementId, command: u32, data: &[u8]) -> Result<Vec<u8>, HandlerError> {
        if let Some(thread) = self.elsewhere(id) {
            return self.llrpc_there(thread, id, command, data);
        }
        let answer = self.enter(id, |element, cx| element.llrpc(command, data, cx));
        answer.unwrap_or_else(|| Err(HandlerError::Busy(self.name(id).to_string())))
    }

    /// Calls a declared handler of an element that runs, and is therefore not in the router.
    pub(crate) fn call_own(
        &mut self,
        id: ElementId,
        element: &mut dyn Element,
        request: (&str, &str, bool),
    ) -> Result<String, HandlerError> {
        let (name, _, write) = request;
        let (handlers, at) = self.declared(id, name, write).ok_or_else(|| HandlerError::missing(name))?;
        let mut pieces = Pieces::default();
        let mut cx = Context::new(self, id, true);
        while handlers[at].call(element, request, &mut pieces, &mut cx)? == Progress::More {}
        Ok(pieces.text)
    }

    /// Reads `element.handler parameters` from outside, and performs deferred operations.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn read(&mut self, text: &str) -> Result<String, HandlerError> {
        let call = self.parse_call(text, "")?;
        let answer = self.call_read(&call);
        self.settle();
        answer
    }

    /// Writes `element.handler value` from outside, and performs deferred operations.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn write(&mut self, text: &str) -> Result<(), HandlerError> {
        let call = self.parse_call(text, "")?;
        let done = self.call_write(&call);
        self.settle();
        done
    }

    pub(super) fn set_speed(&mut self, value: &str) -> Result<(), HandlerError> {
        match value.parse::<f64>() {
            Ok(speed) if speed > 0.0 && speed.is_finite() => self.clock.set_speed(speed),
            Ok(_) => return Err(HandlerError::failed("timefactor must be > 0")),
            Err(_) => return Err(HandlerError::failed("expected double")),
        }
        Ok(())
    }

    /// Sets the thread of a task; with several threads, tasks don't move.
    pub(super) fn move_task(&mut self, task: Task, thread: i32) -> Result<(), HandlerError> {
        let fixed = self.threads().is_some();
        let own = &mut self.tasks.all[task.0 as usize].thread;
        if *own != thread && fixed {
            let text = "tasks stay on their thread while they run; StaticThreadSched chooses it";
            return Err(HandlerError::failed(text));
        }
        *own = thread;
        Ok(())
    }

    /// What an element made for itself when it was configured and initialized.
    fn made_by(&self, id: ElementId) -> Reused {
        let notes = self.notes.iter().enumerate().filter(|(_, note)| note.element == id);
        Reused {
            notes: notes.map(|(index, _)| Note(index as u32)).collect(),
            tasks: self.info(id).tasks.iter().copied().collect(),
            timers: self.timers.of(id).collect(),
        }
    }

    /// Reconfigures an element at run time: a new one takes the old one's state. An invalid configuration
    /// changes nothing. Other elements, and the old one, keep running meanwhile.
    pub(super) fn reconfigure(&mut self, id: ElementId, configuration: &str) -> Result<(), HandlerError> {
        let busy = || HandlerError::Busy(self.name(id).to_string());
        if self.element(id).is_none() || self.reconfiguring {
            return Err(busy());
        }
        let errors = self.report.take();
        let mut new = (self.class(id).make)();
        self.reconfiguring = true;
        self.reused = self.made_by(id);
        self.breathed = self.begin_breathing();
        let configured = self.configure_one(id, &mut *new, configuration).is_ok();
        (self.reconfiguring, self.breathed) = (false, None);
        let good = configured && new.initialize(&mut crate::Context::new(self, id, true)).is_ok();
        self.reused = Reused::default();
        let report = core::mem::replace(&mut *self.report.borrow_mut(), errors);
        if !good {
            let text = report.diagnostics.to_string();
            let lines: Vec<&str> = text.trim().lines().map(|line| line.trim_start()).collect();
            return Err(HandlerError::Arguments(lines.join("\n")));
        }
        let mut old = self.take(id);
        if let Some(old) = &mut old {
            self.hand_state(id, &mut **old, &mut *new);
        }
        self.put(id, new);
        self.info_mut(id).configuration = configuration.to_string();
        (self.reconfiguring, self.breathed) = (true, self.begin_breathing());
        while old.as_mut().is_some_and(|old| old.dispose() == Progress::More) {
            self.breathe();
        }
        (self.reconfiguring, self.breathed) = (false, None);
        Ok(())
    }

    /// The time from which [`Router::breathe`] waits; none while packets are handed on, whose order would change.
    fn begin_breathing(&mut self) -> Option<u64> {
        (self.work.is_empty() && self.emitted.is_empty()).then(|| self.clock.glance())
    }
}
