//! Open vSwitch in user space: the same random tables and the same frames give the same copies and the same counters,
//! and `ovs-ofctl` shows the matches as we do. `RINGWAY_SEED` is the first table's number, `RINGWAY_SOAK` for how many
//! seconds others follow.

use crate::common::{Random, copies, flows, frame};
use ringway_flow::{Numbers, Rules, Tables, Worker};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PORTS: u16 = 4;
/// How long Open vSwitch may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A bridge without a datapath in the kernel, whose ports write what they send to files.
struct Peer {
    folder: PathBuf,
    processes: Vec<Child>,
}

impl Peer {
    /// Starts it; `None` if it is not installed.
    fn start() -> Option<Peer> {
        let is_installed = ["ovs-ofctl", "ovs-appctl", "ovs-vsctl", "ovsdb-server", "ovs-vswitchd"]
            .iter()
            .all(|program| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok());
        if !is_installed {
            eprintln!("not run: openvswitch-switch is not installed");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("ringway-flow-{}", std::process::id()));
        // A former test of the same number may have left it.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut peer = Peer { folder, processes: Vec::new() };
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        peer.run("ovsdb-tool", &["create", &peer.path("conf.db"), schema]);
        let socket = format!("unix:{}", peer.path("db.sock"));
        let (remote, control) = (format!("--remote=p{socket}"), format!("--unixctl={}", peer.path("db.ctl")));
        peer.spawn("ovsdb-server", &[&peer.path("conf.db"), &remote, &control]);
        until("the database", || peer.folder.join("db.sock").exists());
        let control = format!("--unixctl={}", peer.path("vs.ctl"));
        peer.run("ovs-vsctl", &[&format!("--db={socket}"), "--no-wait", "init"]);
        peer.spawn("ovs-vswitchd", &["--enable-dummy=override", "--disable-system", &control, &socket]);
        let mut ports = String::from(
            "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure protocols=OpenFlow13",
        );
        for port in 1..=PORTS {
            let file = peer.path(&format!("p{port}.pcap"));
            // Writing to a string does not fail.
            let _ = write!(
                ports,
                " -- add-port br0 p{port} -- set interface p{port} type=dummy ofport_request={port} \
                 options:tx_pcap={file}"
            );
        }
        let database = format!("--db={socket}");
        let words: Vec<&str> = std::iter::once(database.as_str()).chain(ports.split(' ')).collect();
        peer.run("ovs-vsctl", &words);
        Some(peer)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, &self.folder);
        }
        command
    }

    fn spawn(&mut self, program: &str, arguments: &[&str]) {
        let child = self.command(program).args(arguments).stderr(Stdio::null()).spawn().unwrap();
        self.processes.push(child);
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn ofctl(&self, arguments: &[&str]) -> String {
        let bridge = self.path("br0.mgmt");
        let [command, rest @ ..] = arguments else { panic!("no command") };
        self.run("ovs-ofctl", &[&["-O", "OpenFlow13", command, &bridge], rest].concat())
    }

    fn receive(&self, port: u16, frames: &[Vec<u8>]) {
        let control = self.path("vs.ctl");
        for some in frames.chunks(16) {
            let frames: Vec<String> = some.iter().map(|frame| ringway_wire::fields::hex(frame)).collect();
            let name = format!("p{port}");
            let mut words = vec!["-t", &control, "netdev-dummy/receive", &name];
            words.extend(frames.iter().map(String::as_str));
            self.run("ovs-appctl", &words);
        }
    }

    /// The flows as `ovs-ofctl` shows them: table and match, and the counters.
    fn flows(&self) -> BTreeMap<String, (u64, u64)> {
        self.ofctl(&["dump-flows"]).lines().filter_map(parts).collect()
    }

    /// The frames that a port has sent.
    fn sent(&self, port: u16) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(self.path(&format!("p{port}.pcap"))).unwrap();
        let (mut frames, mut rest) = (Vec::new(), &bytes[24..]);
        while rest.len() >= 16 {
            let len = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize;
            frames.push(rest[16..16 + len].to_vec());
            rest = &rest[16 + len..];
        }
        frames
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for mut child in self.processes.drain(..).rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn until(what: &str, mut is_there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < PATIENCE, "{what} is not there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Table, priority and match of a line of a dump, and its counters.
fn parts(line: &str) -> Option<(String, (u64, u64))> {
    let value = |name: &str| line.split(name).nth(1)?.split(',').next();
    let count = |name: &str| value(name)?.parse::<u64>().ok();
    let of = line.split("n_bytes=").nth(1)?.split_once(',')?.1.trim();
    let of = of.split(" actions=").next()?.split("actions=").next()?.trim();
    Some((format!("{} {of}", value("table=")?), (count("n_packets=")?, count("n_bytes=")?)))
}

/// Runs frames through the same tables in both. `sent`: how many frames each port has sent before. Returns what
/// differs.
fn compare(peer: &Peer, seed: u64, sent: &mut [usize]) -> Result<(), String> {
    let mut random = Random::new(seed);
    let file = flows(&mut random, 60).join("\n");
    let path: &Path = &peer.folder.join("flows");
    std::fs::write(path, &file).unwrap();
    // Also those that stay begin to count.
    peer.ofctl(&["del-flows"]);
    peer.ofctl(&["replace-flows", &path.to_string_lossy()]);
    // While it looks at flows of its datapath again, it may drop a frame.
    peer.run("ovs-appctl", &["-t", &peer.path("vs.ctl"), "revalidator/wait"]);
    let mut tables = Tables::new(seed);
    tables.replace(&Rules::read(&file, &Numbers).unwrap(), 0).unwrap();
    let (pipeline, mut worker) = (tables.current().clone(), Worker::default());
    let mut expected = vec![Vec::new(); usize::from(PORTS)];
    for _ in 0..24 {
        let in_port = 1 + random.below(usize::from(PORTS)) as u16;
        let burst: Vec<Vec<u8>> = (0..8).map(|_| maybe_broken(&mut random)).collect();
        peer.receive(in_port, &burst);
        for frame in &burst {
            for (port, bytes) in copies(&pipeline, &mut worker, in_port, frame) {
                let to = (1..=PORTS).filter(|to| if port == 0 { *to != in_port } else { *to == port });
                to.for_each(|to| expected[usize::from(to) - 1].push((bytes.clone(), in_port, frame.clone())));
            }
        }
    }
    let own: BTreeMap<String, (u64, u64)> =
        pipeline.flows().filter_map(|flow| parts(&flow.show(&Numbers, 0))).collect();
    // It counts frames some time before or after it sends them.
    let begun = Instant::now();
    let mut others = peer.flows();
    let all_sent = || {
        let mut ports = (1..=PORTS).zip(&expected).zip(&*sent);
        ports.all(|((port, expected), before)| peer.sent(port).len() >= before + expected.len())
    };
    while (own != others || !all_sent()) && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        others = peer.flows();
    }
    let copies = same_copies(peer, &mut expected, sent);
    let differs = own.iter().find(|(of, counts)| others.get(*of) != Some(counts));
    let counts =
        differs.map_or(Ok(()), |(of, counts)| Err(format!("{counts:?}, not {:?}, of {of}", others.get(of))));
    assert_eq!(own.len(), others.len());
    copies.and(counts).map_err(|what| format!("seed {seed}: {what}, by\n{file}"))
}
/// A copy, and the port and the frame that it is of.
type Copied = (Vec<u8>, u16, Vec<u8>);

/// Whether the frames that the peer has sent are those that are expected from each port; otherwise what differs.
fn same_copies(peer: &Peer, expected: &mut [Vec<Copied>], sent: &mut [usize]) -> Result<(), String> {
    let mut wrong = Ok(());
    for port in 1..=PORTS {
        let (expected, before) = (&mut expected[usize::from(port) - 1], &mut sent[usize::from(port) - 1]);
        let mut found = peer.sent(port).split_off(*before);
        *before += found.len();
        // Frames of several ports may pass each other.
        expected.retain(|(own, ..)| match found.iter().position(|other| other == own) {
            Some(at) => {
                found.swap_remove(at);
                false
            }
            None => true,
        });
        if let Some((own, in_port, frame)) = expected.first() {
            let what = format!("port {port} lacks {own:02x?} of {frame:02x?} from {in_port}; {found:02x?}");
            wrong = wrong.and(Err(what));
        } else if !found.is_empty() {
            wrong = wrong.and(Err(format!("port {port} also has {found:02x?}")));
        }
    }
    wrong
}

/// A frame, of which one byte of the headers may be wrong, or the end may be missing.
fn maybe_broken(random: &mut Random) -> Vec<u8> {
    let mut frame = frame(random);
    match random.below(6) {
        0 => {
            let at = 12 + random.below(40);
            frame[at] = random.below(256) as u8;
        }
        1 => frame.truncate(14 + random.below(46)),
        _ => {}
    }
    frame
}

#[test]
fn random_tables_give_the_same_copies_and_counters() {
    let Some(peer) = Peer::start() else { return };
    let mut sent = [0; PORTS as usize];
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("RINGWAY_SEED").unwrap_or(1);
    let (begun, time) = (Instant::now(), Duration::from_secs(number("RINGWAY_SOAK").unwrap_or(0)));
    for seed in first.. {
        if seed >= first + 6 && begun.elapsed() >= time {
            println!("{} tables", seed - first);
            break;
        }
        // Open vSwitch may drop a frame: only what differs in both runs is wrong.
        let again =
            |first: String, sent: &mut [usize]| compare(&peer, seed, sent).map_err(|what| first + &what);
        let found = compare(&peer, seed, &mut sent).or_else(|first| again(first, &mut sent));
        assert_eq!(found.err().unwrap_or_default(), "");
    }
}

#[test]
fn an_example() {
    // Without a peer, so that the reader of dumps is tested everywhere.
    let line = " cookie=0x0, duration=0.545s, table=2, n_packets=1, n_bytes=44, priority=5,in_port=1 \
    actions=output:2";
    assert_eq!(parts(line), Some(("2 priority=5,in_port=1".into(), (1, 44))));
    let line = " cookie=0x0, duration=0.545s, table=0, n_packets=3, n_bytes=180, actions=drop";
    assert_eq!(parts(line), Some(("0 ".into(), (3, 180))));
}
