//! Numbered frames that one program sends and another one returns, each checked: the same exchange as that of
//! `clients/c/examples/frames.c`, so that each of the two may be either program.
use ringway_ring_client::{FRAGMENTS, Ring, RingError, Wait};
use std::time::Duration;

const HEADER: usize = 14;
const LONGEST: usize = 1514;
/// Frames in flight: fewer than the slots of any ring between the two, so that no frame may be lost.
const AHEAD: u32 = 32;
/// How long a frame may take.
const FRAME_TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));
/// Headers of sent and of returned frames: a group address, which every switch floods, and the sender's own.
const SENT: [u8; HEADER] = [3, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 7, 0x88, 0xb5];
const RETURNED: [u8; HEADER] = [3, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8, 0x88, 0xb5];

/// Frame `number`, which determines its length and all bytes.
fn frame(number: u32) -> Vec<u8> {
    let len = 60 + number as usize * 97 % (LONGEST - 59);
    let mut frame = [&SENT[..], &number.to_le_bytes()].concat();
    frame.extend((HEADER + 4..len).map(|at| (number as usize + at) as u8));
    frame
}

fn text(error: RingError) -> String {
    error.to_string()
}

/// Sends `count` frames, which must come back in order and unchanged but for their addresses.
pub fn send(ring: &mut Ring, count: u32) -> Result<(), String> {
    let (mut sent, mut received, mut found) = (0, 0, [0; LONGEST + 1]);
    while received < count {
        let mut has_room = true;
        while has_room && sent < count && sent - received < AHEAD {
            has_room = ring.tx.push(&frame(sent)).map_err(text)?;
            sent += u32::from(has_room);
        }
        // Room may come after the frames that are on their way.
        let tx = if has_room { 0 } else { FRAGMENTS as u32 };
        if !ring.wait(Wait { rx: 1, tx }, FRAME_TIMEOUT).map_err(text)? {
            return Err(format!("frame {received} did not come back"));
        }
        while let Some(got) = ring.rx.pop(&mut found).map_err(text)? {
            let mut expected = frame(received);
            expected[..HEADER].copy_from_slice(&RETURNED);
            let got = &found[..got.len];
            if got.get(..HEADER) != Some(&RETURNED[..]) {
                continue;
            }
            if got != expected {
                return Err(format!("frame {received} is not what was sent"));
            }
            received += 1;
        }
    }
    Ok(())
}

/// Returns `count` frames to their senders.
pub fn give_back(ring: &mut Ring, count: u32) -> Result<(), String> {
    let (mut returned, mut found) = (0, [0; LONGEST + 1]);
    while returned < count {
        if !ring.wait(Wait::RX, FRAME_TIMEOUT).map_err(text)? {
            return Err(format!("frame {returned} did not come"));
        }
        while let Some(got) = ring.rx.pop(&mut found).map_err(text)? {
            let got = &mut found[..got.len];
            if got.get(..HEADER) != Some(&SENT[..]) {
                continue;
            }
            got[..HEADER].copy_from_slice(&RETURNED);
            while !ring.tx.push(got).map_err(text)? {
                ring.wait(Wait::TX, FRAME_TIMEOUT).map_err(text)?;
            }
            returned += 1;
        }
    }
    // What is closed too early is lost. The sender may leave as soon as it has the last one.
    let tx = ring.tx.slots();
    match ring.wait(Wait { rx: 0, tx }, FRAME_TIMEOUT) {
        Ok(_) | Err(RingError::Closed) => Ok(()),
        Err(error) => Err(text(error)),
    }
}
