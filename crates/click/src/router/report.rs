//! Error reports of a configuration, in Click's words and order.
use super::Router;
use crate::Failed;
use alloc::format;
use alloc::string::String;
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
