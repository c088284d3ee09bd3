//! Executing a script.
use super::program::{End, Step, Target};
use super::{Script, ScriptType};
use ringway_click::HandlerCall;
use ringway_click::arg::{Nanoseconds, parse_bool};
use ringway_click::prelude::*;
use ringway_click_lang::config;

/// Maximum number of jumps without waiting.
const JUMPS: u32 = 1000;
/// Maximum number of bytes of text produced without waiting. Attack: a variable that doubles itself in a loop, while
/// packets wait.
const TEXT: usize = 16 << 20;

/// Why a script is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    /// A step was requested.
    Step,
    /// The driver is about to stop.
    Router,
    /// The script's timer expired.
    Timer,
    /// The script was started, or a jump was requested.
    Jump,
}

/// What follows an instruction.
enum After {
    Next,
    Jump(usize),
    /// The script stays at the instruction until it is stepped.
    Wait,
    End(End),
}

impl Script {
    pub(super) fn restart(&mut self) {
        self.runs = self.runs.wrapping_add(1);
        (self.at, self.paused, self.initial, self.ended) = (0, 0, false, None);
        self.value.clear();
    }

    pub(super) fn set_timer(&mut self, text: &str, cx: &mut Context<'_>) -> bool {
        let text = self.expand(text, cx);
        let (Some(timer), Ok(time)) = (self.timer, cx.parse::<Nanoseconds>(&text)) else { return false };
        cx.set_timer_after(timer, time.0);
        true
    }

    /// Continues execution, past this many instructions that wait.
    pub(super) fn execute(&mut self, steps: u32, because: Because, cx: &mut Context<'_>) {
        let (mut steps, mut jumps, run) = (steps, 0, self.runs);
        if self.ended.is_some() && because != Because::Jump {
            return;
        }
        if self.initial {
            if steps == 0 {
                return;
            }
            (self.initial, steps) = (false, steps - 1);
        }
        self.made = 0;
        while run == self.runs {
            match self.one(&mut steps, because, cx) {
                After::Next => (self.at, self.paused) = (self.at + 1, 0),
                After::Jump(at) => {
                    (self.at, self.paused) = (at, 0);
                    jumps += 1;
                }
                After::Wait => break,
                After::End(end) => {
                    self.finish(end, because, cx);
                    if end == End::Stop {
                        return;
                    }
                    break;
                }
            }
            if jumps >= JUMPS || self.made > TEXT {
                let (name, what) =
                    (cx.declaration(), if jumps >= JUMPS { "many jumps" } else { "much text" });
                cx.chatter(format_args!("{name}: too {what}, giving up"));
                self.finish(End::Exit, Because::Jump, cx);
                break;
            }
        }
        if because == Because::Router && self.ended != Some(End::Error) {
            cx.router().adjust_runcount(1);
        }
    }

    /// Ends the script.
    pub(super) fn finish(&mut self, end: End, because: Because, cx: &mut Context<'_>) {
        self.ended = Some(end);
        if let Some(timer) = self.timer {
            cx.cancel_timer(timer);
        }
        if end == End::Stop && because != Because::Router {
            cx.router().adjust_runcount(-1);
        }
        if matches!(self.kind, ScriptType::Signal(_)) && matches!(end, End::End | End::Stop) {
            self.catch(true, cx);
        }
    }

    fn one(&mut self, steps: &mut u32, because: Because, cx: &mut Context<'_>) -> After {
        let Some(step) = self.program.steps.get(self.at).cloned() else { return After::End(End::End) };
        match step {
            Step::Pause(count) => {
                let taken = count.saturating_sub(self.paused).min(*steps);
                (self.paused, *steps) = (self.paused + taken, *steps - taken);
                if self.paused < count { After::Wait } else { After::Next }
            }
            Step::Wait(text) => self.wait(&text, steps, because, cx),
            Step::Goto { target, condition, .. } => self.jump(target, &condition, cx),
            Step::Print { text, newline, quoted } => self.print(&text, newline, quoted, cx),
            Step::Save { handler, file, append } => {
                let redirect = if append { ">>" } else { ">" };
                self.print(&format!("{redirect}{file} {handler}"), true, false, cx)
            }
            Step::Read { call, quoted } => self.read_aloud(&call, quoted, cx),
            Step::Write { call, quoted } => self.write_out(&call, quoted, cx),
            Step::Set { name, text, quoted } => {
                let value = self.text(&text, quoted, cx);
                self.set(&name, value);
                After::Next
            }
            Step::Init { .. } | Step::Label => After::Next,
            Step::Return { text, quoted } => {
                self.value = self.text(&text, quoted, cx);
                After::End(End::Return)
            }
            Step::Error { text, quoted } => {
                self.value = self.text(&text, quoted, cx);
                if because != Because::Jump && !self.value.is_empty() {
                    let value = self.value.clone();
                    cx.complain(&value);
                }
                After::End(End::Error)
            }
            Step::End(end) => After::End(end),
        }
    }

    fn text(&mut self, text: &str, quoted: bool, cx: &mut Context<'_>) -> String {
        let value = self.expand(text, cx);
        if quoted { config::unquote_text(&value) } else { value }
    }

    fn wait(&mut self, text: &str, steps: &mut u32, because: Because, cx: &mut Context<'_>) -> After {
        if *steps == 0 {
            if !self.set_timer(text, cx) {
                cx.complain("syntax error at 'wait'");
                return After::Next;
            }
            return After::Wait;
        }
        *steps -= 1;
        if because != Because::Timer
            && let Some(timer) = self.timer
        {
            cx.cancel_timer(timer);
        }
        After::Next
    }

    fn jump(&mut self, target: Target, condition: &str, cx: &mut Context<'_>) -> After {
        let condition = self.expand(condition, cx);
        match parse_bool(condition.trim()) {
            None if !condition.is_empty() => {
                cx.complain(&format!("bad condition '{condition}'"));
                After::Next
            }
            Some(false) => After::Next,
            _ => match target {
                Target::At(at) => After::Jump(at),
                Target::End(end) => After::End(end),
            },
        }
    }

    fn print(&mut self, text: &str, newline: bool, quoted: bool, cx: &mut Context<'_>) -> After {
        let mut text = text.trim_ascii_start();
        let mut file = None;
        if text.starts_with('>') {
            let (first, rest) = config::shift_word(text);
            let (name, append) = match first.strip_prefix(">>") {
                Some(name) => (name, true),
                None => (&first[1..], false),
            };
            let (name, rest) = if name.is_empty() { config::shift_word(rest) } else { (name, rest) };
            let name = self.expand(name, cx);
            file = Some((config::unquote_text(&name), append)).filter(|(name, _)| name != "-");
            text = rest;
        }
        let call = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '@' || c == '_');
        let before = cx.complaints();
        let result = if call {
            let call = self.expand(text, cx);
            self.read(&call, quoted, cx).map(|(_, value)| value).unwrap_or_default()
        } else {
            let text = self.expand_with(text, true, cx);
            config::unquote_text(&text)
        };
        let ends = !newline || result.ends_with('\n') || cx.complaints() > before;
        let end = if ends { "" } else { "\n" };
        let bytes = result + end;
        match file {
            None => cx.output(bytes.as_bytes()),
            Some((name, append)) => {
                if let Err(error) = cx.console().write_file(&name, bytes.as_bytes(), append) {
                    cx.complain(&error);
                }
            }
        }
        After::Next
    }

    fn read_aloud(&mut self, call: &str, quoted: bool, cx: &mut Context<'_>) -> After {
        let text = self.expand(call, cx);
        if let Some((name, value)) = self.read(&text, quoted, cx) {
            cx.chatter(format_args!("{name}:\n{value}"));
        }
        After::Next
    }

    /// The name and the value of a read handler; nothing if there is none. Errors are printed.
    fn read(&mut self, call: &str, quoted: bool, cx: &mut Context<'_>) -> Option<(String, String)> {
        let (name, value) = parts(call, quoted);
        match self.resolve(name, &value, false, cx) {
            Ok(call) => {
                let heading = heading(&call, cx);
                let value = cx.under(heading, |cx| {
                    self.read_call(&call, cx).unwrap_or_else(|error| {
                        cx.complain(&error.to_string());
                        String::new()
                    })
                });
                Some((cx.router().full_name(&call), value))
            }
            Err(error) => {
                cx.complain(&error.to_string());
                None
            }
        }
    }

    fn write_out(&mut self, call: &str, quoted: bool, cx: &mut Context<'_>) -> After {
        let text = self.expand(call, cx);
        let (name, value) = parts(&text, quoted);
        let done = self.resolve(name, &value, true, cx).and_then(|call| {
            let heading = heading(&call, cx);
            cx.under(heading, |cx| {
                let done = self.write_call(&call, cx);
                if let Err(error) = &done {
                    cx.complain(&error.to_string());
                    self.status = error.status().unwrap_or(self.status);
                } else {
                    self.status = 0;
                }
                Ok(())
            })
        });
        if let Err(error) = done {
            cx.complain(&error.to_string());
        }
        After::Next
    }
}

/// The heading of errors of a call.
fn heading(call: &HandlerCall, cx: &mut Context<'_>) -> String {
    let space = if call.value.is_empty() { "" } else { " " };
    format!("While calling '{}{space}{}':", cx.router().full_name(call), call.value)
}

/// A call's name and value; with `quoted` a layer of quotes is removed from the value.
fn parts(call: &str, quoted: bool) -> (&str, String) {
    let (name, value) = config::shift_word(call);
    (name, if quoted { config::unquote_text(value) } else { value.to_string() })
}
