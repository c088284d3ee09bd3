//! nginx servers behind the load balancer come, are drained, leave and crash during downloads; no download breaks but
//! those of a server that crashes.
use super::{function, read};
use crate::lab::net::{Script, can_create_taps, namespace, shell, tap, within};
use crate::lab::{Lab, at_once, until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Bytes of the file: much more than is under way in a connection.
const BYTES: usize = 2_000_000;

/// `open NAME N` begins N downloads and reads a part of each; `step NAME` reads a part more; both print the servers in
/// the order of the downloads. `finish NAME` reads the rest, and prints a line of their servers, each with `whole`, or
/// `broken`. `new N` fetches a short file N times and prints each server once.
const CLIENT: &str = r#"
import hashlib, random, socket, sys
FILE = hashlib.sha256(random.Random(1).randbytes(int(sys.argv[1]))).digest()
class Download:
    def __init__(self, path):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.socket.settimeout(60)
        self.socket.connect(("192.0.2.80", 80))
        self.socket.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            part = self.socket.recv(4096)
            if not part:
                raise EOFError(data)
            data += part
        head, body = data.split(b"\r\n\r\n", 1)
        lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        self.server, self.left = lines[b"X-Server"].decode(), int(lines[b"Content-Length"])
        self.hash = hashlib.sha256()
        self.take(body)
    def take(self, data):
        self.hash.update(data)
        self.left -= len(data)
    def read(self, count):
        end = max(self.left - count, 0)
        while self.left > end:
            data = self.socket.recv(min(self.left - end, 1 << 16))
            if not data:
                raise EOFError
            self.take(data)
    def finish(self):
        try:
            self.read(self.left)
            return "whole" if self.hash.digest() == FILE else "damaged"
        except (OSError, EOFError):
            return "broken"
sets = {}
for line in sys.stdin:
    word, *rest = line.split()
    if word == "new":
        names = set()
        for _ in range(int(rest[0])):
            short = Download("/short")
            short.read(short.left)
            names.add(short.server)
        print(" ".join(sorted(names)))
        continue
    if word == "open":
        sets[rest[0]] = [Download("/file") for _ in range(int(rest[1]))]
    own = sets[rest[0]]
    if word == "finish":
        print(" ".join(f"{one.server}:{one.finish()}" for one in own))
        continue
    for one in own:
        one.read(100000)
    print(" ".join(one.server for one in own))
"#;

/// An nginx in a namespace, with its processes as a group.
struct Nginx(Child);

impl Nginx {
    fn start(lab: &Lab, namespace: &str, number: usize) -> Nginx {
        let folder = lab.folder.join(format!("nginx{number}"));
        std::fs::create_dir_all(folder.join("logs")).unwrap();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {};", folder.join(kind).display()));
        let text = format!(
            "daemon off; user root; worker_processes 1; pid {0}/pid; error_log {0}/logs/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; send_timeout 600s; {1}\n\
             server {{ listen 10.0.0.1{number}:80 sndbuf=64k; root {2}; limit_rate 2m;\n\
             add_header X-Server 10.0.0.1{number}; }} }}\n",
            folder.display(),
            temporary.join(" "),
            lab.folder.join("files").display()
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        // A group of its own, for a crash of all its processes; the signal ends them all if the test is interrupted.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "nsenter"]);
        command.arg(format!("--net={namespace}")).args(["--", "nginx", "-p"]).arg(&folder);
        command.arg("-c").arg(&file).arg("-e").arg(folder.join("logs/error.log"));
        let nginx = Nginx(command.stdin(Stdio::null()).process_group(0).spawn().unwrap());
        let listens = format!("ss -ltn | grep -q 10.0.0.1{number}:80");
        until("nginx listens", || shell(namespace, &listens).status().is_ok_and(|status| status.success()));
        nginx
    }

    fn process(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// As `nginx -s quit`: it accepts no more connections, and ends after the last one.
    fn quit(&self) {
        kill_process(self.process(), Signal::QUIT).unwrap();
    }
}

impl Drop for Nginx {
    /// A crash.
    fn drop(&mut self) {
        // Its processes may have ended already.
        let _ = kill_process_group(self.process(), Signal::KILL);
        let _ = self.0.wait();
    }
}

struct Site {
    lab: Lab,
    namespaces: Vec<String>,
    client: Script,
}

impl Site {
    fn new(isolation: &str, namespaces: Vec<String>) -> Site {
        let mut file = format!(
            "[switch.inner]\n[patch.outer]\nports = [\"outside\", \"client\"]\n{}{}",
            function("lb", isolation, "switch = \"inner\"\n", ""),
            tap("client", &namespaces[0], "192.0.2.9/24")
        );
        for (number, namespace) in namespaces.iter().enumerate().skip(1) {
            file += &tap(&format!("server{number}"), namespace, &format!("10.0.0.1{number}/24"));
            file += "switch = \"inner\"\n";
        }
        let lab = Lab::new(&format!("nginx-{isolation}"), &file);
        lab.ok(&["up", "lab.toml", "--detach"]);
        let ports = ["client", "server1", "server2", "server3", "inside", "outside"];
        until("the ports are up", || ports.iter().all(|port| lab.state(port) == "up"));
        for namespace in &namespaces[1..] {
            within(namespace, "ip route add default via 10.0.0.1; ip link set lo up");
        }
        let files = lab.folder.join("files");
        std::fs::create_dir_all(&files).unwrap();
        std::fs::write(files.join("short"), "short").unwrap();
        let make = format!(
            "import random; open('{}', 'wb').write(random.Random(1).randbytes({BYTES}))",
            files.join("file").display()
        );
        assert!(Command::new("python3").args(["-c", &make]).status().unwrap().success());
        let client = Script::start(&namespaces[0], &lab.folder, CLIENT, &[&BYTES.to_string()]);
        Site { lab, namespaces, client }
    }

    fn nginx(&self, number: usize) -> Nginx {
        Nginx::start(&self.lab, &self.namespaces[number], number)
    }

    fn write(&self, handler: &str, value: &str) {
        self.lab.ok(&["function", "write", "lb", &format!("balancer.{handler}"), value]);
    }

    /// Waits until a server has a state.
    fn wait(&self, number: usize, state: &str) {
        let line = format!("10.0.0.1{number}\t1\t{state}\t");
        until(&line, || read(&self.lab, "lb", "balancer.servers").contains(&line));
    }

    /// The servers that new connections get.
    fn chosen(&mut self) -> BTreeSet<String> {
        self.client.ask("new 30").split(' ').map(String::from).collect()
    }
}

fn servers(numbers: &[usize]) -> BTreeSet<String> {
    numbers.iter().map(|number| format!("10.0.0.1{number}")).collect()
}

#[test]
fn nginx_servers_come_and_go_and_downloads_go_on() {
    if !can_create_taps() {
        return;
    }
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        eprintln!("not run: nginx is not installed");
        return;
    }
    at_once(downloads_go_on);
}

fn downloads_go_on(isolation: &str) {
    let (_keepers, namespaces): (Vec<_>, Vec<_>) = (0..4).map(|_| namespace()).unzip();
    let mut site = Site::new(isolation, namespaces);
    site.write("add", "10.0.0.12 1");
    let (_one, two) = (site.nginx(1), site.nginx(2));
    (1..3).for_each(|number| site.wait(number, "up"));
    until("both get connections", || site.chosen() == servers(&[1, 2]));
    let begun = site.client.ask("open first 16");
    let names: BTreeSet<String> = begun.split(' ').map(String::from).collect();
    assert_eq!(names, servers(&[1, 2]), "{isolation}");

    // A server comes; one is drained.
    let three = site.nginx(3);
    site.write("add", "10.0.0.13 1");
    until("the new server gets connections", || site.chosen() == servers(&[1, 2, 3]));
    assert_eq!(site.client.ask("step first"), begun, "{isolation}");
    site.write("drain", "10.0.0.11");
    assert_eq!(site.chosen(), servers(&[2, 3]), "{isolation}");
    assert_eq!(site.client.ask("step first"), begun, "{isolation}");

    // One leaves, and serves its downloads to the end. Its successor comes meanwhile.
    two.quit();
    site.wait(2, "down");
    assert_eq!(site.chosen(), servers(&[3]), "{isolation}");
    assert_eq!(site.client.ask("step first"), begun, "{isolation}");
    let _successor = site.nginx(2);
    site.wait(2, "up");
    until("the successor gets connections", || site.chosen() == servers(&[2, 3]));

    // One crashes. Its own downloads can't go on; all others do.
    let second = site.client.ask("open second 16");
    let names: BTreeSet<String> = second.split(' ').map(String::from).collect();
    assert_eq!(names, servers(&[2, 3]), "{isolation}");
    drop(three);
    site.wait(3, "down");
    assert_eq!(site.chosen(), servers(&[2]), "{isolation}");
    let whole =
        |names: &str| names.split(' ').map(|name| format!("{name}:whole")).collect::<Vec<_>>().join(" ");
    assert_eq!(site.client.ask("finish first"), whole(&begun), "{isolation}");
    let expected = whole(&second).replace("10.0.0.13:whole", "10.0.0.13:broken");
    assert_eq!(site.client.ask("finish second"), expected, "{isolation}");
    assert_eq!(read(&site.lab, "lb", "balancer.evictions"), "0");
}
