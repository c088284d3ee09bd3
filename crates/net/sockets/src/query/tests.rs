use super::client::add;
use super::*;
use crate::{Config, Network, TcpListener, TcpStream, UdpSocket, pair};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("ringway-query-{name}-{}", std::process::id())))
    }

    fn path(&self) -> PathBuf {
        self.0.join("web.stack")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn about() -> About {
    About { program: "web".into(), process: 7, addresses: vec!["10.0.0.1/24".into()] }
}

/// Two joined networks, the first of which is offered.
fn offered(folder: &Folder) -> (Network, Network, Server) {
    let (one, two) = pair().unwrap();
    let config = |last: u8| Config::new(crate::Cidr::new([10, 0, 0, last], 24));
    let gateways = vec!["10.0.0.254".parse().unwrap()];
    let web = Network::new(one, Config { gateways, ..config(1) }).unwrap();
    let other = Network::new(two, config(2)).unwrap();
    let server = web.offer(&folder.path(), about()).unwrap();
    (web, other, server)
}

#[test]
fn a_network_s_tables_are_those_of_its_sockets() {
    let folder = Folder::new("tables");
    let (web, other, _server) = offered(&folder);
    let listener = TcpListener::bind(&web, "0.0.0.0:80").unwrap();
    let _datagrams = UdpSocket::bind(&web, "10.0.0.1:53").unwrap();
    let mut stream = TcpStream::connect(&other, "10.0.0.1:80").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(b"hello").unwrap();
    accepted.read_exact(&mut [0; 3]).unwrap();

    let mut client = Client::connect(&folder.path()).unwrap();
    assert_eq!(client.ask(&Request::About).unwrap(), Reply::About(about()));
    let mut sockets = client.sockets().unwrap();
    sockets.sort_by(|one, other| (&one.netid, &one.state).cmp(&(&other.netid, &other.state)));
    let shown: Vec<String> = sockets
        .iter()
        .map(|socket| {
            let Socket { netid, state, recv_q, local, .. } = socket;
            format!("{netid} {state} {recv_q} {local}")
        })
        .collect();
    assert_eq!(shown, ["tcp ESTAB 2 10.0.0.1:80", "tcp LISTEN 0 0.0.0.0:80", "udp UNCONN 0 10.0.0.1:53"]);
    let info = sockets[0].info.as_ref().unwrap();
    assert_eq!((info.tcpi_bytes_received, &*sockets[0].cong_alg), (5, "cubic"));

    let counters = client.counters().unwrap();
    let tcp = &counters["Tcp"];
    assert_eq!((tcp["PassiveOpens"], tcp["ActiveOpens"], tcp["CurrEstab"]), (1, 0, 1));
    assert!(tcp["InSegs"] >= 3 && tcp["OutSegs"] >= 1, "{tcp:?}");
    let Reply::Routes(routes) = client.ask(&Request::Routes).unwrap() else { panic!("no routes") };
    let routes: Vec<_> = routes.iter().map(|route| (&*route.dst, route.gateway.as_deref())).collect();
    assert_eq!(routes, [("10.0.0.0/24", None), ("default", Some("10.0.0.254"))]);
    let Reply::Neighbors(neighbors) = client.ask(&Request::Neighbors).unwrap() else { panic!("none") };
    assert_eq!((&*neighbors[0].dst, &*neighbors[0].state), ("10.0.0.2", "REACHABLE"));
    let Reply::Sysctls(all) = client.ask(&Request::Sysctls).unwrap() else { panic!("none") };
    assert!(all.contains(&("net.ipv4.tcp_sack".into(), "1".into())), "{all:?}");
}

#[test]
fn attempts_that_fail_and_connections_that_are_reset_are_counted() {
    let folder = Folder::new("ends");
    let (web, other, _server) = offered(&folder);
    assert_eq!(TcpStream::connect(&web, "10.0.0.2:81").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let listener = TcpListener::bind(&web, "0.0.0.0:80").unwrap();
    let mut stream = TcpStream::connect(&other, "10.0.0.1:80").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.write_all(b"two").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    // A peer that closes with unread bytes resets the connection.
    drop(stream);
    assert_eq!(accepted.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let counters = Client::connect(&folder.path()).unwrap().counters().unwrap();
    let tcp = &counters["Tcp"];
    let names = ["ActiveOpens", "PassiveOpens", "AttemptFails", "EstabResets", "CurrEstab"];
    assert_eq!(names.map(|name| tcp[name]), [1, 1, 1, 1, 0]);
}

#[test]
fn a_trace_outlives_its_connection() {
    let folder = Folder::new("trace");
    let (web, other, _server) = offered(&folder);
    let listener = TcpListener::bind(&web, "0.0.0.0:80").unwrap();
    let mut stream = TcpStream::connect(&other, "10.0.0.1:80").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let mut client = Client::connect(&folder.path()).unwrap();
    let id = client.sockets().unwrap().into_iter().find(|socket| socket.info.is_some()).unwrap().id;
    assert_eq!(client.ask(&Request::Record(id, 100)).unwrap(), Reply::Recording);
    accepted.write_all(b"hello").unwrap();
    web.drain(std::time::Duration::from_secs(10)).unwrap();
    let mut trace = |format| match client.ask(&Request::Trace(id, format)).unwrap() {
        Reply::Trace { text, ended } => (text, ended),
        reply => panic!("{reply:?}"),
    };
    let (csv, ended) = trace(Format::Csv);
    assert!(!ended && csv.lines().count() > 1, "{csv}");
    assert!(trace(Format::Svg).0.starts_with("<svg"));
    // The peer closes first; then the handle is another one until the peer has acknowledged that, too.
    stream.read_exact(&mut [0; 5]).unwrap();
    drop(stream);
    assert_eq!(accepted.read(&mut [0; 9]).unwrap(), 0);
    drop(accepted);
    let last = loop {
        let (last, ended) = trace(Format::Csv);
        if ended {
            break last;
        }
        std::thread::yield_now();
    };
    assert!(last.starts_with(&csv), "{last}");
    let gone = client.ask(&Request::Record(id, 100)).unwrap_err();
    assert_eq!(gone.to_string(), "there is no such connection any more");
}

#[test]
fn the_socket_is_its_user_s_and_one_program_has_a_name() {
    let folder = Folder::new("name");
    let (web, _other, server) = offered(&folder);
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(folder.path()), mode(folder.0.clone())), (0o600, 0o700));
    assert_eq!(web.offer(&folder.path(), about()).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(server);
    assert!(!folder.path().exists());
    // What a program left that was killed is no obstacle.
    drop(std::os::unix::net::UnixListener::bind(folder.path()).unwrap());
    let _again = web.offer(&folder.path(), about()).unwrap();
    assert!(Client::connect(&folder.path()).unwrap().ask(&Request::About).is_ok());
}

#[test]
fn a_client_that_asks_nonsense_is_told_and_a_long_question_ends_the_conversation() {
    let folder = Folder::new("nonsense");
    let (_web, _other, _server) = offered(&folder);
    let mut stream = UnixStream::connect(folder.path()).unwrap();
    stream.write_all(b"{\"Sockets\":-1}\n").unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"Error\":\"not a question: "), "{line}");
    // The server may have closed it before all was written.
    let _ = stream.write_all(&[b'x'; 5000]);
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    assert!(
        rest.is_empty() && read.map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true)
    );
    let mut client = Client::connect(&folder.path()).unwrap();
    let far = client.ask(&Request::Sockets(usize::MAX)).unwrap();
    assert_eq!(far, Reply::Sockets { sockets: vec![], next: None });
}

#[test]
fn counters_have_those_of_open_connections() {
    let info = Info { tcpi_segs_out: 10, tcpi_total_retrans: 2, ..Info::default() };
    let socket = |state: &str, info: Option<Info>| Socket {
        id: 0,
        netid: "tcp".into(),
        state: state.into(),
        recv_q: 0,
        send_q: 0,
        local: String::new(),
        peer: String::new(),
        cong_alg: String::new(),
        mode: String::new(),
        info,
    };
    let mut counters = Counters::new();
    counters.entry("Tcp".into()).or_default().insert("OutSegs".into(), 5);
    let sockets = ["ESTAB", "TIME-WAIT", "CLOSE-WAIT"].map(|state| socket(state, Some(info.clone())));
    add(&mut counters, &sockets);
    add(&mut counters, &[socket("LISTEN", None)]);
    let tcp = &counters["Tcp"];
    assert_eq!((tcp["OutSegs"], tcp["RetransSegs"], tcp["CurrEstab"]), (29, 6, 2));
}
