//! The firewall's rules are replaced by files of ten and of ten thousand lines, while connections go on.
use super::{fabric, read, write_file};
use crate::lab::every_isolation;
use crate::lab::net::{Script, can_create_taps, namespace};
use std::fmt::Write;

/// Answers each line by itself, on every connection to the ports 80 and 8080.
const SERVER: &str = r#"
import socketserver, threading
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
            self.wfile.flush()
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
for port in (80, 8080):
    threading.Thread(target=Server(("10.0.0.2", port), Handler).serve_forever).start()
print("ready")
"#;

/// `keep` uses the first connection to port 80, `new PORT` another one; `closed PORT` waits for it only a second.
const CLIENT: &str = r#"
import socket, sys
def connect(port, seconds=20):
    return socket.create_connection(("10.0.0.2", port), seconds)
def ask(own):
    own.settimeout(20)
    own.sendall(b"hello\n")
    return own.recv(100).decode().strip()
kept = None
for line in sys.stdin:
    word, *rest = line.split()
    try:
        if word == "keep":
            kept = kept or connect(80)
            print(ask(kept))
        else:
            print(ask(connect(int(rest[0]), 1 if word == "closed" else 20)))
    except TimeoutError:
        print("nothing")
"#;

#[test]
fn rules_are_replaced_while_connections_go_on() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        let ((_one, inside), (_two, outside)) = (namespace(), namespace());
        let lab = fabric("firewall", isolation, [&inside, &outside], ["10.0.0.1/24", "10.0.0.2/24"]);
        let mut server = Script::start(&outside, &lab.folder, SERVER, &[]);
        assert_eq!(server.line(), "ready");
        let mut client = Script::start(&inside, &lab.folder, CLIENT, &[]);
        assert_eq!(client.ask("keep"), "hello");
        assert_eq!(client.ask("closed 8080"), "nothing");

        // Ten lines: port 8080 instead of 80. The connection to port 80 goes on.
        let ten: String = (0..8).fold("# rules\n\n".into(), |mut text: String, number| {
            let _ = writeln!(text, "1 src net 172.16.{number}.0/24");
            text
        });
        write_file(&lab, "firewall", "rules.rules", &format!("{ten}allow tcp && dst port 8080\n1 all\n"))
            .unwrap();
        assert_eq!(read(&lab, "firewall", "rules.count"), "10");
        assert_eq!(client.ask("keep"), "hello", "{isolation}");
        assert_eq!(client.ask("new 8080"), "hello");
        assert_eq!(client.ask("closed 80"), "nothing");

        // Ten thousand.
        let mut many = String::new();
        for number in 0..9998 {
            let (high, low) = (number / 250, number % 250);
            let _ = writeln!(many, "1 tcp && src host 172.{high}.1.{low} && dst port {}", 1000 + number);
        }
        many += "allow tcp && dst port 80\n1 all\n";
        write_file(&lab, "firewall", "rules.rules", &many).unwrap();
        assert_eq!(read(&lab, "firewall", "rules.count"), "10000");
        assert_eq!(client.ask("keep"), "hello", "{isolation}");
        assert_eq!(client.ask("new 80"), "hello");
        assert_eq!(client.ask("closed 8080"), "nothing");

        // A wrong line changes nothing.
        let why = write_file(&lab, "firewall", "rules.rules", "allow all\n\nallow nonsense\n").unwrap_err();
        assert!(why.contains("line 3: "), "{why}");
        assert_eq!(read(&lab, "firewall", "rules.count"), "10000");
        assert_eq!(client.ask("keep"), "hello", "{isolation}");
    }
}
