//! Programs that send and receive numbered frames.
use super::{Lab, until};
use ringway_ring_client::{Ring, Wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for a frame that must come.
pub const LONG: Duration = Duration::from_secs(20);

/// Ring ports, and patches that join each to its neighbour.
pub fn patched(pairs: &[[&str; 2]]) -> String {
    let port = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    let pair = |[one, two]: &[&str; 2]| {
        format!("{}{}[patch.{one}]\nports = [\"{one}\", \"{two}\"]\n", port(one), port(two))
    };
    pairs.iter().map(pair).collect()
}

/// Ring ports on the switch `main`.
pub fn switched(ports: &[&str]) -> String {
    let port = |name: &&str| {
        format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\nswitch = \"main\"\n")
    };
    "[switch.main]\n".to_string() + &ports.iter().map(port).collect::<String>()
}

/// A program on a port, which is up.
pub fn program(lab: &Lab, port: &str) -> Ring {
    let ring = Ring::connect(&lab.socket(&format!("{port}.sock"))).unwrap();
    until("the port is up", || lab.state(port) == "up");
    ring
}

/// Sends a frame; whether there was room.
pub fn send(ring: &mut Ring, number: u32) -> bool {
    let mut frame = [2; 60];
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    let sent = ring.tx.push(&frame).unwrap();
    ring.sync().unwrap();
    sent
}

/// Sends a frame from the station `from` to all others; whether there was room.
pub fn send_to_all(ring: &mut Ring, from: u8, number: u32) -> bool {
    let mut frame = [0xff; 60];
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    let sent = ring.tx.push(&frame).unwrap();
    ring.sync().unwrap();
    sent
}

/// The next frame that comes within a while.
pub fn receive(ring: &mut Ring, most: Duration) -> Option<[u8; 60]> {
    let end = Instant::now() + most;
    let mut out = [0; 60];
    loop {
        ring.wait(Wait::RX, Some(end.saturating_duration_since(Instant::now()))).unwrap();
        let received = ring.rx.pop(&mut out).unwrap();
        ring.rx.sync().unwrap();
        if received.is_some() {
            return Some(out);
        }
        if Instant::now() >= end {
            return None;
        }
    }
}

/// The number of a frame.
pub fn number(frame: &[u8; 60]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// The number of the next frame that comes within a while.
pub fn next(ring: &mut Ring, most: Duration) -> Option<u32> {
    receive(ring, most).map(|frame| number(&frame))
}

/// Elements that take a while to build, and do nothing else.
pub fn slow(filters: usize) -> String {
    let rule = |at| format!("allow src net 10.{at}.0.0/16 && dst port {at}");
    let rules: Vec<String> = (0..50).map(rule).collect();
    let filter = format!("Idle -> IPFilter({}, deny all) -> Discard", rules.join(", "));
    format!("elementclass Slow {{ {filter} }}\n{}", "Slow;\n".repeat(filters))
}

/// Two programs between which a frame after the other passes, whatever happens to others.
pub struct Others {
    ends: Arc<AtomicBool>,
    passed: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Others {
    /// Programs on both ports. If the data process is killed, which `may_lose` permits, a frame is sent again.
    pub fn between(lab: &Lab, ports: [&str; 2], may_lose: bool) -> Others {
        let [mut from, mut to] = ports.map(|port| program(lab, port));
        let (ends, passed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (ended, count) = (ends.clone(), passed.clone());
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while !ended.load(SeqCst) {
                let end = Instant::now() + LONG;
                assert!(send(&mut from, number), "there is room for one frame");
                let timeout = if may_lose { Duration::from_millis(100) } else { LONG };
                while next(&mut to, timeout) != Some(number) {
                    assert!(may_lose && Instant::now() < end, "frame {number} of others is lost");
                    send(&mut from, number);
                }
                number += 1;
                count.store(number, SeqCst);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        Others { ends, passed, thread: Some(thread) }
    }

    /// Waits until so many more frames have passed.
    pub fn pass(&self, more: u32) {
        let before = self.passed();
        until("frames of others pass", || self.passed() >= before + more);
    }

    /// Frames that have passed.
    pub fn passed(&self) -> u32 {
        assert!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()), "frames of others pass");
        self.passed.load(SeqCst)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        // A panic was printed, and noticed by `passed`.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
