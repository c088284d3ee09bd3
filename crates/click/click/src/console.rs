//! A router's access to output, files and devices.
use crate::{Context, Failed, Task};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

/// A network device whose name may stand for its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub ethernet: Option<[u8; 6]>,
    /// Its primary IPv4 address and its mask.
    pub address: Option<[[u8; 4]; 2]>,
    /// The gateway of its default route.
    pub gateway: Option<[u8; 4]>,
}

/// The input and output of a router.
pub trait Console {
    /// Prints a line of chatter, without its newline. A program prints it to standard error.
    fn chatter(&mut self, line: &str);
    /// Bytes for standard output.
    fn output(&mut self, bytes: &[u8]);

    /// Reads a whole file.
    ///
    /// # Errors
    /// A message; always, if there are no files.
    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        Err(format!("{name}: no files here"))
    }

    /// Writes a file, or appends to it.
    ///
    /// # Errors
    /// As for [`Console::read_file`].
    fn write_file(&mut self, name: &str, bytes: &[u8], append: bool) -> Result<(), String> {
        let _ = (bytes, append);
        Err(format!("{name}: no files here"))
    }

    /// Whether elements can open a file; asked when they are configured.
    ///
    /// # Errors
    /// A message, where there are never files.
    fn may_open(&self, name: &str) -> Result<(), String> {
        let _ = name;
        Ok(())
    }

    /// Sends a signal to a process. Returns whether it succeeded.
    fn kill(&mut self, signal: i32, process: i32) -> bool {
        let _ = (signal, process);
        false
    }

    /// Id of the process that runs the router; 0 if there are no processes.
    fn process(&self) -> u32 {
        0
    }

    /// Lists the machine's network devices; none by default.
    fn devices(&self) -> fn() -> Vec<Device> {
        Vec::new
    }
}

impl Context<'_> {
    /// Checks that elements can open a file here.
    ///
    /// # Errors
    /// They can't, which is reported.
    pub fn check_file(&mut self, name: &str) -> Result<(), Failed> {
        self.console().may_open(name).map_err(|error| self.error(error))
    }
}

/// Attack: a configuration that prints faster than the listener reads. Largest number of bytes waiting.
const MOST_WAITING: usize = 1 << 20;

/// Lines of chatter since they were last taken; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ChatterLines(Rc<RefCell<String>>);

impl ChatterLines {
    /// Takes the lines, each with its newline.
    pub fn take(&self) -> String {
        core::mem::take(&mut self.0.borrow_mut())
    }

    pub(crate) fn add(&self, line: &str) {
        let mut lines = self.0.borrow_mut();
        if lines.len() + line.len() < MOST_WAITING {
            lines.push_str(line);
            lines.push('\n');
        }
    }
}

/// An element that listens to chatter.
pub(crate) struct Listening {
    /// Empty for the default channel.
    pub(crate) channel: String,
    /// Whether the channel's lines are not printed too.
    pub(crate) quiet: bool,
    /// Scheduled when there are lines.
    pub(crate) task: Task,
    pub(crate) lines: ChatterLines,
}

/// A recording console for tests; clones share the output.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    chatter: Rc<RefCell<String>>,
    output: Rc<RefCell<String>>,
}

impl Recorder {
    /// The chatter, line by line.
    pub fn chatter(&self) -> String {
        self.chatter.borrow().clone()
    }

    /// The standard output.
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
