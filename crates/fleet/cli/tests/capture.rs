//! `ringway capture`: files, lines, drops, and Wireshark's protocol.

use crate::docs::{between, shown};
use crate::lab::api::{fabric, kill};
use crate::lab::frames::{LONG, next, patched, program, send};
use crate::lab::net::can_create_taps;
use crate::lab::{Lab, Running, until};
use ringway_host::{PACKET_HEADER, PacketSettings, open_packet, packet_receive, wait_readable};
use ringway_ring_client::Ring;
use ringway_wire::pcap::Header;
use ringway_wire::pcapng::{Block, Decoder, Direction, Packet, Reader};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Instant;

/// `PACKET_OUTGOING`: the kind of frames that the host sends.
const OUTGOING: u8 = 4;

/// A capture that has begun.
struct Capturing {
    running: Running,
    errors: BufReader<ChildStderr>,
}

impl Capturing {
    fn command(lab: &Lab, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.arg("capture").args(words).current_dir(&lab.folder);
        command.env("RINGWAY_RUN", lab.folder.join("run")).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(lab: &Lab, words: &[&str]) -> Capturing {
        Capturing::of(lab, &mut Capturing::command(lab, words))
    }

    fn of(lab: &Lab, command: &mut Command) -> Capturing {
        let mut child = command.spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(line.starts_with("capturing at "), "{line}{}", lab.log());
        Capturing { running: Running(child), errors }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.running.0.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; whether it succeeded, its output and its last messages.
    fn end(mut self) -> (bool, String, String) {
        let child: &mut Child = &mut self.running.0;
        let mut output = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_end(&mut output).unwrap();
        }
        let success = child.wait().unwrap().success();
        let mut errors = String::new();
        self.errors.read_to_string(&mut errors).unwrap();
        (success, String::from_utf8_lossy(&output).into_owned(), errors)
    }

    /// Ends it by Ctrl-C; its last messages.
    fn interrupt(self) -> String {
        self.signal(Signal::INT);
        let (success, _, errors) = self.end();
        assert!(success, "{errors}");
        errors
    }
}

/// A fabric that is up, and programs on its ports.
fn up(name: &str, file: &str) -> Lab {
    let lab = Lab::new(name, file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

fn pair(name: &str) -> (Lab, Ring, Ring) {
    let lab = up(name, &patched(&[["left", "right"]]));
    let (left, right) = (program(&lab, "left"), program(&lab, "right"));
    (lab, left, right)
}

/// Sends numbered frames, each after the one before has come.
fn pass(left: &mut Ring, right: &mut Ring, numbers: std::ops::Range<u32>) {
    for number in numbers {
        assert!(send(left, number));
        assert_eq!(next(right, LONG), Some(number));
    }
}

struct Contents {
    names: Vec<String>,
    packets: Vec<(u32, Direction, Vec<u8>, u64)>,
    statistics: usize,
}

/// Reads a file by our own parser.
fn read(path: &Path) -> Contents {
    let file = std::fs::read(path).unwrap();
    let mut decoder = Decoder::new();
    let mut read = Contents { names: Vec::new(), packets: Vec::new(), statistics: 0 };
    let mut rest = &file[..];
    while let Some((block, len)) = decoder.next(rest).unwrap() {
        match block {
            Block::Interface(_) => {
                // The name is the first option, after the link type and the snap length.
                let size = usize::from(u16::from_le_bytes([rest[18], rest[19]]));
                read.names.push(String::from_utf8_lossy(&rest[20..20 + size]).into_owned());
            }
            Block::Packet(Packet { interface, direction, data, time, .. }) => {
                read.packets.push((interface, direction, data.to_vec(), time));
            }
            Block::Other(5) => read.statistics += 1,
            _ => {}
        }
        rest = &rest[len..];
    }
    assert!(rest.is_empty(), "the file is whole");
    read
}

/// The output of a program that may not be installed.
fn tool(name: &str, words: &[&str]) -> Option<Output> {
    Command::new(name).args(words).output().ok()
}

fn frames(lab: &Lab, port: &str, counter: &str) -> u64 {
    let stats = lab.json(&["stats"]);
    let ports = stats["ports"].as_array().unwrap();
    ports.iter().find(|found| found["name"] == port).unwrap()["total"][counter].as_u64().unwrap()
}

#[test]
fn every_frame_is_in_the_file_and_other_programs_read_it() {
    let (lab, mut left, mut right) = pair("capture-file");
    let path = lab.folder.join("out.pcapng");
    let capture = Capturing::start(&lab, &["left", "right", "-w", "out.pcapng"]);
    let words = ["right", "-w", "other.pcapng", "-s", "20", "--direction", "out", "--statistics"];
    let other = Capturing::start(&lab, &words);
    pass(&mut left, &mut right, 0..200);
    pass(&mut right, &mut left, 0..50);
    let report = capture.interrupt();
    assert_eq!(report, "500 frames captured, 500 passed\n");
    assert_eq!(other.interrupt(), "200 frames captured, 200 passed\n");
    let file = read(&path);
    assert_eq!((&*file.names, file.statistics), (&["left".into(), "right".into()][..], 2));
    let count = |interface, direction| {
        file.packets.iter().filter(|packet| (packet.0, packet.1) == (interface, direction)).count() as u64
    };
    for (interface, port) in [(0, "left"), (1, "right")] {
        assert_eq!(count(interface, Direction::Inbound), frames(&lab, port, "tx_frames"), "{port}");
        assert_eq!(count(interface, Direction::Outbound), frames(&lab, port, "rx_frames"), "{port}");
    }
    assert!(file.packets.is_sorted_by_key(|packet| packet.3), "one order");
    let sent = file.packets.iter().filter(|packet| (packet.0, packet.1) == (0, Direction::Inbound));
    let numbers: Vec<u32> =
        sent.map(|(_, _, data, _)| u32::from_be_bytes(data[14..18].try_into().unwrap())).collect();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    let short = read(&lab.folder.join("other.pcapng"));
    assert_eq!(
        (short.packets.len(), short.statistics),
        (200, 2),
        "statistics at the beginning and at the end"
    );
    assert!(
        short
            .packets
            .iter()
            .all(|(_, direction, data, _)| { (*direction, data.len()) == (Direction::Outbound, 20) })
    );
    if let Some(output) = tool("tcpdump", &["-r", path.to_str().unwrap()]) {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Lines of bytes are indented.
        let count = text.lines().filter(|line| !line.starts_with(char::is_whitespace)).count();
        assert_eq!(count, 500, "{}", String::from_utf8_lossy(&output.stderr));
    }
    let fields = ["-T", "fields", "-e", "frame.interface_name", "-e", "frame.packet_flags_direction"];
    let words = [&["-r", path.to_str().unwrap()][..], &fields].concat();
    if let Some(output) = tool("tshark", &words) {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let right_out = text.lines().filter(|line| line.starts_with("right") && line.contains('2')).count();
        assert_eq!((text.lines().count(), right_out), (500, 200), "{text}");
    }
}

#[test]
fn a_line_a_frame_with_an_expression_and_a_count() {
    let (lab, mut left, mut right) = pair("capture-lines");
    let capture = Capturing::start(
        &lab,
        &["left", "--count", "3", "ether[17] = 7 or ether[17] >= 100", "and", "inbound"],
    );
    pass(&mut left, &mut right, 0..200);
    let (success, output, report) = capture.end();
    assert!(success && report.starts_with("3 frames captured, "), "{report}");
    let lines: Vec<&str> = output.lines().collect();
    let end = "left In 02:02:02:02:02:02 > 02:02:02:02:02:02, ethertype 0x0202, length 60";
    assert!(lines.len() == 3 && lines.iter().all(|line| line.ends_with(end)), "{output}");
    let mut capture = Capturing::command(&lab, &["right", "-c", "1", "--json"]).spawn().unwrap();
    let mut number = 0;
    while capture.try_wait().unwrap().is_none() {
        pass(&mut left, &mut right, number..number + 1);
        number += 1;
    }
    let output = capture.wait_with_output().unwrap();
    let one: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (one["port"].as_str(), one["direction"].as_str(), one["length"].as_u64()),
        (Some("right"), Some("out"), Some(60))
    );
    assert!(one["dropped"].is_null() && output.stderr.is_empty(), "{one}");
}

#[test]
fn dropped_frames_have_their_reason() {
    let lab = up("capture-drops", &patched(&[["left", "right"]]));
    let mut left = program(&lab, "left");
    let capture = Capturing::start(&lab, &["left", "right", "--only-drops", "-w", "out.pcapng"]);
    for number in 0..10 {
        assert!(send(&mut left, number));
    }
    until("the frames are dropped", || frames(&lab, "left", "tx_frames") == 10);
    let report = capture.interrupt();
    assert_eq!(report, "10 frames captured, 10 passed\n");
    let bytes = std::fs::read(lab.folder.join("out.pcapng")).unwrap();
    let comments = bytes.windows(13).filter(|window| window == b"dropped: down").count();
    let packets: Vec<_> = Reader::new(&bytes).map(|packet| packet.unwrap()).collect();
    assert_eq!((comments, packets.len()), (10, 10));
    assert!(packets.iter().all(|packet| (packet.interface, packet.direction) == (1, Direction::Outbound)));
}

#[test]
fn a_closed_pipe_a_full_disk_and_the_end_of_the_fabric() {
    let (lab, mut left, mut right) = pair("capture-ends");
    let mut capture = Capturing::start(&lab, &["left", "-w", "-"]);
    let mut begin = [0; 4];
    let mut pipe = capture.running.0.stdout.take().unwrap();
    pipe.read_exact(&mut begin).unwrap();
    assert_eq!(begin, [0x0a, 0x0d, 0x0d, 0x0a]);
    drop(pipe);
    let (success, _, errors) = capture.end();
    assert!(success, "{errors}");
    let (code, message) = lab.fails(&["capture", "left", "-w", "/dev/full"]);
    assert_eq!(code, 1);
    assert!(message.starts_with("error: /dev/full: No space left on device"), "{message}");
    // A file that can't become longer than 256 or 512 KB, depending on the shell.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ringway")]);
    limited.args(["capture", "left", "-w", "limited.pcapng"]).current_dir(&lab.folder);
    limited.env("RINGWAY_RUN", lab.folder.join("run")).stdout(Stdio::null()).stderr(Stdio::piped());
    let capture = Capturing::of(&lab, &mut limited);
    pass(&mut left, &mut right, 0..6000);
    let (success, _, errors) = capture.end();
    assert!(!success && errors.contains("; what was written before is complete"), "{errors}");
    let packets = read(&lab.folder.join("limited.pcapng")).packets;
    let numbers = packets.iter().map(|packet| u32::from_be_bytes(packet.2[14..18].try_into().unwrap()));
    assert!(!packets.is_empty() && numbers.eq(0..packets.len() as u32), "{} frames", packets.len());
    let capture = Capturing::start(&lab, &["left", "-w", "last.pcapng", "--ring", "1"]);
    pass(&mut left, &mut right, 0..20);
    until("the copies were read", || frames(&lab, "left", "tx_frames") == 6020);
    lab.ok(&["down"]);
    let (success, _, errors) = capture.end();
    assert!(success && errors == "20 frames captured, 20 passed\n", "{errors}");
    assert_eq!(read(&lab.folder.join("last.pcapng")).packets.len(), 20);
}

#[test]
fn a_capture_outlives_ports_and_the_data_process() {
    let file = patched(&[["left", "right"]]);
    let lab = up("capture-restart", &format!("{file}{}", patched(&[["one", "two"]])));
    let (mut left, mut right) = (program(&lab, "left"), program(&lab, "right"));
    let capture = Capturing::start(&lab, &["left", "one", "-w", "out.pcapng"]);
    pass(&mut left, &mut right, 0..10);
    // The other ports go away and come back.
    lab.write(&file);
    lab.ok(&["apply", "lab.toml"]);
    pass(&mut left, &mut right, 10..20);
    lab.write(&format!("{file}{}", patched(&[["one", "two"]])));
    lab.ok(&["apply", "lab.toml"]);
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    pass(&mut one, &mut two, 100..105);
    let before = fabric(&lab)["data_pid"].as_u64().unwrap();
    kill(before);
    until("data runs again", || ![0, before].contains(&fabric(&lab)["data_pid"].as_u64().unwrap()));
    until("the ports are up", || ["left", "right"].iter().all(|port| lab.state(port) == "up"));
    pass(&mut left, &mut right, 20..30);
    capture.interrupt();
    let packets = read(&lab.folder.join("out.pcapng")).packets;
    let numbers = |interface| -> Vec<u32> {
        let of = packets.iter().filter(|packet| packet.0 == interface);
        of.map(|packet| u32::from_be_bytes(packet.2[14..18].try_into().unwrap())).collect()
    };
    assert_eq!(numbers(0), (0..30).collect::<Vec<_>>());
    assert_eq!(numbers(1), (100..105).collect::<Vec<_>>());
}

#[test]
fn errors_name_the_port_and_the_column() {
    let pipe = "[port.direct]\nkind = \"pipe\"\nsocket = \"direct.sock\"\n";
    let lab = up("capture-errors", &format!("{}{pipe}", patched(&[["left", "right"]])));
    for (words, code, expected) in [
        (&["capture", "lefd"][..], 5, "error: there is no port \"lefd\"; did you mean \"left\"?"),
        (&["capture"], 1, "error: name the ports to capture at: "),
        (
            &["capture", "left", "tcp", "prot", "80"],
            1,
            "error: the filter \"tcp prot 80\", column 5: unknown word `prot`",
        ),
        (
            &["capture", "direct"],
            1,
            "error: port \"direct\" can't be captured: the two programs of a pipe exchange",
        ),
        (&["capture", "left", "-w", "no/such/folder"], 1, "error: no/such/folder: No such file or directory"),
        (&["capture", "left", "--ring", "5"], 2, "error: the following required arguments were not provided"),
    ] {
        let (found, message) = lab.fails(words);
        assert_eq!(found, code, "{message}");
        assert!(message.starts_with(expected), "{message}");
    }
    assert!(!lab.folder.join("no").exists());
    // Only its user and root may connect.
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(lab.socket("captures")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let capturing: Vec<_> = (0..16).map(|_| Capturing::start(&lab, &["left"])).collect();
    let (_, message) = lab.fails(&["capture", "left"]);
    assert!(message.starts_with("error: 16 captures run, which is the most; end one"), "{message}");
    drop(capturing);
    until("their places are free", || {
        lab.run(&["capture", "left", "-q", "-w", "/dev/full"]).status.code() == Some(1)
    });
}

#[test]
fn copies_pass_through_an_interface() {
    if !can_create_taps() {
        return;
    }
    let (lab, mut left, mut right) = pair("capture-interface");
    let name = format!("rwm{}", std::process::id());
    let capture = Capturing::start(&lab, &["right", "--direction", "out", "--interface", &name]);
    let settings = PacketSettings { interface: &name, promiscuous: true, ..PacketSettings::default() };
    let socket = open_packet(&settings).unwrap();
    pass(&mut left, &mut right, 0..20);
    let mut numbers = Vec::new();
    let mut bytes = [0; 2048];
    while numbers.len() < 20 {
        assert_eq!(wait_readable(&[socket.as_fd()], Some(20_000_000_000)).unwrap(), [true]);
        while let Some(received) = packet_receive(socket.as_fd(), &mut bytes).unwrap() {
            let frame = &bytes[PACKET_HEADER..received.len];
            // What the host itself sends there before IPv6 is off.
            if frame[..12] == [2; 12] {
                assert_eq!((frame.len(), received.kind), (60, OUTGOING));
                numbers.push(u32::from_be_bytes(frame[14..18].try_into().unwrap()));
            }
        }
    }
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    assert_eq!(capture.interrupt(), "20 frames captured, 20 passed\n");
    let folder = Path::new("/sys/class/net").join(&name);
    until("the interface is gone", || !folder.exists());
    let (code, message) = lab.fails(&["capture", "left", "--interface", "much-too-long-a-name"]);
    assert_eq!(code, 1);
    assert!(message.starts_with("error: the interface much-too-long-a-name: "), "{message}");
}

#[test]
fn wireshark_lists_and_captures_ports() {
    let (lab, mut left, mut right) = pair("extcap");
    let listed = lab.ok(&["capture", "--extcap-interfaces", "--extcap-version=4.0"]);
    assert!(listed.starts_with("extcap {version="), "{listed}");
    assert!(
        listed.contains("interface {value=ringway:lab:left}{display=Port left of Ringway's fabric lab}"),
        "{listed}"
    );
    let ask = |words: &[&str]| {
        lab.ok(&[&["capture", "--extcap-interface", "ringway:lab:left"][..], words].concat())
    };
    assert_eq!(ask(&["--extcap-dlts"]), "dlt {number=1}{name=EN10MB}{display=Ethernet}\n");
    let options = ask(&["--extcap-config"]);
    assert!(
        ["--snaplen", "--direction", "--drops"].iter().all(|option| options.contains(option)),
        "{options}"
    );
    assert_eq!(ask(&["--extcap-capture-filter", "tcp port 80"]), "");
    assert!(ask(&["--extcap-capture-filter", "tcp prot 80"]).starts_with("column 5: unknown word"));
    for signal in [None, Some(Signal::TERM)] {
        let (mut capture, mut reading, mut file) = extcap(&lab, &mut left, &mut right);
        match signal {
            // Wireshark closes the pipe.
            None => drop(reading),
            Some(signal) => {
                kill_process(Pid::from_raw(capture.0.id().cast_signed()).unwrap(), signal).unwrap();
                reading.read_to_end(&mut file).unwrap();
                assert!(Reader::new(&file).all(|packet| packet.is_ok()), "the last block is whole");
            }
        }
        until("the capture ends", || {
            pass(&mut left, &mut right, 0..1);
            capture.0.try_wait().unwrap().is_some_and(|status| status.success())
        });
        let mut errors = String::new();
        capture.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(errors, "");
    }
    lab.ok(&["down"]);
    let listed = lab.ok(&["capture", "--extcap-interfaces"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
}

/// A capture that Wireshark would start, its pipe, and what was read from it: three frames or more.
fn extcap(lab: &Lab, left: &mut Ring, right: &mut Ring) -> (Running, File, Vec<u8>) {
    let fifo = lab.folder.join("fifo");
    let _ = std::fs::remove_file(&fifo);
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let words = [
        "--capture",
        "--extcap-interface",
        "ringway:lab:left",
        "--fifo",
        fifo.to_str().unwrap(),
        "--snaplen",
        "30",
    ];
    let capture = Running(Capturing::command(lab, &words).spawn().unwrap());
    let mut reading = File::open(&fifo).unwrap();
    let mut file = Vec::new();
    let mut number = 0;
    let end = Instant::now() + LONG;
    // The pipe is open before the capture begins, so that the first frames may be missing.
    while Reader::new(&file).filter(|packet| packet.is_ok()).count() < 3 {
        pass(left, right, number..number + 1);
        number += 1;
        assert!(Instant::now() < end, "frames come");
        if wait_readable(&[reading.as_fd()], Some(20_000_000)).unwrap() == [true] {
            let mut bytes = [0; 4096];
            let count = reading.read(&mut bytes).unwrap();
            assert!(count > 0, "the capture goes on");
            file.extend_from_slice(&bytes[..count]);
        }
    }
    (capture, reading, file)
}

#[test]
fn a_fabric_that_does_not_answer_has_no_interfaces() {
    let (lab, _left, _right) = pair("extcap-silent");
    let control = Pid::from_raw(i32::try_from(fabric(&lab)["pid"].as_u64().unwrap()).unwrap()).unwrap();
    kill_process(control, Signal::STOP).unwrap();
    let listed = lab.ok(&["capture", "--extcap-interfaces"]);
    kill_process(control, Signal::CONT).unwrap();
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let listed = lab.ok(&["capture", "--extcap-interfaces"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
}

#[test]
fn wireshark_finds_the_installed_script() {
    let (lab, mut left, mut right) = pair("extcap-install");
    let home = lab.folder.join("home");
    let output = Capturing::command(&lab, &["--install-extcap"])
        .env("HOME", &home)
        .env_remove("XDG_CONFIG_HOME")
        .output()
        .unwrap();
    assert!(output.status.success());
    let paths: Vec<PathBuf> = String::from_utf8(output.stdout).unwrap().lines().map(PathBuf::from).collect();
    assert_eq!(paths.len(), 2);
    for path in &paths {
        let listed = Command::new(path).arg("--extcap-interfaces").output().unwrap();
        assert!(String::from_utf8_lossy(&listed.stdout).contains("value=ringway:lab:right"));
    }
    let mut tshark = Command::new("tshark");
    tshark.env("HOME", &home).env_remove("XDG_CONFIG_HOME");
    tshark.args(["-i", "ringway:lab:left", "-c", "3", "-a", "duration:20", "-w", "-"]);
    let Ok(mut running) = tshark.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else { return };
    let mut number = 0;
    while running.try_wait().unwrap().is_none() {
        pass(&mut left, &mut right, number..number + 1);
        number += 1;
        std::thread::yield_now();
    }
    let output = running.wait_with_output().unwrap();
    let count = Reader::new(&output.stdout).filter(|packet| packet.is_ok()).count();
    assert!(count >= 3, "{count}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a line of the documentation as a shell does, and ends it by Ctrl-C; its messages.
fn shell(lab: &Lab, line: &str, meanwhile: impl FnOnce()) -> String {
    let mut command = lab.shell(line);
    command.env("HOME", lab.folder.join("home")).env_remove("XDG_CONFIG_HOME");
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut errors = BufReader::new(running.0.stderr.take().unwrap());
    let mut text = String::new();
    while errors.read_line(&mut text).unwrap() > 0 && !text.contains("capturing at ") {}
    if text.contains("capturing at ") {
        meanwhile();
        let pid = Pid::from_raw(running.0.id().cast_signed()).unwrap();
        kill_process_group(pid, Signal::INT).unwrap();
    }
    errors.read_to_string(&mut text).unwrap();
    running.0.wait().unwrap();
    text
}

#[test]
fn the_examples_of_the_documentation_run() {
    let page = include_str!("../../../../docs/capture.md");
    let lab = up("capture-docs", &shown("capture.md", "toml")[0]);
    let (mut left, mut right) = (program(&lab, "left"), program(&lab, "right"));
    let has_tcpdump = tool("tcpdump", &["--version"]).is_some();
    let lines = shown("capture.md", "sh").join("\n");
    let lines: Vec<&str> = lines.lines().filter(|line| has_tcpdump || !line.contains("tcpdump")).collect();
    assert!(lines.len() > 5, "{lines:?}");
    let mut number = 0;
    for line in lines {
        let errors = shell(&lab, line, || {
            pass(&mut left, &mut right, number..number + 10);
            number += 10;
        });
        let is_quiet = line.contains("--json") || line.contains("--install-extcap");
        assert!(is_quiet || errors.contains(" frames captured, "), "{line}: {errors}");
        assert!(!errors.lines().any(|line| line.starts_with("error")), "{line}: {errors}");
    }
    let (command, error) = between(page, "$ ringway ", "```").split_once('\n').unwrap();
    let (_, message) = lab.fails(&command.split(' ').collect::<Vec<_>>());
    assert_eq!(message, error);
    // Nothing holds the memory of captures that have ended.
    let control = fabric(&lab)["pid"].as_u64().unwrap();
    let holds = |pid: u64| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let links = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().contains("ringway-capture")).count()
    };
    until("no capture is left", || holds(control) == 0);
}

#[test]
fn a_port_replays_a_file_and_records_what_it_receives() {
    let folder = std::env::temp_dir().join(format!("ringway-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, record) = (folder.join("in.pcap"), folder.join("out.pcapng"));
    let header = Header::ethernet();
    let mut bytes = header.to_bytes().to_vec();
    for number in 0..4u32 {
        let mut frame = [2; 60];
        frame[14..18].copy_from_slice(&number.to_be_bytes());
        bytes.extend_from_slice(&header.record_header(u64::from(number) * 1_000_000, 60, 60));
        bytes.extend_from_slice(&frame);
    }
    // The last record is cut.
    std::fs::write(&file, &bytes[..bytes.len() - 7]).unwrap();
    let ports = format!(
        "[port.trace]\nkind = \"pcap\"\nfile = \"{}\"\nrecord = \"{}\"\nspeed = \"0.5x\"\nloop = true\n\
         [port.web]\nkind = \"ring\"\nsocket = \"web.sock\"\n[patch.both]\nports = [\"trace\", \"web\"]\n",
        file.display(),
        record.display()
    );
    let lab = up("replay", &ports);
    until("the file was read", || lab.state("trace") == "up");
    assert!(lab.log().contains("frames=3") && lab.log().contains("; its end is damaged"), "{}", lab.log());
    let mut web = program(&lab, "web");
    let numbers: Vec<u32> = (0..9).map(|_| next(&mut web, LONG).unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 3), "{numbers:?}");
    for number in 0..100 {
        assert!(send(&mut web, number));
    }
    until("the frames were received", || frames(&lab, "trace", "rx_frames") == 100);
    // `data` is started again: it replays from the begin, and the recording goes on.
    let before = fabric(&lab)["data_pid"].as_u64().unwrap();
    kill(before);
    until("data runs again", || ![0, before].contains(&fabric(&lab)["data_pid"].as_u64().unwrap()));
    until("the ports are up", || ["trace", "web"].iter().all(|port| lab.state(port) == "up"));
    assert!(send(&mut web, 100));
    until("one more was received", || frames(&lab, "trace", "rx_frames") == 101);
    lab.ok(&["down"]);
    let contents = read(&record);
    assert_eq!(contents.names, ["trace"]);
    let recorded: Vec<u32> = contents
        .packets
        .iter()
        .map(|packet| u32::from_be_bytes(packet.2[14..18].try_into().unwrap()))
        .collect();
    assert_eq!(recorded, (0..101).collect::<Vec<_>>());
    // What is no capture is refused, and tried again.
    std::fs::write(&file, "no capture at all, but long enough").unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the reason is shown", || lab.ok(&["ps"]).contains("not a pcap file"));
    std::fs::remove_dir_all(&folder).unwrap();
}
