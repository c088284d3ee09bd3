//! Wire ports between real hosts, which are network namespaces: Ringway, Linux's VXLAN device, Open vSwitch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::net::{can_create_taps, can_ping, namespace, namespace6, shell, stream, tap, within};
use crate::lab::{Lab, Running, until};
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes of a TCP connection.
const BYTES: u32 = 8 << 20;

/// Two hosts joined by a cable: `near` is 192.0.2.1, `far` 192.0.2.2, and 2001:db8::1 and ::2.
struct Hosts {
    near: String,
    far: String,
    _keepers: [Running; 2],
}

impl Hosts {
    fn new() -> Hosts {
        let ((near_keeper, near), (far_keeper, far)) = (namespace6(), namespace6());
        let process = far_keeper.0.id();
        within(&near, &format!("ip link add eth0 type veth peer name eth0 netns {process}"));
        let hosts = Hosts { near, far, _keepers: [near_keeper, far_keeper] };
        hosts.address();
        hosts
    }

    fn address(&self) {
        for (of, number) in [(&self.near, 1), (&self.far, 2)] {
            let six = format!("ip addr add 2001:db8::{number}/64 dev eth0 nodad");
            within(of, &format!("ip addr add 192.0.2.{number}/24 dev eth0; {six}; ip link set eth0 up"));
        }
    }
}

/// A section of a wire port in a namespace.
fn wire(name: &str, at: &str, keys: &str) -> String {
    format!("[port.{name}]\nkind = \"wire\"\nnamespace = \"{at}\"\n{keys}\n")
}

/// The sum of a counter of drops over all ports.
fn drops(lab: &Lab, reason: &str) -> String {
    let stats = lab.ok(&["stats"]);
    stats.lines().filter(|line| line.contains(reason)).collect()
}

#[test]
fn a_linux_vxlan_device_is_a_peer_with_offloads_on() {
    if !can_create_taps() {
        return;
    }
    for six in [false, true] {
        let hosts = Hosts::new();
        let (_keeper, guest) = namespace();
        let (near, far) = if six { ("2001:db8::1", "2001:db8::2") } else { ("192.0.2.1", "192.0.2.2") };
        let keys = format!("peer = \"{far}\"\nlocal = \"{near}\"\nvni = 42");
        // The kernel takes datagrams over IPv6 without a checksum only if it is told so; ours have one.
        within(
            &hosts.far,
            &format!(
                "ip link add vx type vxlan id 42 dstport 4789 local {far} remote {near}; \
                 ip addr add 10.98.0.2/24 dev vx; ip link set vx up"
            ),
        );
        let file = [
            wire("w", &hosts.near, &keys),
            tap("t", &guest, "10.98.0.1/24"),
            "[patch.p]\nports = [\"w\", \"t\"]\n".into(),
        ];
        let lab = Lab::new(&format!("wire-kernel-{six}"), &file.concat());
        lab.ok(&["up", "--detach", "lab.toml"]);
        until("a ping is answered", || can_ping(&guest, "10.98.0.2", ""));
        assert!(can_ping(&hosts.far, "10.98.0.1", ""));
        let mtu = if six { 1430 } else { 1450 };
        // A packet that is too long is answered with the MTU, which the stack then knows.
        assert!(can_ping(&guest, "10.98.0.2", &format!("-M do -s {}", mtu - 28)));
        assert!(!can_ping(&guest, "10.98.0.2", "-M do -s 1472"));
        let route = String::from_utf8(within(&guest, "ip route get 10.98.0.2")).unwrap();
        assert!(route.contains(&format!("mtu {mtu}")), "{route}");
        stream(&guest, &hosts.far, "10.98.0.2", &lab.folder, BYTES);
        stream(&hosts.far, &guest, "10.98.0.1", &lab.folder, BYTES);
        let ps = lab.ok(&["ps"]);
        assert!(ps.contains(&format!("mtu {mtu}")), "{ps}");
        assert_eq!(drops(&lab, "bad-tunnel"), "");
    }
}

#[test]
fn a_link_that_vanishes_comes_back() {
    if !can_create_taps() {
        return;
    }
    let hosts = Hosts::new();
    let ((_first, left), (_second, right)) = (namespace(), namespace());
    let keys = |near: u8, far: u8| {
        format!(
            "peer = \"192.0.2.{far}\"\nlocal = \"192.0.2.{near}\"\nencapsulation = \"geneve\"\nvni = 7\n\
             dscp = \"inherit\"\nttl = 9"
        )
    };
    let file = [
        wire("a", &hosts.near, &keys(1, 2)),
        wire("b", &hosts.far, &keys(2, 1)),
        tap("l", &left, "10.98.0.1/24"),
        tap("r", &right, "10.98.0.2/24"),
        "[patch.p]\nports = [\"a\", \"l\"]\n[patch.q]\nports = [\"b\", \"r\"]\n".into(),
    ];
    let lab = Lab::new("wire-link", &file.concat());
    lab.ok(&["up", "--detach", "lab.toml"]);
    until("a ping is answered", || can_ping(&left, "10.98.0.2", ""));
    stream(&left, &right, "10.98.0.2", &lab.folder, BYTES);
    within(&hosts.near, "ip link del eth0");
    assert!(!can_ping(&left, "10.98.0.2", ""));
    let process = hosts._keepers[1].0.id();
    within(&hosts.near, &format!("ip link add eth0 type veth peer name eth0 netns {process}"));
    hosts.address();
    until("the new link carries pings", || can_ping(&left, "10.98.0.2", ""));
    assert_eq!(lab.state("a"), "up");
}

#[test]
fn a_cut_tcp_connection_is_made_again() {
    if !can_create_taps() {
        return;
    }
    let hosts = Hosts::new();
    let ((_first, left), (_second, right)) = (namespace(), namespace());
    let keys = |near: u8, far: u8, role: &str| {
        format!(
            "peer = \"192.0.2.{far}\"\nlocal = \"192.0.2.{near}\"\nencapsulation = \"tcp\"\nport = 4790\n\
             role = \"{role}\""
        )
    };
    let file = [
        wire("a", &hosts.near, &keys(1, 2, "client")),
        wire("b", &hosts.far, &keys(2, 1, "server")),
        tap("l", &left, "10.98.0.1/24"),
        tap("r", &right, "10.98.0.2/24"),
        "[patch.p]\nports = [\"a\", \"l\"]\n[patch.q]\nports = [\"b\", \"r\"]\n".into(),
    ];
    let lab = Lab::new("wire-tcp", &file.concat());
    lab.ok(&["up", "--detach", "lab.toml"]);
    until("a ping is answered", || can_ping(&left, "10.98.0.2", ""));
    stream(&left, &right, "10.98.0.2", &lab.folder, BYTES);
    let of_wire =
        || String::from_utf8(within(&hosts.near, "ss -Htn state established dport = 4790")).unwrap();
    let before = of_wire();
    assert_eq!(before.lines().count(), 1, "{before}");
    within(&hosts.near, "ss -K dport = 4790");
    until("another connection exists", || of_wire().lines().count() == 1 && of_wire() != before);
    until("it carries pings", || can_ping(&left, "10.98.0.2", ""));
}

/// The files that docs/wire.md shows, each run in the namespace that stands for its host.
#[test]
fn the_two_hosts_of_the_documentation_reach_each_other() {
    if !can_create_taps() {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/wire.md");
    let page = std::fs::read_to_string(page).unwrap();
    let shown: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [red, blue] = shown[..] else { panic!("the page shows two files") };
    let hosts = Hosts::new();
    let lab = Lab::new("wire-docs", "");
    let mut running = Vec::new();
    for (name, text, at) in [("red", red, &hosts.near), ("blue", blue, &hosts.far)] {
        std::fs::write(lab.folder.join(format!("{name}.toml")), text).unwrap();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={at}")).arg(env!("CARGO_BIN_EXE_ringway"));
        command.args(["up", &format!("{name}.toml")]).current_dir(&lab.folder);
        command.env("RINGWAY_RUN", lab.folder.join("run")).stdout(Stdio::null()).stderr(Stdio::null());
        running.push(Running(command.spawn().unwrap()));
    }
    until("a ping is answered", || can_ping(&hosts.near, "10.0.0.2", ""));
    stream(&hosts.near, &hosts.far, "10.0.0.2", &lab.folder, BYTES);
    let ps = lab.ok(&["--fabric", "red", "ps"]);
    assert!(ps.contains("vxlan 42 to 192.0.2.2:4789") && ps.contains("mtu 1450"), "{ps}");
    for name in ["red", "blue"] {
        lab.ok(&["--fabric", name, "down"]);
    }
}

/// Open vSwitch in user space, in the namespace of a host.
struct OpenVswitch {
    host: String,
    database: String,
    _processes: Vec<Running>,
}

impl OpenVswitch {
    /// Starts it with a bridge `phy` that has the host's card and its address, and a bridge `br0` with a tunnel.
    fn start(host: &str, folder: &Path, tunnel: &str) -> OpenVswitch {
        let path = |name: &str| folder.join(name).display().to_string();
        let database = format!("unix:{}", path("db.sock"));
        let mut ovs = OpenVswitch { host: host.into(), database, _processes: Vec::new() };
        let (file, log) = (path("conf.db"), "-vconsole:off");
        ovs.run(folder, &format!("ovsdb-tool create {file} /usr/share/openvswitch/vswitch.ovsschema"));
        ovs.serve(folder, &format!("exec ovsdb-server {file} --remote=p{} {log}", ovs.database));
        until("the database answers", || folder.join("db.sock").exists());
        ovs.run(folder, &ovs.vsctl("--no-wait init"));
        ovs.serve(folder, &format!("exec ovs-vswitchd {} --disable-system {log}", ovs.database));
        let bridge = |name| format!("add-br {name} -- set bridge {name} datapath_type=netdev");
        ovs.run(folder, &ovs.vsctl(&format!("{} -- add-port phy eth0", bridge("phy"))));
        let options = format!("type={tunnel} options:remote_ip=192.0.2.1 options:key=42");
        let port = format!("add-port br0 t -- set interface t {options}");
        ovs.run(folder, &ovs.vsctl(&format!("{} -- {port}", bridge("br0"))));
        ovs.run(folder, "ip addr flush dev eth0; ip addr add 192.0.2.2/24 dev phy; ip link set phy up");
        ovs.run(folder, "ip addr add 10.98.0.2/24 dev br0; ip link set br0 mtu 1450 up");
        ovs
    }

    fn vsctl(&self, words: &str) -> String {
        format!("ovs-vsctl --db={} --timeout=20 {words}", self.database)
    }

    fn shell(&self, folder: &Path, script: &str) -> Command {
        let mut command = shell(&self.host, script);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(name, folder);
        }
        command
    }

    fn run(&self, folder: &Path, script: &str) {
        let output = self.shell(folder, script).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn serve(&mut self, folder: &Path, script: &str) {
        let child = self.shell(folder, script).stdin(Stdio::null()).spawn().unwrap();
        self._processes.push(Running(child));
    }
}

#[test]
fn open_vswitch_is_a_peer_by_vxlan_and_geneve() {
    if !can_create_taps() {
        return;
    }
    if !Path::new("/usr/share/openvswitch/vswitch.ovsschema").exists() {
        eprintln!("not run: openvswitch-switch is not installed");
        return;
    }
    for tunnel in ["vxlan", "geneve"] {
        let hosts = Hosts::new();
        let (_keeper, guest) = namespace();
        // Its packets from and to the card are complete: it takes them from a packet socket.
        within(&hosts.near, "ethtool -K eth0 tx off");
        within(&hosts.far, "ethtool -K eth0 tx off");
        let keys = "peer = \"192.0.2.2\"\nlocal = \"192.0.2.1\"\nvni = 42";
        let file = [
            wire("w", &hosts.near, &format!("{keys}\nencapsulation = \"{tunnel}\"")),
            tap("t", &guest, "10.98.0.1/24") + "mtu = 1450\n",
            "[patch.p]\nports = [\"w\", \"t\"]\n".into(),
        ];
        let lab = Lab::new(&format!("wire-{tunnel}"), &file.concat());
        let _ovs = OpenVswitch::start(&hosts.far, &lab.folder, tunnel);
        lab.ok(&["up", "--detach", "lab.toml"]);
        until("a ping is answered", || can_ping(&guest, "10.98.0.2", ""));
        assert!(can_ping(&hosts.far, "10.98.0.1", ""));
        within(&hosts.far, "ethtool -K br0 tx off");
        stream(&guest, &hosts.far, "10.98.0.2", &lab.folder, BYTES);
        stream(&hosts.far, &guest, "10.98.0.1", &lab.folder, BYTES);
        assert_eq!(drops(&lab, "bad-tunnel"), "");
    }
}
