//! Parsing of elements' arguments, as in Click: positional or by keyword, each of a given type.
//!
//! ```text
//! args.read_p("LIMIT", &mut limit);        // may be given by position or as LIMIT
//! args.read_mp("DATA", &mut data);         // the same, and must be given
//! args.read("STOP", &mut stop);            // as STOP only
//! args.read_with("WORDS", KEYWORD, &mut value, |text, scope| ...);
//! args.complete()?;                        // nothing may be left; errors are reported
//! ```
mod address;
mod names;
mod number;
mod scope;
mod text;
mod unit;

pub use address::{Endpoint, IpPort, Ipv4List, Prefix, Prefix6};
pub use names::{NameKind, Names};
pub use number::{Fixed, parse_int, parse_saturating};
pub use scope::{Arg, ArgError, Scope};
pub use text::{Filename, Keyword, Raw, Text, Word, parse_bool};
pub use unit::{Annotation, Bandwidth, Nanoseconds, Seconds};

use crate::Failed;
use crate::router::Report;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use ringway_click_lang::near::proposal;

/// How an argument may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    positional: bool,
    mandatory: bool,
    first: bool,
}

/// By keyword only.
pub const KEYWORD: How = How { positional: false, mandatory: false, first: false };
/// By position or keyword.
pub const POSITIONAL: How = How { positional: true, ..KEYWORD };
/// By keyword only; mandatory.
pub const MANDATORY: How = How { mandatory: true, ..KEYWORD };
/// By position or keyword; mandatory.
pub const MANDATORY_POSITIONAL: How = How { positional: true, mandatory: true, first: false };

/// State of an argument: how it begins, and whether it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Begins with a possible keyword of this many bytes.
    Keyword(usize),
    /// Without a keyword.
    Plain,
    /// Read by position.
    Position,
    /// Read by keyword.
    Read,
}

/// The arguments of one element.
pub struct Args {
    arguments: Vec<String>,
    states: Vec<State>,
    scope: Scope,
    report: Rc<RefCell<Report>>,
    failed: bool,
    /// Keywords that the element has asked for.
    keywords: Vec<String>,
}

impl Args {
    /// Without arguments yet.
    pub(crate) fn new(names: Rc<Names>, element: &str, report: Rc<RefCell<Report>>) -> Self {
        let scope = Scope::new(names, element);
        Self { arguments: Vec::new(), states: Vec::new(), scope, report, failed: false, keywords: Vec::new() }
    }

    pub(crate) fn add(&mut self, argument: String) {
        self.states.push(state(&argument));
        self.arguments.push(argument);
    }

    /// The unread arguments, in order.
    pub fn rest(&self) -> Vec<&str> {
        let left = self.states.iter().zip(&self.arguments);
        left.filter(|(state, _)| matches!(state, State::Keyword(_) | State::Plain))
            .map(|(_, a)| a.as_str())
            .collect()
    }

    /// Takes all that is left, in order: for elements that read rules or patterns.
    pub fn take_rest(&mut self) -> Vec<String> {
        let left = |state: &State| matches!(state, State::Keyword(_) | State::Plain);
        if self.states.iter().all(left) {
            self.states.clear();
            return core::mem::take(&mut self.arguments);
        }
        let rest = self.rest().into_iter().map(String::from).collect();
        self.states.fill(State::Read);
        rest
    }

    /// Removes arguments that were read, so that positions count from the first unread one.
    pub fn consume(&mut self) {
        let read = core::mem::take(&mut self.states);
        let left = |state: &State| matches!(state, State::Keyword(_) | State::Plain);
        let arguments = core::mem::take(&mut self.arguments);
        (self.arguments, self.states) =
            arguments.into_iter().zip(read).filter(|(_, state)| left(state)).unzip();
    }

    /// The scope for resolving names.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Reads an argument given by keyword. Returns whether it was given and valid.
    pub fn read<T: Arg>(&mut self, keyword: &str, value: &mut T) -> bool {
        self.read_with(keyword, KEYWORD, value, T::parse)
    }

    /// Reads an argument given by position or keyword.
    pub fn read_p<T: Arg>(&mut self, keyword: &str, value: &mut T) -> bool {
        self.read_with(keyword, POSITIONAL, value, T::parse)
    }

    /// Reads a mandatory argument, given by keyword.
    pub fn read_m<T: Arg>(&mut self, keyword: &str, value: &mut T) -> bool {
        self.read_with(keyword, MANDATORY, value, T::parse)
    }

    /// Reads a mandatory argument, given by position or keyword.
    pub fn read_mp<T: Arg>(&mut self, keyword: &str, value: &mut T) -> bool {
        self.read_with(keyword, MANDATORY_POSITIONAL, value, T::parse)
    }

    /// Reads an argument with a custom parser. `value` is unchanged unless the argument is given and valid.
    pub fn read_with<T>(
        &mut self,
        keyword: &str,
        how: How,
        value: &mut T,
        parse: impl FnOnce(&str, &Scope) -> Result<T, ArgError>,
    ) -> bool {
        let Some(text) = self.find(keyword, how) else { return false };
        match parse(&text, &self.scope) {
            Ok(parsed) => {
                *value = parsed;
                true
            }
            Err(error) => self.refuse(keyword, &error),
        }
    }

    /// Reports that an argument is wrong; it has not been read.
    #[cold]
    fn refuse(&mut self, keyword: &str, error: &ArgError) -> bool {
        self.error(format!("{keyword}: {error}"));
        false
    }

    /// Reads every argument with this keyword, in order.
    pub fn read_all<T: Arg>(&mut self, keyword: &str, values: &mut Vec<T>) {
        while let Some(text) = self.find(keyword, How { first: true, ..KEYWORD }) {
            match T::parse(&text, &self.scope) {
                Ok(value) => values.push(value),
                Err(error) => {
                    self.refuse(keyword, &error);
                }
            }
        }
    }

    /// Whether a keyword is among the unread arguments.
    pub fn has(&self, keyword: &str) -> bool {
        self.states.iter().zip(&self.arguments).any(|(state, argument)| {
            matches!(state, State::Keyword(length) if argument.get(..*length) == Some(keyword))
        })
    }

    /// Reports that something is wrong with the arguments.
    #[cold]
    #[inline(never)]
    pub fn error(&mut self, text: impl Into<String>) {
        self.failed = true;
        self.report.borrow_mut().error(&text.into());
    }

    /// The text of an argument; `None` if it is not given, which is an error if it is mandatory.
    fn find(&mut self, keyword: &str, how: How) -> Option<String> {
        self.keywords.push(keyword.into());
        let mut found: Option<(usize, usize)> = None;
        for (index, state) in self.states.iter_mut().enumerate() {
            let State::Keyword(length) = *state else { continue };
            if self.arguments[index].get(..length) == Some(keyword) {
                found = Some((index, length));
                *state = State::Read;
                if how.first {
                    break;
                }
            }
        }
        let position = self.states.iter().position(|state| *state != State::Position);
        if how.positional
            && let Some(position) = position
            && match self.states[position] {
                State::Plain => true,
                State::Keyword(_) => found.is_none() && how.mandatory,
                _ => false,
            }
        {
            self.states[position] = State::Position;
            if found.is_none_or(|(index, _)| index < position) {
                found = Some((position, 0));
            }
        }
        if found.is_none() && how.mandatory {
            self.error(format!("{keyword}: required argument missing"));
        }
        let (index, length) = found?;
        Some(self.arguments[index].get(length..)?.trim_ascii_start().into())
    }

    /// Ends reading: unread arguments are errors.
    ///
    /// # Errors
    /// [`Failed`] if there was any error.
    pub fn complete(&mut self) -> Result<(), Failed> {
        let mut plain = false;
        for index in 0..self.states.len() {
            match self.states[index] {
                State::Plain => plain = true,
                State::Keyword(length) => {
                    let keyword = self.arguments[index].get(..length).unwrap_or_default();
                    let text = format!("{keyword}: unknown argument");
                    let hint = proposal(keyword, self.keywords.iter().map(String::as_str));
                    self.error(text);
                    self.report.borrow_mut().diagnostics.hint(hint);
                }
                State::Position | State::Read => {}
            }
        }
        if plain {
            self.error("too many arguments");
        }
        self.result()
    }

    /// Ends reading for now: other arguments may be read later.
    ///
    /// # Errors
    /// [`Failed`] if there was an error so far.
    pub fn result(&self) -> Result<(), Failed> {
        if self.failed { Err(Failed) } else { Ok(()) }
    }
}

/// Whether an argument begins with a possible keyword.
fn state(argument: &str) -> State {
    let bytes = argument.as_bytes();
    if !bytes.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_') {
        return State::Plain;
    }
    let in_keyword = |byte: &u8| byte.is_ascii_alphanumeric() || b"_:.?!".contains(byte);
    let length = bytes.iter().take_while(|byte| in_keyword(byte)).count();
    let behind = bytes[length..].trim_ascii_start();
    if behind.is_empty() || behind.len() == bytes.len() - length {
        State::Plain
    } else {
        State::Keyword(length)
    }
}

#[cfg(test)]
mod tests;
