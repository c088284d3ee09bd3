//! The terminal of a program.
use ringway_click::Console;
use std::io::Write;

/// Standard output and standard error.
#[derive(Clone, Copy, Debug)]
pub struct Terminal;

impl Console for Terminal {
    fn chatter(&mut self, line: &str) {
        // At once, so that lines of several programs stay apart. A closed terminal is nobody's loss.
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }

    fn output(&mut self, bytes: &[u8]) {
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(bytes).and_then(|()| output.flush());
    }
}
