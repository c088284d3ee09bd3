//! Moves frames between two devices.

use ringway_frame::{BURST, LARGEST, Offload};
use ringway_host::{Clock, Epoll};
use ringway_netstack::PIECES;
use ringway_sockets::{Device, DeviceError};
use std::os::fd::AsFd;

/// Descriptors of one device at most.
const DESCRIPTORS: u64 = 16;

/// A device, and the frame for it that had no room.
struct Side<'a> {
    device: &'a mut dyn Device,
    held: Option<(Vec<u8>, Offload)>,
    epoch: u64,
    watched: Option<Epoll>,
}

/// Moves frames until one of the devices can't be used any more.
pub fn bridge<'a>(one: &'a mut dyn Device, two: &'a mut dyn Device) -> DeviceError {
    let sides = [one, two].map(|device| Side { device, held: None, epoch: u64::MAX, watched: None });
    match run(sides) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn run(mut sides: [Side<'_>; 2]) -> Result<std::convert::Infallible, DeviceError> {
    let clock = Clock::new();
    let epoll = Epoll::new()?;
    let mut frame = vec![0; LARGEST as usize];
    loop {
        let [one, two] = &mut sides;
        let moved = forward(one, two, &mut frame)? | forward(two, one, &mut frame)?;
        for side in &mut sides {
            side.device.flush()?;
            if side.device.next_attempt().is_some_and(|next| next <= clock.now()) {
                side.device.come_back(clock.now());
            }
        }
        if moved {
            continue;
        }
        sleep(&mut sides, &epoll, &clock)?;
    }
}

/// Moves a burst; returns whether there was something.
fn forward(from: &mut Side<'_>, to: &mut Side<'_>, frame: &mut [u8]) -> Result<bool, DeviceError> {
    let mut moved = false;
    for _ in 0..BURST {
        if let Some((bytes, offload)) = to.held.take()
            && !to.device.frame(offload, &bytes, &[])
        {
            to.held = Some((bytes, offload));
            break;
        }
        let Some(received) = from.device.receive()? else { break };
        moved = true;
        let offload = received.offload;
        // A device takes as many pieces as the stack makes; frames from elsewhere may have more.
        let is_sent = if received.rest.len() <= PIECES {
            to.device.frame(offload, received.head, &received.rest)
        } else {
            let len = received.read(frame);
            to.device.frame(offload, &frame[..len], &[])
        };
        if !is_sent {
            let len = received.read(frame);
            to.held = Some((frame[..len].to_vec(), offload));
        }
    }
    Ok(moved)
}

/// Sleeps until one of the devices has a frame, or room for one that waits for it.
fn sleep(sides: &mut [Side<'_>; 2], epoll: &Epoll, clock: &Clock) -> Result<(), DeviceError> {
    let mut awake = false;
    for (number, side) in (0..).zip(sides.iter_mut()) {
        // After the device has changed its descriptors.
        if side.device.epoch() != side.epoch || side.watched.is_none() {
            side.epoch = side.device.epoch();
            let watched = Epoll::new()?;
            for (key, descriptor) in (0..DESCRIPTORS).zip(side.device.descriptors()) {
                watched.add_edge(descriptor, key)?;
            }
            epoll.add_level(watched.as_fd(), number)?;
            side.watched = Some(watched);
            awake = true;
        }
        awake |= !side.device.arm(side.held.is_some())?;
    }
    let next = sides.iter().filter_map(|side| side.device.next_attempt()).min();
    let most = next.map(|next| next.saturating_sub(clock.now()));
    epoll.wait(if awake { Some(0) } else { most }, |_| {});
    for side in sides.iter_mut() {
        let mut events = Vec::new();
        if let Some(watched) = &side.watched {
            watched.wait(Some(0), |key| events.push(key as usize));
        }
        for descriptor in events {
            side.device.notified(descriptor)?;
        }
        side.device.disarm();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_mem::Span;
    use ringway_netstack::Transmit;
    use ringway_sockets::{Spans, pair};
    use std::os::unix::net::UnixDatagram;

    /// A frame of many pieces, and a device that has it once.
    struct Many {
        bytes: Vec<u8>,
        left: bool,
        inner: ringway_sockets::Pair,
    }

    impl Transmit for Many {
        fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
            self.inner.frame(offload, headers, payload)
        }
    }

    impl Device for Many {
        fn offloads(&self) -> ringway_frame::Needs {
            self.inner.offloads()
        }
        fn receive(&mut self) -> Result<Option<ringway_sockets::Received<'_>>, DeviceError> {
            if !std::mem::take(&mut self.left) {
                return Ok(None);
            }
            let (head, rest) = self.bytes.split_at(14);
            let rest: Spans<'_> = rest.chunks(2048).map(Span::of).collect();
            Ok(Some(ringway_sockets::Received { head, rest, offload: Offload::default() }))
        }
        fn flush(&mut self) -> Result<(), DeviceError> {
            self.inner.flush()
        }
        fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
            self.inner.arm(room)
        }
        fn disarm(&mut self) {
            self.inner.disarm();
        }
        fn descriptors(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
            self.inner.descriptors()
        }
        fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError> {
            self.inner.notified(descriptor)
        }
    }

    #[test]
    fn a_frame_of_more_pieces_than_a_device_takes_arrives_whole() {
        let (one, _other) = pair().unwrap();
        let (near, far) = UnixDatagram::pair().unwrap();
        for end in [&near, &far] {
            end.set_nonblocking(true).unwrap();
        }
        let bytes: Vec<u8> = (0..65_000_u32).map(|number| number as u8).collect();
        let mut many = Many { bytes: bytes.clone(), left: true, inner: one };
        let mut tap = ringway_sockets::TapDevice::of(far.into());
        let side = |device| Side { device, held: None, epoch: 0, watched: None };
        let (mut from, mut to) = (side(&mut many as &mut dyn Device), side(&mut tap));
        assert!(forward(&mut from, &mut to, &mut vec![0; LARGEST as usize]).unwrap());
        let mut got = vec![0; 70_000];
        let len = near.recv(&mut got).unwrap();
        // Behind the TAP's header.
        assert_eq!(&got[10..len], bytes);
    }
}
