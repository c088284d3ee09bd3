//! Messages of QEMU's client when it attaches, drives and resets a network card, byte by byte, with the replies.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests fail the test.
#![cfg(target_endian = "little")]

mod common;

use common::{Memory, null, offer};
use ringway_vfio_user::*;

struct Qemu {
    session: Session,
    device: Memory,
    inbox: Inbox,
}

/// Bytes of a hexadecimal text.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Qemu {
    /// Sends a message in one piece, as QEMU does.
    fn send(&mut self, message: &[u8], fds: usize) -> Outcome {
        self.inbox.space()[..message.len()].copy_from_slice(message);
        self.inbox.filled(message.len(), (0..fds).map(|_| null()).collect()).unwrap();
        let message = self.inbox.message().unwrap().expect("a whole message");
        self.session.handle(message, &mut self.device).unwrap()
    }

    /// A message and its reply, each with a number of descriptors. Without a reply, none is expected.
    fn exchange(&mut self, (sent, fds): (&str, usize), (reply, files): (&str, usize)) {
        let outcome = self.send(&bytes(sent), fds);
        let answer = outcome.answer.unwrap_or_default();
        assert_eq!((hex(&answer.bytes), answer.fds.len()), (hex(&bytes(reply)), files), "{sent}");
        assert_eq!(outcome.refused, None);
    }

    /// Message 0.
    fn negotiated() -> Qemu {
        let (session, device, inbox) = (Session::new(offer()), Memory::default(), Inbox::default());
        let mut qemu = Qemu { session, device, inbox };
        let text = r#"{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "#.to_owned()
            + r#""max_dma_maps": 65535, "max_data_xfer_size": 1048576, "#
            + r#""migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}"#;
        let size = (HEADER + 4 + text.len() + 1) as u32;
        let head = [&[0, 0, 1, 0], &size.to_le_bytes()[..], &[0; 8], &[0; 4]].concat();
        let request = [&head, text.as_bytes(), &[0]].concat();
        let reply = qemu.send(&request, 0).answer.unwrap();
        let text = r#"{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":4096,"#.to_owned()
            + r#""pgsizes":4096,"max_dma_maps":4,"write_multiple":true}}"#;
        let size = (HEADER + 4 + text.len() + 1) as u32;
        let head = [&[0, 0, 1, 0], &size.to_le_bytes()[..], &[1, 0, 0, 0], &[0; 4], &[0; 4]].concat();
        assert_eq!(reply.bytes, [&head, text.as_bytes(), &[0]].concat());
        assert!(reply.bytes.len() <= request.len(), "QEMU's buffer for the reply is as long as its message");
        qemu
    }
}

#[test]
fn qemu_attaches_a_card() {
    let mut qemu = Qemu::negotiated();
    // Guest memory below 768 KB, with its file.
    let ram = "20000000 03000000 0000000000000000 0000000000000000 00000c0000000000";
    qemu.exchange(
        (&format!("0100 0200 30000000 00000000 00000000 {ram}"), 1),
        ("0100 0200 10000000 01000000 00000000", 0),
    );
    // A ROM, which has no file and can't be written.
    let rom = "20000000 01000000 0000000000000000 00000c0000000000 0000020000000000";
    qemu.exchange(
        (&format!("0200 0200 30000000 00000000 00000000 {rom}"), 0),
        ("0200 0200 10000000 01000000 00000000", 0),
    );
    assert_eq!(qemu.device.take(), ["map 0x0 0xc0000 3 file true", "map 0xc0000 0x20000 1 file false"]);
    // The device: reset, PCI, nine regions, five interrupt types.
    qemu.exchange(
        ("0300 0400 20000000 00000000 00000000 10000000 00000000 00000000 00000000", 0),
        ("0300 0400 20000000 01000000 00000000 10000000 03000000 09000000 05000000", 0),
    );
    // The first base address register. The whole reply does not fit, so QEMU asks again.
    let short = "0f000000 00000000 20000000 0060000000000000 0000000000000000";
    let question = "20000000 00000000 00000000 00000000 0000000000000000 0000000000000000";
    qemu.exchange(
        (&format!("0400 0500 30000000 00000000 00000000 {question}"), 0),
        (&format!("0400 0500 30000000 01000000 00000000 40000000 {short}"), 1),
    );
    let areas = "0100 0100 00000000 01000000 00000000 0020000000000000 0020000000000000";
    qemu.exchange(
        (&format!("0500 0500 30000000 00000000 00000000 {}", question.replacen("20", "40", 1)), 0),
        (&format!("0500 0500 50000000 01000000 00000000 40000000 {short} {areas}"), 1),
    );
    // An absent one, and the configuration space.
    let question = "20000000 00000000 01000000 00000000 0000000000000000 0000000000000000";
    qemu.exchange(
        (&format!("0600 0500 30000000 00000000 00000000 {question}"), 0),
        (&format!("0600 0500 30000000 01000000 00000000 {question}"), 0),
    );
    let question = "00000000 0000000000000000 0000000000000000";
    let reply = "00000000 0001000000000000 0000000000000000";
    qemu.exchange(
        (&format!("0700 0500 30000000 00000000 00000000 20000000 00000000 07000000 {question}"), 0),
        (&format!("0700 0500 30000000 01000000 00000000 20000000 03000000 07000000 {reply}"), 0),
    );
}

#[test]
fn qemu_drives_a_card() {
    let mut qemu = Qemu::negotiated();
    // No error interrupt; the pin signals an eventfd, can be masked, and masks itself.
    qemu.exchange(
        ("0100 0700 20000000 00000000 00000000 10000000 00000000 03000000 00000000", 0),
        ("0100 0700 20000000 01000000 00000000 10000000 00000000 03000000 00000000", 0),
    );
    qemu.exchange(
        ("0200 0700 20000000 00000000 00000000 10000000 00000000 00000000 00000000", 0),
        ("0200 0700 20000000 01000000 00000000 10000000 07000000 00000000 01000000", 0),
    );
    // Reads the first base address register from the configuration space.
    qemu.device.bytes.insert((pci::CONFIG, 0x10), 0xa5);
    qemu.exchange(
        ("0300 0900 20000000 00000000 00000000 1000000000000000 07000000 04000000", 0),
        ("0300 0900 24000000 01000000 00000000 1000000000000000 07000000 04000000 a5000000", 0),
    );
    // An eventfd for the pin; unmasks it after an interrupt.
    qemu.exchange(
        ("0400 0800 24000000 00000000 00000000 14000000 24000000 00000000 00000000 01000000", 1),
        ("0400 0800 10000000 01000000 00000000", 0),
    );
    assert_eq!(qemu.device.eventfds.len(), 1);
    qemu.exchange(
        ("0500 0800 24000000 00000000 00000000 14000000 11000000 00000000 00000000 01000000", 0),
        ("0500 0800 10000000 01000000 00000000", 0),
    );
    assert_eq!(qemu.device.take(), ["Unmask 0.0"]);
    // Writes a register: with a reply, posted, and two posted ones in a message.
    qemu.exchange(
        ("0600 0a00 24000000 00000000 00000000 0001000000000000 00000000 04000000 02000000", 0),
        ("0600 0a00 20000000 01000000 00000000 0001000000000000 00000000 04000000", 0),
    );
    qemu.exchange(
        ("0700 0a00 24000000 10000000 00000000 1838000000000000 00000000 04000000 09000000", 0),
        ("", 0),
    );
    let first = "1838000000000000 00000000 04000000 0a00000000000000";
    let second = "1828000000000000 00000000 01000000 0b00000000000000";
    qemu.exchange(
        (&format!("0800 0f00 48000000 10000000 00000000 0200000000000000 {first} {second}"), 0),
        ("", 0),
    );
    let register = |at| qemu.device.bytes.get(&(pci::BAR0, at)).copied();
    assert_eq!([0x100, 0x3818, 0x2818, 0x2819].map(register), [Some(2), Some(10), Some(11), None]);
    // Disables the pin, enables three vectors, removes the eventfd of the second.
    qemu.exchange(
        ("0900 0800 24000000 00000000 00000000 14000000 21000000 00000000 00000000 00000000", 0),
        ("0900 0800 10000000 01000000 00000000", 0),
    );
    assert!(qemu.device.eventfds.is_empty());
    qemu.exchange(
        ("0a00 0800 24000000 00000000 00000000 14000000 24000000 02000000 00000000 03000000", 3),
        ("0a00 0800 10000000 01000000 00000000", 0),
    );
    qemu.exchange(
        ("0b00 0800 24000000 00000000 00000000 14000000 24000000 02000000 01000000 01000000", 0),
        ("0b00 0800 10000000 01000000 00000000", 0),
    );
    let vectors: Vec<u32> = qemu.device.eventfds.iter().map(|(irq, _)| irq.vector).collect();
    assert_eq!(vectors, [0, 2]);
}

#[test]
fn qemu_resets_a_card_and_unmaps_memory() {
    let mut qemu = Qemu::negotiated();
    let range = "0000000000000000 0000100000000000";
    let map = format!("20000000 03000000 0000000000000000 {range}");
    qemu.exchange(
        (&format!("0100 0200 30000000 00000000 00000000 {map}"), 1),
        ("0100 0200 10000000 01000000 00000000", 0),
    );
    qemu.exchange(("0200 0d00 10000000 00000000 00000000", 0), ("0200 0d00 10000000 01000000 00000000", 0));
    qemu.exchange(
        (&format!("0300 0300 28000000 00000000 00000000 18000000 00000000 {range}"), 0),
        (&format!("0300 0300 28000000 01000000 00000000 18000000 00000000 {range}"), 0),
    );
    let all = "18000000 02000000 0000000000000000 0000000000000000";
    qemu.exchange(
        (&format!("0400 0300 28000000 00000000 00000000 {all}"), 0),
        (&format!("0400 0300 28000000 01000000 00000000 {all}"), 0),
    );
    assert_eq!(qemu.device.take(), ["map 0x0 0x100000 3 file true", "reset", "unmap 0x0 0x100000"]);
}
