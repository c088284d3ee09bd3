//! Opening the sockets and attaching the program: the side of `control`.

use super::{Keep, Settings, mode};
use crate::interface_open::{Finish, InterfaceError, InterfaceName, OpenedInterface, open_interface};
use crate::{InterfacePage, InterfaceState};
use ringway_host::{
    Attach, HostError, KeepRule, NetworkInterface, XdpError, XdpLink, XdpQueue, XdpTarget, hold_promiscuous,
    receive_queues, within_namespace, xdp_chunk,
};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Most queues of a port.
pub const QUEUES: u16 = 16;
/// An Ethernet header and two VLAN tags.
const FRAMING: usize = 14 + 8;
/// How long the data process may take to map the rings.
const MAPPED: Duration = Duration::from_secs(10);

/// The interface of the settings.
pub fn name(settings: &Settings) -> InterfaceName {
    InterfaceName { name: settings.interface.clone(), namespace: settings.namespace.clone() }
}

fn rule(keep: &Keep) -> KeepRule {
    match *keep {
        Keep::EtherType(kind) => KeepRule::EtherType(kind),
        Keep::Protocol(protocol) => KeepRule::Protocol(protocol),
        Keep::Port(protocol, port) => KeepRule::Port(protocol, port),
    }
}

/// Opens a socket with its memory for each of `queues`, 1 to [`QUEUES`]; the data process maps their rings, then
/// [`OpenedInterface::finish`] attaches the program and binds them. Blocks only in the kernel.
///
/// # Errors
/// There is no such interface, another XDP program is attached to it, or the system refused.
pub fn open(settings: &Settings, queues: u16) -> Result<OpenedInterface, InterfaceError> {
    let mut sockets: Vec<OwnedFd> = Vec::new();
    let mut target = None;
    let mut state = InterfaceState::default();
    let host = |error| InterfaceError::Host { name: settings.interface.clone(), error };
    let mut opened = open_interface(&name(settings), |watch, interface| {
        if interface.program != 0 {
            return Err(failed(&settings.interface, &XdpError::Foreign(interface.program)));
        }
        let all = receive_queues(&settings.interface);
        if all > 0 && u32::from(queues) > all {
            return Err(failed(&settings.interface, &XdpError::NoQueue(all)));
        }
        let chunk = xdp_chunk(interface.mtu as usize + FRAMING);
        let mut descriptors = Vec::new();
        for _ in 0..queues {
            let XdpQueue { socket, memory } = XdpQueue::open(chunk).map_err(host)?;
            let ours = socket.try_clone().map_err(|error| InterfaceError::Kind(error.to_string()))?;
            sockets.push(ours);
            descriptors.extend([socket, memory]);
        }
        target = Some(XdpTarget {
            interface: interface.index,
            mac: interface.mac,
            addresses: watch.addresses(interface.index).map_err(host)?,
            rules: settings.keep.iter().map(rule).collect(),
            generic: settings.generic,
        });
        state.queues = all;
        Ok((descriptors, state))
    })?;
    let settings = settings.clone();
    let interface = opened.interface.clone();
    let finish: Finish = Box::new(move |page: &InterfacePage| {
        let Some(target) = target else { return Ok(Box::new(())) };
        attach(&settings, &interface, page, &target, &sockets)
    });
    opened.finish = Some(finish);
    Ok(opened)
}

fn failed(name: &str, error: &XdpError) -> InterfaceError {
    InterfaceError::Kind(format!("interface {name}: {error}").replace("INTERFACE", name))
}

/// Waits until the data process has mapped the rings, then attaches the program and binds the sockets.
fn attach(
    settings: &Settings,
    interface: &NetworkInterface,
    page: &InterfacePage,
    target: &XdpTarget,
    sockets: &[OwnedFd],
) -> Result<Box<dyn std::any::Any + Send>, InterfaceError> {
    let until = Instant::now() + MAPPED;
    while !page.is_mapped() {
        if Instant::now() >= until {
            return Err(InterfaceError::Kind("the data process does not map the rings".into()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let host = |error: HostError| InterfaceError::Host { name: settings.interface.clone(), error };
    let (link, promiscuous) = within_namespace(settings.namespace.as_deref(), || {
        let promiscuous = settings.promiscuous.then(|| hold_promiscuous(target.interface)).transpose();
        let link = XdpLink::attach(target, sockets).map_err(|error| match error {
            XdpError::Foreign(_) => {
                let now =
                    ringway_host::InterfaceWatch::new().and_then(|watch| watch.by_index(target.interface));
                let program = now.ok().flatten().map_or(0, |now| now.program);
                failed(&interface.name, &XdpError::Foreign(program))
            }
            XdpError::Host(error) => host(error),
            error => failed(&interface.name, &error),
        })?;
        Ok::<_, InterfaceError>((link, promiscuous.map_err(host)?))
    })?;
    let generic = if link.how == Attach::Generic { mode::GENERIC } else { 0 };
    let zero_copy = if link.is_zero_copy { mode::ZERO_COPY } else { 0 };
    page.set(&InterfaceState { mode: mode::BOUND | generic | zero_copy, ..page.get() });
    Ok(Box::new((link, promiscuous)))
}
