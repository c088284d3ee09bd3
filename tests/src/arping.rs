//! ARP requests from a program on a ring port, as `arping` sends them.

use ringway_ring_client::{Ring, RingError, Wait};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Interval at which those that have not answered are asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// Our own address.
const PROBE: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const SENDER: [u8; 4] = [10, 0, 255, 254];

/// An answer: when it came, and the Ethernet address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its time since `begin`.
    pub after: Duration,
    /// The address.
    pub mac: [u8; 6],
}

/// A request for an address.
fn request(address: Ipv4Addr) -> Vec<u8> {
    let head = [&[0xff; 6][..], &PROBE, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    [&head[..], &PROBE, &SENDER, &[0; 6], &address.octets()].concat()
}

/// Who answers with a frame.
fn reply(frame: &[u8]) -> Option<(Ipv4Addr, [u8; 6])> {
    let is_reply = frame.get(12..14)? == [8, 6] && frame.get(20..22)? == [0, 2];
    let address: [u8; 4] = frame.get(28..32)?.try_into().ok()?;
    is_reply.then_some((address.into(), frame.get(22..28)?.try_into().ok()?))
}

/// Asks for addresses until all have answered as `accept` wants, at most for `limit` after `begin`.
pub fn ask(
    ring: &mut Ring,
    addresses: &[Ipv4Addr],
    begin: Instant,
    limit: Duration,
    accept: impl Fn(&[u8; 6]) -> bool,
) -> Result<Vec<Option<Answer>>, RingError> {
    let mut answers = vec![None; addresses.len()];
    let mut frame = vec![0; 2048];
    while begin.elapsed() < limit && answers.contains(&None) {
        for (address, _) in addresses.iter().zip(&answers).filter(|(_, answer)| answer.is_none()) {
            // A full ring is asked again later.
            ring.tx.push(&request(*address))?;
        }
        ring.sync()?;
        let next = Instant::now() + AGAIN;
        while Instant::now() < next && answers.contains(&None) {
            ring.wait(Wait::RX, Some(next.saturating_duration_since(Instant::now())))?;
            while let Some(received) = ring.rx.pop(&mut frame)? {
                let Some((address, mac)) = reply(&frame[..received.len.min(frame.len())]) else { continue };
                let place = addresses.iter().position(|own| *own == address);
                if let Some(answer) = place.and_then(|at| answers.get_mut(at)).filter(|_| accept(&mac)) {
                    answer.get_or_insert(Answer { after: begin.elapsed(), mac });
                }
            }
            ring.rx.sync()?;
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replies_are_answers() {
        let address = Ipv4Addr::new(10, 0, 1, 2);
        let mut frame = request(address);
        assert_eq!(reply(&frame), None);
        frame[21] = 2;
        frame[22..28].copy_from_slice(&[2, 0, 0, 0, 1, 7]);
        frame[28..32].copy_from_slice(&address.octets());
        assert_eq!(reply(&frame), Some((address, [2, 0, 0, 0, 1, 7])));
        assert_eq!(reply(&frame[..27]), None);
    }
}
