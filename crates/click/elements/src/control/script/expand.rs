//! Variables of a script, and the text of handlers that stands for `$(..)`.
use super::Script;
use core::cell::RefCell;
use ringway_click::HandlerCall;
use ringway_click::prelude::*;
use ringway_click_lang::config::{self, Budget, VariableSyntax, Variables, expand_at};

/// Maximum number of bytes that an expansion reads and writes. Attack: a variable that doubles itself in a loop.
const MOST: usize = 1 << 20;

/// Maximum depth of nested calls of own handlers. Attack: a script whose `run` calls its own `run`.
const DEEPEST: u32 = 50;

struct Expander<'a, 'b, 'c> {
    inner: RefCell<(&'a mut Script, &'b mut Context<'c>)>,
}

impl Variables for Expander<'_, '_, '_> {
    fn value(&self, name: &str, kind: VariableSyntax, depth: u32, budget: &Budget) -> Option<String> {
        if kind != VariableSyntax::Parentheses {
            let inner = self.inner.borrow();
            return inner.0.variable(name, inner.1);
        }
        // Parameters of a call keep their word boundaries even if variables contain spaces or quotes.
        let call = expand_at(name, self, true, depth + 1, budget);
        let mut inner = self.inner.borrow_mut();
        let (script, cx) = &mut *inner;
        let (name, parameters) = config::shift_word(&call);
        // A call without a handler stays as it is; one that fails stands for nothing.
        match script.resolve(name, parameters, false, cx) {
            Ok(call) => Some(script.read_call(&call, cx).unwrap_or_else(|error| {
                cx.complain(&error.to_string());
                String::new()
            })),
            Err(error) => {
                cx.complain(&error.to_string());
                None
            }
        }
    }
}

impl Script {
    pub(super) fn set(&mut self, name: &str, value: String) {
        match self.variables.iter_mut().find(|(own, _)| own == name) {
            Some((_, old)) => *old = value,
            None => self.variables.push((name.to_string(), value)),
        }
    }

    /// The value of a variable: one of the script's own, or a predefined one.
    pub(super) fn variable(&self, name: &str, cx: &Context<'_>) -> Option<String> {
        if let Some((_, value)) = self.variables.iter().find(|(own, _)| own == name) {
            return Some(value.clone());
        }
        let arguments =
            || self.variables.iter().find(|(own, _)| own == "args").map(|(_, value)| value.as_str());
        match name {
            "?" => Some(self.status.to_string()),
            "0" => Some(self.called.0.clone()),
            "write" => Some(self.called.1.to_string()),
            "$" => Some(cx.process().to_string()),
            "#" => arguments().map(|args| config::split_words(args).len().to_string()),
            _ => {
                let number: usize = name.parse().ok().filter(|number| *number > 0)?;
                arguments()
                    .map(|args| config::split_words(args).into_iter().nth(number - 1).unwrap_or_default())
            }
        }
    }

    /// Expands variables and calls. As in Click, a text that becomes empty stays as it is.
    pub(super) fn expand(&mut self, text: &str, cx: &mut Context<'_>) -> String {
        let expanded = self.expand_with(text, false, cx);
        if expanded.is_empty() { text.to_string() } else { expanded }
    }

    /// Expands variables and calls; with `quoting`, values keep their word boundaries.
    pub(super) fn expand_with(&mut self, text: &str, quoting: bool, cx: &mut Context<'_>) -> String {
        if !text.contains('$') {
            return text.to_string();
        }
        let expander = Expander { inner: RefCell::new((self, cx)) };
        let expanded = expand_at(text, &expander, quoting, 0, &Budget::new(MOST));
        self.made = self.made.saturating_add(expanded.len());
        expanded
    }

    /// The handler that a name means: first one of the script's own.
    pub(super) fn resolve(
        &self,
        name: &str,
        value: &str,
        write: bool,
        cx: &mut Context<'_>,
    ) -> Result<HandlerCall, HandlerError> {
        if name.is_empty() {
            return Err(HandlerError::failed("syntax error"));
        }
        let id = cx.id();
        let own = !name.contains('.') && cx.router().has_handler(id, name);
        let mut call = match own {
            true => HandlerCall { element: Some(id), handler: name.into(), value: String::new() },
            false => cx.parse_call(name)?,
        };
        call.value = value.to_string();
        cx.router().check_call(&call, write)?;
        Ok(call)
    }

    /// Calls a read handler.
    pub(super) fn read_call(
        &mut self,
        call: &HandlerCall,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        if call.element != Some(cx.id()) {
            return cx.lend_to_call(self, |cx| cx.read(call));
        }
        if cx.router().is_common(call) {
            return cx.read(call);
        }
        if self.depth >= DEEPEST {
            return Err(HandlerError::failed("the script calls itself too deeply"));
        }
        self.depth += 1;
        let answer = cx.read_own(self, &call.handler, &call.value);
        self.depth -= 1;
        answer
    }

    /// Calls a write handler.
    pub(super) fn write_call(
        &mut self,
        call: &HandlerCall,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        if call.element != Some(cx.id()) {
            return cx.lend_to_call(self, |cx| cx.write(call));
        }
        if call.handler == "set" { cx.write_own(self, "set", &call.value) } else { cx.write(call) }
    }
}
