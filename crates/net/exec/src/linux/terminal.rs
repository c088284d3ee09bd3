//! The terminal of the user, in raw mode while a program in the guest has one of its own.

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io;
use std::os::fd::AsFd;

/// Rows and columns of the first of the standard descriptors that is a terminal.
pub fn size_of(terminal: [bool; 3]) -> (u16, u16) {
    let size = |is_one: bool, descriptor: &dyn AsFd| {
        let size = is_one.then(|| tcgetwinsize(descriptor.as_fd()).ok()).flatten()?;
        Some((size.ws_row, size.ws_col))
    };
    let [input, output, errors] = terminal;
    let found = size(input, &io::stdin()).or_else(|| size(output, &io::stdout()));
    found.or_else(|| size(errors, &io::stderr())).unwrap_or_default()
}

/// Standard input as a terminal in raw mode, until this is dropped.
pub struct Raw(Option<Termios>);

impl Raw {
    /// Makes it raw, if it is a terminal: the guest's terminal treats what is typed.
    pub fn of_input(is_terminal: bool) -> Raw {
        let before = is_terminal.then(|| tcgetattr(io::stdin()).ok()).flatten();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            // A terminal that refuses is used as it is.
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &raw);
        }
        Raw(before)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, before);
        }
    }
}
