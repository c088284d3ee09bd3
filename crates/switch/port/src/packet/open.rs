//! Opening the sockets: the side of `control`.

use super::Settings;
use crate::InterfaceState;
use crate::interface_open::{InterfaceError, InterfaceName, OpenedInterface, open_interface};
use ringway_host::open_packet_rings;

/// Most queues of a port.
pub const QUEUES: u16 = 16;

/// The interface of the settings.
pub fn name(settings: &Settings) -> InterfaceName {
    InterfaceName { name: settings.interface.clone(), namespace: settings.namespace.clone() }
}

/// Opens a socket with rings for each of `queues`, 1 to [`QUEUES`]. Blocks only in the kernel.
///
/// # Errors
/// There is no such interface, or the system refused.
pub fn open(settings: &Settings, queues: u16) -> Result<OpenedInterface, InterfaceError> {
    open_interface(&name(settings), |_, interface| {
        let sockets = open_packet_rings(interface.index, queues.into(), settings.promiscuous);
        let name = settings.interface.clone();
        let sockets = sockets.map_err(|error| InterfaceError::Host { name, error })?;
        Ok((sockets, InterfaceState::default()))
    })
}
