//! A stream in a steady state allocates no memory. The allocator that counts is here since it needs `unsafe`, which of
//! the tests only those of this folder may contain.
#![allow(clippy::unwrap_used)]

use ringway_frame::Needs;
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{Cidr, Frames, InterfaceConfig, Settings, SocketId, Stack};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations of this thread.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator as it is; the count has no destructor and needs no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory is from `alloc` or `realloc`, which got it from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as for `dealloc`; the new length is the caller's promise.
        unsafe { System.realloc(memory, layout, len) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Two hosts on a line of a tenth of a millisecond.
struct Pair {
    now: u64,
    hosts: [Stack; 2],
    frames: Frames,
    bytes: Vec<u8>,
    received: u64,
}

impl Pair {
    fn new(algorithm: Algorithm, offloads: Needs) -> Pair {
        let settings = Settings {
            tcp_congestion_control: algorithm,
            tcp_wmem: [4096, 256 << 10, 256 << 10],
            ..Settings::default()
        };
        let hosts = [1, 2].map(|last| {
            let mut stack = Stack::new(settings.clone(), [last, 5]);
            stack.add_interface(InterfaceConfig {
                mac: [2, 0, 0, 0, 0, last as u8].into(),
                mtu: 1500,
                addresses: vec![Cidr::new([10, 0, 0, last as u8], 24)],
                offloads,
            });
            stack
        });
        Pair { now: 0, hosts, frames: Frames::new(4096), bytes: vec![7; 64 << 10], received: 0 }
    }

    /// Both hosts send once, and the link delivers.
    fn step(&mut self) {
        self.now += 100_000;
        for from in 0..2 {
            self.hosts[from].expire(self.now);
            self.hosts[from].transmit(self.now, 0, &mut self.frames);
            for (frame, offload) in self.frames.iter() {
                self.hosts[1 - from].receive(self.now, 0, frame, offload);
            }
            self.frames.clear();
        }
    }

    /// The first host's program sends as much as it can, the second's reads it.
    fn stream(&mut self, steps: usize, [client, server]: [SocketId; 2]) {
        for _ in 0..steps {
            while self.hosts[0].send(self.now, client, &self.bytes).is_ok() {}
            self.step();
            while let Ok(count) = self.hosts[1].recv(self.now, server, &mut self.bytes) {
                self.received += count as u64;
            }
            for host in &mut self.hosts {
                while host.next_event().is_some() {}
            }
        }
    }
}

#[test]
fn a_stream_allocates_nothing_for_its_segments() {
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr1, Algorithm::Bbr3] {
        for offloads in [Needs::NONE, Needs::ALL] {
            let mut pair = Pair::new(algorithm, offloads);
            let listener = pair.hosts[1].listen("10.0.0.2:80".parse().unwrap(), 1).unwrap();
            let client = pair.hosts[0].connect(0, "10.0.0.2:80".parse().unwrap()).unwrap();
            (0..10).for_each(|_| pair.step());
            let sockets = [client, pair.hosts[1].accept(listener).unwrap().socket];
            pair.stream(5000, sockets);
            let (count, received) = (COUNT.get(), pair.received);
            pair.stream(1000, sockets);
            let (allocated, bytes) = (COUNT.get() - count, pair.received - received);
            assert!(bytes > 10 << 20, "{algorithm:?}: {bytes} bytes");
            assert_eq!(allocated, 0, "{algorithm:?}, {offloads:?}: allocations for {bytes} bytes");
        }
    }
}
