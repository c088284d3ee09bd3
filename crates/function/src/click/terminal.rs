//! The terminal of a program.
use ringway_click::Console;
use std::io::Write;

/// Standard output and standard error.
#[derive(Clone, Copy, Debug)]
pub struct Terminal;

impl Console for Terminal {
    fn chatter(&mut self, line: &str) {
        // A closed terminal is nobody's loss.
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    fn output(&mut self, bytes: &[u8]) {
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(bytes).and_then(|()| output.flush());
    }
}
