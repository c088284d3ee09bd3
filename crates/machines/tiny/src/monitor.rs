//! Who gets a guest's messages, and sends it some.

use crate::channel::{Channel, ToMonitor};
use ringway_ring::Broken;

/// Receives the guest's messages.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub enum Monitor {
    /// The crate `vmm`.
    Channel(Channel),
    /// Another monitor, which has a console only: messages for users are lines there, others go nowhere.
    Console(fn(&str)),
}

impl Monitor {
    /// Sends a message, or keeps it until there is room.
    pub fn send(&mut self, message: &ToMonitor<'_>) {
        let write = match self {
            Monitor::Channel(channel) => return channel.send(message.to_bytes()),
            Monitor::Console(write) => write,
        };
        match *message {
            ToMonitor::Print(last, part) | ToMonitor::Wrong(last, part) => {
                part.utf8_chunks().for_each(|chunk| write(chunk.valid()));
                if last {
                    write("\n");
                }
            }
            ToMonitor::Released(port, reason) => {
                let reason = core::str::from_utf8(reason).unwrap_or_default();
                write(&alloc::format!("port {port} can't be used any more: {reason}\n"));
            }
            // A program has no such stages.
            ToMonitor::Up([0, 0, 0]) => write("running\n"),
            ToMonitor::Up([classes, read, build]) => {
                write(&alloc::format!(
                    "running: {classes} us for the element classes, {read} us for reading the configuration, \
                     {build} us for building it\n"
                ));
            }
            ToMonitor::Wanted(..) | ToMonitor::Data(..) | ToMonitor::Taken(..) | ToMonitor::Closed(_) => {}
        }
    }

    /// The next message; `None` if there is none now.
    ///
    /// # Errors
    /// The monitor violated the channel's rules, as below.
    pub fn receive(&mut self) -> Result<Option<&[u8]>, Broken> {
        match self {
            Monitor::Channel(channel) => channel.receive(),
            Monitor::Console(_) => Ok(None),
        }
    }

    /// Number of messages that wait.
    pub fn waiting(&self) -> usize {
        match self {
            Monitor::Channel(channel) => channel.waiting(),
            Monitor::Console(_) => 0,
        }
    }

    /// Publishes messages; whether the monitor must be notified.
    ///
    /// # Errors
    /// See [`Monitor::receive`].
    pub fn flush(&mut self) -> Result<bool, Broken> {
        match self {
            Monitor::Channel(channel) => channel.flush(),
            Monitor::Console(_) => Ok(false),
        }
    }

    /// Asks to be notified of messages; `false`: there is one.
    ///
    /// # Errors
    /// See [`Monitor::receive`].
    pub fn arm(&mut self) -> Result<bool, Broken> {
        match self {
            Monitor::Channel(channel) => channel.arm(),
            Monitor::Console(_) => Ok(true),
        }
    }

    /// Cancels [`Monitor::arm`].
    pub fn disarm(&mut self) {
        if let Monitor::Channel(channel) = self {
            channel.disarm();
        }
    }
}
