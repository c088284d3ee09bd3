//! Handlers of a script.
use super::program::{End, Target};
use super::run::Because;
use super::{Script, function, signals};
use ringway_click::Timestamp;
use ringway_click::prelude::*;
use ringway_click_lang::config;

pub(super) fn list(proxy: bool, exported: &[String]) -> Vec<Handler> {
    let function = |name: &&'static str| {
        let name = *name;
        let read = move |_: &mut Script, words: &str, _: &mut Context<'_>| function::call(name, words);
        Handler::read_with(name, read).parameters()
    };
    let callable = |name, write| {
        let read = move |_: &mut Script, calls: &str, cx: &mut Context<'_>| {
            let calls = config::split_words(calls);
            Ok(calls.iter().all(|call| cx.handler_call(call, write).is_ok()).to_string())
        };
        Handler::read_with(name, read).parameters()
    };
    let mut all: Vec<Handler> = function::NAMES.iter().map(function).collect();
    all.extend([
        Handler::read_with("random", |_: &mut Script, range, cx| random(range, cx)).parameters(),
        callable("readable", false),
        callable("writable", true),
        Handler::read_with("get", |e: &mut Script, name, cx| {
            let name = one_name(name)?.ok_or_else(|| wrong("no variable"))?;
            e.variable(name, cx).ok_or_else(|| undefined(name))
        })
        .parameters(),
        Handler::read_with("cat", |_: &mut Script, path, cx| {
            file(path, cx).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        })
        .parameters()
        .private(),
        Handler::read_with("catq", |_: &mut Script, path, cx| {
            file(path, cx).map(|bytes| config::quote(&bytes))
        })
        .parameters()
        .private(),
        Handler::read_with("kill", |_: &mut Script, target, cx| kill(target, cx)).parameters().private(),
        Handler::read_with("shift", |e: &mut Script, name, _| e.shift(name)).parameters(),
        Handler::read_with("now", |_: &mut Script, _, cx| Ok(Timestamp(cx.now()).to_string())),
        Handler::write("step", |e: &mut Script, value, cx| e.step(value.trim(), cx)),
        Handler::write("goto", |e: &mut Script, label, cx| e.goto(label.trim(), cx)),
        Handler::write("set", |e: &mut Script, value, _| e.assign(value)),
        Handler::read_with("run", |e: &mut Script, value, cx| e.run(value, ("run", false), cx))
            .parameters()
            .writes(|e: &mut Script, value, cx| e.run(value, ("run", true), cx).map(drop)),
    ]);
    all.extend(exported.iter().cloned().map(|name| {
        let variable = name.clone();
        Handler::read_with(name, move |e: &mut Script, _, cx| {
            Ok(e.variable(&variable, cx).unwrap_or_default())
        })
    }));
    if proxy {
        let run =
            |e: &mut Script, name: (&str, bool), value: &str, cx: &mut Context<'_>| e.run(value, name, cx);
        all.push(Handler::others(run).parameters());
    }
    all
}

fn wrong(text: &str) -> HandlerError {
    HandlerError::failed(text)
}

impl Script {
    fn goto(&mut self, label: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let target = self.program.label(&self.labels, label);
        match target.ok_or_else(|| wrong("jump to nonexistent label"))? {
            Target::At(at) => {
                self.restart();
                self.at = at;
                self.execute_as(("goto", true), 0, Because::Jump, cx);
            }
            Target::End(end) => self.finish(end, Because::Jump, cx),
        }
        Ok(())
    }

    /// Sets the variable named by the first word of a value to the rest of the value.
    fn assign(&mut self, value: &str) -> Result<(), HandlerError> {
        let (name, value) = config::shift_word(value);
        if name.is_empty() {
            return Err(wrong("no variable"));
        }
        self.set(name, value.trim_end().to_string());
        Ok(())
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
        match self.ended {
            Some(_) if because == Because::Router => return Err(wrong("the script has ended")),
            Some(End::Error) => return Err(HandlerError::Script(String::new())),
            None => self.execute_as(("step", true), steps, because, cx),
            Some(_) => {}
        }
        if (because, self.ended) == (Because::Router, Some(End::Error)) {
            return Err(HandlerError::Script(String::new()));
        }
        Ok(())
    }

    /// Runs the script from the beginning; returns its result.
    fn run(
        &mut self,
        arguments: &str,
        name: (&str, bool),
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        self.set("args", arguments.to_string());
        self.restart();
        self.execute_as(name, 0, Because::Jump, cx);
        match self.ended {
            Some(End::Error) => Err(HandlerError::Script(core::mem::take(&mut self.value))),
            Some(End::Return) => Ok(self.value.clone()),
            _ => Ok(String::new()),
        }
    }

    fn shift(&mut self, parameters: &str) -> Result<String, HandlerError> {
        let name = one_name(parameters)?.unwrap_or("args");
        let own = self.variables.iter_mut().find(|(own, _)| own == name);
        let (_, value) = own.ok_or_else(|| undefined(name))?;
        let (first, rest) = config::shift_word(value);
        let (first, rest) = (first.to_string(), rest.to_string());
        *value = rest;
        Ok(first)
    }
}

/// The name of a variable, if there is one.
fn one_name(parameters: &str) -> Result<Option<&str>, HandlerError> {
    let (name, rest) = config::shift_word(parameters);
    if rest.trim().is_empty() {
        Ok(Some(name).filter(|name| !name.is_empty()))
    } else {
        Err(wrong("too many arguments"))
    }
}

fn undefined(name: &str) -> HandlerError {
    HandlerError::failed(alloc::format!("undefined variable '{name}'"))
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

fn file(path: &str, cx: &mut Context<'_>) -> Result<Vec<u8>, HandlerError> {
    cx.console().read_file(&config::unquote_text(path)).map_err(HandlerError::Failed)
}

fn kill(parameters: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
    let (name, processes) = config::shift_word(parameters);
    let signal = signals::signal(name).ok_or_else(|| wrong("bad signal number"))?;
    let mut good = true;
    for process in config::split_words(processes) {
        let process = config::integer(&process).and_then(|process| i32::try_from(process).ok());
        // Only single processes: neither process groups nor all processes.
        let process = process.filter(|process| *process > 0).ok_or_else(|| wrong("bad PID"))?;
        good &= cx.console().kill(signal, process);
    }
    Ok(good.to_string())
}
