//! Stock Linux guests of a stock QEMU on emulated network cards: the kernel's own driver drives each model.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_linux_guests::{Attachment, Guest, Runner, Spec, image};
use ringway_ring_client::Ring;
use ringway_tests::fabric::{self, BOOT, Fabric, port};
use ringway_tests::folder::Folder;
use ringway_tests::linux_driver::{self, NoDriver};
use ringway_tests::talk::{BOUND, ran, reaches, talk};
use ringway_tests::traffic::{Transfer, answered, ping, send};
use ringway_tests::{eventually, qemu, say};
use std::path::{Path, PathBuf};

/// Modules for VLAN interfaces, in loading order.
const VLAN: [&str; 5] = ["llc", "stp", "garp", "mrp", "8021q"];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The guest's and the peer's addresses.
const CARD: &str = "10.99.0.1";
const PEER: &str = "10.99.0.2";

/// A model, its driver in Linux, and the interrupts that this driver uses by default, and with a parameter.
struct Model {
    name: &'static str,
    driver: &'static str,
    interrupts: &'static str,
    /// Speed of the card's link in Mb/s, and its duplex.
    link: &'static str,
    others: &'static [(&'static str, &'static str)],
}

/// A fabric with a card, another guest, and a program that sends single frames.
struct Bench {
    model: Model,
    program: PathBuf,
    text: String,
    fabric: Fabric,
    folder: Folder,
}

impl Bench {
    /// `None`, with a message, if no suitable QEMU or no kernel with the driver is available.
    fn new(model: Model) -> Option<Bench> {
        let Some(program) = qemu::with_cards() else {
            say("guests on emulated cards skipped: no QEMU with vfio-user is available");
            return None;
        };
        if let Err(error) = image::qemu(&[model.driver]) {
            say(&format!("guests on emulated cards skipped: {error}"));
            return None;
        }
        let folder = Folder::new(model.driver).unwrap();
        let text = format!(
            "[switch.main]\n[port.card]\nkind = \"e1000\"\nmodel = \"{}\"\nsocket = \"card.sock\"\n\
             mac = \"02:00:00:00:00:01\"\nmode = \"0666\"\nswitch = \"main\"\n\
             [port.raw]\nkind = \"ring\"\nsocket = \"raw.sock\"\nswitch = \"main\"\n{}",
            model.name,
            port("peer", "")
        );
        let fabric = Fabric::up(folder.path(), model.driver, &text).unwrap();
        Some(Bench { model, program, text, fabric, folder })
    }

    /// A guest on the card.
    fn guest(&self) -> Guest {
        self.guest_with(|_| {})
    }

    fn guest_with(&self, change: impl FnOnce(&mut Spec)) -> Guest {
        let guest = self.fabric.guest_with(Runner::Qemu, "card", 1, |spec| {
            let (socket, driver) = (self.fabric.socket("card.sock"), self.model.driver.into());
            spec.program = Some(self.program.clone());
            spec.drivers = VLAN.map(String::from).into();
            spec.interfaces[0].attachment = Attachment::VfioUser { socket, driver };
            // The card has its own address.
            spec.interfaces[0].mac = None;
            change(spec);
        });
        say(&format!("a guest with {} runs in {}", self.model.driver, guest.note()));
        guest
    }

    /// A guest on the vhost-user port.
    fn peer(&self) -> Guest {
        self.fabric.guest_with(fabric::second(), "peer", 2, |spec| {
            spec.drivers = VLAN.map(String::from).into();
        })
    }

    /// A frame from the program to `to`, of which the guest gets only what its card accepts.
    fn sends(&self, ring: &mut Ring, to: [u8; 6]) {
        let mut frame = [&to[..], &[2, 0, 0, 0, 0, 9, 0x88, 0xb5]].concat();
        frame.resize(60, 7);
        assert!(ring.tx.push(&frame).unwrap());
        ring.sync().unwrap();
    }

    /// Frames for the guest that its card refused.
    fn filtered(&self) -> u64 {
        let stats = self.fabric.ask(&["stats", "--json"]).unwrap();
        let card = stats["ports"].as_array().unwrap().iter().find(|port| port["name"] == "card").unwrap();
        card["total"]["rx_drops"]["filtered"].as_u64().unwrap_or(0)
    }

    /// Changes the card's techniques.
    fn apply(&self, techniques: &str) {
        let techniques = format!("techniques = {{ {techniques} }}\n[port.raw]");
        let text = format!("[fabric]\nname = \"{}\"\n{}", self.model.driver, self.text);
        let file = self.folder.path().join("changed.toml");
        std::fs::write(&file, text.replace("[port.raw]", &techniques)).unwrap();
        self.fabric.ask(&["--json", "apply", &file.display().to_string()]).unwrap();
    }

    fn detail(&self) -> String {
        let ports = self.fabric.ask(&["ps", "--json"]).unwrap()["ports"].clone();
        let card = ports.as_array().unwrap().iter().find(|port| port["name"] == "card").unwrap().clone();
        format!("{} {}", card["state"].as_str().unwrap(), card["detail"].as_str().unwrap())
    }

    fn is_driven(&self, guest: &Guest) {
        self.is_driven_by(guest, self.model.interrupts);
    }

    fn is_driven_by(&self, guest: &Guest, interrupts: &str) {
        let Model { name, driver, .. } = &self.model;
        let device = "/sys/class/net/eth0";
        assert_eq!(ran(guest, &format!("basename $(readlink {device}/device/driver)")), *driver);
        assert_eq!(ran(guest, &format!("cat {device}/address")), "02:00:00:00:00:01");
        assert_eq!(ran(guest, &format!("cat {device}/speed {device}/duplex")), self.model.link);
        assert_eq!(self.detail(), format!("up {name} {interrupts}"));
    }
}

/// Frames that a guest's interface received, and those to multicast addresses.
fn received(guest: &Guest) -> [u64; 2] {
    let text = ran(guest, "cd /sys/class/net/eth0/statistics; cat rx_packets multicast");
    let mut numbers = text.lines().map(|line| line.parse().unwrap());
    [(); 2].map(|()| numbers.next().unwrap())
}

/// Segments and datagrams with a wrong checksum.
fn bad_checksums(guest: &Guest) -> String {
    ran(
        guest,
        "awk '/^Tcp:/ { tcp = $NF } /^Udp:/ { udp = $(NF - 2) } END { print tcp, udp }' /proc/net/snmp",
    )
}

/// TCP, more than a ring's worth of frames. An emulated processor may stand still for longer than iperf3 waits: once
/// more then, if the guest
/// reaches the other one.
fn transfer(from: &Guest, to: &str, what: &str) -> Transfer {
    let again = |error| {
        assert!(reaches(from, to), "{what}: {error}; and no ping");
        say(&format!("{what}: {error}; once more"));
        send(from, to, "2M", "")
    };
    send(from, to, "2M", "").or_else(again).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// TCP both ways with each offload of the card on and off: the kernel checks what the card doesn't.
fn offloads(card: &Guest, peer: &Guest) {
    for settings in ["rx off tx on", "rx on tx off", "tx on tso off", "rx on tx on tso on sg on"] {
        ran(card, &format!("ethtool -K eth0 {settings}"));
        for (from, to) in [(card, PEER), (peer, CARD)] {
            let tcp = transfer(from, to, settings);
            assert!(tcp.rate > 0.0, "{settings}: {tcp:?}");
        }
    }
    for guest in [card, peer] {
        assert_eq!(bad_checksums(guest), "0 0", "{}", guest.spec().name);
    }
}

fn jumbo_frames(card: &Guest, peer: &Guest, largest: usize) {
    for mtu in [largest, 1500] {
        for guest in [card, peer] {
            ran(guest, &format!("ip link set eth0 mtu {mtu}"));
        }
        assert!(reaches(card, PEER), "an MTU of {mtu}");
        for (from, to) in [(card, PEER), (peer, CARD)] {
            let pings = ping(from, to, 3, mtu - 28, 0.1).unwrap();
            assert_eq!(pings.lost(), 0, "{pings:?}");
            let tcp = transfer(from, to, &format!("an MTU of {mtu}"));
            assert!(tcp.rate > 0.0);
        }
    }
}

fn vlans(bench: &Bench, card: &Guest, peer: &Guest) {
    for (guest, host) in [(card, 1), (peer, 2)] {
        ran(guest, &format!("vconfig add eth0 5 && ip address add 10.98.0.{host}/24 dev eth0.5"));
        ran(guest, "ip link set eth0.5 up");
    }
    assert!(reaches(card, "10.98.0.2"));
    let tcp = transfer(peer, "10.98.0.1", "in a VLAN");
    assert!(tcp.rate > 0.0);
    // e1000e leaves RCTL.VFE clear, and the RTL8139 and the PCnet have no such filter.
    if bench.model.driver != "e1000" {
        return;
    }
    // The guest is in no other VLAN.
    ran(peer, "vconfig add eth0 6 && ip address add 10.97.0.2/24 dev eth0.6 && ip link set eth0.6 up");
    let before = bench.filtered();
    assert!(!answered(peer, "10.97.0.1"));
    assert!(eventually(BOUND, || bench.filtered() > before), "frames of VLAN 6 pass the filter");
}

/// What the card's filters refuse and accept.
fn filters(bench: &Bench, guest: &Guest) {
    let mut ring = Ring::connect(&bench.fabric.socket("raw.sock")).unwrap();
    let (other, group) = ([2, 0, 0, 0, 0, 0x77], [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
    let refused = |ring: &mut Ring, to: [u8; 6]| {
        let before = bench.filtered();
        bench.sends(ring, to);
        assert!(eventually(BOUND, || bench.filtered() > before), "{to:x?} passes the filter");
    };
    let accepted = |ring: &mut Ring, to: [u8; 6]| {
        let before = received(guest)[0];
        bench.sends(ring, to);
        assert!(eventually(BOUND, || received(guest)[0] > before), "{to:x?} does not pass the filter");
    };
    accepted(&mut ring, MAC);
    accepted(&mut ring, [0xff; 6]);
    refused(&mut ring, other);
    refused(&mut ring, group);
    ran(guest, "ip link set eth0 promisc on");
    accepted(&mut ring, other);
    ran(guest, "ip link set eth0 promisc off && ifconfig eth0 allmulti");
    let before = received(guest)[1];
    accepted(&mut ring, group);
    // These don't report them.
    let reports = !["8139cp", "pcnet32"].contains(&bench.model.driver);
    assert!(
        !reports || eventually(BOUND, || received(guest)[1] > before),
        "the card counts multicast frames"
    );
    refused(&mut ring, other);
    ran(guest, "ifconfig eth0 -allmulti");
    refused(&mut ring, group);
    // The address's solicited-node group.
    ran(guest, "ip address add fd00::12:3456/64 dev eth0");
    accepted(&mut ring, group);
}

/// The driver's own tests of the card, which passes all but those in `but`. It sleeps for four seconds after them.
fn self_test(guest: &Guest, but: &[&str]) {
    // The status says that a test failed.
    let text = ran(guest, "ethtool -t eth0 offline; true");
    let tests = text.lines().filter(|line| line.contains("line)"));
    let (passed, failed): (Vec<&str>, Vec<&str>) = tests.partition(|line| line.ends_with("\t 0"));
    assert!(
        passed.len() >= 4 && failed.iter().all(|line| but.iter().any(|but| line.starts_with(but))),
        "{text}"
    );
    assert!(reaches(guest, PEER), "no ping after the tests");
}

/// The driver sees that the cable is disconnected, and connected again.
fn carrier(bench: &Bench, guest: &Guest) {
    let shows = |carrier: &str| ran(guest, "cat /sys/class/net/eth0/carrier") == carrier;
    bench.fabric.ask(&["--json", "port", "down", "card"]).unwrap();
    assert!(eventually(BOUND, || shows("0")), "the driver sees no loss of the carrier");
    assert!(bench.detail().contains(" no-carrier"), "{}", bench.detail());
    assert!(!answered(guest, PEER));
    bench.fabric.ask(&["--json", "port", "up", "card"]).unwrap();
    assert!(eventually(BOUND, || shows("1")), "the driver sees no carrier");
    assert!(reaches(guest, PEER), "no ping after the cable was connected again");
}

/// Techniques that change while the guest runs.
fn techniques(bench: &Bench, guest: &Guest, peer: &Guest) {
    let changes = [
        ("moderate = \"200us\"", " moderate=200us"),
        ("combine = true, timers = false", " combine no-timers"),
        ("batch = false, cached = false", " no-batch no-cache"),
    ];
    for (techniques, detail) in changes {
        bench.apply(techniques);
        assert!(bench.detail().ends_with(detail), "{}", bench.detail());
        for (from, to) in [(guest, PEER), (peer, CARD)] {
            let tcp = transfer(from, to, techniques);
            assert!(tcp.rate > 0.0, "{techniques}: {tcp:?}");
        }
    }
}

/// A guest whose client maps registers, with a driver that does not know the shared block.
fn mapped(bench: &Bench, guest: &Guest, peer: &Guest) {
    let Model { name, interrupts, .. } = bench.model;
    assert_eq!(bench.detail(), format!("up {name} {interrupts} mapped in-place csb combine moderate=50us"));
    assert!(reaches(guest, PEER), "no ping by a second client");
    for (from, to) in [(guest, PEER), (peer, CARD)] {
        let pings = ping(from, to, 5, 1472, 0.05).unwrap();
        assert_eq!(pings.lost(), 0, "{pings:?}");
        assert!(transfer(from, to, "mapped").rate > 0.0);
    }
    let exits = bench.fabric.ask(&["--json", "stats", "card", "--exits"]).unwrap();
    let is_doorbell = |register: &&serde_json::Value| register["name"] == "TDT" || register["name"] == "RDT";
    let doorbells = exits["registers"].as_array().unwrap().iter().filter(is_doorbell).count();
    // With the pin, QEMU's translator removes the mappings at the first interrupt.
    assert!(doorbells == 0 || interrupts == "intx", "{exits}");
    // Mapped registers keep bits that the chip has not.
    self_test(guest, &["Register"]);
}

/// The interface is stopped, and the driver is unloaded and loaded again: for its other interrupts, and for its
/// default ones while frames keep coming.
fn reload(bench: &Bench, guest: &Guest, peer: &Guest) {
    let driver = bench.model.driver;
    let load = |parameter: &str| {
        ran(guest, &format!("rmmod {driver} && insmod /modules/*-{driver}.ko {parameter}"));
        ran(guest, &format!("ip address add {CARD}/24 dev eth0 && ip link set eth0 up"));
    };
    let works = |interrupts: &str| {
        assert!(reaches(guest, PEER), "no ping after the driver was loaded again");
        bench.is_driven_by(guest, interrupts);
    };
    for (parameter, interrupts) in bench.model.others {
        // A frame during the driver's test of MSI makes it use INTx.
        ran(peer, "ip link set eth0 down");
        load(parameter);
        ran(peer, "ip link set eth0 up");
        works(interrupts);
    }
    // Without answers, ARP would stop the pings.
    ran(peer, &format!("arp -s {CARD} 02:00:00:00:00:01"));
    ran(peer, &format!("busybox ping -i 0.005 {CARD} >/dev/null 2>&1 </dev/null & echo $! >/tmp/pings"));
    ran(guest, "ip link set eth0 down");
    assert!(bench.detail().starts_with("attached "), "{}", bench.detail());
    ran(guest, "ip link set eth0 up");
    assert!(reaches(guest, PEER), "no ping after the link was down");
    load("");
    works(bench.model.interrupts);
    ran(peer, "kill $(cat /tmp/pings)");
}

fn works(model: Model) {
    let Some(bench) = Bench::new(model) else { return };
    let peer = bench.peer();
    let guest = bench.guest();
    bench.is_driven(&guest);
    talk(&guest, &peer, [CARD, PEER]);
    offloads(&guest, &peer);
    jumbo_frames(&guest, &peer, 9000);
    vlans(&bench, &guest, &peer);
    filters(&bench, &guest);
    self_test(&guest, &[]);
    bench.is_driven(&guest);
    carrier(&bench, &guest);
    techniques(&bench, &guest, &peer);
    bench.apply("");
    reload(&bench, &guest, &peer);
    guest.reboot(BOOT).unwrap();
    assert!(reaches(&guest, PEER), "no ping after a reboot");
    guest.kill();
    let techniques =
        "doorbells = \"mapped\", in-place = true, csb = true, moderate = \"50us\", combine = true";
    bench.apply(techniques);
    mapped(&bench, &bench.guest(), &peer);
    let counted = |counter| bench.fabric.counted("card", counter).unwrap();
    assert_eq!(counted("faults"), 0);
    let log =
        std::fs::read_to_string(bench.folder.path().join(format!("{}.log", bench.model.driver))).unwrap();
    assert!(!log.contains("refused"), "{log}");
}

/// Ports and guests of a fabric file: a QEMU guest on an 82574L, and the other one.
fn described(program: &str) -> String {
    let kind = if fabric::has_uml() { "uml" } else { "qemu" };
    format!(
        "[switch.main]\n[port.card]\nkind = \"e1000\"\nmodel = \"82574l\"\nsocket = \"card.sock\"\n\
         mac = \"02:00:00:00:00:01\"\nswitch = \"main\"\n{}\
         [guest.card]\nkind = \"qemu\"\nnic = \"e1000e\"\nprogram = \"{program}\"\nport = \"card\"\n\
         address = \"{CARD}/24\"\n\
         [guest.peer]\nkind = \"{kind}\"\nport = \"peer\"\naddress = \"{PEER}/24\"\n",
        port("peer", "")
    )
}

#[test]
fn control_starts_a_guest_on_a_card() {
    let Some(program) = qemu::with_cards().filter(|_| image::qemu(&["e1000e"]).is_ok()) else {
        return say(
            "a guest on an emulated card skipped: no QEMU with vfio-user, or no kernel, is available",
        );
    };
    let folder = Folder::new("started").unwrap();
    let fabric = Fabric::up(folder.path(), "started", &described(&program.display().to_string())).unwrap();
    fabric.ask(&["--json", "guest", "wait", "--timeout", "120"]).unwrap();
    let ping = format!("for i in 1 2 3 4 5; do busybox ping -c 1 -W 2 {PEER} && break; done");
    let pinged = fabric.ask(&["--json", "guest", "exec", "card", "--timeout", "30", "--", &ping]).unwrap();
    assert_eq!(pinged["status"], 0, "{pinged}");
    let profile = fabric.ask(&["--json", "profile", "card", "--seconds", "1"]).unwrap();
    let inside =
        profile["inside"].as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum::<f64>();
    assert!((99.0..101.0).contains(&inside) && profile["cards"][0]["port"] == "card", "{profile}");
}

#[test]
fn a_program_without_vfio_user_is_refused() {
    let folder = Folder::new("refused").unwrap();
    let reason = Fabric::up(folder.path(), "refused", &described("/bin/true")).err().unwrap().to_string();
    assert!(
        reason.contains("guest card: /bin/true") && reason.contains("no device vfio-user-pci"),
        "{reason}"
    );
    assert!(reason.contains("10.1") && reason.contains("scripts/newer-qemu.sh"), "{reason}");
}

#[test]
fn linux_drives_an_82540em_by_e1000() {
    works(Model { name: "82540em", driver: "e1000", interrupts: "intx", link: "1000\nfull", others: &[] });
}

#[test]
fn linux_drives_an_82574l_by_e1000e() {
    let others = &[("IntMode=0", "intx"), ("IntMode=1", "msi")];
    works(Model { name: "82574l", driver: "e1000e", interrupts: "msi-x", link: "1000\nfull", others });
}

#[test]
fn linux_drives_an_rtl8139_by_8139cp() {
    let model =
        Model { name: "rtl8139", driver: "8139cp", interrupts: "intx", link: "100\nfull", others: &[] };
    let Some(bench) = Bench::new(model) else { return };
    let peer = bench.peer();
    let guest = bench.guest();
    bench.is_driven(&guest);
    talk(&guest, &peer, [CARD, PEER]);
    offloads(&guest, &peer);
    // The driver's largest.
    jumbo_frames(&guest, &peer, 4096);
    vlans(&bench, &guest, &peer);
    filters(&bench, &guest);
    // The driver asks the card for its own counters.
    let counters = ran(&guest, "ethtool -S eth0");
    let count =
        |name: &str| counters.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok());
    let [sent, received]: [Option<u64>; 2] = ["tx_ok:", "rx_ok:"].map(count);
    assert!(sent > Some(100) && received > Some(100), "{counters}");
    changes(&bench, guest, &peer);
}

#[test]
fn linux_drives_a_pcnet_by_pcnet32() {
    let model = Model { name: "pcnet", driver: "pcnet32", interrupts: "intx", link: "10\nhalf", others: &[] };
    let Some(bench) = Bench::new(model) else { return };
    let peer = bench.peer();
    let guest = bench.guest();
    bench.is_driven(&guest);
    talk(&guest, &peer, [CARD, PEER]);
    vlans(&bench, &guest, &peer);
    filters(&bench, &guest);
    assert_eq!(bad_checksums(&guest), "0 0");
    changes(&bench, guest, &peer);
}

/// A card without registers to map, when its cable, its techniques, its driver and its client change.
fn changes(bench: &Bench, guest: Guest, peer: &Guest) {
    carrier(bench, &guest);
    techniques(bench, &guest, peer);
    bench.apply("");
    reload(bench, &guest, peer);
    guest.reboot(BOOT).unwrap();
    assert!(reaches(&guest, PEER), "no ping after a reboot");
    guest.kill();
    // Another client after the killed one.
    let guest = bench.guest();
    assert!(reaches(&guest, PEER), "no ping by a second client");
    bench.is_driven(&guest);
    assert_eq!(bench.fabric.counted("card", "faults").unwrap(), 0);
    let log =
        std::fs::read_to_string(bench.folder.path().join(format!("{}.log", bench.model.driver))).unwrap();
    assert!(!log.contains("refused"), "{log}");
}

/// Builds our driver in `folder`. `None`, with a message: the headers of the guests' kernel are missing.
fn built_module(folder: &Path) -> Option<PathBuf> {
    let kernel = image::qemu(&["e1000"]).ok()?;
    match linux_driver::build(folder, &kernel.modules) {
        Ok(module) => Some(module),
        Err(why @ NoDriver::Headers(_)) => {
            say(&format!("our driver skipped: {why}"));
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// Frames that the guest sent, and writes by which it announced them.
fn announced(bench: &Bench) -> [u64; 2] {
    let exits = bench.fabric.ask(&["--json", "stats", "card", "--exits"]).unwrap();
    let is_doorbell = |row: &&serde_json::Value| row["name"] == "TDT" || row["name"] == "CSBTXKICK";
    let rows = exits["registers"].as_array().unwrap().iter().filter(is_doorbell);
    [exits["tx_frames"].as_u64().unwrap(), rows.map(|row| row["writes"].as_u64().unwrap()).sum()]
}

#[test]
fn our_driver_combines_doorbells_and_uses_the_shared_block() {
    our_driver(Model {
        name: "82540em",
        driver: "e1000",
        interrupts: "intx",
        link: "1000\nfull",
        others: &[],
    });
}

#[test]
fn our_driver_drives_an_82574l() {
    our_driver(Model {
        name: "82574l",
        driver: "e1000e",
        interrupts: "msi-x",
        link: "1000\nfull",
        others: &[],
    });
}

fn our_driver(model: Model) {
    let folder = Folder::new("driver").unwrap();
    let Some(module) = built_module(folder.path()) else { return };
    let (name, stock) = (model.name, model.driver);
    let Some(bench) = Bench::new(model) else { return };
    bench.apply("csb = true");
    let peer = bench.peer();
    let guest = bench.guest_with(|spec| spec.carried.push(module.clone()));
    ran(&guest, &format!("rmmod {stock}"));
    for parameters in ["csb=1", "csb=0 combine=1", "csb=0 combine=0"] {
        ran(&guest, &format!("insmod {} {parameters}", module.display()));
        ran(&guest, &format!("ip address add {CARD}/24 dev eth0 && ip link set eth0 up"));
        assert!(reaches(&guest, PEER), "{parameters}: no ping");
        assert!(bench.detail().starts_with(&format!("up {name} msi csb")), "{}", bench.detail());
        let before = announced(&bench);
        for (from, to) in [(&guest, PEER), (&peer, CARD)] {
            let tcp = transfer(from, to, parameters);
            assert!(tcp.rate > 0.0, "{parameters}: {tcp:?}");
        }
        let after = announced(&bench);
        let [frames, doorbells] = [0, 1].map(|which| after[which] - before[which]);
        say(&format!("our driver, {parameters}: {doorbells} doorbells for {frames} frames"));
        assert!(
            parameters == "csb=0 combine=0" || doorbells < frames,
            "{parameters}: {doorbells} of {frames}"
        );
        carrier(&bench, &guest);
        if parameters == "csb=1" {
            talk(&guest, &peer, [CARD, PEER]);
        }
        ran(&guest, "ip link set eth0 down && rmmod ringway_e1000");
    }
    assert_eq!(bench.fabric.counted("card", "faults").unwrap(), 0);
}
