//! `Script(INSTRUCTIONS..., TYPE)`: runs a script: sets variables, calls handlers, waits, stops the driver.
//!
//! Ports: none, or as many inputs and outputs as a `PACKET` script needs, agnostic.
//!
//! Arguments, an instruction each; texts are expanded first: `$x`, `$(HANDLER ARGS)`, `$?` (status of the last
//! write), `$$` (the process); the forms with `q` take off a layer of quotes then:
//! - `set VAR TEXT`, `setq`; `init VAR TEXT`, `initq` (once, at the beginning); `export VAR TEXT`, `exportq` (the
//!   same, and `VAR` becomes a read handler).
//! - `print [>FILE | >>FILE] [TEXT | HANDLER]`, `printq`, and without a newline `printn`, `printnq`.
//! - `read HANDLER`, `readq`; `write HANDLER VALUE`, `writeq`; `save HANDLER FILE`, `append HANDLER FILE`.
//! - `pause [COUNT]`, `wait` (until it is stepped), `wait TIME`.
//! - `label L`, `goto L [CONDITION]`, `loop`, `end`, `exit`, `stop`, `return [VALUE]`, `returnq`, `error [TEXT]`,
//!   `errorq`.
//! - `TYPE`: `ACTIVE` (default without ports) runs at once; `PASSIVE` when `run` is called; `PACKET` (default with
//!   ports) for each packet, `$input` is the port, and the output is what it returns; `PROXY` when any unknown handler
//!   is called, `$0` is its name; `DRIVER` at each stop of the driver; `SIGNAL SIGNO...` at signals.
//!
//! Handlers: `step`, `goto` (write), `run` (read, write), `set` (write), `get`, `shift`; the functions, read with
//! parameters, `add sub min max mul div idiv mod rem neg abs eq ne lt le gt ge not and or nand nor if in first sprintf
//! random length unquote readable writable now htons htonl ntohs ntohl`; and, not from outside, `cat catq kill`.
mod expand;
mod format;
mod function;
mod handlers;
mod program;
mod run;
mod signals;

use program::{End, Program, Step};
use ringway_click::arg::Raw;
use ringway_click::prelude::*;
use ringway_click_lang::config;
use run::Because;

pub static CLASS: Class =
    Class::new("Script", || Box::<Script>::default()).ports("-/-").processing("ah/ah").reach(Reach::Whole);

/// When the script runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum ScriptType {
    #[default]
    Active,
    Passive,
    Packet,
    Proxy,
    Driver,
    Signal(Vec<i32>),
}

#[derive(Debug, Default)]
pub struct Script {
    /// Whether this is a `DriverManager`.
    manager: bool,
    kind: ScriptType,
    program: Program,
    labels: Vec<(String, usize)>,
    variables: Vec<(String, String)>,
    at: usize,
    /// The script waits for its first step.
    initial: bool,
    /// Steps received by the current `pause`.
    paused: u32,
    /// How the script ended; `None` while it waits.
    ended: Option<End>,
    /// The return value.
    value: String,
    /// The status of the last `write`.
    status: i32,
    /// The handler by which the script runs, and whether it is written.
    called: (String, bool),
    /// Number of restarts, by which an interrupted run detects a restart.
    runs: u32,
    /// Depth of nested calls of its own handlers.
    depth: u32,
    /// Bytes of text produced since the script last waited.
    made: usize,
    timer: Option<Timer>,
}

impl Script {
    /// A script of type `driver` by default.
    pub(super) fn manager() -> Self {
        Self { manager: true, ..Self::default() }
    }

    fn kind(text: &str, ports: bool, manager: bool) -> Result<ScriptType, &'static str> {
        let mut words = config::split_words(text).into_iter();
        let kind = match words.next().as_deref() {
            None if manager => ScriptType::Driver,
            None if ports => ScriptType::Packet,
            None | Some("ACTIVE") => ScriptType::Active,
            Some("PASSIVE") => ScriptType::Passive,
            Some("PACKET" | "PUSH") => ScriptType::Packet,
            Some("PROXY") => ScriptType::Proxy,
            Some("DRIVER") => ScriptType::Driver,
            Some("SIGNAL") => {
                let signals: Option<Vec<i32>> = words.by_ref().map(|word| signals::signal(&word)).collect();
                let signals =
                    signals.filter(|all| !all.is_empty() && all.iter().all(|s| signals::catchable(*s)));
                ScriptType::Signal(signals.ok_or("bad signal number")?)
            }
            Some(_) => return Err("bad TYPE"),
        };
        if words.next().is_some() { Err("bad TYPE") } else { Ok(kind) }
    }

    fn catch(&self, catch: bool, cx: &mut Context<'_>) {
        if let ScriptType::Signal(signals) = &self.kind {
            signals.iter().for_each(|signal| cx.catch_signal(*signal, catch));
        }
    }

    /// Runs the script for a packet; returns the packet's output.
    fn packet(&mut self, port: usize, cx: &mut Context<'_>) -> Option<usize> {
        self.set("input", port.to_string());
        self.restart();
        self.execute_as(("", false), 0, Because::Jump, cx);
        match self.ended {
            Some(End::End) => Some(0),
            Some(End::Return) => self.value.trim().parse().ok(),
            _ => None,
        }
    }

    /// Continues execution; meanwhile `$0` and `$write` name the calling handler.
    fn execute_as(
        &mut self,
        (name, write): (&str, bool),
        steps: u32,
        because: Because,
        cx: &mut Context<'_>,
    ) {
        let before = core::mem::replace(&mut self.called, (name.to_string(), write));
        self.execute(steps, because, cx);
        self.called = before;
    }

    fn initialize_variables(&mut self, cx: &mut Context<'_>) {
        for at in 0..self.program.steps.len() {
            if let Step::Init { name, text, quoted } = &self.program.steps[at] {
                let (name, text, quoted) = (name.clone(), text.clone(), *quoted);
                let value = self.expand(&text, cx);
                self.set(&name, if quoted { config::unquote_text(&value) } else { value });
            }
        }
    }
}

impl Element for Script {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut kind = Raw::default();
        args.read("TYPE", &mut kind);
        let arguments = args.take_rest();
        args.complete()?;
        let ports = cx.ninputs() > 0 || cx.noutputs() > 0;
        self.kind = Self::kind(&kind.0, ports, self.manager).map_err(|text| cx.error(text))?;
        if self.kind == ScriptType::Packet && cx.ninputs() == 0 {
            return Err(cx.error("PACKET script must have inputs"));
        }
        if self.kind != ScriptType::Packet && ports {
            return Err(cx.error("ports allowed only on PACKET scripts"));
        }
        let id = cx.id();
        if self.kind == ScriptType::Driver && !cx.router().manage_stop(id) {
            return Err(cx.error("router has more than one driver script"));
        }
        self.labels = program::labels(&arguments);
        match Program::parse(&arguments, self.kind == ScriptType::Driver) {
            Ok(program) => {
                // Variables that the script sets are empty until then.
                self.set("args", String::new());
                for step in &program.steps {
                    if let Step::Set { name, .. } | Step::Init { name, .. } = step {
                        self.set(name, String::new());
                    }
                }
                self.program = program;
                Ok(())
            }
            Err(wrong) => {
                wrong.into_iter().for_each(|text| {
                    cx.error(text);
                });
                Err(Failed)
            }
        }
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let timer = cx.new_timer();
        self.timer = Some(timer);
        self.initialize_variables(cx);
        self.catch(true, cx);
        if !matches!(self.kind, ScriptType::Active | ScriptType::Driver) {
            return Ok(());
        }
        match &self.program.steps[0] {
            Step::Wait(text) => {
                let text = text.clone();
                if !self.set_timer(&text, cx) {
                    cx.message("syntax error at 'wait'");
                }
            }
            Step::Pause(_) => {}
            _ if self.kind == ScriptType::Driver => {
                self.initial = true;
                cx.router().adjust_runcount(-1);
            }
            _ => {
                self.initial = true;
                cx.set_timer_after(timer, 0);
            }
        }
        Ok(())
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        let heading = alloc::format!("While executing '{}':", cx.declaration());
        cx.under(heading, |cx| self.execute_as(("", false), 1, Because::Timer, cx));
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            if let Some(output) = self.packet(port, cx) {
                cx.push(output, packet);
            }
        }
    }

    fn pull(&mut self, _: usize, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let Some(packet) = cx.lend(self, |cx| cx.pull_one(0)) else { return };
        match self.packet(0, cx) {
            Some(0) => burst.push(packet),
            Some(output) => cx.push(output, packet),
            None => {}
        }
    }

    fn signalled(&mut self, _: i32, cx: &mut Context<'_>) {
        self.catch(false, cx);
        self.restart();
        self.execute_as(("run", true), 0, Because::Jump, cx);
    }

    fn handlers(&self) -> Vec<Handler> {
        handlers::list(self.kind == ScriptType::Proxy, &self.program.exported)
    }
}
