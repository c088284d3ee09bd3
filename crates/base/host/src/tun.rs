//! Interfaces of the host whose packets or frames a program reads and writes one by one, without a header
//! (Linux' Documentation/networking/tuntap.rst).

use crate::error::HostError;
use crate::tap::{Request, TapSettings};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

/// Settings of an interface.
#[derive(Clone, Debug)]
pub struct TunSettings {
    /// Its name, 15 bytes at most; one of the kernel's choice if none.
    pub name: Option<String>,
    /// Whether it carries Ethernet frames instead of IP packets.
    pub frames: bool,
    /// Its MTU.
    pub mtu: u16,
    /// Its Ethernet address, if it carries frames; chosen by the kernel if none.
    pub mac: Option<[u8; 6]>,
    /// Whether it is configured and brought up even without an address.
    pub is_up: bool,
    /// Its address and prefix length, with which it is brought up.
    pub address: Option<(Ipv4Addr, u8)>,
    /// Gateway of the host's default route.
    pub gateway: Option<Ipv4Addr>,
}

/// Creates an interface, which is removed when the descriptor is closed. The descriptor is non-blocking; the
/// returned name is the interface's actual one.
///
/// # Errors
/// [`HostError::Tap`]: the kernel lacks such interfaces, the name is taken, or permission is missing.
pub fn open_tun(settings: &TunSettings) -> Result<(OwnedFd, String), HostError> {
    let any = if settings.frames { "tap%d" } else { "tun%d" };
    let interface = TapSettings {
        name: settings.name.clone().unwrap_or_else(|| any.to_string()),
        queues: 1,
        mtu: settings.mtu,
        offloads: false,
        mac: settings.mac.filter(|_| settings.frames),
        address: settings.address.map(|(address, prefix)| (IpAddr::V4(address), prefix)),
        namespace: None,
    };
    let mut request = Request::new(&interface)?;
    let kind = if settings.frames { libc::IFF_TAP } else { libc::IFF_TUN };
    let descriptor = request.create(kind | libc::IFF_NO_PI)?;
    if settings.is_up || settings.address.is_some() {
        request.configure()?;
    }
    if let Some(gateway) = settings.gateway {
        request.add_default_route(gateway)?;
    }
    Ok((descriptor, request.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        let settings = TunSettings {
            name: Some("an interface's name".into()),
            frames: true,
            mtu: 1500,
            mac: None,
            is_up: false,
            address: None,
            gateway: None,
        };
        assert!(matches!(open_tun(&settings), Err(HostError::Tap { .. })));
    }
}
