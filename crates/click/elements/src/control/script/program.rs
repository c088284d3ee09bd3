//! Instructions of a script.
use alloc::collections::BTreeMap;
use ringway_click::prelude::*;
use ringway_click_lang::config;

/// How a script ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "these are the instructions' names")]
pub(super) enum End {
    /// Its end is reached; a packet is passed on.
    End,
    /// The script exits; a packet is dropped.
    Exit,
    /// The script ends and requests a driver stop.
    Stop,
    /// The script ends with an error.
    Error,
    /// The script returns the value of its `return`.
    Return,
}

/// The target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    At(usize),
    End(End),
}

/// An instruction. Texts are expanded when it is executed; with `quoted` a layer of quotes is then removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Pause(u32),
    Wait(String),
    Print { text: String, newline: bool, quoted: bool },
    Save { handler: String, file: String, append: bool },
    Read { call: String, quoted: bool },
    Write { call: String, quoted: bool },
    Set { name: String, text: String, quoted: bool },
    Init { name: String, text: String, quoted: bool },
    Goto { label: String, target: Target, condition: String },
    Label,
    Return { text: String, quoted: bool },
    Error { text: String, quoted: bool },
    End(End),
}

/// A script's instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    /// Variables that are exported as handlers.
    pub(super) exported: Vec<String>,
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The targets that `goto` knows without a label.
fn builtin(label: &str) -> Option<Target> {
    Some(match label {
        "begin" | "loop" => Target::At(0),
        "end" => Target::End(End::End),
        "exit" => Target::End(End::Exit),
        "stop" => Target::End(End::Stop),
        "error" => Target::End(End::Error),
        _ => return None,
    })
}

impl Program {
    /// Parses arguments, one instruction each; returns all errors found.
    pub(super) fn parse(arguments: &[String], driver: bool) -> Result<Self, Vec<String>> {
        let mut program = Self::default();
        let mut labels: BTreeMap<String, usize> = BTreeMap::new();
        let mut wrong = Vec::new();
        for argument in arguments {
            let (name, rest) = config::shift_word(argument);
            if name.is_empty() {
                continue;
            }
            if name == "label" {
                labels.entry(rest.trim().to_string()).or_insert(program.steps.len());
            }
            match program.step(name, rest.trim_end()) {
                Some(step) => program.steps.push(step),
                None => wrong.push(format!("syntax error at '{name}'")),
            }
        }
        for step in &mut program.steps {
            let Step::Goto { label, target, .. } = step else { continue };
            match labels.get(label).map(|at| Target::At(*at)).or_else(|| builtin(label)) {
                Some(found) => *target = found,
                None => wrong.push(format!("no such label '{label}'")),
            }
        }
        if driver && program.steps.is_empty() {
            program.steps.push(Step::Pause(1));
        }
        program.steps.push(Step::End(if driver { End::Stop } else { End::End }));
        if wrong.is_empty() { Ok(program) } else { Err(wrong) }
    }

    /// The target of `goto LABEL`, for the `goto` handler.
    pub(super) fn label(&self, labels: &[(String, usize)], label: &str) -> Option<Target> {
        labels.iter().find(|(own, _)| own == label).map(|(_, at)| Target::At(*at)).or_else(|| builtin(label))
    }

    fn step(&mut self, name: &str, rest: &str) -> Option<Step> {
        let text = rest.to_string();
        let (base, quoted) = match name {
            "printq" | "printnq" | "readq" | "writeq" | "setq" | "initq" | "exportq" | "returnq"
            | "errorq" => (&name[..name.len() - 1], true),
            _ => (name, false),
        };
        Some(match base {
            "pause" | "wait_step" | "wait_stop" => Step::Pause(count(rest)?),
            "wait" if rest.is_empty() => Step::Pause(1),
            "wait" | "wait_time" | "wait_for" if !rest.is_empty() => Step::Wait(text),
            "print" | "printn" => Step::Print { text, newline: base == "print", quoted },
            "save" | "append" => {
                let (handler, file) = config::shift_word(rest);
                let file = if file.is_empty() { "-" } else { file };
                Step::Save { handler: handler.into(), file: file.into(), append: base == "append" }
            }
            "read" => Step::Read { call: text, quoted },
            "write" => Step::Write { call: text, quoted },
            "set" | "init" | "export" => self.assignment(base, rest, quoted)?,
            "label" if config::is_word(rest) => Step::Label,
            "goto" => {
                let (label, condition) = config::shift_word(rest);
                if label.is_empty() {
                    return None;
                }
                let (label, condition) = (label.to_string(), condition.trim_end().to_string());
                Step::Goto { label, target: Target::At(0), condition }
            }
            "loop" if rest.is_empty() => {
                Step::Goto { label: "loop".into(), target: Target::At(0), condition: String::new() }
            }
            "return" => Step::Return { text, quoted },
            "error" => Step::Error { text, quoted },
            "end" if rest.is_empty() => Step::End(End::End),
            "exit" if rest.is_empty() => Step::End(End::Exit),
            "stop" if rest.is_empty() => Step::End(End::Stop),
            _ => return None,
        })
    }

    fn assignment(&mut self, base: &str, rest: &str, quoted: bool) -> Option<Step> {
        let (name, text) = config::shift_word(rest);
        if !is_variable(name) || base == "set" && text.is_empty() {
            return None;
        }
        let (name, text) = (name.to_string(), text.trim_end().to_string());
        if base == "export" && !self.exported.contains(&name) {
            self.exported.push(name.clone());
        }
        Some(if base == "set" { Step::Set { name, text, quoted } } else { Step::Init { name, text, quoted } })
    }
}

fn count(text: &str) -> Option<u32> {
    if text.is_empty() { Some(1) } else { u32::try_from(config::integer(text)?).ok() }
}

/// The labels of a script's arguments, in order.
pub(super) fn labels(arguments: &[String]) -> Vec<(String, usize)> {
    let mut at = 0;
    let mut found = Vec::new();
    for argument in arguments {
        let (name, rest) = config::shift_word(argument);
        if name == "label" {
            found.push((rest.trim().to_string(), at));
        }
        at += usize::from(!name.is_empty());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Program, Vec<String>> {
        Program::parse(&config::split_arguments(text), false)
    }

    #[test]
    fn jumps_find_their_labels() {
        let program = parse("label a, print x, goto a $(lt 1 2), goto end").unwrap();
        let targets: Vec<Target> = program
            .steps
            .iter()
            .filter_map(|step| if let Step::Goto { target, .. } = step { Some(*target) } else { None })
            .collect();
        assert_eq!(targets, [Target::At(0), Target::End(End::End)]);
        assert_eq!(program.steps.last(), Some(&Step::End(End::End)));
    }

    #[test]
    fn wrong_ones_are_named() {
        assert_eq!(parse("foo bar").unwrap_err(), ["syntax error at 'foo'"]);
        assert_eq!(parse("goto x").unwrap_err(), ["no such label 'x'"]);
        assert_eq!(parse("set x").unwrap_err(), ["syntax error at 'set'"]);
        assert_eq!(parse("stop now").unwrap_err(), ["syntax error at 'stop'"]);
    }

    #[test]
    fn waits() {
        let program = parse("wait, wait 5, pause 3, wait_stop").unwrap();
        let wait = Step::Wait("5".into());
        assert_eq!(program.steps[..4], [Step::Pause(1), wait, Step::Pause(3), Step::Pause(1)]);
    }
}
