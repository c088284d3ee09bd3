//! The terminal of a program.
use ringway_click::Console;
use ringway_spec::printable_lines;
use std::io::{IsTerminal, Write};

/// Standard output and standard error.
///
/// Attack: a configuration, or frames whose bytes are printed, with escape sequences of terminals.
#[derive(Clone, Copy, Debug)]
pub struct Terminal;

impl Console for Terminal {
    fn chatter(&mut self, line: &str) {
        // In one write, so that lines of several programs don't mix. Errors of a closed terminal are ignored.
        let _ = std::io::stderr().write_all(format!("{}\n", printable_lines(line)).as_bytes());
    }

    fn output(&mut self, bytes: &[u8]) {
        let mut output = std::io::stdout().lock();
        // A file or another program gets the bytes as they are.
        let written = match output.is_terminal() {
            true => output.write_all(printable_lines(&String::from_utf8_lossy(bytes)).as_bytes()),
            false => output.write_all(bytes),
        };
        let _ = written.and_then(|()| output.flush());
    }
}
