//! The console of a function's process, which can't open files.
use super::Terminal;
use crate::file::NO_FILES;
use ringway_click::Console;

/// Standard output and standard error.
pub(super) struct Confined;

fn refusal<T>(name: &str) -> Result<T, String> {
    Err(format!("{name}: {NO_FILES}"))
}

impl Console for Confined {
    fn chatter(&mut self, line: &str) {
        Terminal.chatter(line);
    }

    fn output(&mut self, bytes: &[u8]) {
        Terminal.output(bytes);
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        refusal(name)
    }

    fn write_file(&mut self, name: &str, _: &[u8], _: bool) -> Result<(), String> {
        refusal(name)
    }

    fn may_open(&self, name: &str) -> Result<(), String> {
        refusal(name)
    }

    fn process(&self) -> u32 {
        std::process::id()
    }
}
