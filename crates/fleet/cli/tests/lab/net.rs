//! Network namespaces, in which programs of the host have TAPs of a fabric.
use super::{Running, until};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// Whether TAPs can be created; says so if not.
pub fn can_create_taps() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not run: creating a TAP needs root");
    }
    root
}

/// A network namespace without IPv6, kept by a process that sleeps, and its path.
pub fn namespace() -> (Running, String) {
    let (keeper, path) = namespace6();
    within(&path, "for at in all default; do echo 1 > /proc/sys/net/ipv6/conf/$at/disable_ipv6; done");
    (keeper, path)
}

/// A network namespace, kept by a process that sleeps, and its path.
pub fn namespace6() -> (Running, String) {
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    let mut unshare = Command::new("unshare");
    let keeper = unshare.args(["--net", "--", "sleep", "infinity"]).stdin(Stdio::null()).spawn().unwrap();
    let path = format!("/proc/{}/ns/net", keeper.id());
    let keeper = Running(keeper);
    until("the namespace exists", || std::fs::read_link(&path).is_ok_and(|theirs| theirs != ours));
    (keeper, path)
}

/// A shell in a namespace.
pub fn shell(namespace: &str, script: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.args([&format!("--net={namespace}"), "--", "sh", "-c", script]);
    command
}

/// The output of a script in a namespace.
pub fn within(namespace: &str, script: &str) -> Vec<u8> {
    let output = shell(namespace, script).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The Ethernet address of an interface.
pub fn address(namespace: &str, interface: &str) -> String {
    let text = String::from_utf8(within(namespace, &format!("ip -o link show {interface}"))).unwrap();
    text.split_once("link/ether ").unwrap().1.split(' ').next().unwrap().to_string()
}

/// The section of a TAP in a namespace; its interface has the port's name.
pub fn tap(port: &str, namespace: &str, address: &str) -> String {
    format!(
        "[port.{port}]\nkind = \"tap\"\nnamespace = \"{namespace}\"\ninterface = \"{port}\"\n\
         address = \"{address}\"\n"
    )
}

/// A Python program in a namespace, which answers lines by lines.
pub struct Script {
    _process: Running,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Script {
    pub fn start(namespace: &str, folder: &Path, text: &str, words: &[&str]) -> Script {
        let mut command = Command::new("nsenter");
        command.args([&format!("--net={namespace}"), "--", "python3", "-u", "-c", text]).args(words);
        let mut process = command
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Script { _process: Running(process), to, from: BufReader::new(from) }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    /// What it answers to a line.
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}").unwrap();
        self.line()
    }
}

/// Serves a folder's files by HTTP on port 80; without asking for the host's name, which takes long in a namespace.
const FILES: &str = r#"
import http.server, socket, socketserver, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
server = Server((sys.argv[1], 80), Handler)
print("ready")
server.serve_forever()
"#;

/// An HTTP server of a folder's files in a namespace, which listens.
pub fn file_server(namespace: &str, folder: &Path, address: &str) -> Script {
    let mut server = Script::start(namespace, folder, FILES, &[address]);
    assert_eq!(server.line(), "ready");
    server
}

/// Whether a ping is answered.
pub fn can_ping(from: &str, to: &str, options: &str) -> bool {
    let script = format!("ping -n -c 1 -W 1 {options} {to}");
    let output = shell(from, &script).stdout(Stdio::null()).stderr(Stdio::null()).status();
    output.unwrap().success()
}

/// Sends so many bytes from one host to another by TCP, and checks them.
pub fn stream(from: &str, to: &str, address: &str, folder: &Path, bytes: u32) {
    const SERVER: &str = r#"
import socket, sys, hashlib
server = socket.create_server((sys.argv[1], 7000))
print("ready")
end, _ = server.accept()
digest, count = hashlib.sha256(), 0
while True:
    data = end.recv(1 << 16)
    if not data: break
    digest.update(data); count += len(data)
print(count, digest.hexdigest())
"#;
    const CLIENT: &str = r#"
import socket, sys, hashlib, random
end = socket.create_connection((sys.argv[1], 7000), 20)
data = random.Random(1).randbytes(int(sys.argv[2]))
end.sendall(data)
end.close()
print(len(data), hashlib.sha256(data).hexdigest())
"#;
    let mut server = Script::start(to, folder, SERVER, &[address]);
    assert_eq!(server.line(), "ready");
    let mut client = Script::start(from, folder, CLIENT, &[address, &bytes.to_string()]);
    let sent = client.line();
    assert!(sent.starts_with(&format!("{bytes} ")), "{sent}");
    assert_eq!(server.line(), sent);
}
