//! The examples, as programs on a pipe or on a pair in memory, and the page that shows one.
#![allow(clippy::unwrap_used)]

#[path = "../examples/dns.rs"]
mod dns;
#[path = "../examples/echo.rs"]
mod echo;
#[path = "../examples/files.rs"]
mod files;

use ringway_port::pipe::Pipe;
use ringway_port::ring::open::RingListener;
use ringway_ring::Geometry;
use ringway_sockets::{Config, DeviceError, Network, RingDevice, TcpListener, TcpStream, UdpSocket, pair};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

fn config(last: u8) -> Config {
    Config::new(format!("10.0.0.{last}/24").parse().unwrap())
}

fn networks() -> [Network; 2] {
    let (one, two) = pair().unwrap();
    [Network::new(one, config(1)).unwrap(), Network::new(two, config(2)).unwrap()]
}

/// Starts a program on the pipe.
fn program(listener: &RingListener, pipe: &mut Pipe, last: u8) -> JoinHandle<Result<Network, DeviceError>> {
    let path = PathBuf::from(listener.path());
    let network = std::thread::spawn(move || Network::new(RingDevice::connect(&path)?, config(last)));
    let (newcomer, hello) = listener.wait(None).unwrap();
    pipe.join(newcomer, hello).unwrap();
    network
}

#[test]
fn a_stream_comes_back_through_the_echo_server() {
    const LEN: usize = 8 << 20;
    let path = std::env::temp_dir().join(format!("ringway-sockets-echo-{}", std::process::id()));
    let listener = RingListener::bind(&path, Default::default()).unwrap();
    let mut pipe = Pipe::new(Geometry::default());
    let programs = [1, 2].map(|last| program(&listener, &mut pipe, last));
    let [client, server] = programs.map(|program| program.join().unwrap().unwrap());
    let echo = TcpListener::bind(&server, "0.0.0.0:7").unwrap();
    // The server's thread ends with the pipe.
    std::thread::spawn(move || echo::serve(&echo));
    let stream = TcpStream::connect(&client, "10.0.0.2:7").unwrap();
    let sent: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(&sent).unwrap());
        let mut received = vec![0; LEN];
        (&stream).read_exact(&mut received).unwrap();
        assert!(received == sent);
    });
    let segments = stream.info().unwrap().tcpi_segs_in;
    assert!(segments < LEN as u64 / 1448, "frames are unsegmented: {segments} for {LEN} bytes");
}

fn fetch(client: &Network, name: &str) -> String {
    let mut stream = TcpStream::connect(client, "10.0.0.2:80").unwrap();
    write!(stream, "GET {name} HTTP/1.0\r\nHost: any\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_file_server_sends_files_of_its_folder_only() {
    let folder = std::env::temp_dir().join(format!("ringway-sockets-files-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("public")).unwrap();
    std::fs::write(folder.join("secret"), "not for all").unwrap();
    let content = "line\n".repeat(100_000);
    std::fs::write(folder.join("public/lines"), &content).unwrap();
    let [client, server] = networks();
    let listener = TcpListener::bind(&server, "0.0.0.0:80").unwrap();
    let public = folder.join("public");
    std::thread::spawn(move || files::serve(&listener, &public));
    let answer = fetch(&client, "/lines");
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\nContent-Length: 500000\r\n"), "{}", &answer[..60]);
    assert!(answer.ends_with(&content));
    for name in ["/../secret", "/none", "/", "//etc/passwd"] {
        assert!(fetch(&client, name).starts_with("HTTP/1.0 404"), "{name}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_dns_client_reads_the_addresses_of_an_answer() {
    let [client, server] = networks();
    let socket = UdpSocket::bind(&server, "10.0.0.2:53").unwrap();
    let answering = std::thread::spawn(move || {
        let mut query = [0; 512];
        let (len, from) = socket.recv_from(&mut query).unwrap();
        assert_eq!(&query[12..len], b"\x03www\x07example\0\0\x01\0\x01");
        let mut answer = query[..len].to_vec();
        // A response with a CNAME and two addresses; names are pointers to the question.
        (answer[2], answer[3], answer[7]) = (0x81, 0x80, 3);
        answer.extend_from_slice(b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01a\xc0\x0c");
        answer.extend_from_slice(b"\x01a\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x0a\x01\x02\x03");
        answer.extend_from_slice(b"\x01a\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x0a\x01\x02\x04");
        socket.send_to(&answer, from).unwrap();
    });
    let found = dns::resolve(&client, [10, 0, 0, 2].into(), "www.example").unwrap();
    assert_eq!(found, [[10, 1, 2, 3].into(), [10, 1, 2, 4].into()] as [std::net::Ipv4Addr; 2]);
    answering.join().unwrap();
}

#[test]
fn the_page_shows_the_http_server() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../../docs/stack.md")).unwrap();
    let example = std::fs::read_to_string(root.join("examples/http.rs")).unwrap();
    let (_, code) = example.split_once('\n').unwrap();
    assert!(page.contains(code), "docs/stack.md must show examples/http.rs:\n{code}");
    assert!(code.lines().filter(|line| !line.is_empty()).count() <= 20, "it has 20 lines");
}

/// The block of the page's first project, and its program, are a project that builds beside a clone.
#[test]
fn the_project_of_the_page_builds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../../docs/stack.md")).unwrap();
    let (_, block) = page.split_once("```toml\n[package]\n").unwrap();
    let manifest = format!("[package]\n{}", block.split_once("```").unwrap().0);
    let path = "path = \"../ringway/crates/net/sockets\"";
    assert!(manifest.contains(path), "{manifest}");
    let folder = std::env::temp_dir().join(format!("ringway-sockets-project-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let own = format!("path = \"{}\"", root.display());
    std::fs::write(folder.join("Cargo.toml"), manifest.replace(path, &own)).unwrap();
    // The versions that this workspace has fetched.
    std::fs::copy(root.join("../../../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    std::fs::copy(root.join("examples/http.rs"), folder.join("src/main.rs")).unwrap();
    let target = root.join("../../../target/stack-project");
    let check = std::process::Command::new(env!("CARGO"))
        .args(["check", "--offline", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
}
