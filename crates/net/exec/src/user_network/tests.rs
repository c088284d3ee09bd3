use super::*;
use ringway_netstack::congestion::Algorithm;
use ringway_sockets::{Config, Network, TcpStream, UdpSocket};
use rustix::net::sockopt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

const HOST: &str = "198.18.0.1";
const LONG: Option<Duration> = Some(Duration::from_secs(20));

fn config() -> UserNetworkConfig {
    UserNetworkConfig {
        gateways: vec![Cidr::new([198, 18, 0, 1], 30), "fd00::1/64".parse().unwrap()],
        mtu: 1500,
        offloads: true,
        settings: Settings { tcp_congestion_control: Algorithm::Bbr1, ..Settings::default() },
        name_server: Some([192, 0, 2, 53].into()),
        host_loopback: true,
    }
}

/// A program's stack in such a network.
fn network() -> (Network, UserNetwork) {
    let (user_network, device) = UserNetwork::start(config()).unwrap();
    let own: Cidr = "198.18.0.2/30".parse().unwrap();
    let gateways = vec![HOST.parse().unwrap(), "fd00::1".parse().unwrap()];
    let addresses = vec![own, "fd00::2/64".parse().unwrap()];
    let network = Network::new(device, Config { addresses, gateways, ..Config::new(own) }).unwrap();
    (network, user_network)
}

/// A server of the host for one connection, and its port.
fn server<T: Send + 'static>(
    address: &str,
    serve: impl FnOnce(std::net::TcpStream) -> T + Send + 'static,
) -> (JoinHandle<T>, u16) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (std::thread::spawn(move || serve(listener.accept().unwrap().0)), port)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at ^ at >> 8).to_le_bytes()[0]).collect()
}

#[test]
fn bytes_pass_in_both_directions_and_each_direction_s_end_with_them() {
    let (network, user_network) = network();
    for (own, host) in [(HOST, "127.0.0.1"), ("[fd00::1]", "::1")] {
        let (served, port) = server(host, |mut stream| {
            stream.write_all(&bytes(2_000_000)).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got
        });
        let mut stream = TcpStream::connect(&network, format!("{own}:{port}").as_str()).unwrap();
        stream.set_read_timeout(LONG).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got, bytes(2_000_000));
        // This direction goes on after the other one has ended.
        stream.write_all(&bytes(1_000_000)).unwrap();
        drop(stream);
        assert_eq!(served.join().unwrap(), bytes(1_000_000));
    }
    drop(network);
    user_network.finish().unwrap();
}

#[test]
fn what_the_host_refuses_or_resets_the_program_is_told_of() {
    let (network, _user_network) = network();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = TcpStream::connect(&network, format!("{HOST}:{free}").as_str()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let far: SocketAddr = "[2001:db8::1]:9".parse().unwrap();
    if std::net::TcpStream::connect_timeout(&far, Duration::from_secs(1))
        .is_err_and(|error| error.kind() == ErrorKind::NetworkUnreachable)
    {
        let connected = TcpStream::connect_timeout(&network, &far, LONG.unwrap());
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::HostUnreachable);
    } else {
        eprintln!("not run: this machine has a route for IPv6");
    }
    let (served, port) = server("127.0.0.1", |stream| {
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    let mut stream = TcpStream::connect(&network, format!("{HOST}:{port}").as_str()).unwrap();
    served.join().unwrap();
    stream.set_read_timeout(LONG).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_program_s_reset_resets_the_host_s_connection() {
    let (network, _user_network) = network();
    let (served, port) = server("127.0.0.1", |mut stream| {
        stream.write_all(b"unread").unwrap();
        stream.set_read_timeout(LONG).unwrap();
        stream.read(&mut [0; 9]).map_err(|error| error.kind())
    });
    let mut stream = TcpStream::connect(&network, format!("{HOST}:{port}").as_str()).unwrap();
    stream.set_read_timeout(LONG).unwrap();
    // The rest stays unread when the socket is closed.
    stream.read_exact(&mut [0]).unwrap();
    drop(stream);
    assert_eq!(served.join().unwrap(), Err(ErrorKind::ConnectionReset));
}

#[test]
fn a_program_reaches_other_addresses_than_its_gateway_s() {
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = probe.connect("192.0.2.1:9").and_then(|()| probe.local_addr());
    let Some(own) = own.ok().map(|own| own.ip()).filter(|own| !own.is_loopback()) else {
        eprintln!("not run: this machine has no address");
        return;
    };
    let (network, _user_network) = network();
    let (served, port) = server(&own.to_string(), |stream| stream.local_addr().unwrap().ip());
    let stream = TcpStream::connect(&network, (own, port)).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), SocketAddr::new(own, port));
    assert_eq!(served.join().unwrap(), own);
}

#[test]
fn many_connections_are_open_at_once() {
    let (network, _user_network) = network();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("{HOST}:{}", listener.local_addr().unwrap().port());
    let open = |number: u32| {
        let mut stream = TcpStream::connect(&network, address.as_str()).unwrap();
        stream.set_read_timeout(LONG).unwrap();
        stream.write_all(&number.to_le_bytes()).unwrap();
        (stream, listener.accept().unwrap().0)
    };
    let all: Vec<_> = (0..200).map(open).collect();
    for (number, (mut stream, mut served)) in (0_u32..).zip(all) {
        let mut got = [0; 4];
        served.read_exact(&mut got).unwrap();
        served.write_all(&got).unwrap();
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, number.to_le_bytes());
    }
}

#[test]
fn datagrams_of_any_length_reach_the_address_and_come_back_from_it() {
    let (network, _user_network) = network();
    let echo = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = echo.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let mut bytes = [0; 10_000];
        loop {
            let (len, from) = echo.recv_from(&mut bytes).unwrap();
            if len == 1 {
                return;
            }
            echo.send_to(&bytes[..len], from).unwrap();
        }
    });
    let to: SocketAddr = format!("{HOST}:{port}").parse().unwrap();
    let sockets = [0, 1].map(|_| UdpSocket::bind(&network, "0.0.0.0:0").unwrap());
    // The longer ones are in fragments.
    for len in [0, 2, 1400, 1500, 9000] {
        for socket in &sockets {
            socket.set_read_timeout(LONG).unwrap();
            socket.send_to(&bytes(len), to).unwrap();
            let mut got = [0; 10_000];
            let (count, from) = socket.recv_from(&mut got).unwrap();
            assert_eq!((&got[..count], from), (&bytes(len)[..], to));
        }
    }
    sockets[0].send_to(&[0], to).unwrap();
    served.join().unwrap();
}

#[test]
fn what_a_program_has_sent_is_delivered_although_it_has_ended() {
    let (network, user_network) = network();
    let (go, may_read) = std::sync::mpsc::channel::<()>();
    let (served, port) = server("127.0.0.1", move |mut stream| {
        may_read.recv().unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        got
    });
    // More than both of the host's sockets hold, so that a part waits in the network.
    let sent = bytes(6_000_000);
    let mut stream = TcpStream::connect(&network, format!("{HOST}:{port}").as_str()).unwrap();
    let writer = std::thread::spawn(move || {
        stream.write_all(&sent).unwrap();
        drop(stream);
        network.drain(LONG.unwrap()).unwrap();
        drop(network);
        sent
    });
    go.send(()).unwrap();
    let sent = writer.join().unwrap();
    user_network.finish().unwrap();
    assert!(served.join().unwrap() == sent);
}

#[test]
fn addresses_of_the_gateway_lead_to_the_host() {
    let (own, _device) = pair().unwrap();
    let mut gateway = Gateway::new(own, config(), Arc::new(EventFd::new().unwrap())).unwrap();
    for (of_program, of_host) in [
        ("198.18.0.1:80", "127.0.0.1:80"),
        ("[fd00::1]:80", "[::1]:80"),
        ("198.18.0.1:53", "192.0.2.53:53"),
        ("192.0.2.7:53", "192.0.2.7:53"),
    ] {
        let host = gateway.shared.host_address(of_program.parse().unwrap());
        assert_eq!(host, of_host.parse().ok());
    }
    gateway.shared.host_loopback = false;
    for (of_program, of_host) in [
        ("198.18.0.1:80", None),
        ("[fd00::1]:80", None),
        ("198.18.0.1:53", Some("192.0.2.53:53")),
        ("192.0.2.7:80", Some("192.0.2.7:80")),
    ] {
        let host = gateway.shared.host_address(of_program.parse().unwrap());
        assert_eq!(host, of_host.map(|host| host.parse().unwrap()));
    }
    gateway.shared.name_server = None;
    let server = "198.18.0.1:53".parse().unwrap();
    assert_eq!(gateway.shared.host_address(server), None);
    gateway.shared.host_loopback = true;
    assert_eq!(gateway.shared.host_address(server), "127.0.0.1:53".parse().ok());
    let text =
        "# a comment\nsearch example.org\nnameserver fe80::1%eth0\nnameserver  192.0.2.1 # the first\n";
    assert_eq!(name_server_in(text), Some([192, 0, 2, 1].into()));
    assert_eq!(name_server_in("options edns0\n"), None);
}

#[test]
fn any_bytes_are_a_frame() {
    let mut seed = 7_u64;
    for len in 0..2000 {
        let frame: Vec<u8> = (0..len % 120)
            .map(|at| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Often an IP header of either version.
                match at {
                    12 => [0x08, 0x86][usize::from(len % 2 == 0)],
                    13 => [0x00, 0xdd][usize::from(len % 2 == 0)],
                    14 => [0x45, 0x60][usize::from(len % 2 == 0)],
                    _ => (seed >> 56) as u8,
                }
            })
            .collect();
        if let Some(ends) = Ends::of(&frame) {
            assert!(!ends.to.ip().is_multicast() && !ends.to.ip().is_loopback());
        }
    }
}

/// As [`network`], with other limits, and without the host's loopback interface if that is not `open`.
fn limited_network(limits: Limits, open: bool) -> (Network, Arc<EventFd>) {
    let (device, own) = pair().unwrap();
    let stop = Arc::new(EventFd::new().unwrap());
    let config_of = UserNetworkConfig { host_loopback: open, ..config() };
    let mut gateway = Gateway::new(own, config_of, stop.clone()).unwrap();
    gateway.shared.limits = limits;
    std::thread::spawn(move || gateway.run());
    let own: Cidr = "198.18.0.2/30".parse().unwrap();
    let gateways = vec![HOST.parse().unwrap()];
    let network =
        Network::new(device, Config { addresses: vec![own], gateways, ..Config::new(own) }).unwrap();
    (network, stop)
}

#[test]
fn the_host_s_loopback_interface_is_closed_unless_it_is_permitted() {
    let (network, stop) = limited_network(Limits::of(None), false);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to: SocketAddr = format!("{HOST}:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    let refused = TcpStream::connect(&network, to).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let socket = UdpSocket::bind(&network, "0.0.0.0:0").unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(LONG).unwrap();
    socket.send(b"question").unwrap();
    assert_eq!(socket.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    stop.signal();
}

#[test]
fn a_connection_that_nobody_answers_makes_room_and_an_open_one_does_not() {
    let (network, stop) = limited_network(Limits { streams: 1, pairs: 1 }, true);
    // One connection that is not accepted fills the queue of this one, which then answers nobody.
    let silent =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&silent, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    rustix::net::listen(&silent, 0).unwrap();
    let port = SocketAddr::try_from(rustix::net::getsockname(&silent).unwrap()).unwrap().port();
    let _filling = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let late = TcpStream::connect_timeout(
        &network,
        &(HOST.parse::<IpAddr>().unwrap(), port).into(),
        Duration::from_millis(200),
    );
    assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("{HOST}:{}", listener.local_addr().unwrap().port());
    let open = TcpStream::connect(&network, address.as_str()).unwrap();
    let error = TcpStream::connect(&network, address.as_str()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    drop(open);
    stop.signal();
}

#[test]
fn limits_are_a_part_of_the_descriptors() {
    assert_eq!(Limits::of(None), Limits { streams: MAX_STREAMS, pairs: MAX_PAIRS });
    for descriptors in [0, 64, 1024, 20_000, 1 << 20] {
        let limits = Limits::of(Some(descriptors));
        assert!((limits.streams + limits.pairs) as u64 <= descriptors / 4);
        assert!(descriptors < 1024 || limits.streams >= 200 && limits.pairs >= 50);
    }
}

#[test]
fn the_address_that_was_used_last_the_longest_ago_is_forgotten() {
    let (own, _device) = pair().unwrap();
    let mut gateway = Gateway::new(own, config(), Arc::new(EventFd::new().unwrap())).unwrap();
    let to = |number: u32| {
        SocketAddr::from((Ipv4Addr::from(0xc000_0200 + (number >> 8)), 1 + number as u16 % 256))
    };
    let Gateway { datagrams, shared, .. } = &mut gateway;
    (0..3000).for_each(|number| {
        datagrams.bind(shared, to(0));
        datagrams.bind(shared, to(number));
    });
    assert!(datagrams.is_bound(to(0)) && datagrams.is_bound(to(2999)) && !datagrams.is_bound(to(1)));
}
