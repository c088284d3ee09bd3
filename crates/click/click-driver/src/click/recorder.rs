//! A recording console, for tests of whole runs.
use ringway_click::Console;
use std::sync::{Arc, Mutex, PoisonError};

/// A console that records its output; clones share it, also between threads.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    chatter: Arc<Mutex<String>>,
    output: Arc<Mutex<String>>,
}

fn add(to: &Mutex<String>, text: &str, end: &str) {
    let mut all = to.lock().unwrap_or_else(PoisonError::into_inner);
    all.push_str(text);
    all.push_str(end);
}

impl Recorder {
    /// The chatter, line by line.
    pub fn chatter(&self) -> String {
        self.chatter.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The standard output.
    pub fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Console for Recorder {
    fn chatter(&mut self, line: &str) {
        add(&self.chatter, line, "\n");
    }

    fn output(&mut self, bytes: &[u8]) {
        add(&self.output, &String::from_utf8_lossy(bytes), "");
    }
}
