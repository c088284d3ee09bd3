//! The echo example: server and client are programs on a pipe, with 64 KB frames between them.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../examples/echo.rs"]
mod echo;

use echo::Host;
use ringway_client::RingError;
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::RingListener;
use ringway_ring::Geometry;
use ringway_tcp::Cidr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread::JoinHandle;

/// Starts a program on the pipe.
fn program(listener: &mut RingListener, pipe: &mut Pipe, last: u8) -> JoinHandle<Result<Host, RingError>> {
    let path = PathBuf::from(listener.path());
    let host = std::thread::spawn(move || Host::connect(&path, Cidr::new([10, 0, 0, last], 24)));
    let mut newcomer = loop {
        ringway_host::wait_readable(&[listener.as_fd()], None).unwrap();
        if let Some(newcomer) = listener.accept().unwrap() {
            break newcomer;
        }
    };
    let hello = loop {
        ringway_host::wait_readable(&[newcomer.as_fd()], None).unwrap();
        if let Some(hello) = newcomer.hello().unwrap() {
            break hello;
        }
    };
    pipe.join(newcomer, hello).unwrap();
    host
}

#[test]
fn a_stream_comes_back_through_the_echo_server() {
    const LEN: u64 = 8 << 20;
    let path = std::env::temp_dir().join(format!("ringway-tcp-echo-{}", std::process::id()));
    let mut listener = RingListener::bind(&path, Default::default()).unwrap();
    let mut pipe = Pipe::new(Geometry::default());
    let hosts = [1, 2].map(|last| program(&mut listener, &mut pipe, last));
    let [mut client, server] = hosts.map(|host| host.join().unwrap().unwrap());
    // The server's thread ends with the test.
    std::thread::spawn(move || echo::serve(server, 7).map_err(|error| error.to_string()));
    let socket = client.stack.connect(client.now(), "10.0.0.2:7".parse().unwrap()).unwrap();
    let (mut sent, mut read) = (0, 0);
    while read < LEN {
        let now = client.now();
        sent = common::fill(&mut client.stack, now, socket, sent, LEN);
        read = common::drain(&mut client.stack, now, socket, read);
        assert_eq!(client.stack.error(socket), Ok(None));
        if read < LEN {
            client.turn().unwrap();
        }
    }
    let info = client.stack.info(socket).unwrap();
    assert!(info.tcpi_segs_in < LEN / 1448, "frames are unsegmented: {} for {LEN} bytes", info.tcpi_segs_in);
}
