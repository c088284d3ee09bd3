//! The terminal of a program.
use ringway_click::Console;
use std::io::Write;

/// Standard output and standard error.
#[derive(Clone, Copy, Debug)]
pub struct Terminal;

impl Console for Terminal {
    fn chatter(&mut self, line: &str) {
        // In one write, so that lines of several programs don't mix. Errors of a closed terminal are ignored.
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }

    fn output(&mut self, bytes: &[u8]) {
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(bytes).and_then(|()| output.flush());
    }
}
