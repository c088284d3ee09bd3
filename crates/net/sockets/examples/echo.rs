//! A TCP echo server on a ring port or a pipe, a thread for each connection: `echo PATH ADDRESS/PREFIX PORT`.

use ringway_sockets::{Config, Network, RingDevice, TcpListener};

#[allow(dead_code, reason = "the test includes this file")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, address, port] = &arguments[..] else {
        return Err("usage: echo PATH ADDRESS/PREFIX PORT".into());
    };
    let network = Network::new(RingDevice::connect(path.as_ref())?, Config::new(address.parse()?))?;
    Ok(serve(&TcpListener::bind(&network, ("0.0.0.0", port.parse()?))?)?)
}

/// Serves connections until the ring closes.
pub fn serve(listener: &TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, _peer) = listener.accept()?;
        // The thread ends with the connection.
        std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
    }
}
