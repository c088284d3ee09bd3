//! Leaving a fabric to another program.

use super::{Answer, Engine, Failure};
use crate::kinds;
use crate::upgrade::{FORMATS, Running};
use ringway_spec::Port;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Time in which answers that were given are sent before this process ends.
const ANSWERS_SENT: Duration = Duration::from_millis(20);

impl Engine {
    /// What the fabric has, for a program that checks whether it can go on with it.
    pub(super) fn running(&mut self) -> Running {
        self.keep_fabric();
        self.keeper.flush();
        let texts = self.keeper.entries().into_iter().map(|(name, entry)| (name, entry.text));
        let records = |port: &String| {
            let records = self.keeper.records(port).into_iter().map(|(key, bytes, _)| (key, bytes));
            (port.clone(), records.collect())
        };
        let (mut losses, mut notes) = (Vec::new(), Vec::new());
        for port in &self.fabric.ports {
            if !self.loses_peer(port) {
                continue;
            }
            match self.reconnects(port) {
                true => notes.push(format!("port {}: its peer connects again", port.name)),
                false => losses.push(format!(
                    "port {}: its guest loses the device until it is stopped and started",
                    port.name
                )),
            }
        }
        Running {
            version: env!("CARGO_PKG_VERSION").into(),
            formats: FORMATS.iter().map(|format| (format.name.into(), format.number)).collect(),
            texts: texts.collect(),
            records: self.running_ports.keys().map(records).collect(),
            losses,
            notes,
        }
    }

    /// Whether another `data` process can't go on with a port's peer.
    pub(super) fn loses_peer(&self, port: &Port) -> bool {
        self.running_ports.get(&port.name).is_some_and(|live| live.loses_peer(self.reconnects(port)))
    }

    /// Whether a port's peer connects again; a guest does not, whose card's registers only the former process had.
    fn reconnects(&self, port: &Port) -> bool {
        kinds::find(port.kind.name(), self.host.kinds).is_none_or(|kind| kind.reconnects())
    }

    /// Ends this process, and leaves the fabric to the program in the first descriptor. Returns only if that is not
    /// possible.
    pub(super) async fn leave(&mut self, [binary, client]: &[OwnedFd; 2], answer: Answer<()>) {
        if !self.keeper.is_process() {
            let why = "this fabric has no keeper that could move it to another program";
            return drop(answer.send(Err(Failure::conflict(why))));
        }
        tracing::info!("leaving the fabric to another program");
        self.keep_fabric();
        self.keeper.upgrade(binary, client);
        self.keeper.flush();
        tokio::time::sleep(ANSWERS_SENT).await;
        // Without this process's destructors, which would end the fabric.
        std::process::exit(0);
    }
}
