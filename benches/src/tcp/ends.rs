//! Two ends of connections: programs with a stack of their own on a switch, and programs on the kernel's.

use crate::Failure;
use crate::peer::net::{Space, ip};
use crate::rig::fabric::{Rig, SWITCH};
use crate::rig::program::connected;
use ringway_port::ring::open::Program;
use ringway_sockets::{Config, Host, Network, RingDevice, RingOptions};
use ringway_spec::{Kind, Port, To};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

/// The server's address on our stack.
pub const SERVER: ([u8; 4], u16) = ([10, 96, 0, 2], 80);
/// The server's address over veth.
pub const VETH: ([u8; 4], u16) = ([10, 97, 0, 2], 80);

/// How long frames wait for a host's full ring: until its program, which may sleep, is scheduled again.
pub const HOLD: u64 = 10_000_000;

/// A connection of either stack.
pub trait Stream: Read + Write + Send {
    /// Ends the sending direction.
    fn finish(&self) -> std::io::Result<()>;
}

impl Stream for TcpStream {
    fn finish(&self) -> std::io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for ringway_sockets::TcpStream {
    fn finish(&self) -> std::io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// The client's and the server's end.
pub type Ends = (Box<dyn Stream>, Box<dyn Stream>);

/// Rings of programs with a stack: frames of 64 KB need many slots.
pub fn ring() -> RingOptions {
    RingOptions {
        slots: [512; 2],
        slot_size: 16_384,
        // For bytes until they are acknowledged: as much as a send buffer has at most.
        extra: 256,
        offloads: true,
        largest: 65_535 + 22,
    }
}

/// A host on a port of the switch, and Ringway's side of its ring.
pub fn host(rig: &mut Rig, last: u8, change: impl Fn(&mut Config)) -> Result<(Host, Program), Failure> {
    let port = Port::new(&format!("host{last}"), Kind::new("ring", &()), Some(To::Switch(SWITCH.into())));
    let port = connected(rig, Port { hold: Some(HOLD), ..port }, ring())?;
    let mut config = Config::new(ringway_sockets::Cidr::new([10, 96, 0, last], 24));
    change(&mut config);
    Ok((Host::new(RingDevice::from(port.ring), config)?, port.program))
}

/// A connection between two networks.
pub fn connect(client: &Network, server: &Network) -> Result<Ends, Failure> {
    let listener = ringway_sockets::TcpListener::bind(server, SocketAddr::from(SERVER))?;
    let stream = ringway_sockets::TcpStream::connect(client, SocketAddr::from(SERVER))?;
    let (accepted, _peer) = listener.accept()?;
    for stream in [&stream, &accepted] {
        stream.set_nodelay(true)?;
    }
    Ok((Box::new(stream), Box::new(accepted)))
}

/// Two namespaces with a veth pair.
pub struct Veth {
    pub spaces: [Space; 2],
}

impl Veth {
    /// Creates them; `offloads`: as the kernel sets them, or none.
    pub fn new(offloads: bool) -> Result<Veth, Failure> {
        let spaces = [Space::new()?, Space::new()?];
        ip("link add veth1 type veth peer name veth2")?;
        for (number, space) in (1..).zip(&spaces) {
            let name = format!("veth{number}");
            space.take_with_cubic(&name, [10, 97, 0, number])?;
            if !offloads {
                let mut command = space.command("ethtool");
                command.args(["-K", &name]);
                command.args(
                    ["tx", "rx", "sg", "tso", "gso", "gro"].iter().flat_map(|feature| [*feature, "off"]),
                );
                command.stdout(Stdio::null()).stderr(Stdio::null());
                // Some features can't be changed on some kernels.
                crate::peer::finish(command.spawn()?, Duration::from_secs(5))?;
            }
        }
        Ok(Veth { spaces })
    }

    /// A listener in the second namespace.
    pub fn listen(&self) -> Result<TcpListener, Failure> {
        self.spaces[1].within(|| Ok(TcpListener::bind(SocketAddr::from(VETH))?))
    }

    /// A connection from the first namespace.
    pub fn connect(&self, listener: &TcpListener) -> Result<(TcpStream, TcpStream), Failure> {
        let client = self.spaces[0].within(|| Ok(TcpStream::connect(SocketAddr::from(VETH))?))?;
        let (server, _peer) = listener.accept()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        Ok((client, server))
    }
}
