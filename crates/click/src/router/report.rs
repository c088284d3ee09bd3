//! What is wrong with a configuration, in Click's words and order.
use super::Router;
use crate::Failed;
use alloc::format;
use alloc::string::String;
use ringway_click_lang::{Diagnostics, Landmark};

/// How many messages are kept. Attack: a configuration with an error in each of a million elements.
const MESSAGES: usize = 1000;

/// Messages, below a line that says what was being done.
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
    /// Says what is being done from now on; the line appears with the first message.
    pub(crate) fn begin(&mut self, landmark: Landmark, text: String) {
        self.context = Some((landmark, text));
        self.failures = 0;
    }

    /// Says that it is done.
    pub(crate) fn end(&mut self) {
        self.context = None;
        self.failures = 0;
    }

    /// How many errors there were since it began.
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

    /// `declaration` is whose warning it is, for those that come while the router runs.
    pub(crate) fn report_warning(&mut self, declaration: &str, text: &str) {
        if self.building {
            self.report.borrow_mut().warning(text);
        } else {
            let text = indented(&format!("warning: {text}"));
            self.console.chatter(&format!("While running '{declaration}':\n{text}"));
        }
    }
}
