//! Calling handlers.
use super::Router;
use crate::{ElementId, Handler, HandlerCall, HandlerError, Pieces, Progress, Reach};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click_lang::config;

/// The largest value that may be written. Attack: a control connection that writes without end.
const LARGEST_WRITE: usize = 1 << 24;
/// How many writes may wait for running elements. Attack: handlers that call each other in a circle.
const MOST_DEFERRED: usize = 1000;

/// The router's own handlers.
const GLOBAL: &[Handler] = &[
    Handler::read("version"),
    Handler::read("driver"),
    Handler::read("config"),
    Handler::read("flatconfig"),
    Handler::read("requirements"),
    Handler::read("handlers"),
    Handler::read("list"),
    Handler::write("stop"),
    Handler::read("active_ports"),
    Handler::read("drops"),
];

/// Those that depend on the router: what replaces its configuration, how fast its time passes.
const HOTCONFIG: Handler = Handler::write("hotconfig").raw();
const TIMEWARP: &str = "timewarp";

/// What every element has.
const COMMON: &[Handler] = &[
    Handler::read("name").calm(),
    Handler::read("class").calm(),
    Handler::read("config").calm(),
    Handler::read("ports").calm(),
    Handler::read("handlers").calm(),
];

/// What elements with a task have besides.
const TASK: &[Handler] =
    &[Handler::both("scheduled"), Handler::both("tickets"), Handler::both("home_thread")];

impl Router {
    pub(super) fn add_handlers(&mut self, id: ElementId, own: Vec<Handler>) {
        let live = self.class(id).live;
        let mut all: Vec<Handler> = COMMON.to_vec();
        for handler in &mut all {
            handler.writable = live && handler.name == "config";
        }
        let common = |handler: &&Handler| COMMON.iter().any(|common| common.name == handler.name);
        let overrides = own.iter().filter(common).map(|handler| handler.name.to_string()).collect();
        self.info_mut(id).overrides = overrides;
        for handler in own {
            match all.iter_mut().find(|old| old.name == handler.name) {
                Some(old) => {
                    let mut new = handler;
                    new.combine(old);
                    *old = new;
                }
                None => all.push(handler),
            }
        }
        self.info_mut(id).handlers = all;
    }

    /// The handlers of an element; of the router with none.
    pub fn handlers(&self, element: Option<ElementId>) -> Vec<Handler> {
        let Some(id) = element else { return self.own_handlers() };
        let info = self.info(id);
        let tasks = if info.tasks.is_empty() && !info.tasked { &[] } else { TASK };
        info.handlers.iter().chain(tasks).cloned().collect()
    }

    fn own_handlers(&self) -> Vec<Handler> {
        let warp = match self.clock.speed() {
            Some(_) => Handler::both(TIMEWARP),
            None => Handler::read(TIMEWARP),
        };
        let hotconfig = (self.rebuild.is_some() || self.asked.is_some()).then_some(HOTCONFIG);
        GLOBAL.iter().cloned().chain([warp]).chain(hotconfig).collect()
    }

    fn full_name(&self, call: &HandlerCall) -> String {
        match call.element {
            Some(id) => format!("{}.{}", self.name(id), call.handler),
            None => call.handler.clone(),
        }
    }

    /// Reads `element.handler value` or `handler value`; the element is looked up from `context` outwards.
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

    /// The handler a call is for, if it can be written (or read).
    ///
    /// # Errors
    /// [`HandlerError::NoHandler`], [`HandlerError::NoParameters`].
    pub fn check_call(&self, call: &HandlerCall, write: bool) -> Result<Handler, HandlerError> {
        let handlers = self.handlers(call.element);
        let exact = handlers.iter().find(|handler| handler.name == call.handler);
        let found = exact.or_else(|| handlers.iter().find(|handler| handler.name == "*"));
        let way = if write { "write" } else { "read" };
        match found.filter(|handler| if write { handler.writable } else { handler.readable }) {
            None => Err(HandlerError::NoHandler(self.full_name(call), way)),
            Some(handler) if !write && !handler.parameters && !call.value.is_empty() => {
                Err(HandlerError::NoParameters(self.full_name(call)))
            }
            Some(handler) => Ok(handler.clone()),
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
            return self.read_global(&call.handler).map(|answer| pieces.whole(answer));
        };
        if let Some(thread) = self.elsewhere(id) {
            return self.read_there(thread, call, pieces);
        }
        if let Some(answer) = self.read_common(id, &call.handler) {
            return Ok(pieces.whole(answer));
        }
        let read = self.enter(id, |element, cx| element.read_on(&call.handler, &call.value, pieces, cx));
        read.unwrap_or_else(|| Err(HandlerError::Busy(self.full_name(call))))
    }

    /// Writes a handler. If its element is running, the write is done as soon as it has returned.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn call_write(&mut self, call: &HandlerCall) -> Result<(), HandlerError> {
        if (call.element, call.handler.as_str()) == (None, HOTCONFIG.name.as_ref()) {
            // Who can't wait has the new router built at once.
            return self.check_call(call, true).and_then(|_| self.hotconfig(&call.value));
        }
        let mut pieces = Pieces::default();
        while self.call_write_on(call, &mut pieces)? == Progress::More {}
        Ok(())
    }

    /// Does the next piece of what writing a handler does.
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
        let Some(id) = call.element else { return self.write_global(call, pieces) };
        if let Some(thread) = self.elsewhere(id) {
            return self.write_there(thread, call, pieces);
        }
        if self.class(id).reach == Reach::Each {
            self.write_everywhere(call);
        }
        if let Some(done) = self.write_common(id, &call.handler, &call.value) {
            return done.map(|()| Progress::Done);
        }
        match self.enter(id, |element, cx| element.write_on(&call.handler, &call.value, pieces, cx)) {
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

    /// Takes the first write that waits for an element.
    pub(crate) fn take_deferred(&mut self, id: ElementId) -> Option<HandlerCall> {
        let at = self.deferred.iter().position(|call| call.element == Some(id))?;
        self.deferred.remove(at)
    }

    /// Reads `element.handler parameters` from outside, and does what waited meanwhile.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn read(&mut self, text: &str) -> Result<String, HandlerError> {
        let call = self.parse_call(text, "")?;
        let answer = self.call_read(&call);
        self.settle();
        answer
    }

    /// Writes `element.handler value` from outside, and does what waited meanwhile.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn write(&mut self, text: &str) -> Result<(), HandlerError> {
        let call = self.parse_call(text, "")?;
        let done = self.call_write(&call);
        self.settle();
        done
    }

    fn read_global(&mut self, name: &str) -> Result<String, HandlerError> {
        if matches!(name, "config" | "flatconfig" | "drops") {
            self.gather();
        }
        Ok(match name {
            "version" => env!("CARGO_PKG_VERSION").to_string(),
            "driver" => "userlevel".to_string(),
            "config" => self.configuration(),
            "flatconfig" => self.flat_configuration(),
            "requirements" => self.requirements(),
            "handlers" => self.own_handlers().iter().map(Handler::line).collect(),
            TIMEWARP => self.clock.speed().map_or("simulation".into(), |speed| speed.to_string()),
            "list" => self.list(),
            "active_ports" => self.active_ports(),
            "drops" => {
                let [circle, incomplete] = self.all_drops();
                format!("circle {circle}\nincomplete {incomplete}\n")
            }
            _ => return Err(HandlerError::missing(name)),
        })
    }

    fn write_global(&mut self, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, HandlerError> {
        let HandlerCall { handler, value, .. } = call;
        match handler.as_str() {
            "stop" => self.adjust_runcount(-config::integer(value.trim()).unwrap_or(1)),
            "hotconfig" => return self.hotconfig_on(value, pieces),
            TIMEWARP => {
                self.set_speed(value.trim())?;
                self.write_everywhere(call);
            }
            name => return Err(HandlerError::missing(name)),
        }
        Ok(Progress::Done)
    }

    fn set_speed(&mut self, value: &str) -> Result<(), HandlerError> {
        match value.parse::<f64>() {
            Ok(speed) if speed > 0.0 && speed.is_finite() => self.clock.set_speed(speed),
            Ok(_) => return Err(HandlerError::failed("timefactor must be > 0")),
            Err(_) => return Err(HandlerError::failed("expected double")),
        }
        Ok(())
    }

    fn read_common(&self, id: ElementId, name: &str) -> Option<String> {
        let info = self.info(id);
        if info.overrides.iter().any(|own| own == name) {
            return None;
        }
        let task = info.tasks.first();
        Some(match name {
            "name" => info.name.clone(),
            "class" => info.class.name.to_string(),
            "config" => info.configuration.clone(),
            "ports" => self.ports_text(id),
            "handlers" => self.handlers(Some(id)).iter().map(Handler::line).collect(),
            "scheduled" => self.tasks.is_scheduled(*task?).to_string(),
            "tickets" => self.tasks.all[task?.0 as usize].tickets.to_string(),
            "home_thread" => self.tasks.all[task?.0 as usize].thread.to_string(),
            _ => return None,
        })
    }

    fn write_common(&mut self, id: ElementId, name: &str, value: &str) -> Option<Result<(), HandlerError>> {
        if self.info(id).overrides.iter().any(|own| own == name) {
            return None;
        }
        let task = self.info(id).tasks.first().copied();
        let number = || config::integer(value.trim()).ok_or_else(|| HandlerError::failed("syntax error"));
        Some(match name {
            "config" => self.reconfigure(id, value),
            "scheduled" => match crate::arg::parse_bool(value.trim()) {
                Some(true) => {
                    self.tasks.reschedule(task?);
                    Ok(())
                }
                Some(false) => {
                    self.tasks.unschedule(task?);
                    Ok(())
                }
                None => Err(HandlerError::failed("syntax error")),
            },
            "tickets" => {
                let task = task?;
                number().map(|tickets| self.tasks.set_tickets(task, u32::try_from(tickets).unwrap_or(1)))
            }
            "home_thread" => {
                let task = task?.0 as usize;
                number().and_then(|thread| self.move_task(task, thread as i32))
            }
            _ => return None,
        })
    }

    /// Of one thread only the number changes.
    fn move_task(&mut self, task: usize, thread: i32) -> Result<(), HandlerError> {
        let fixed = self.threads().is_some();
        let own = &mut self.tasks.all[task].thread;
        if *own != thread && fixed {
            let text = "tasks stay on their thread while they run; StaticThreadSched chooses it";
            return Err(HandlerError::failed(text));
        }
        *own = thread;
        Ok(())
    }

    /// Configures an element anew while the router runs: a fresh one takes the old one's state. A wrong configuration
    /// changes nothing. Other elements, and the old one, go on meanwhile.
    fn reconfigure(&mut self, id: ElementId, configuration: &str) -> Result<(), HandlerError> {
        let busy = || HandlerError::Busy(self.name(id).to_string());
        if self.element(id).is_none() || self.reconfiguring {
            return Err(busy());
        }
        let errors = self.report.take();
        let mut new = (self.class(id).make)();
        self.reconfiguring = true;
        // In the middle of handing packets on, their order would change.
        self.breathed = (self.work.is_empty() && self.emitted.is_empty()).then(|| self.clock.glance());
        let configured = self.configure_one(id, &mut *new, configuration).is_ok();
        (self.reconfiguring, self.breathed) = (false, None);
        let good = configured && new.initialize(&mut crate::Context::new(self, id, true)).is_ok();
        let said = core::mem::replace(&mut *self.report.borrow_mut(), errors);
        if !good {
            return Err(HandlerError::failed(said.diagnostics.to_string().trim()));
        }
        if let Some(mut old) = self.take(id) {
            new.take_state(&mut *old, &mut crate::Context::new(self, id, true));
        }
        self.put(id, new);
        self.info_mut(id).configuration = configuration.to_string();
        Ok(())
    }
}
