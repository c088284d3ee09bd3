//! Ports on interfaces of the host: packet sockets and AF_XDP, on veth pairs in namespaces of their own.

use crate::lab::net::{Script, address, can_create_taps, can_ping, namespace, shell, stream, tap, within};
use crate::lab::{Lab, Running, api, until};
use std::path::Path;

/// The host with the card, another machine on its line, and one behind the fabric.
struct Line {
    near: String,
    far: String,
    inside: String,
    _keepers: [Running; 3],
}

impl Line {
    fn new() -> Line {
        let [(a, near), (b, far), (c, inside)] = [namespace(), namespace(), namespace()];
        let line = Line { near, far, inside, _keepers: [a, b, c] };
        line.cable("");
        line
    }

    /// Joins host and machine; the card has no address, the machine's is 10.66.0.9.
    fn cable(&self, options: &str) {
        let far = self._keepers[1].0.id();
        within(
            &self.near,
            &format!(
                "ip link add card0 {options} type veth peer name eth0 {options} netns {far}; \
                 ip link set card0 up"
            ),
        );
        within(&self.far, "ip addr add 10.66.0.9/24 dev eth0; ip link set eth0 up");
    }

    fn file(&self, kind: &str, keys: &str) -> String {
        format!(
            "[switch.s]\n[port.card]\nkind = \"{kind}\"\ninterface = \"card0\"\nnamespace = \"{}\"\n\
             switch = \"s\"\n{keys}\n{}switch = \"s\"\n",
            self.near,
            tap("t", &self.inside, "10.66.0.1/24")
        )
    }

    fn lab(&self, name: &str, kind: &str, keys: &str) -> Lab {
        let lab = Lab::new(name, &self.file(kind, keys));
        lab.ok(&["up", "--detach", "lab.toml"]);
        until("the port is up", || lab.state("card") == "up");
        lab
    }

    fn can_ping(&self, options: &str) -> bool {
        can_ping(&self.far, "10.66.0.1", options)
    }
}

/// What `ps` says about the card's port.
fn detail(lab: &Lab) -> String {
    let ps = lab.json(&["ps"]);
    let port = ps["ports"].as_array().unwrap().iter().find(|port| port["name"] == "card").unwrap().clone();
    let text = |key: &str| port[key].as_str().unwrap().to_string();
    format!("{}: {} {}", text("state"), text("detail"), text("reason"))
}

fn says(lab: &Lab, what: &str, words: &str) {
    let until_said = || detail(lab).contains(words);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !until_said() {
        assert!(std::time::Instant::now() < end, "{what}: {} lacks \"{words}\"\n{}", detail(lab), lab.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Bytes of a TCP connection.
const BYTES: u32 = 4 << 20;

/// Frames of every kind pass both ways: small ones, segments and checksums left to the receiver, VLAN tags.
fn passes(line: &Line, lab: &Lab) {
    until("a ping is answered", || line.can_ping(""));
    assert!(can_ping(&line.inside, "10.66.0.9", "-M do -s 1472"));
    stream(&line.far, &line.inside, "10.66.0.1", &lab.folder, BYTES);
    stream(&line.inside, &line.far, "10.66.0.9", &lab.folder, BYTES);
    tagged(&line.far, "eth0", &line.inside, "t", &lab.folder);
    tagged(&line.inside, "t", &line.far, "eth0", &lab.folder);
}

const TAG_RECEIVER: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.setsockopt(263, 8, 1)
s.bind((sys.argv[1], 0))
s.settimeout(30)
print("ready")
while True:
    frame, control, _, _ = s.recvmsg(2000, 200)
    if b"with a tag" in frame:
        status, _, _, _, _, tci, kind = struct.unpack("IIIHHHH", control[0][2])
        tag = "0x%x %d" % (kind, tci & 0xfff) if status & 16 else "none"
        print(tag, frame[12:14].hex(), frame[14:24].decode())
        break
"#;
const TAG_SENDER: &str = r#"
import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.bind((sys.argv[1], 0))
frame = bytes.fromhex("ffffffffffff 020000000042 8100 2005 88b5") + b"with a tag" + bytes(40)
s.send(frame)
print("sent")
"#;

/// The kernel takes the tag off a frame that it receives; it is put back.
fn tagged(from: &str, interface: &str, to: &str, other: &str, folder: &Path) {
    let mut receiver = Script::start(to, folder, TAG_RECEIVER, &[other]);
    assert_eq!(receiver.line(), "ready");
    let mut sender = Script::start(from, folder, TAG_SENDER, &[interface]);
    assert_eq!(sender.line(), "sent");
    assert_eq!(receiver.line(), "0x8100 5 88b5 with a tag");
}

#[test]
fn frames_pass_a_packet_port_whole() {
    if !can_create_taps() {
        return;
    }
    for queues in [1, 3] {
        let line = Line::new();
        let lab = line.lab(&format!("packet-{queues}"), "packet", &format!("queues = {queues}"));
        passes(&line, &lab);
        assert!(detail(&lab).contains("mtu 1500"), "{}", detail(&lab));
    }
}

#[test]
fn frames_pass_an_xdp_port_whole() {
    if !can_create_taps() {
        return;
    }
    for (name, options, keys, says) in [
        ("native", "", "", "native XDP, copies"),
        ("generic", "", "generic = true", "generic XDP, copies"),
        ("queues", "numrxqueues 2 numtxqueues 2", "queues = 2\nkeep = []", "native XDP, copies"),
    ] {
        let line = Line::new();
        if name == "queues" {
            within(&line.near, "ip link del card0");
            line.cable(options);
        }
        if name == "generic" {
            // Such a program gets frames before they are cut.
            within(&line.far, "ethtool -K eth0 tso off gso off || true");
        }
        let lab = line.lab(&format!("xdp-{name}"), "xdp", keys);
        until("a ping is answered", || line.can_ping(""));
        assert!(detail(&lab).contains(says), "{}", detail(&lab));
        if name != "generic" {
            passes(&line, &lab);
        }
    }
}

/// What happens to an interface is said, and the port goes on.
fn changes(kind: &str) {
    let line = Line::new();
    let lab = line.lab(&format!("changes-{kind}"), kind, "");
    until("a ping is answered", || line.can_ping(""));
    within(&line.near, "ip link set card0 mtu 1400");
    says(&lab, "another MTU", "mtu 1400");
    within(&line.far, "ip link set eth0 down");
    says(&lab, "no carrier", "attached: no carrier");
    within(&line.far, "ip link set eth0 up");
    says(&lab, "carrier", "up: mtu 1400");
    until("a ping is answered again", || line.can_ping(""));
    within(&line.near, "ip link set card0 name card1");
    until("the name is said", || lab.log().contains("interface card0 is called card1 now"));
    until("a ping is answered under another name", || line.can_ping(""));
    within(&line.near, "ip link set card1 name card0");
    until("the former name is said", || lab.log().contains("interface card1 is called card0 now"));
    within(&line.near, "ip link del card0");
    says(&lab, "the interface is gone", "waiting:  ");
    until("it is said", || lab.log().contains("interface card0 is gone"));
    line.cable("");
    says(&lab, "the interface is there again", "up: mtu 1500");
    until("a ping is answered by another interface", || line.can_ping(""));
    // Another namespace is as good as gone.
    let (keeper, other) = namespace();
    within(&line.near, &format!("ip link set card0 netns {}", keeper.0.id()));
    says(&lab, "the interface is elsewhere", "there is no interface card0");
    within(&other, &format!("ip link set card0 netns {}", line._keepers[0].0.id()));
    within(&line.near, "ip link set card0 up");
    within(&line.far, "ip link set eth0 up");
    until("a ping is answered after moves", || line.can_ping(""));
    let log = lab.log();
    for said in ["card0 has no carrier", "card0 has its carrier again", "card0 has MTU 1400 now, before 1500"]
    {
        assert!(log.contains(said), "{said}: {log}");
    }
}

#[test]
fn changes_of_a_packet_ports_interface_are_said_and_it_goes_on() {
    if can_create_taps() {
        changes("packet");
    }
}

#[test]
fn changes_of_an_xdp_ports_interface_are_said_and_it_goes_on() {
    if can_create_taps() {
        changes("xdp");
    }
}

/// The data process is killed, then the control process, then the program is replaced by itself.
fn ends(kind: &str) {
    let line = Line::new();
    let lab = line.lab(&format!("ends-{kind}"), kind, "");
    until("a ping is answered", || line.can_ping(""));
    for what in ["data_pid", "pid"] {
        let before = api::fabric(&lab)[what].as_u64().unwrap();
        api::kill(before);
        until("another process goes on", || {
            let now = lab.run(&["ps", "--json"]);
            now.status.success() && api::fabric(&lab)[what].as_u64().unwrap() != before
        });
        until("the port is up", || lab.state("card") == "up");
        until("a ping is answered after a kill", || line.can_ping(""));
    }
    assert!(!lab.log().contains("panicked"), "{}", lab.log());
}

#[test]
fn a_packet_port_goes_on_after_kills() {
    if can_create_taps() {
        ends("packet");
    }
}

#[test]
fn an_xdp_port_goes_on_after_kills() {
    if can_create_taps() {
        ends("xdp");
    }
}

/// The XDP program that `ip link` shows.
fn program(at: &str) -> bool {
    String::from_utf8(within(at, "ip -d link show card0")).unwrap().contains("xdp")
}

#[test]
fn what_the_file_names_stays_with_the_host() {
    if !can_create_taps() {
        return;
    }
    let line = Line::new();
    within(&line.near, "ip addr add 10.66.0.7/24 dev card0");
    let lab = line.lab("xdp-keep", "xdp", "keep = [\"tcp 7000\"]");
    until("a ping is answered by the fabric", || line.can_ping(""));
    stream(&line.far, &line.near, "10.66.0.7", &lab.folder, BYTES);
    stream(&line.near, &line.far, "10.66.0.9", &lab.folder, BYTES);
    assert!(!can_ping(&line.far, "10.66.0.7", ""), "ICMP is not kept");
    // An address that comes later.
    within(&line.near, "ip addr add 10.66.0.8/24 dev card0");
    until("the new address is known", || lab.log().contains("has other addresses"));
    until("the port is up", || lab.state("card") == "up");
    stream(&line.far, &line.near, "10.66.0.8", &lab.folder, BYTES);
    lab.ok(&["down"]);
    until("the host has all", || can_ping(&line.far, "10.66.0.7", ""));
}

#[test]
fn the_program_is_detached_when_everything_is_killed() {
    if !can_create_taps() {
        return;
    }
    let line = Line::new();
    let lab = line.lab("xdp-killed", "xdp", "");
    assert!(program(&line.near));
    let fabric = api::fabric(&lab);
    let pid = |what: &str| fabric[what].as_u64().unwrap();
    let keeper = api::parent(pid("pid"));
    [keeper, pid("pid"), pid("data_pid")].into_iter().for_each(api::kill);
    until("no program is left", || !program(&line.near));
}

#[test]
fn an_xdp_port_beside_another_program_says_which() {
    if !can_create_taps() {
        return;
    }
    let line = Line::new();
    let first = line.lab("xdp-first", "xdp", "");
    let second = Lab::new("xdp-second", &line.file("xdp", "").replace("\"t\"", "\"t2\""));
    second.ok(&["up", "--detach", "lab.toml"]);
    says(&second, "another program", "the XDP program ");
    let text = detail(&second);
    assert!(
        text.contains("(ringway) is attached to it") && text.contains("ip link set dev card0 xdp off"),
        "{text}"
    );
    assert!(line.can_ping("") || first.state("card") == "up");
    first.ok(&["down"]);
    until("the second one has it", || second.state("card") == "up");
}

#[test]
fn an_xdp_port_says_what_it_cannot_have() {
    if !can_create_taps() {
        return;
    }
    let line = Line::new();
    let lab = Lab::new("xdp-queues", &line.file("xdp", "queues = 4"));
    lab.ok(&["up", "--detach", "lab.toml"]);
    says(&lab, "too many queues", "use fewer `queues`");
    drop(lab);
    // A driver refuses long frames: the program runs in the kernel's stack.
    within(&line.near, "ip link set card0 mtu 9000");
    within(&line.far, "ip link set eth0 mtu 9000");
    let lab = Lab::new("xdp-jumbo", &format!("{}mtu = 9000\n", line.file("xdp", "")));
    lab.ok(&["up", "--detach", "lab.toml"]);
    until("the port is up", || lab.state("card") == "up");
    assert!(detail(&lab).contains("generic XDP"), "{}", detail(&lab));
    until("a ping is answered", || line.can_ping("-s 3000"));
    // A frame longer than a chunk is lost and counted, by the kernel.
    assert!(!line.can_ping("-s 8000"));
    until("it is counted", || {
        // The kernel is asked when the queue goes to sleep again.
        assert!(line.can_ping(""));
        lab.ok(&["stats"]).lines().any(|line| line.starts_with("card") && line.contains("long"))
    });
    let wrong = Lab::new(
        "card-none",
        "[switch.s]\n[port.c]\nkind = \"xdp\"\ninterface = \"no-card\"\nswitch = \"s\"\n",
    );
    let (code, text) = wrong.fails(&["up", "--detach", "lab.toml"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("lab.toml:6:") && text.contains("there is no interface no-card"), "{text}");
}

/// Frames for the host that became part of the frame before them.
fn joined(lab: &Lab) -> u64 {
    let stats = lab.json(&["stats"]);
    let port = stats["ports"].as_array().unwrap().iter().find(|port| port["name"] == "t").unwrap().clone();
    port["total"]["joined"].as_u64().unwrap()
}

#[test]
fn segments_from_a_card_reach_the_host_joined_unless_that_is_off() {
    if !can_create_taps() {
        return;
    }
    for kind in ["packet", "xdp"] {
        let line = Line::new();
        // The machine's stack sends single segments.
        within(&line.far, "ip link set eth0 gso_max_segs 1");
        let lab = line.lab(&format!("joined-{kind}"), kind, "");
        until("a ping is answered", || line.can_ping(""));
        stream(&line.far, &line.inside, "10.66.0.1", &lab.folder, BYTES);
        let count = joined(&lab);
        assert!(count > 100, "{count} of {} segments", BYTES / 1448);
        let to = address(&line.inside, "t");
        let frame = format!("tcp,dl_dst={to},nw_src=10.66.0.9,nw_dst=10.66.0.1,tcp_flags=ack,len=1000");
        let said = lab.ok(&["trace", "card", &frame]);
        assert!(said.contains("  reassembly   for t: with segments of its flow"), "{said}");
        let port = lab.json(&["port", "set", "t", "reassembly=false"]);
        assert_eq!(port["policy"]["reassembly"], "false", "{port}");
        let before = joined(&lab);
        stream(&line.far, &line.inside, "10.66.0.1", &lab.folder, BYTES);
        assert_eq!(joined(&lab), before);
        assert!(!lab.ok(&["trace", "card", &frame]).contains("reassembly"));
        let saved = lab.ok(&["save"]);
        assert!(saved.contains("reassembly = false\n"), "{saved}");
        // Frames to the card go on as they are by default.
        stream(&line.inside, &line.far, "10.66.0.9", &lab.folder, BYTES);
    }
}

#[test]
fn a_packet_that_is_too_long_for_the_host_is_answered() {
    if !can_create_taps() {
        return;
    }
    let line = Line::new();
    within(&line.near, "ip link set card0 mtu 9000");
    within(&line.far, "ip link set eth0 mtu 9000");
    let lab = line.lab("too-long", "packet", "");
    until("a ping is answered", || line.can_ping(""));
    let route = || String::from_utf8(within(&line.far, "ip route get 10.66.0.1")).unwrap();
    assert!(!route().contains("mtu"), "{}", route());
    until("the machine knows the path's MTU", || {
        let passes = line.can_ping("-M do -s 4000");
        assert!(!passes, "4028 bytes reach an interface of 1500");
        route().contains("mtu 1500")
    });
    assert!(line.can_ping("-M do -s 1472"));
    let stats = lab.ok(&["stats"]);
    assert!(stats.lines().any(|line| line.starts_with("t ") && line.contains("long")), "{stats}");
    // Without DF nothing is told.
    within(&line.far, "ip route flush cache");
    assert!(!line.can_ping("-M dont -s 4000") || !route().contains("mtu"));
}

/// The page on cards.
fn page() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/cards.md")).unwrap()
}

/// The section of the page with this heading.
fn section<'p>(page: &'p str, heading: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

/// The fenced blocks of a text in `language`.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let parts = text.split("```").skip(1).step_by(2);
    parts.filter_map(|part| part.strip_prefix(&format!("{language}\n")).map(String::from)).collect()
}

/// A namespace with the card of the page, in which its commands run, and another machine on the card's line.
struct PageLab {
    lab: Lab,
    near: String,
    far: String,
    _namespaces: (Namespace, Running),
}

impl PageLab {
    fn new(name: &str) -> PageLab {
        let (keeper, near) = namespace();
        let far = format!("rw-{name}-{}", std::process::id());
        let lab = Lab::new(&format!("cards-page-{name}"), "");
        let page_lab = PageLab { lab, near, far: far.clone(), _namespaces: (Namespace(far), keeper) };
        let page = page();
        let first = blocks(section(&page, "From a bare interface to a guest, a program and the host"), "sh");
        within(&page_lab.near, &page_lab.named(&first[0]));
        page_lab
    }

    /// Names of other machines are shared by all namespaces.
    fn named(&self, text: &str) -> String {
        let far = &self.far;
        let text = text.replace("netns add far", &format!("netns add {far}"));
        let text = text.replace("netns far", &format!("netns {far}")).replace("-n far", &format!("-n {far}"));
        text.replace("exec far", &format!("exec {far}"))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.lab.folder.join(name), text).unwrap();
    }

    /// Whether a command of the page succeeds, and what it says.
    fn run(&self, line: &str) -> (bool, String) {
        let line = match line.strip_prefix("ringway ") {
            Some(words) => format!("{} {words}", env!("CARGO_BIN_EXE_ringway")),
            None => self.named(line),
        };
        let mut command = shell(&self.near, &line);
        command.current_dir(&self.lab.folder).env("RINGWAY_RUN", self.lab.folder.join("run"));
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    /// Runs the commands of a block, each until it succeeds.
    fn run_all(&self, block: &str) {
        block.lines().for_each(|line| until(line, || self.run(line).0));
    }
}

/// The page's example: a guest, a program and the host answer another machine, by a port of either kind.
#[test]
fn the_example_of_the_page_works() {
    if !can_create_taps() {
        return;
    }
    let page = page();
    let first = section(&page, "From a bare interface to a guest, a program and the host");
    for kind in ["packet", "xdp"] {
        let lab = PageLab::new(kind);
        let file = blocks(first, "toml")[0].replace("kind = \"packet\"", &format!("kind = \"{kind}\""));
        lab.write("cards.toml", &file);
        lab.run_all(&blocks(first, "sh")[1]);
        let (_, ps) = lab.run("ringway ps");
        assert!(ps.contains("mtu 1500"), "{ps}");
        lab.run("ringway --fabric cards down");
    }
}

#[test]
fn a_guest_is_straight_on_a_card() {
    if !can_create_taps() {
        return;
    }
    let page = page();
    let example = section(&page, "A guest straight onto a card");
    let lab = PageLab::new("straight");
    lab.write("straight.toml", &blocks(example, "toml")[0]);
    lab.run_all(&blocks(example, "sh")[0]);
    lab.run("ringway --fabric straight down");
}

#[test]
fn the_host_gets_what_a_function_on_the_card_does_not_consume() {
    if !can_create_taps() {
        return;
    }
    let page = page();
    let example = section(&page, "Transparent mode");
    let lab = PageLab::new("transparent");
    lab.write("transparent.toml", &blocks(example, "toml")[0]);
    let commands = blocks(example, "sh").remove(0);
    lab.run_all(&commands);
    let read = "ringway function read filter consumed.count";
    assert!(commands.contains(read), "{commands}");
    until("the function consumes its own", || {
        let count: u32 = lab.run(read).1.trim().parse().unwrap();
        count == 1
    });
    // The host's own stack has the rest, segments and checksums included.
    let far = format!("/run/netns/{}", lab.far);
    stream(&far, &lab.near, "10.0.0.1", &lab.lab.folder, BYTES);
    stream(&lab.near, &far, "10.0.0.9", &lab.lab.folder, BYTES);
    assert_eq!(lab.run(read).1.trim(), "1");
    lab.run("ringway --fabric transparent down");
}

/// Whether a TCP connection is accepted.
fn can_connect(from: &str, to: &str, port: u16) -> bool {
    let script = format!("python3 -c 'import socket; socket.create_connection((\"{to}\", {port}), 2)'");
    shell(from, &script).stderr(std::process::Stdio::null()).status().unwrap().success()
}

#[test]
fn a_firewall_is_between_two_cards() {
    if !can_create_taps() {
        return;
    }
    let [(_a, near), (_b, inside), (_c, outside)] = [namespace(), namespace(), namespace()];
    for (card, machine, keeper, host) in [("card0", &inside, &_b, 1), ("card1", &outside, &_c, 2)] {
        let other = keeper.0.id();
        within(
            &near,
            &format!("ip link add {card} type veth peer name eth0 netns {other}; ip link set {card} up"),
        );
        within(machine, &format!("ip addr add 10.77.0.{host}/24 dev eth0; ip link set eth0 up"));
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let lab = Lab::new("card-firewall", "");
    for file in ["card-firewall.toml", "firewall.click"] {
        std::fs::copy(examples.join(file), lab.folder.join(file)).unwrap();
    }
    let run = |words: &str| {
        let mut command = shell(&near, &format!("{} {words}", env!("CARGO_BIN_EXE_ringway")));
        command.current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run("up --detach card-firewall.toml");
    until("a ping passes", || can_ping(&inside, "10.77.0.2", ""));
    const SERVERS: &str = r#"
import socket
servers = [socket.create_server(("", port), backlog=64) for port in (80, 81)]
print("ready")
input()
"#;
    let mut servers = [&inside, &outside].map(|at| Script::start(at, &lab.folder, SERVERS, &[]));
    servers.iter_mut().for_each(|server| assert_eq!(server.line(), "ready"));
    assert!(can_connect(&inside, "10.77.0.2", 80));
    let denied = || run("function read wall denied.count").trim().parse::<u32>().unwrap();
    assert_eq!(denied(), 0);
    assert!(!can_connect(&inside, "10.77.0.2", 81));
    until("what is denied is counted", || denied() > 0);
    // Those outside reach nobody: the answers of those inside are not allowed.
    assert!(!can_connect(&outside, "10.77.0.1", 81));
    run("--fabric card-firewall down");
}

/// A named network namespace, removed when dropped.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = std::process::Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}
