//! The tiny guest and hostile images on KVM.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use crate::common::{BOUND, MEMORY, image, machine, run};
use ringway_vmm::{End, LoadError, TINY, Vm, VmError};
use std::time::{Duration, Instant};

#[test]
fn the_tiny_guest_boots_and_reports() {
    let Some(mut vm) = machine() else { return };
    vm.load(TINY, "role=hello").unwrap();
    let (end, output) = run(&mut vm, BOUND);
    assert_eq!(end, End::Exit(0), "{output}");
    assert!(output.starts_with("tiny: sent=0 received=0 wrong=0"), "{output}");
}

#[test]
fn boot_time_is_measured() {
    if machine().is_none() {
        return;
    }
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let begin = Instant::now();
            let mut vm = Vm::new(MEMORY).unwrap();
            vm.load(TINY, "role=hello").unwrap();
            let mut first = None;
            vm.run(BOUND, &mut |_| {
                first.get_or_insert_with(|| begin.elapsed());
            })
            .unwrap();
            first.unwrap()
        })
        .collect();
    times.sort();
    eprintln!("from KVM_CREATE_VM to the first byte of output: best {:?}, median {:?}", times[0], times[10]);
}

#[test]
fn an_invalid_command_line_is_reported() {
    let Some(mut vm) = machine() else { return };
    vm.load(TINY, "role=hello color=red").unwrap();
    let (end, output) = run(&mut vm, BOUND);
    assert_eq!(
        (end, output.as_str()),
        (End::Exit(1), "tiny: `color=red` is no setting, or its value is not valid\n")
    );
    let long = vm.load(TINY, &"x".repeat(5000)).unwrap_err();
    assert!(matches!(long, VmError::Load(LoadError::Line(_))), "{long}");
}

#[test]
fn wrong_images_are_refused() {
    let Some(mut vm) = machine() else { return };
    let valid = image(&[0xf4]);
    let changed = |at: usize, bytes: &[u8]| {
        let mut image = valid.clone();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        image
    };
    let wrong = [
        Vec::new(),
        b"no image".to_vec(),
        valid[..100].to_vec(),
        // Another note; a note outside the file; a segment outside the memory, and one that wraps.
        changed(64 + 112 + 8, &[19]),
        changed(64 + 8, &u64::MAX.to_le_bytes()),
        changed(64 + 56 + 24, &(1_u64 << 40).to_le_bytes()),
        changed(64 + 56 + 24, &u64::MAX.to_le_bytes()),
        // An entry outside the memory.
        changed(64 + 112 + 16, &0xffff_0000_u32.to_le_bytes()),
    ];
    for (number, image) in wrong.iter().enumerate() {
        let refused = vm.load(image, "").unwrap_err();
        assert!(matches!(refused, VmError::Load(_)), "{number}: {refused}");
    }
    assert!(matches!(Vm::new(1 << 20), Err(VmError::Memory(_))));
}

#[test]
fn a_hostile_guest_ends_with_a_reason() {
    let Some(_) = machine() else { return };
    let cases: [(&str, &[u8], End); 6] = [
        // Without an interrupt table, an invalid instruction is a triple fault.
        ("ud2", &[0x0f, 0x0b], End::TripleFault),
        ("hlt", &[0xf4], End::Halted),
        ("mov [0xf0000000], eax", &[0xa3, 0, 0, 0, 0xf0], End::Address(0xf000_0000)),
        ("mov eax, [MEMORY]", &[0xa1, 0, 0, 0x80, 0], End::Address(MEMORY as u64)),
        ("out 0x80, al", &[0xe6, 0x80], End::Port(0x80)),
        ("in al, 0x60", &[0xe4, 0x60], End::Port(0x60)),
    ];
    for (name, code, expected) in cases {
        let mut vm = Vm::new(MEMORY).unwrap();
        vm.load(&image(code), "").unwrap();
        assert_eq!(run(&mut vm, BOUND).0, expected, "{name}");
    }
    let endless: [(&str, &[u8]); 2] = [
        ("jmp $", &[0xeb, 0xfe]),
        // mov eax, -1; out 0xf8, eax; jmp: sleeps for ever.
        ("park", &[0xb8, 0xff, 0xff, 0xff, 0xff, 0xe7, 0xf8, 0xeb, 0xfc]),
    ];
    for (name, code) in endless {
        let mut vm = Vm::new(MEMORY).unwrap();
        vm.load(&image(code), "").unwrap();
        assert_eq!(run(&mut vm, Duration::from_millis(50)).0, End::Time, "{name}");
    }
    // mov dx, 0x3f8; out dx, al; jmp: writes to the console for ever.
    let mut vm = Vm::new(MEMORY).unwrap();
    vm.load(&image(&[0x66, 0xba, 0xf8, 0x03, 0xee, 0xeb, 0xfd]), "").unwrap();
    let (end, output) = run(&mut vm, BOUND);
    assert_eq!((end, output.len()), (End::Console, 64 << 10));
}
