//! Moves frames between two devices.

use ringway_frame::{BURST, LARGEST, Offload};
use ringway_host::{Clock, Epoll};
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
        let (head, rest, offload) = (received.head, &received.rest, received.offload);
        if !to.device.frame(offload, head, rest) {
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
