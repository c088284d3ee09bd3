//! HTTP servers behind the load balancer come and go; no connection breaks.
use super::{function, read};
use crate::lab::net::{Script, can_create_taps, namespace, tap, within};
use crate::lab::{Lab, at_once, until};
use std::collections::BTreeSet;

/// An HTTP server that answers by its name, on persistent connections. After the line `leave` it accepts no more
/// connections, and serves those that it has.
const SERVER: &str = r#"
import http.server, socketserver, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        name = sys.argv[1].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(name)))
        self.end_headers()
        self.wfile.write(name)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    block_on_close = False
    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
server = Server((sys.argv[1], 80), Handler)
threading.Thread(target=server.serve_forever).start()
print("ready")
for line in sys.stdin:
    server.shutdown()
    server.server_close()
    print("gone")
"#;

/// A client. `open N` opens N connections and keeps them, `kept` asks on each of them; both print the names of the
/// servers in the order of the connections. `new N` opens N connections one after the other, closes them, and prints
/// each server once.
const CLIENT: &str = r#"
import http.client, sys
def connect():
    return http.client.HTTPConnection("192.0.2.80", 80, timeout=20)
def ask(connection):
    connection.request("GET", "/")
    socket = connection.sock
    answer = connection.getresponse().read().decode()
    return answer if connection.sock is socket else "closed"
kept = []
for line in sys.stdin:
    word, *count = line.split()
    if word == "open":
        kept = [connect() for _ in range(int(count[0]))]
    if word == "new":
        names = set()
        for _ in range(int(count[0])):
            connection = connect()
            names.add(ask(connection))
            connection.close()
        print(" ".join(sorted(names)))
    else:
        print(" ".join(ask(connection) for connection in kept))
"#;

struct Site {
    lab: Lab,
    namespaces: Vec<String>,
    client: Script,
}

impl Site {
    fn server(&self, number: usize) -> Script {
        let name = format!("10.0.0.1{number}");
        let mut server = Script::start(&self.namespaces[number], &self.lab.folder, SERVER, &[&name]);
        assert_eq!(server.line(), "ready");
        server
    }

    /// The servers that new connections get.
    fn chosen(&mut self) -> BTreeSet<String> {
        self.client.ask("new 30").split(' ').map(String::from).collect()
    }

    /// Waits until a server has a state.
    fn wait(&self, number: usize, state: &str) {
        let line = format!("10.0.0.1{number}\t1\t{state}\t");
        until(&line, || read(&self.lab, "lb", "balancer.servers").contains(&line));
    }
}

fn servers(numbers: &[usize]) -> BTreeSet<String> {
    numbers.iter().map(|number| format!("10.0.0.1{number}")).collect()
}

#[test]
fn servers_come_and_go_and_no_connection_breaks() {
    if !can_create_taps() {
        return;
    }
    at_once(servers_come_and_go);
}

fn servers_come_and_go(isolation: &str) {
    let (_keepers, namespaces): (Vec<_>, Vec<_>) = (0..4).map(|_| namespace()).unzip();
    let mut file = format!(
        "[switch.inner]\n[patch.outer]\nports = [\"outside\", \"client\"]\n{}{}",
        function("lb", isolation, "switch = \"inner\"\n", ""),
        tap("client", &namespaces[0], "192.0.2.9/24")
    );
    for (number, namespace) in namespaces.iter().enumerate().skip(1) {
        let address = format!("10.0.0.1{number}/24");
        file += &tap(&format!("server{number}"), namespace, &address);
        file += "switch = \"inner\"\n";
    }
    let lab = Lab::new(&format!("lb-{isolation}"), &file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let ports = ["client", "server1", "server2", "server3", "inside", "outside"];
    until("the ports are up", || ports.iter().all(|port| lab.state(port) == "up"));
    for namespace in &namespaces[1..] {
        within(namespace, "ip route add default via 10.0.0.1");
    }
    let client = Script::start(&namespaces[0], &lab.folder, CLIENT, &[]);
    let mut site = Site { lab, namespaces, client };
    let write = |site: &Site, handler: &str, value: &str| {
        site.lab.ok(&["function", "write", "lb", &format!("balancer.{handler}"), value]);
    };

    // Both servers are checked and work; the second has the weight 1 from now on.
    write(&site, "add", "10.0.0.12 1");
    let (_one, mut two) = (site.server(1), site.server(2));
    (1..3).for_each(|number| site.wait(number, "up"));
    until("both get connections", || site.chosen() == servers(&[1, 2]));
    let kept = site.client.ask("open 24");
    assert!(kept.contains("10.0.0.11") && kept.contains("10.0.0.12") && !kept.contains("closed"), "{kept}");

    // A server comes.
    let _three = site.server(3);
    write(&site, "add", "10.0.0.13 1");
    until("the new server gets connections", || site.chosen() == servers(&[1, 2, 3]));
    assert_eq!(site.client.ask("kept"), kept, "{isolation}");

    // One server is drained.
    write(&site, "drain", "10.0.0.11");
    assert_eq!(site.chosen(), servers(&[2, 3]));
    assert_eq!(site.client.ask("kept"), kept, "{isolation}");

    // One accepts no more connections, and nobody tells the balancer.
    assert_eq!(two.ask("leave"), "gone");
    site.wait(2, "down");
    assert_eq!(site.chosen(), servers(&[3]));
    assert_eq!(site.client.ask("kept"), kept, "{isolation}");

    // Its successor comes, while it serves its connections.
    let _successor = site.server(2);
    site.wait(2, "up");
    until("the successor gets connections", || site.chosen() == servers(&[2, 3]));
    write(&site, "add", "10.0.0.11 1");
    until("all get connections", || site.chosen() == servers(&[1, 2, 3]));
    assert_eq!(site.client.ask("kept"), kept, "{isolation}");
    assert_eq!(read(&site.lab, "lb", "balancer.evictions"), "0");
    let log = site.lab.log();
    assert!(log.contains("10.0.0.12 is down") && log.contains("10.0.0.12 is up"), "{log}");
}
