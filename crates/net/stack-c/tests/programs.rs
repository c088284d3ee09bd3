//! Programs in C and Python on the library, on a pipe.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]

use ringway_port::pipe::Pipe;
use ringway_port::ring::open::RingListener;
use ringway_ring::Geometry;
use ringway_sockets::{Config, Network, RingDevice, TcpListener};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

const LEN: usize = 3 << 20;
/// After this a program that has not connected never will.
const BOUND: Option<u64> = Some(300_000_000_000);

fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at * 7 % 251) as u8).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The library's Makefile, with what cargo has built for this test.
fn make(out: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libringway_stack-") && name.ends_with(".a")
    };
    let files = own.parent().unwrap().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let newest = files.filter(is_library).max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    let mut make = Command::new("make");
    make.arg("-C").arg(root().join("clients/stack")).args(["CARGO=true", "MAKEFLAGS="]);
    make.args([format!("OUT={}", out.display()), format!("BUILT={}", newest.unwrap().display())]);
    make
}

/// The folder of the library and the examples, built once by their Makefile.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stack-c");
        std::fs::create_dir_all(&folder).unwrap();
        succeeded(make(&folder).output().unwrap());
        folder
    })
}

fn succeeded(output: Output) -> Output {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text[..text.len().min(2000)]).into_owned();
    assert!(output.status.success() && !text.contains("warning:"), "{:?}: {text}", output.status);
    output
}

/// A pipe, and its socket.
struct Line {
    listener: RingListener,
    pipe: Pipe,
}

impl Line {
    fn new(name: &str) -> Line {
        let path = std::env::temp_dir().join(format!("ringway-stack-c-{name}-{}", std::process::id()));
        let listener = RingListener::bind(&path, Default::default()).unwrap();
        Line { listener, pipe: Pipe::new(Geometry::default()) }
    }

    /// Lets the next program in. Both ends of the pipe go on when the second is there, so that a client may come before
    /// its server listens.
    fn admit(&mut self) {
        let (newcomer, hello) = self.listener.wait(BOUND).expect("a program did not connect");
        self.pipe.join(newcomer, hello).unwrap();
    }

    /// Starts a program whose first argument is the pipe's socket.
    fn start(&mut self, mut command: Command, words: &[&str]) -> Child {
        command.arg(self.listener.path()).args(words).stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        self.admit();
        child
    }

    fn network(&mut self, last: u8) -> Network {
        let path = PathBuf::from(self.listener.path());
        let config = Config::new(format!("10.0.0.{last}/24").parse().unwrap());
        let opens = std::thread::spawn(move || Network::new(RingDevice::connect(&path)?, config));
        self.admit();
        opens.join().unwrap().unwrap()
    }
}

/// Passes bytes to a program's standard input; what it wrote.
fn exchange(mut child: Child, bytes: &[u8]) -> Output {
    let mut input = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).unwrap());
        succeeded(child.wait_with_output().unwrap())
    })
}

#[test]
fn a_client_and_a_server_in_c_exchange_bytes() {
    let mut line = Line::new("both");
    let server = line.start(Command::new(built().join("server")), &["10.0.0.2/24", "1"]);
    let client = line.start(Command::new(built().join("client")), &["10.0.0.1/24", "10.0.0.2"]);
    assert!(exchange(client, &content()).stdout == content());
    succeeded(server.wait_with_output().unwrap());
}

#[test]
fn a_client_in_c_exchanges_bytes_with_a_server_in_rust() {
    let mut line = Line::new("client");
    let client = line.start(Command::new(built().join("client")), &["10.0.0.1/24", "10.0.0.2"]);
    let network = line.network(2);
    let listener = TcpListener::bind(&network, "0.0.0.0:7").unwrap();
    let serves = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 5000];
        let mut all = Vec::new();
        loop {
            let count = stream.read(&mut bytes).unwrap();
            if count == 0 {
                return all;
            }
            all.extend_from_slice(&bytes[..count]);
            stream.write_all(&bytes[..count]).unwrap();
        }
    });
    assert!(exchange(client, &content()).stdout == content());
    assert!(serves.join().unwrap() == content());
}

#[test]
fn the_page_shows_the_example() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let client = read("clients/stack/examples/client.c");
    assert!(read("docs/stack.md").contains(&format!("```c\n{client}```")));
}

#[test]
fn wrong_calls_are_errors_and_right_ones_go_on() {
    let program = built().join("hostile");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-pthread", "-Wl,-rpath,$ORIGIN", "-w"]);
    cc.arg("-I").arg(root().join("clients/stack")).arg("-o").arg(&program).arg(source);
    succeeded(cc.arg("-L").arg(built()).arg("-lringway-stack").output().unwrap());
    let mut line = Line::new("hostile");
    let child = line.start(Command::new(program), &[]);
    let _peer = line.network(2);
    let output = exchange(child, &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
}

#[test]
fn the_library_is_installed_with_a_version_and_found_by_pkg_config() {
    // Not where other tests use the library, since it is linked again.
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stack-c-installed");
    let folder = built.join("root");
    std::fs::create_dir_all(&folder).unwrap();
    let mut install = make(&built);
    install.args(["install".into(), "PREFIX=/usr".into(), format!("DESTDIR={}", folder.display())]);
    succeeded(install.output().unwrap());
    let described = std::fs::read_to_string(folder.join("usr/lib/pkgconfig/ringway-stack.pc")).unwrap();
    assert!(described.starts_with("prefix=/usr\n") && described.contains("-lringway-stack"), "{described}");
    let named = std::fs::read_link(folder.join("usr/lib/libringway-stack.so")).unwrap();
    assert_eq!(named, Path::new("libringway-stack.so.0"));
    // Every function of the header is exported with its version, and nothing else is.
    let library = folder.join("usr/lib/libringway-stack.so.0");
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    let symbols = String::from_utf8(succeeded(symbols).stdout).unwrap();
    let exported: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains(" T "))
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    let header = std::fs::read_to_string(folder.join("usr/include/ringway-stack.h")).unwrap();
    for name in &exported {
        let (name, version) = name.split_once("@@").unwrap();
        assert!(version == "RINGWAY_STACK_0" && header.contains(&format!("{name}(")), "{name}@@{version}");
    }
    assert_eq!(exported.len(), header.lines().filter(|line| is_declaration(line)).count());
}

fn is_declaration(line: &str) -> bool {
    ["int ", "ssize_t ", "const char *"]
        .iter()
        .any(|kind| line.strip_prefix(kind).is_some_and(|rest| rest.starts_with("ringway_")))
}

#[test]
fn python_exchanges_bytes_with_itself_and_with_c() {
    let script = root().join("python/tests/stack_sockets.py");
    let python = || {
        let mut command = Command::new("python3");
        command.arg(&script).env("RINGWAY_STACK_LIBRARY", built().join("libringway-stack.so.0"));
        command.env("PYTHONPATH", root().join("python"));
        command
    };
    let mut line = Line::new("python");
    let server = line.start(Command::new(built().join("server")), &["10.0.0.2/24", "2"]);
    let output = exchange(line.start(python(), &["10.0.0.1/24", "10.0.0.2"]), &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("\nOK\n"), "{output:?}");
    succeeded(server.wait_with_output().unwrap());
}
