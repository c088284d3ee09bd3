//! SSH is reachable only from an address that knocked.
use super::{fabric, read};
use crate::lab::net::{Script, can_create_taps, namespace, within};
use crate::lab::{at_once, until};

/// A server on port 22, which says what it is.
const SERVER: &str = r#"
import socket
server = socket.create_server(("10.0.0.1", 22))
print("ready")
while True:
    own, _ = server.accept()
    own.sendall(b"SSH-2.0-test\r\n")
    own.close()
"#;

/// `knock ADDRESS PORT...` knocks from an address, `ssh ADDRESS SECONDS` prints what the server says to it.
const CLIENT: &str = r#"
import socket, sys
for line in sys.stdin:
    word, address, *rest = line.split()
    if word == "knock":
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        own.bind((address, 0))
        for port in rest:
            own.sendto(b"", ("10.0.0.1", int(port)))
        print("knocked")
        continue
    try:
        own = socket.create_connection(("10.0.0.1", 22), float(rest[0]), (address, 0))
        print(own.recv(100).decode().strip())
    except TimeoutError:
        print("nothing")
"#;

#[test]
fn ssh_opens_to_those_who_knock() {
    if !can_create_taps() {
        return;
    }
    at_once(|isolation| {
        let ((_one, inside), (_two, outside)) = (namespace(), namespace());
        let lab = fabric("knocker", isolation, [&inside, &outside], ["10.0.0.1/24", "10.0.0.8/24"]);
        within(&outside, "ip addr add 10.0.0.9/24 dev server");
        // Other packets pass.
        within(&outside, "ping -c 1 -W 20 10.0.0.1");
        let mut server = Script::start(&inside, &lab.folder, SERVER, &[]);
        assert_eq!(server.line(), "ready");
        let mut client = Script::start(&outside, &lab.folder, CLIENT, &[]);
        assert_eq!(client.ask("ssh 10.0.0.8 0.3"), "nothing", "{isolation}");
        client.ask("knock 10.0.0.8 7000 9000 8000");
        assert_eq!(client.ask("ssh 10.0.0.8 0.3"), "nothing", "{isolation}: the wrong order");
        assert_eq!(read(&lab, "knocker", "opened.count"), "0", "{isolation}");
        // A knock that came too late is repeated.
        until("it opens", || {
            client.ask("knock 10.0.0.8 7000 8000 9000");
            read(&lab, "knocker", "opened.count") != "0"
        });
        assert_eq!(client.ask("ssh 10.0.0.8 20"), "SSH-2.0-test", "{isolation}");
        assert_eq!(client.ask("ssh 10.0.0.9 0.3"), "nothing", "{isolation}: another address");
        assert!(read(&lab, "knocker", "open.table").contains("10.0.0.8"), "{isolation}");
        lab.ok(&["function", "write", "knocker", "open.clear"]);
        assert_eq!(client.ask("ssh 10.0.0.8 0.3"), "nothing", "{isolation}: closed again");
    });
}
