//! A Linux bridge with TAP interfaces, for comparison with Ringway.
use ringway_linux_guests::{Attachment, Interface};
use std::io;
use std::process::Command;

/// A bridge and its TAP interfaces, removed when dropped.
pub struct Bridge {
    name: String,
    taps: Vec<String>,
}

impl Bridge {
    /// Creates a bridge `name` (at most 10 bytes) with `count` TAP interfaces. Needs CAP_NET_ADMIN.
    pub fn new(name: &str, count: usize) -> io::Result<Bridge> {
        let taps: Vec<String> = (0..count).map(|index| format!("{name}-t{index}")).collect();
        let bridge = Bridge { name: name.to_string(), taps };
        ip(&["link", "add", name, "type", "bridge"])?;
        // No interface on it sends packets of its own.
        ip(&["link", "set", name, "addrgenmode", "none", "up"])?;
        for tap in &bridge.taps {
            ip(&["tuntap", "add", tap, "mode", "tap", "vnet_hdr"])?;
            ip(&["link", "set", tap, "addrgenmode", "none", "master", name, "up"])?;
        }
        Ok(bridge)
    }

    /// A guest's interface on the TAP interface `index`, with the address 10.99.0.`host`.
    pub fn interface(&self, index: usize, host: u8) -> Interface {
        let interface = self.taps.get(index).cloned().unwrap_or_default();
        let address = Some(format!("10.99.0.{host}/24"));
        // Without this, User-Mode Linux's TAP device has no MAC address.
        let mac = Some(format!("02:00:00:00:01:{host:02x}"));
        Interface { address, mac, ..Interface::new(Attachment::Tap { interface }) }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        for link in self.taps.iter().chain([&self.name]) {
            // An interface that was not created can't be removed.
            let _ = ip(&["link", "delete", link]);
        }
    }
}

fn ip(words: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(words).output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(io::Error::other(format!("ip {}: {stderr}", words.join(" "))))
}
