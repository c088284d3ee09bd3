//! The stack that the processes of a group share (`ringway-direct`), beside the agent's.
//!
//! ```text
//! device <- bridge -> ring -> shared stack -> ring <- agent's stack
//! ```
//!
//! A thread, the bridge, moves frames between the device and a ring of the shared stack, which keeps those of its
//! connections; the others pass to the agent's stack by another ring. So this process, with more rights than the
//! programs, only reads and writes rings. If the device has a ring, that of a port, the shared stack uses it in place
//! of its own, and nobody moves frames:
//!
//! ```text
//! port's ring -> shared stack -> ring <- agent's stack
//! ```
//!
//! The attendant, a confined child process, runs the shared stack's timers, and
//! moves connections for the agent (`attendant.rs`). If the shared stack is lost, the two devices are joined directly,
//! and the agent serves all (`device.rs`).

pub(crate) mod attendant;
pub(crate) mod device;

use crate::agent::most_sockets;
use crate::direct::attendant::Begin;
use device::{Ends, Switch};
use ringway_direct::{Files, bounded_settings};
use ringway_frame::Needs;
use ringway_host::{EventFd, HostError, send_with};
use ringway_netstack::Settings;
use ringway_sockets::{DeviceError, Host, LentRing};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Bytes for connections in the shared stack at most; they are taken as they are needed.
const MEMORY: usize = 1 << 30;
/// Notifiers of the shared stack (see [`ringway_direct::Notifiers`]).
const NOTIFIERS: usize = 5;

/// The configuration of the shared stack: that of the agent's, with connections that fit into its memory, and of which
/// the agent can have each.
pub fn configuration(host: &mut Host) -> Vec<u8> {
    let stack = host.stack();
    let settings = stack.settings().clone();
    let bounded = bounded_settings(&settings, MEMORY);
    let most = most_sockets(getrlimit(Resource::Nofile).current, 0);
    stack.set_settings(Settings { max_sockets: bounded.max_sockets.min(most), ..bounded });
    let configuration = stack.configuration();
    stack.set_settings(settings);
    configuration
}

/// The shared stack, as the agent has it.
#[derive(Debug)]
pub struct Shared {
    /// The attendant's socket.
    pub attendant: OwnedFd,
    /// The descriptors that a process needs, in the order of [`ringway_direct::requests::DESCRIPTORS`].
    pub files: Vec<OwnedFd>,
    /// After how many calls on a connection an unmodified program's may enter.
    pub after: i32,
    /// Bytes of the rings' memory.
    pub lengths: [u64; 2],
    pub switch: Arc<Switch>,
}

/// What is made before the agent's stack, whose configuration the shared one needs.
#[derive(Debug)]
pub struct Made {
    pub ends: Ends,
    pub rest: Rest,
}

/// What the attendant gets.
#[derive(Debug)]
pub struct Rest {
    files: Vec<OwnedFd>,
    lengths: [u64; 2],
    switch: Arc<Switch>,
}

/// Makes the rings of a shared stack. `needs`: what the device does for frames. `lent`: the device's ring.
///
/// # Errors
/// The kernel refuses memory or descriptors.
pub fn make(needs: Needs, lent: Option<&LentRing>) -> Result<Made, DeviceError> {
    let files = Files::create(MEMORY).map_err(|_| DeviceError::Closed)?;
    let mut notifiers = Vec::new();
    if let Some(lent) = lent {
        for notifier in [&lent.call, &lent.kick] {
            notifiers.push(notifier.try_clone().map_err(|_| DeviceError::Closed)?);
        }
    }
    while notifiers.len() < NOTIFIERS {
        notifiers.push(EventFd::new()?.into_fd());
    }
    let (ends, rings, switch) = device::ends(needs, &notifiers, lent)?;
    let lengths = rings.each_ref().map(|(_, len)| *len);
    let rings = rings.map(|(file, _)| file);
    let files = [files.text, files.data].into_iter().chain(rings).chain(notifiers).collect();
    Ok(Made { ends, rest: Rest { files, lengths, switch } })
}

impl Rest {
    /// Lets the attendant begin, for a stack with this configuration.
    ///
    /// # Errors
    /// The attendant has ended.
    pub fn begin(self, attendant: OwnedFd, configuration: &[u8], after: i32) -> Result<Shared, HostError> {
        let Rest { files, lengths, switch } = self;
        let message = Begin { lengths, configuration: configuration.to_vec() }.to_bytes();
        let descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        send_with(&attendant, &message, &descriptors)?;
        Ok(Shared { attendant, files, after, lengths, switch })
    }
}
