//! Where elements print.
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

/// A terminal, or what stands for one.
pub trait Console {
    /// A line for people, without its end: what Click calls chatter. A program prints it to standard error.
    fn chatter(&mut self, line: &str);
    /// Bytes for standard output.
    fn output(&mut self, bytes: &[u8]);

    /// Reads a file, whole.
    ///
    /// # Errors
    /// A text for people; always, where there are no files.
    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        Err(format!("{name}: no files here"))
    }

    /// Writes a file, or adds to it.
    ///
    /// # Errors
    /// As for [`Console::read_file`].
    fn write_file(&mut self, name: &str, bytes: &[u8], append: bool) -> Result<(), String> {
        let _ = (bytes, append);
        Err(format!("{name}: no files here"))
    }

    /// Sends a signal to a process. Whether that was possible.
    fn kill(&mut self, signal: i32, process: i32) -> bool {
        let _ = (signal, process);
        false
    }

    /// The number of the process that runs the router; 0 where there are none.
    fn process(&self) -> u32 {
        0
    }
}

/// Bytes that may wait to be heard. Attack: a configuration that says more than anybody takes.
const UNHEARD: usize = 1 << 20;

/// Lines that a router said to people since they were last taken; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Heard(Rc<RefCell<String>>);

impl Heard {
    /// Takes them, each with its end.
    pub fn take(&self) -> String {
        core::mem::take(&mut self.0.borrow_mut())
    }

    pub(crate) fn add(&self, line: &str) {
        let mut lines = self.0.borrow_mut();
        if lines.len() + line.len() < UNHEARD {
            lines.push_str(line);
            lines.push('\n');
        }
    }
}

/// A console that remembers, for tests: clones share what was printed.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    chatter: Rc<RefCell<String>>,
    output: Rc<RefCell<String>>,
}

impl Recorder {
    /// What was chattered, a line each.
    pub fn chatter(&self) -> String {
        self.chatter.borrow().clone()
    }

    /// What went to standard output.
    pub fn output(&self) -> String {
        self.output.borrow().clone()
    }
}

impl Console for Recorder {
    fn chatter(&mut self, line: &str) {
        let mut text = self.chatter.borrow_mut();
        text.push_str(line);
        text.push('\n');
    }

    fn output(&mut self, bytes: &[u8]) {
        self.output.borrow_mut().push_str(&String::from_utf8_lossy(bytes));
    }
}
