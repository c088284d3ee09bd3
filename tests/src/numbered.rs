//! Two programs on rings that exchange numbered frames and verify every received byte.
use ringway_ring_client::{Ring, RingError, Wait};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of frames in flight per direction: fewer than the slots of any ring between the two, so that no
/// frame may be lost.
const WINDOW: u64 = 64;
const HEADER: usize = 14;
const LARGEST: usize = 1514;

/// Progress of one direction.
#[derive(Default)]
struct Direction {
    sent: AtomicU64,
    arrived: AtomicU64,
}

/// One of the two programs.
pub struct Talker {
    ring: Ring,
    station: u8,
}

impl Talker {
    /// Connects to the ring port at `socket`, as station `station`.
    pub fn new(socket: &Path, station: u8) -> Result<Talker, RingError> {
        Ok(Talker { ring: Ring::connect(socket)?, station })
    }

    /// Sends and receives `count` frames; `out` and `back` are this program's directions.
    fn talk(&mut self, way: &Way, out: &Direction, back: &Direction) -> Result<(), String> {
        let (mut sent, mut got) = (0, 0);
        let (mut frame, mut expected, mut found) = (Vec::new(), Vec::new(), [0; LARGEST + 1]);
        while (sent < way.count || got < way.count) && !way.failed.load(Ordering::Relaxed) {
            while sent < way.count && sent - out.arrived.load(Ordering::Relaxed) < WINDOW {
                fill(&mut frame, sent, self.station, way.other(self.station));
                if !self.ring.tx.push(&frame).map_err(text)? {
                    break;
                }
                sent += 1;
                out.sent.store(sent, Ordering::Relaxed);
            }
            self.ring.sync().map_err(text)?;
            while let Some(received) = self.ring.rx.pop(&mut found).map_err(text)? {
                let (from, to) = (way.other(self.station), self.station);
                if way.swapped {
                    fill_swapped(&mut expected, got, from, to)
                } else {
                    fill(&mut expected, got, from, to)
                }
                let whole = found.get(..received.len).unwrap_or_default();
                if whole != expected.as_slice() {
                    return Err(format!("instead of frame {got} to {to}: {}", difference(&expected, whole)));
                }
                got += 1;
                back.arrived.store(got, Ordering::Relaxed);
            }
            if Instant::now() >= way.end {
                return Err(format!("station {}: {sent} frames sent, {got} received", self.station));
            }
            self.ring.wait(Wait::RX, Some(Duration::from_millis(1))).map_err(text)?;
        }
        Ok(())
    }
}

/// Shared settings.
struct Way {
    stations: [u8; 2],
    count: u64,
    swapped: bool,
    end: Instant,
    failed: AtomicBool,
}

impl Way {
    fn other(&self, station: u8) -> u8 {
        self.stations[usize::from(station == self.stations[0])]
    }
}

/// Each program sends `count` frames, which the other must receive in order, once, and unchanged, except for
/// exchanged
/// addresses if `swapped`.
pub fn exchange(talkers: [&mut Talker; 2], count: u64, swapped: bool, bound: Duration) -> Result<(), String> {
    let stations = [talkers[0].station, talkers[1].station];
    let way = Way { stations, count, swapped, end: Instant::now() + bound, failed: AtomicBool::new(false) };
    let directions = [Direction::default(), Direction::default()];
    let [one, other] = talkers;
    let (way, [there, back]) = (&way, &directions);
    let results = std::thread::scope(|scope| {
        let run = |talker: &mut Talker, out, back| {
            let result = talker.talk(way, out, back);
            if result.is_err() {
                way.failed.store(true, Ordering::Relaxed);
            }
            result
        };
        let thread = scope.spawn(move || run(other, back, there));
        let first = run(one, there, back);
        [first, thread.join().unwrap_or_else(|_| Err("a talker ended".into()))]
    });
    let errors: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    let state = |direction: &Direction| {
        let (sent, arrived) = (&direction.sent, &direction.arrived);
        format!("{} of {} arrived", arrived.load(Ordering::Relaxed), sent.load(Ordering::Relaxed))
    };
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!("{}; there {}, back {}", errors.join("; "), state(there), state(back)))
}

/// Frame `number` from one station to another, which determine its length and all bytes.
fn fill(frame: &mut Vec<u8>, number: u64, from: u8, to: u8) {
    let length = 60 + (number as usize * 389) % (LARGEST - 59);
    frame.clear();
    frame.extend([2, 0, 0, 0, 2, to, 2, 0, 0, 0, 2, from, 0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    // xorshift64 (Marsaglia, 2003); its state must not be 0.
    let mut state = (number << 9) ^ (u64::from(from) << 1) | 1;
    while frame.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        frame.extend(state.to_le_bytes());
    }
    frame.truncate(length);
}

fn fill_swapped(frame: &mut Vec<u8>, number: u64, from: u8, to: u8) {
    fill(frame, number, from, to);
    frame[..12].rotate_left(6);
}

fn difference(expected: &[u8], found: &[u8]) -> String {
    let number =
        found.get(HEADER..HEADER + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    let at = expected.iter().zip(found).position(|(one, other)| one != other);
    let (wanted, whole) = (expected.len(), found.len());
    format!("number {number:?}, of {whole} bytes instead of {wanted}, differing first at byte {at:?}")
}

fn text(error: RingError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_differ_by_number_and_station() {
        let made = |number, from| {
            let mut frame = Vec::new();
            fill(&mut frame, number, from, 9);
            frame
        };
        assert_eq!((made(0, 1).len(), made(1, 1).len()), (60, 449));
        assert!((0..5000).all(|number| (60..=LARGEST).contains(&made(number, 1).len())));
        assert_ne!(made(7, 1)[22..], made(7, 2)[22..]);
        assert_ne!(made(0, 1)[22..60], made(LARGEST as u64 - 59, 1)[22..60], "the same length, other bytes");
        let mut swapped = Vec::new();
        fill_swapped(&mut swapped, 3, 1, 9);
        assert_eq!((swapped[5], swapped[11]), (1, 9));
        assert!(difference(&made(3, 1), &made(4, 1)).contains("number Some(4)"));
    }
}
