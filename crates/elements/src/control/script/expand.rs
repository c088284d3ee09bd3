//! Variables of a script, and the text of handlers that stands for `$(..)`.
use super::{Script, function};
use alloc::string::{String, ToString};
use core::cell::RefCell;
use ringway_click::{Context, HandlerError};
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
        match script.read_call(&call, cx) {
            Ok(value) => Some(value),
            Err(error) => {
                script.complain(&error.to_string(), cx);
                Some(String::new())
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
            "$" => Some(cx.process().to_string()),
            "#" => arguments().map(|args| config::split_words(args).len().to_string()),
            _ => {
                let number: usize = name.parse().ok().filter(|number| *number > 0)?;
                arguments()
                    .map(|args| config::split_words(args).into_iter().nth(number - 1).unwrap_or_default())
            }
        }
    }

    pub(super) fn expand(&mut self, text: &str, cx: &mut Context<'_>) -> String {
        self.expand_with(text, false, cx)
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

    /// Calls a read handler: the script's own handlers need no element name.
    pub(super) fn read_call(&mut self, call: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        let (name, parameters) = config::shift_word(call);
        self.read_parts(name, parameters, cx)
    }

    /// Calls a read handler given in two parts, so that the value may begin with a space.
    pub(super) fn read_parts(
        &mut self,
        name: &str,
        parameters: &str,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        if self.is_own(name, cx) {
            let name = name.rsplit('.').next().unwrap_or(name);
            if self.depth >= DEEPEST {
                return Err(HandlerError::failed("the script calls itself too deeply"));
            }
            self.depth += 1;
            let answer = cx.read_own(self, name, parameters);
            self.depth -= 1;
            return answer;
        }
        let mut call = cx.handler_call(name, false)?;
        call.value = parameters.to_string();
        cx.read(&call)
    }

    /// Calls a write handler given in two parts.
    pub(super) fn write_parts(
        &mut self,
        name: &str,
        value: &str,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let own = self.is_own(name, cx);
        let bare = name.rsplit('.').next().unwrap_or(name);
        if own && bare == "set" {
            return cx.write_own(self, bare, value);
        }
        let mut call = match own {
            true => ringway_click::HandlerCall {
                element: Some(cx.id()),
                handler: bare.into(),
                value: value.into(),
            },
            false => cx.handler_call(name, true)?,
        };
        call.value = value.to_string();
        cx.write(&call)
    }

    /// Whether a handler's name refers to a handler of this element.
    fn is_own(&self, name: &str, cx: &Context<'_>) -> bool {
        match name.rsplit_once('.') {
            Some((element, _)) => cx.find(element) == Some(cx.id()),
            None => {
                function::NAMES.contains(&name)
                    || super::handlers::NAMES.contains(&name)
                    || self.program.exported.iter().any(|own| own == name)
            }
        }
    }

    /// Reports an error while the script runs.
    pub(super) fn complain(&self, text: &str, cx: &mut Context<'_>) {
        let name = cx.declaration();
        cx.chatter(format_args!("While executing '{name}':\n  {text}"));
    }
}
