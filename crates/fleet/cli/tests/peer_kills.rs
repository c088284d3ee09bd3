//! Open vSwitch with DPDK, and DPDK's testpmd, killed under numbered frames as `data` is in `data_kills.rs`, for
//! `make bench-faults`: how long a guest gets no frame until the switch was started again and has connected to it.
//!
//! Both connect to the guest's front-end, as they do again after a restart. The guest's frames come back to it.
#![allow(clippy::unwrap_used)]

use crate::data_kills::{FRAME, HEADER, RING, RINGS, SIZE, USER, describe, report};
use crate::lab::{Lab, Running, until};
use ringway_host::{EventFd, map_region, memfd, wait_readable};
use ringway_linux_guests::image;
use ringway_mem::{Hint, Memory};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Frames that the guest sends each millisecond, and the most that are on their way.
const EACH: u64 = 10;
const WINDOW: u64 = 128;
/// Huge pages of 2 MB that DPDK takes.
const PAGES: u64 = 320;
const NR_PAGES: &str = "/proc/sys/vm/nr_hugepages";
const OVS: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// What a guest counts whose frames come back to it.
#[derive(Default)]
struct Echo {
    received: AtomicU64,
    twice: AtomicU64,
    /// The longest time without a frame since it was last asked for, in microseconds.
    silence: AtomicU64,
}

/// A frame to all stations with a number, behind its header.
fn numbered(number: u64) -> [u8; HEADER + FRAME] {
    let mut frame = [0; HEADER + FRAME];
    frame[HEADER..HEADER + 6].fill(0xff);
    frame[HEADER + 6..HEADER + 14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame[HEADER + 14..HEADER + 22].copy_from_slice(&number.to_be_bytes());
    frame
}

impl Echo {
    /// A frame has come back. `next` is the number behind the latest one, `last` the time when that came.
    fn count(&self, frame: &[u8], (next, last): (&mut u64, &mut Instant)) {
        let number = u64::from_be_bytes(frame[HEADER + 14..HEADER + 22].try_into().unwrap());
        self.twice.fetch_add(u64::from(number < *next), SeqCst);
        *next = (*next).max(number + 1);
        self.silence.fetch_max(last.elapsed().as_micros() as u64, SeqCst);
        self.received.fetch_add(1, SeqCst);
        *last = Instant::now();
    }
}

/// The guest, with rings anew for each connection, until the switch is gone.
fn exchange(socket: UnixStream, echo: &Echo, at: &mut (u64, u64, Instant), stop: &AtomicBool) {
    let file = memfd("guest", SIZE as usize).unwrap();
    let memory = Memory::new(vec![map_region(&file, 0, SIZE, 0, USER).unwrap()]).unwrap();
    let (kicks, calls) = ([(); 2].map(|()| EventFd::new().unwrap()), EventFd::new().unwrap());
    let gone = socket.try_clone().unwrap();
    let front = describe(socket, false, &file, kicks.each_ref(), &calls);
    let layout = Layout { packed: false, size: RING, event_idx: true, indirect: false };
    let lengths = layout.lengths().unwrap();
    let span = |at: u64, len: u32| memory.span_mut(at, len, &mut Hint::default()).unwrap();
    let [mut rx, mut tx] = RINGS.map(|at| {
        let areas = Areas {
            descriptors: span(at, lengths.descriptors),
            driver: span(at + 0x4000, lengths.driver),
            device: span(at + 0x8000, lengths.device),
        };
        Driver::new(&layout, areas).unwrap()
    });
    let mut free: [Vec<u64>; 2] =
        [0x10_0000, 0x20_0000].map(|at| (0..u64::from(RING)).map(|n| at + n * 2048).collect());
    let mut places: [HashMap<u16, u64>; 2] = Default::default();
    let (begin, first) = (Instant::now(), at.0);
    // What was on its way is lost.
    let mut base = at.0;
    while !stop.load(SeqCst) && !wait_readable(&[gone.as_fd()], Some(0)).unwrap()[0] {
        while let Some((id, _)) = tx.take_used().unwrap() {
            free[1].push(places[1].remove(&id).unwrap());
        }
        while let Some((id, len)) = rx.take_used().unwrap() {
            let place = places[0].remove(&id).unwrap();
            free[0].push(place);
            let mut frame = [0; HEADER + FRAME];
            if len as usize != frame.len() {
                continue;
            }
            span(place, len).as_span().read(&mut frame);
            echo.count(&frame, (&mut at.1, &mut at.2));
        }
        while let Some(place) = free[0].pop() {
            let Some(id) = rx.add(&[Buffer { address: place, len: 2048, write: true }], None) else {
                free[0].push(place);
                break;
            };
            places[0].insert(id, place);
        }
        base = base.max(at.1);
        let due = first + begin.elapsed().as_micros() as u64 * EACH / 1000;
        // A switch that has lost some must not stop the guest.
        if at.2.elapsed() > Duration::from_millis(50) {
            base = at.0;
        }
        while at.0 < due && at.0 < base + WINDOW {
            let Some(place) = free[1].pop() else { break };
            let frame = numbered(at.0);
            let len = frame.len() as u32;
            span(place, len).write(&frame);
            let Some(id) = tx.add(&[Buffer { address: place, len, write: false }], None) else {
                free[1].push(place);
                break;
            };
            places[1].insert(id, place);
            at.0 += 1;
        }
        publish([&mut rx, &mut tx], &kicks);
        std::thread::sleep(Duration::from_micros(200));
    }
    drop(front);
}

/// Makes what was added visible to the switch.
fn publish(rings: [&mut Driver<'_>; 2], kicks: &[EventFd; 2]) {
    for (driver, kick) in rings.into_iter().zip(kicks) {
        driver.publish();
        if driver.wants_kick() {
            kick.signal();
        }
    }
}

/// Huge pages, set back when dropped.
struct Pages(String);

impl Pages {
    fn reserve() -> Option<Pages> {
        let before = std::fs::read_to_string(NR_PAGES).ok()?;
        let wanted = before.trim().parse::<u64>().ok()?.max(PAGES);
        std::fs::write(NR_PAGES, wanted.to_string()).ok()?;
        let pages = Pages(before.trim().into());
        let got: u64 = std::fs::read_to_string(NR_PAGES).ok()?.trim().parse().ok()?;
        (got >= wanted).then_some(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = std::fs::write(NR_PAGES, &self.0);
    }
}

/// A command whose output is in a file of the folder.
fn started(lab: &Lab, name: &str, program: &Path, words: &[&str]) -> Running {
    let log = File::create(lab.folder.join(format!("{name}.log"))).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(words).current_dir(&lab.folder);
    for folder in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(folder, &lab.folder);
    }
    // testpmd ends with its input.
    command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
    Running(command.spawn().unwrap())
}

/// Ends the guest when it is dropped: a run that fails would wait for it otherwise.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Kills what `start` starts, and starts it again at once, so often; the guest is at `guest.sock` of the folder.
fn killed(lab: &Lab, key: &str, start: &dyn Fn() -> Running) {
    let kills = std::env::var("PEER_FAULTS").map_or(20_u64, |kills| kills.parse().unwrap());
    let listener = UnixListener::bind(lab.folder.join("guest.sock")).unwrap();
    let (echo, stop) = (Echo::default(), AtomicBool::new(false));
    let mut silences = Vec::new();
    std::thread::scope(|scope| {
        let (echo, stop) = (&echo, &stop);
        let _stop = Stop(stop);
        let mut running = start();
        scope.spawn(move || {
            let mut at = (0, 0, Instant::now());
            while !stop.load(SeqCst) {
                if wait_readable(&[listener.as_fd()], Some(10_000_000)).unwrap()[0] {
                    exchange(listener.accept().unwrap().0, echo, &mut at, stop);
                }
            }
        });
        let passes = |more: u64| {
            let before = echo.received.load(SeqCst);
            until("frames come back", || echo.received.load(SeqCst) > before + more);
        };
        passes(2000);
        for _ in 0..kills {
            echo.silence.store(0, SeqCst);
            drop(running);
            running = start();
            passes(2000);
            silences.push(echo.silence.load(SeqCst));
        }
    });
    silences.sort_unstable();
    let twice = echo.twice.load(SeqCst);
    println!("{key}: {twice} frames came twice, silences in us {silences:?}");
    assert_eq!(silences.len() as u64, kills);
    if let Ok(path) = std::env::var("FAULTS_REPORT") {
        report(&path, key, (1, twice), &silences);
    }
}

/// Whether this run is to measure others, and this machine has `program` and huge pages for it.
fn may_measure(program: &Path) -> Option<Pages> {
    if std::env::var("FAULTS_REPORT").is_err() {
        eprintln!("left out: make bench-faults measures it");
        return None;
    }
    if !program.is_file() {
        eprintln!("left out: {} is not installed", program.display());
        return None;
    }
    let pages = Pages::reserve();
    if pages.is_none() {
        eprintln!("left out: there are no {PAGES} huge pages of 2 MB, or only root can reserve them");
    }
    pages
}

#[test]
fn testpmd_is_killed_likewise() {
    let program = image::program("dpdk-testpmd").unwrap_or_default();
    let Some(_pages) = may_measure(&program) else { return };
    let lab = Lab::new("kills-testpmd", "");
    let device = format!("net_vhost0,iface={},client=1", lab.folder.join("guest.sock").display());
    killed(&lab, "testpmd.killed", &|| {
        let words =
            ["-l", "0,1", "--in-memory", "--no-pci", "--no-telemetry", "-m", "512", "--vdev", &device];
        let own = ["--", "-i", "--nb-cores=1", "--port-topology=loop", "-a", "--forward-mode=io"];
        started(&lab, "testpmd", &program, &[&words[..], &own[..]].concat())
    });
}

#[test]
fn open_vswitch_is_killed_likewise() {
    let Some(_pages) = may_measure(Path::new(OVS)) else { return };
    let lab = Lab::new("kills-ovs", "");
    let in_folder = |name: &str| lab.folder.join(name).display().to_string();
    let (database, socket) = (in_folder("conf.db"), in_folder("db.sock"));
    let ok = |program: &str, words: &[&str]| {
        let path = image::program(program).unwrap();
        let output = Command::new(path).args(words).env("OVS_RUNDIR", &lab.folder).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    ok("ovsdb-tool", &["create", &database, "/usr/share/openvswitch/vswitch.ovsschema"]);
    let remote = format!("--remote=punix:{socket}");
    let server = image::program("ovsdb-server").unwrap();
    let _server = started(&lab, "ovsdb", &server, &[&database, &remote, "--no-chdir", "--unixctl=none"]);
    until("the database answers", || Path::new(&socket).exists());
    let db = format!("--db=unix:{socket}");
    let settings = "init -- set Open_vSwitch . other_config:dpdk-init=true other_config:dpdk-socket-mem=512 \
                    other_config:pmd-cpu-mask=0x2 other_config:dpdk-lcore-mask=0x1 -- add-br bench -- \
                    set bridge bench datapath_type=netdev -- add-port bench guest -- set Interface guest \
                    type=dpdkvhostuserclient";
    let guest = format!("options:vhost-server-path={}", in_folder("guest.sock"));
    let extra = "--no-pci --no-telemetry --in-memory";
    let extra = format!("other_config:dpdk-extra=\"{extra}\"");
    let mut words = vec![&*db, "--no-wait", "--"];
    words.extend(settings.split_whitespace());
    words.extend([&*guest, "--", "set", "Open_vSwitch", ".", &extra]);
    ok("ovs-vsctl", &words);
    let unix = format!("unix:{socket}");
    let management = in_folder("bench.mgmt");
    killed(&lab, "ovs-dpdk.killed", &|| {
        let control = format!("--unixctl={}", in_folder("ovs.ctl"));
        let running = started(&lab, "vswitchd", Path::new(OVS), &[&unix, "--no-chdir", &control]);
        // Its rules are lost with it, as an operator's controller would set them again.
        let management = format!("unix:{management}");
        let end = Instant::now() + Duration::from_secs(30);
        let program = image::program("ovs-ofctl").unwrap();
        let set = || {
            let mut command = Command::new(&program);
            command.args(["add-flow", &management, "actions=in_port"]).env("OVS_RUNDIR", &lab.folder);
            command.output().unwrap().status.success()
        };
        while !set() {
            assert!(Instant::now() < end, "Open vSwitch does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        running
    });
}
