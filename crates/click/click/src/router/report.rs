//! Error reports of a configuration, in Click's words and order.
use super::Router;
use crate::{ElementId, Failed, HandlerError};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use ringway_click_lang::near::proposal;
use ringway_click_lang::{Diagnostics, Landmark};

/// Attack: a configuration with an error in each of a million elements. Largest number of stored messages.
const MESSAGES: usize = 1000;

/// Messages under headings.
pub(crate) struct Report {
    pub(crate) diagnostics: Diagnostics,
    context: Option<(Landmark, String)>,
    failures: usize,
}

impl Default for Report {
    fn default() -> Self {
        Self { diagnostics: Diagnostics::new(MESSAGES), context: None, failures: 0 }
    }
}

impl Report {
    /// Begins a heading, which is printed before the first message.
    pub(crate) fn begin(&mut self, landmark: Landmark, text: String) {
        self.context = Some((landmark, text));
        self.failures = 0;
    }

    /// Ends the heading.
    pub(crate) fn end(&mut self) {
        self.context = None;
        self.failures = 0;
    }

    /// Number of errors since it began.
    pub(crate) fn failures(&self) -> usize {
        self.failures
    }

    fn lead(&mut self) {
        if let Some((landmark, text)) = self.context.take() {
            self.diagnostics.note(landmark, text);
        }
    }

    pub(crate) fn error(&mut self, text: &str) -> Failed {
        self.lead();
        self.failures += 1;
        self.diagnostics.error(None, indented(text));
        Failed
    }

    pub(crate) fn message(&mut self, text: &str) {
        self.lead();
        self.diagnostics.note(None, indented(text));
    }

    pub(crate) fn warning(&mut self, text: &str) {
        self.lead();
        self.diagnostics.note(None, indented(&format!("warning: {text}")));
    }
}

/// Errors of handler calls while the router runs.
#[derive(Default)]
pub(crate) struct Complaints {
    /// The headings of the calls in progress, outermost first, and whether they have been printed.
    headings: Vec<(String, bool)>,
    /// Number of errors.
    pub(crate) count: u64,
}

impl Router {
    /// Calls a function; a heading is printed before its first error.
    pub(crate) fn under<R>(&mut self, heading: String, call: impl FnOnce(&mut Self) -> R) -> R {
        self.complaints.headings.push((heading, false));
        let result = call(self);
        self.complaints.headings.pop();
        result
    }

    /// Prints an error under the headings of the calls in progress; nothing if it has no text.
    pub(crate) fn complain(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.complaints.count += 1;
        let depth = self.complaints.headings.len();
        for at in 0..depth {
            let (heading, printed) = &mut self.complaints.headings[at];
            if !core::mem::replace(printed, true) {
                let line = format!("{}{heading}", "  ".repeat(at));
                self.chatter(format_args!("{line}"));
            }
        }
        for line in text.lines() {
            self.chatter(format_args!("{}{line}", "  ".repeat(depth)));
        }
    }
}

fn indented(text: &str) -> String {
    let mut out = String::new();
    for (index, line) in text.lines().enumerate() {
        out.push_str(if index > 0 { "\n  " } else { "  " });
        out.push_str(line);
    }
    out
}

impl Router {
    pub(crate) fn report_error(&mut self, text: String) -> Failed {
        if self.building {
            return self.report.borrow_mut().error(&text);
        }
        self.console.chatter(&text);
        Failed
    }

    /// Adds a proposal to the last message while the router is built.
    pub(crate) fn hint(&mut self, hint: Option<String>) {
        if self.building {
            self.report.borrow_mut().diagnostics.hint(hint);
        }
    }

    /// The name that a handler call from this element probably means.
    pub(crate) fn proposal(&self, error: &HandlerError, from: ElementId) -> Option<String> {
        match error {
            HandlerError::NoElement(name) => proposal(name, self.ids().map(|id| self.name(id))),
            HandlerError::NoHandler(call, way) => {
                let call = self.parse_call(call, self.name(from)).ok()?;
                let infos = self.handlers(call.element);
                let fit =
                    infos.iter().filter(|info| if *way == "write" { info.writable } else { info.readable });
                proposal(&call.handler, fit.map(|info| info.name.as_ref()))
            }
            _ => None,
        }
    }

    pub(crate) fn report_message(&mut self, text: String) {
        if self.building {
            self.report.borrow_mut().message(&text);
        } else {
            self.console.chatter(&text);
        }
    }

    /// `declaration` is the element of the warning, if the router is running.
    pub(crate) fn report_warning(&mut self, declaration: &str, text: &str) {
        if self.building {
            self.report.borrow_mut().warning(text);
        } else {
            let text = indented(&format!("warning: {text}"));
            self.console.chatter(&format!("While running '{declaration}':\n{text}"));
        }
    }
}
