//! Functions in guests: handlers, ports that come and go, and guests that end.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use crate::common::lab::{MEMORY, begin, line, nobody, read};
use crate::common::{image, machine};
use ringway_vmm::{
    End, FunctionEnd, FunctionError, FunctionEvent, FunctionStart, FunctionVm, Image, VmError,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

#[test]
fn handlers_answer_several_programs_and_large_values_pass() {
    let text = "InfiniteSource(LIMIT 5) -> c :: Counter -> Discard; s :: Script(TYPE PASSIVE, return $args);";
    let Some(lab) = begin(text, &[], nobody) else { return };
    assert!(matches!(lab.event(), FunctionEvent::Up(_)));
    let (mut one, mut two) = (lab.connect(), lab.connect());
    while read(&mut one, "c.count") != "5" {}
    assert_eq!(read(&mut two, "c.class").trim(), "Counter");
    // Larger than both windows, in both directions.
    let value = "v".repeat(300_000);
    let head = format!("READDATA s.run {}\n", value.len());
    let mut writer = two.get_ref().try_clone().unwrap();
    let sent = value.clone();
    let sending = std::thread::spawn(move || {
        writer.write_all(head.as_bytes()).unwrap();
        writer.write_all(sent.as_bytes()).unwrap();
    });
    assert_eq!(line(&mut two), "200 Read handler 's.run' OK\r\n");
    assert_eq!(line(&mut two), format!("DATA {}\r\n", value.len()));
    let mut answer = vec![0; value.len()];
    two.read_exact(&mut answer).unwrap();
    sending.join().unwrap();
    assert!(answer == value.as_bytes());
    drop(two);
    one.get_mut().write_all(b"WRITE stop\n").unwrap();
    assert_eq!(lab.end(), FunctionEnd::Stopped);
}

#[test]
fn a_program_that_never_reads_delays_no_other() {
    let Some(lab) = begin("Idle -> c :: Counter -> Discard;", &[], nobody) else { return };
    assert!(matches!(lab.event(), FunctionEvent::Up(_)));
    let slow = lab.connect();
    slow.get_ref().set_nonblocking(true).unwrap();
    // Until nobody takes any more.
    while slow.get_ref().write(&b"READ flatconfig\n".repeat(64)).is_ok() {}
    let mut other = lab.connect();
    assert_eq!(read(&mut other, "c.count"), "0");
    drop(slow);
    assert_eq!(read(&mut other, "c.count"), "0");
    other.get_mut().write_all(b"WRITE stop\n").unwrap();
    assert_eq!(lab.end(), FunctionEnd::Stopped);
}

#[test]
fn a_wrong_configuration_says_why_and_ends() {
    let Some(lab) = begin("FromPort(a) -> Nonsense;", &["a"], nobody) else { return };
    let FunctionEvent::Wrong(why) = lab.event() else { panic!("it must be wrong") };
    assert!(why.starts_with("f.click:1:16: ") && why.contains("Nonsense"), "{why}");
    assert_eq!(lab.end(), FunctionEnd::Wrong);
}

#[test]
fn a_port_that_is_away_has_a_reason() {
    let Some(lab) = begin("f :: FromPort(a) -> Discard;", &["a"], nobody) else { return };
    assert!(matches!(lab.event(), FunctionEvent::Up(_)));
    let mut program = lab.connect();
    while !read(&mut program, "f.state").contains("connection refused") {}
    assert_eq!(read(&mut program, "f.losses"), "0");
    program.get_mut().write_all(b"WRITE stop\n").unwrap();
    assert_eq!(lab.end(), FunctionEnd::Stopped);
}

#[test]
fn exhausted_memory_ends_the_guest_with_a_message() {
    let text = "InfiniteSource(LENGTH 1500) -> Queue(16000000) -> Idle;";
    let Some(lab) = begin(text, &[], nobody) else { return };
    // The image panics, and its message is the monitor's reason.
    let end = lab.end().to_string();
    assert!(end.contains("the guest panicked: ") && end.contains("memory allocation of"), "{end}");
}

#[test]
fn lines_are_events() {
    let Some(lab) = begin("Script(print \"hello\", stop);", &[], nobody) else { return };
    let events = [lab.event(), lab.event()];
    assert!(events.contains(&FunctionEvent::Line("hello".into())), "{events:?}");
    assert_eq!(lab.end(), FunctionEnd::Stopped);
}

#[test]
fn a_configuration_too_large_for_the_memory_is_refused() {
    if machine().is_none() {
        return;
    }
    let start = FunctionStart { text: " ".repeat(MEMORY), ..FunctionStart::default() };
    let error = FunctionVm::new(MEMORY, start).unwrap_err();
    assert!(matches!(error, FunctionError::Vm(VmError::Load(_))), "{error}");
}

#[test]
fn a_function_boots_in_milliseconds() {
    if machine().is_none() {
        return;
    }
    let mut times: Vec<Duration> = (0..10)
        .map(|_| {
            let begun = Instant::now();
            let text = "Idle -> Counter -> Discard; Script(stop);";
            let lab = begin(text, &[], nobody).unwrap();
            assert!(matches!(lab.event(), FunctionEvent::Up(_)));
            let time = begun.elapsed();
            assert_eq!(lab.end(), FunctionEnd::Stopped);
            time
        })
        .collect();
    times.sort();
    eprintln!("from KVM_CREATE_VM to a running configuration: best {:?}, median {:?}", times[0], times[5]);
}

/// `mov dword ptr [address], value`, in protected mode.
fn store(address: u32, value: u32) -> Vec<u8> {
    [&[0xc7, 0x05][..], &address.to_le_bytes(), &value.to_le_bytes()].concat()
}

/// Addresses of a guest: the channel's indices and slots of messages to the monitor, and the doorbell.
const INDEX: u32 = 0x8000_0500;
const SLOTS: u32 = 0x8000_1400;
const DOORBELL: u32 = 0xd000_0000;

#[test]
fn a_hostile_guest_ends_with_a_reason() {
    if machine().is_none() {
        return;
    }
    let (ring, hlt) = (store(DOORBELL, 1), vec![0xf4]);
    // `mov eax, 7; out 0xf4, eax`: an exit with another code.
    let exit = vec![0xb8, 7, 0, 0, 0, 0xe7, 0xf4];
    let channel = |what| FunctionEnd::Channel(what);
    let guest = |end| FunctionEnd::Guest(end, String::new());
    let cases = [
        (store(INDEX, 1000), channel("an index moved by more than the ring's slots")),
        (store(INDEX, u32::MAX), channel("an index moved by more than the ring's slots")),
        (store(INDEX, 1), channel("a message that is none")),
        ([store(SLOTS, 0x10_ffff), store(INDEX, 1)].concat(), channel("a buffer that the ring doesn't have")),
        (store(0xd000_0100, 1), guest(End::Address(0xd000_0100))),
        (store(0x8800_0000, 1), guest(End::Address(0x8800_0000))),
        (exit, guest(End::Exit(7))),
        // Its own header is of no use: nobody reads it again.
        (store(0x8000_0000, 0), guest(End::Halted)),
    ];
    for (number, (code, expected)) in cases.into_iter().enumerate() {
        let code = [code, ring.clone(), hlt.clone()].concat();
        let start = FunctionStart { text: "x".into(), ..FunctionStart::default() };
        let vm = FunctionVm::with_image(Image::of(&image(&code)), MEMORY, start).unwrap();
        let socket = std::env::temp_dir().join(format!("ringway-hostile-{}-{number}", std::process::id()));
        let listener = UnixListener::bind(&socket).unwrap();
        let end = vm.run(&listener, nobody, |event| panic!("{event:?}"));
        std::fs::remove_file(&socket).unwrap();
        assert_eq!(end, expected, "{number}");
    }
}
