//! Rings of a function's ports in the addresses of its guest: they come and go while it runs.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use crate::common::lab::{Lab, MEMORY, nobody, read, run};
use crate::common::pipes::{SMALL, exchange, joined, pipe};
use crate::common::{image, machine};
use ringway_ring_client::RingOptions;
use ringway_vmm::{End, FunctionEnd, FunctionEvent, FunctionStart, FunctionVm, Image};
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Returns frames on the ports; each connects to the path that is set when it asks.
fn mirror(ports: &[&str], paths: Arc<Mutex<Vec<PathBuf>>>) -> Lab {
    let text = ports.iter().map(|port| format!("FromPort({port}) -> {port}_c :: Counter -> ToPort({port});"));
    let start = FunctionStart {
        text: text.collect(),
        ports: ports.iter().map(ToString::to_string).collect(),
        burst: 64,
        ..FunctionStart::default()
    };
    let connect = move |port: usize| UnixStream::connect(&paths.lock().unwrap()[port]);
    run(FunctionVm::new(MEMORY, start).unwrap(), connect)
}

fn stop(lab: Lab) {
    lab.connect().get_mut().write_all(b"WRITE stop\n").unwrap();
    assert_eq!(lab.end(), FunctionEnd::Stopped);
}

#[test]
fn a_ring_that_takes_the_place_of_another_has_its_own_frames() {
    if machine().is_none() {
        return;
    }
    let paths = Arc::new(Mutex::new(vec![PathBuf::new()]));
    let mut lab = None;
    for round in 0..4 {
        let (path, listener, mut between, coming) = pipe(&format!("round-{round}"), SMALL);
        paths.lock().unwrap()[0] = path;
        let lab = lab.get_or_insert_with(|| mirror(&["a"], paths.clone()));
        // The guest's mapping of the former ring is gone, or these frames would go there.
        let mut ring = joined(&listener, &mut between, coming);
        (0..3).for_each(|_| exchange(&mut ring));
        assert_eq!(read(&mut lab.connect(), "a_c.count"), (3 * (round + 1)).to_string());
    }
    stop(lab.unwrap());
}

#[test]
fn rings_without_room_in_the_window_have_memory_of_their_own() {
    if machine().is_none() {
        return;
    }
    // More than 16 MB each, where 8 MB a port are reserved.
    let large = RingOptions { slots: [4096; 2], slot_size: 2048, ..SMALL };
    let (one, first, mut between_first, coming_first) = pipe("large", large);
    let (two, second, mut between_second, coming_second) = pipe("small", SMALL);
    let lab = mirror(&["a", "b"], Arc::new(Mutex::new(vec![one, two])));
    let mut large = joined(&first, &mut between_first, coming_first);
    assert!(large.region().len > 16 << 20, "{:?}", large.region());
    let mut small = joined(&second, &mut between_second, coming_second);
    (0..3).for_each(|_| [&mut large, &mut small].into_iter().for_each(exchange));
    let mut program = lab.connect();
    assert_eq!(["a_c.count", "b_c.count"].map(|count| read(&mut program, count)), ["3", "3"]);
    drop(program);
    assert!(matches!(lab.event(), FunctionEvent::Up(_)));
    stop(lab);
}

#[test]
fn an_access_to_a_ring_that_is_not_there_ends_the_guest() {
    if machine().is_none() {
        return;
    }
    // In the window, behind the channel: `mov dword ptr [address], 1`, and `mov eax, [address]`.
    let address = 0x8020_0000_u32;
    let write = [&[0xc7, 0x05][..], &address.to_le_bytes(), &1_u32.to_le_bytes()].concat();
    let read = [&[0xa1][..], &address.to_le_bytes()].concat();
    for (number, code) in [write, read].into_iter().enumerate() {
        let start = FunctionStart { text: "x".into(), ports: vec!["a".into()], ..FunctionStart::default() };
        let vm = FunctionVm::with_image(Image::of(&image(&code)), MEMORY, start).unwrap();
        let socket = std::env::temp_dir().join(format!("ringway-window-{}-{number}", std::process::id()));
        let listener = UnixListener::bind(&socket).unwrap();
        let end = vm.run(&listener, nobody, |event| panic!("{event:?}"));
        std::fs::remove_file(&socket).unwrap();
        assert_eq!(end, FunctionEnd::Guest(End::Address(address.into()), String::new()));
    }
}
