//! The consoles of routers on other threads than the first.
use super::mailbox::Mailbox;
use super::worker::Message;
use ringway_click::{Console, Device};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Attack: a configuration that prints faster than anybody reads. Largest number of lines that wait for the
/// first thread.
const MOST_WAITING: usize = 1000;

/// Prints nothing, since the first thread already prints the messages of configuring elements.
pub(super) struct Mute {
    pub(super) devices: fn() -> Vec<Device>,
}

impl Console for Mute {
    fn chatter(&mut self, _: &str) {}

    fn output(&mut self, _: &[u8]) {}

    fn devices(&self) -> fn() -> Vec<Device> {
        self.devices
    }
}

/// Prints, and forwards lines to the first thread if an element there listens.
pub(super) struct Echo {
    pub(super) console: Box<dyn Console + Send>,
    pub(super) messages: Arc<Mailbox<Message>>,
    pub(super) has_listeners: Arc<AtomicBool>,
}

impl Console for Echo {
    fn chatter(&mut self, line: &str) {
        self.console.chatter(line);
        if self.has_listeners.load(Ordering::Relaxed) {
            self.messages.put_within(MOST_WAITING, Message::Chatter(line.into()));
        }
    }

    fn output(&mut self, bytes: &[u8]) {
        self.console.output(bytes);
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        self.console.read_file(name)
    }

    fn write_file(&mut self, name: &str, bytes: &[u8], append: bool) -> Result<(), String> {
        self.console.write_file(name, bytes, append)
    }

    fn may_open(&self, name: &str) -> Result<(), String> {
        self.console.may_open(name)
    }

    fn kill(&mut self, signal: i32, process: i32) -> bool {
        self.console.kill(signal, process)
    }

    fn process(&self) -> u32 {
        self.console.process()
    }

    fn devices(&self) -> fn() -> Vec<Device> {
        self.console.devices()
    }
}
