//! Handlers of a script.
use super::program::{End, Target};
use super::run::Because;
use super::{Kind, Script, function, signals};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::{Context, Handler, HandlerCall, HandlerError, Timestamp};
use ringway_click_lang::config;

/// Own handlers that `$(..)` and `write` know without the element's name, besides the functions.
pub(super) const NAMES: &[&str] = &[
    "cat", "catq", "get", "goto", "kill", "now", "random", "readable", "run", "set", "shift", "step",
    "writable",
];

pub(super) fn list(proxy: bool, exported: &[String]) -> Vec<Handler> {
    let mut all: Vec<Handler> = function::NAMES.iter().map(|name| Handler::read(name).parameters()).collect();
    all.extend(["random", "readable", "writable", "get"].map(|name| Handler::read(name).parameters()));
    all.extend(["cat", "catq", "kill"].map(|name| Handler::read(name).parameters().private()));
    all.extend([
        Handler::read("shift").parameters(),
        Handler::read("now"),
        Handler::write("step"),
        Handler::write("goto"),
        Handler::write("set"),
        Handler::both("run").parameters(),
    ]);
    all.extend(exported.iter().map(|name| Handler::read("").named(name.clone())));
    if proxy {
        all.push(Handler::both("*").parameters());
    }
    all
}

fn wrong(text: &str) -> HandlerError {
    HandlerError::failed(text)
}

impl Script {
    /// Answers one of its own handlers.
    pub(super) fn answer(
        &mut self,
        name: &str,
        parameters: &str,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        match name {
            "run" => return self.run(parameters, None, cx),
            "get" => return self.variable(parameters.trim(), cx).ok_or_else(|| wrong("no such variable")),
            "shift" => return self.shift(parameters),
            "now" => return Ok(Timestamp(cx.now()).to_string()),
            "random" => return random(parameters, cx),
            "cat" | "catq" => return cat(name, parameters, cx),
            "kill" => return kill(parameters, cx),
            "readable" | "writable" => {
                let write = name == "writable";
                let all = config::split_words(parameters);
                return Ok(all.iter().all(|call| cx.handler_call(call, write).is_ok()).to_string());
            }
            _ => {}
        }
        if let Some(exported) = self.program.exported.iter().find(|own| *own == name) {
            return Ok(self.variable(exported, cx).unwrap_or_default());
        }
        if function::NAMES.contains(&name) {
            return function::call(name, parameters);
        }
        match self.kind {
            Kind::Proxy => self.run(parameters, Some((name, false)), cx),
            _ => Err(HandlerError::missing(name)),
        }
    }

    /// Does what is written to one of its own handlers.
    pub(super) fn order(
        &mut self,
        name: &str,
        value: &str,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        match name {
            "step" => self.step(value.trim(), cx),
            "goto" => {
                let target = self.program.label(&self.labels, value.trim());
                match target.ok_or_else(|| wrong("jump to nonexistent label"))? {
                    Target::At(at) => {
                        self.restart();
                        self.at = at;
                        self.execute(0, Because::Jump, cx);
                    }
                    Target::End(end) => self.finish(end, Because::Jump, cx),
                }
                Ok(())
            }
            "set" => {
                let (name, value) = config::shift_word(value);
                if name.is_empty() {
                    return Err(wrong("expected variable name"));
                }
                self.set(name, value.trim_end().to_string());
                Ok(())
            }
            "run" => self.run(value, None, cx).map(drop),
            _ if self.kind == Kind::Proxy => self.run(value, Some((name, true)), cx).map(drop),
            _ => Err(HandlerError::missing(name)),
        }
    }

    fn step(&mut self, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let (steps, because) = match value {
            "router" => (1, Because::Router),
            "" => (1, Because::Step),
            text => (
                config::integer(text)
                    .and_then(|n| u32::try_from(n).ok())
                    .ok_or_else(|| wrong("syntax error"))?,
                Because::Step,
            ),
        };
        if self.ended.is_some() {
            return Err(wrong("the script has ended"));
        }
        self.execute(steps, because, cx);
        Ok(())
    }

    /// Runs from the beginning; what it returns.
    fn run(
        &mut self,
        arguments: &str,
        proxied: Option<(&str, bool)>,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        self.set("args", arguments.to_string());
        if let Some((name, write)) = proxied {
            self.set("0", name.to_string());
            self.set("write", write.to_string());
        }
        self.restart();
        self.execute(0, Because::Jump, cx);
        match self.ended {
            Some(End::Error) => Err(wrong(&core::mem::take(&mut self.value))),
            Some(End::Return) => Ok(self.value.clone()),
            _ => Ok(String::new()),
        }
    }

    fn shift(&mut self, parameters: &str) -> Result<String, HandlerError> {
        let name = if parameters.trim().is_empty() { "args" } else { parameters.trim() };
        let own = self.variables.iter_mut().find(|(own, _)| own == name);
        let (_, value) = own.ok_or_else(|| wrong("no such variable"))?;
        let (first, rest) = config::shift_word(value);
        let (first, rest) = (first.to_string(), rest.to_string());
        *value = rest;
        Ok(first)
    }
}

fn random(parameters: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
    let numbers: Option<Vec<i64>> =
        config::split_words(parameters).iter().map(|word| config::integer(word)).collect();
    let (least, most) = match numbers.as_deref() {
        Some([]) => (0, i64::from(i32::MAX)),
        Some([most]) if *most > 0 => (0, *most - 1),
        Some([least, most]) if least <= most => (*least, *most),
        _ => return Err(wrong("syntax error")),
    };
    let span = most.abs_diff(least).min(u32::MAX.into()) as u32;
    Ok((i128::from(least) + i128::from(cx.random_between(0, span))).to_string())
}

fn cat(name: &str, parameters: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
    let bytes = cx.console().read_file(&config::unquote_text(parameters)).map_err(HandlerError::Failed)?;
    Ok(if name == "catq" { config::quote(&bytes) } else { String::from_utf8_lossy(&bytes).into_owned() })
}

fn kill(parameters: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
    let (name, processes) = config::shift_word(parameters);
    let signal = signals::signal(name).ok_or_else(|| wrong("bad signal number"))?;
    let mut good = true;
    for process in config::split_words(processes) {
        let process = config::integer(&process).and_then(|process| i32::try_from(process).ok());
        // Only whole processes: not groups, not everything.
        let process = process.filter(|process| *process > 0).ok_or_else(|| wrong("bad PID"))?;
        good &= cx.console().kill(signal, process);
    }
    Ok(good.to_string())
}

impl Script {
    pub(super) fn call_name(call: &HandlerCall, cx: &mut Context<'_>) -> String {
        match call.element {
            Some(id) => alloc::format!("{}.{}", cx.router().name(id), call.handler),
            None => call.handler.clone(),
        }
    }
}
