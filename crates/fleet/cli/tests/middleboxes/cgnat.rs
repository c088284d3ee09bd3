//! Subscribers behind the carrier-grade NAT: HTTP, pings, ICMP errors, active FTP, each other, and a block used up.
use super::{example, function, read};
use crate::lab::net::{Script, can_create_taps, namespace, tap, within};
use crate::lab::{Lab, every_isolation, until};

/// A host outside, at 192.0.2.254: FTP by active mode on port 21, and on UDP port 3478 the sender's address.
pub const OUTSIDE: &str = r#"
import socket, threading
def ftp():
    listener = socket.create_server(("192.0.2.254", 21))
    while True:
        control, peer = listener.accept()
        file = control.makefile("rw", newline="\r\n")
        def say(text):
            file.write(text + "\n")
            file.flush()
        say("220 ready")
        for line in file:
            word, *rest = line.split()
            if word == "PORT":
                numbers = rest[0].split(",")
                target = (".".join(numbers[:4]), int(numbers[4]) * 256 + int(numbers[5]))
                say("200 fine" if target[0] == peer[0] else "500 not yours: " + target[0])
            elif word == "RETR":
                say("150 comes")
                data = socket.create_connection(target, 20, ("192.0.2.254", 20))
                data.sendall(b"x" * 200000)
                data.close()
                say("226 done")
            elif word == "QUIT":
                say("221 bye")
                break
            else:
                say("230 fine")
        control.close()
def stun():
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("192.0.2.254", 3478))
    while True:
        _, peer = own.recvfrom(100)
        own.sendto(f"{peer[0]} {peer[1]}".encode(), peer)
for job in (ftp, stun):
    threading.Thread(target=job).start()
print("ready")
"#;

/// A subscriber that does what it is told.
pub const INSIDE: &str = r#"
import ftplib, io, select, socket, sys, time
sockets = []
def udp():
    sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sockets[-1].settimeout(20)
    return sockets[-1]
def fetch():
    data = io.BytesIO()
    client = ftplib.FTP("192.0.2.254", timeout=20)
    client.set_pasv(False)
    client.login()
    client.retrbinary("RETR file", data.write)
    client.quit()
    return len(data.getvalue())
def mapped(own):
    own.sendto(b"?", ("192.0.2.254", 3478))
    return own.recv(100).decode()
def refused():
    own = udp()
    own.connect(("192.0.2.254", 9))
    own.send(b"?")
    try:
        return own.recv(100)
    except ConnectionRefusedError:
        return "refused"
def call(address, port):
    own = udp()
    own.sendto(b"hello", (address, int(port)))
    return own.recv(100).decode()
def answer(own):
    data, peer = own.recvfrom(100)
    own.sendto(data + b" from " + peer[0].encode(), peer)
    return data.decode()
def many(count, expected):
    own = [udp() for _ in range(int(count))]
    for one in own:
        one.sendto(b"?", ("192.0.2.254", 3478))
    answered, end = set(), time.monotonic() + 20
    while len(answered) < int(expected) and time.monotonic() < end:
        answered.update(select.select(own, [], [], 1)[0])
    # More than expected would come now.
    time.sleep(0.2)
    return len(answered.union(select.select(own, [], [], 0)[0]))
def spread(count):
    ports = []
    for _ in range(int(count)):
        own = udp()
        own.settimeout(1)
        for _ in range(20):
            # The first packets of an instance wait for answers of ARP.
            try:
                ports.append(mapped(own).split()[1])
                break
            except TimeoutError:
                pass
    return " ".join(ports)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "fetch": print(fetch())
    if word == "mapped": print(mapped(udp()))
    if word == "refused": print(refused())
    if word == "call": print(call(*rest))
    if word == "answer": print(answer(sockets[0]))
    if word == "many": print(many(*rest))
    if word == "spread": print(spread(*rest))
"#;

#[test]
fn subscribers_share_an_address() {
    if !can_create_taps() {
        return;
    }
    for isolation in every_isolation() {
        share_an_address(isolation);
    }
}

fn share_an_address(isolation: &str) {
    let (_keepers, namespaces): (Vec<_>, Vec<_>) = (0..3).map(|_| namespace()).unzip();
    let file = format!(
        "[switch.inner]\n[patch.outer]\nports = [\"outside\", \"far\"]\n{}{}{}switch = \"inner\"\n{}\
         switch = \"inner\"\n",
        function("cgnat", isolation, "switch = \"inner\"\n", ""),
        tap("far", &namespaces[0], "192.0.2.254/24"),
        tap("one", &namespaces[1], "100.64.0.10/24"),
        tap("two", &namespaces[2], "100.64.0.11/24"),
    );
    let file = file.replace("[function.cgnat]", "[function.cgnat]\nparameters = { BLOCK = \"16\" }");
    let lab = Lab::new(&format!("cgnat-{isolation}"), &file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let ports = ["far", "one", "two", "inside", "outside"];
    until("the ports are up", || ports.iter().all(|port| lab.state(port) == "up"));
    for namespace in &namespaces[1..] {
        within(namespace, "ip route add default via 100.64.0.1");
    }
    let mut far = Script::start(&namespaces[0], &lab.folder, OUTSIDE, &[]);
    assert_eq!(far.line(), "ready");
    let subscriber = |number: usize| Script::start(&namespaces[number], &lab.folder, INSIDE, &[]);
    let (mut one, mut two) = (subscriber(1), subscriber(2));

    within(&namespaces[1], "ping -c 1 -W 20 192.0.2.254");
    assert_eq!(one.ask("refused"), "refused", "ICMP errors come back");
    assert_eq!(one.ask("fetch"), "200000", "active FTP");

    // The second subscriber has its own block, and hands out its port. The first calls it there.
    let mapped = two.ask("mapped");
    assert!(mapped.starts_with("192.0.2.1 "), "{mapped}");
    let caller = std::thread::spawn({
        let mapped = mapped.clone();
        move || one.ask(&format!("call {mapped}"))
    });
    assert_eq!(two.ask("answer"), "hello");
    assert_eq!(caller.join().unwrap(), "hello from 192.0.2.1");
    assert_eq!(read(&lab, "cgnat", &format!("blocks.subscriber {mapped}")), "100.64.0.11");

    // A block has 16 ports for UDP, and one is in use.
    assert_eq!(two.ask("many 30 15"), "15");
    assert_eq!(read(&lab, "cgnat", "blocks.exhausted"), "15");
    let blocks = read(&lab, "cgnat", "blocks.blocks");
    assert!(blocks.contains("100.64.0.10 192.0.2.1 1024-1039 0"), "{blocks}");
    let log = lab.log();
    for line in
        ["100.64.0.11 gets 192.0.2.1 1040-1055", "100.64.0.11 has no port left of 192.0.2.1 1040-1055"]
    {
        assert!(log.contains(line), "{line}: {log}");
    }
}

/// The blocks of an instance: the first port and the last one of each.
fn blocks(lab: &Lab, instance: &str) -> Vec<(u16, u16)> {
    let table = read(lab, instance, "blocks.blocks");
    let range = |line: &str| {
        let (first, last) = line.split(' ').nth(2).unwrap().split_once('-').unwrap();
        (first.parse().unwrap(), last.parse().unwrap())
    };
    table.lines().map(range).collect()
}

#[test]
fn instances_give_blocks_of_their_own_ports() {
    if !can_create_taps() {
        return;
    }
    let ((_one, inside), (_two, outside)) = (namespace(), namespace());
    let file = format!(
        "{}{}[chain.c]\nports = [\"one\", \"far\"]\nfunctions = [\"cgnat\"]\n[function.cgnat]\n\
         config = \"{}\"\nports = [\"inside\", \"outside\"]\nparameters = {{ BLOCK = \"64\" }}\n\
         instances = {{ min = 2, max = 2 }}\n",
        tap("one", &inside, "100.64.0.10/24"),
        tap("far", &outside, "192.0.2.254/24"),
        example("cgnat.click").display(),
    );
    let lab = Lab::new("cgnat-instances", &file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let ports = ["one", "far", "cgnat.inside", "cgnat.outside", "cgnat/2.inside", "cgnat/2.outside"];
    until("the ports are up", || ports.iter().all(|port| lab.state(port) == "up"));
    within(&inside, "ip route add default via 100.64.0.1");
    let mut far = Script::start(&outside, &lab.folder, OUTSIDE, &[]);
    assert_eq!(far.line(), "ready");
    let mut subscriber = Script::start(&inside, &lab.folder, INSIDE, &[]);
    let used = subscriber.ask("spread 40");
    let used: Vec<u16> = used.split(' ').map(|port| port.parse().unwrap()).collect();
    assert_eq!(used.len(), 40, "each flow has its answer");

    // Ports are in halves, which two instances have.
    let own = ["cgnat", "cgnat/2"].map(|instance| blocks(&lab, instance));
    assert_eq!((own[0].len(), own[1].len()), (1, 1), "{own:?}");
    assert!(own[0][0].0 >= 1024 && own[0][0].1 < 33_280 && own[1][0].0 >= 33_280, "{own:?}");
    for block in [own[0][0], own[1][0]] {
        let its = used.iter().filter(|port| (block.0..=block.1).contains(port)).count();
        assert!(its > 0, "{block:?}: {used:?}");
    }
    assert!(used.iter().all(|port| own.iter().flatten().any(|block| (block.0..=block.1).contains(port))));
}
