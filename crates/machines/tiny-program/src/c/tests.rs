//! Programs that make the calls of a C library, with the scripted monitor and peer of all programs.

use super::abi::{AF_INET, AF_INET6, Errno, O_NONBLOCK, control, event, message, number, option};
use super::memory::ProgramMemory;
use super::{Calls, End};
use crate::tests::{ADDRESS, Client, LEAST, PEER, Script, World, machine, start};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::SocketAddr;
use ringway_mem::Region;
use ringway_netstack::SocketId;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// The program's memory: what tests name, and then what `malloc` has.
const BASE: u64 = 0x10_0000;
const HEAP: u64 = BASE + (1 << 20);
const END: u64 = HEAP + (1 << 20);
/// Its stack, and where the stack pointer is in its calls.
const STACK: [u64; 2] = [0x8_0000, 0x9_0000];
const POINTER: u64 = 0x8_8000;

/// A program's side.
struct Program {
    calls: Calls<Script>,
    world: Rc<RefCell<World>>,
    next: u64,
}

fn program(settings: &[(&str, &str)], step: impl FnMut(&mut World) + 'static) -> Program {
    program_with(64 << 20, settings, step)
}

fn program_with(memory: u64, settings: &[(&str, &str)], step: impl FnMut(&mut World) + 'static) -> Program {
    let (host, channel, world) = machine(1, memory, step);
    let region = |[from, to]: [u64; 2]| Region::private(from, from, (to - from) as usize);
    let ram = ProgramMemory::new([region(STACK), region([BASE, END])].into(), STACK).unwrap();
    let mut calls =
        Calls::new(host, channel, start(1, settings), ram, [HEAP, END], || Some(0x0123_4567_89ab_cdef));
    calls.begin().unwrap();
    Program { calls, world, next: BASE }
}

impl Program {
    fn try_call(&mut self, number: u64, arguments: &[u64]) -> Result<i64, End> {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.calls.call(number, all, POINTER)
    }

    fn call(&mut self, number: u64, arguments: &[u64]) -> i64 {
        self.try_call(number, arguments).unwrap()
    }

    /// A call that must not fail.
    fn ok(&mut self, number: u64, arguments: &[u64]) -> u64 {
        let value = self.call(number, arguments);
        u64::try_from(value).unwrap_or_else(|_| panic!("call {number} failed: {value}"))
    }

    /// A call that must fail so.
    fn fails(&mut self, number: u64, arguments: &[u64], errno: Errno) {
        assert_eq!(self.call(number, arguments), -(errno as i64), "call {number}, {errno:?}");
    }

    /// Bytes in the program's memory.
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.next;
        self.next = (at + bytes.len() as u64).next_multiple_of(16);
        self.calls.ram.write(at, bytes).unwrap();
        at
    }

    fn words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(&bytes)
    }

    fn get(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.calls.ram.read(at, &mut bytes).unwrap();
        bytes
    }

    fn int(&self, at: u64) -> i32 {
        i32::from_le_bytes(self.get(at, 4).try_into().unwrap())
    }

    /// A socket of the first family and of this kind.
    fn socket(&mut self, kind: u64) -> u64 {
        self.ok(number::SOCKET, &[AF_INET.into(), kind, 0])
    }

    /// A `struct sockaddr_in`; its length is 16.
    fn address(&mut self, text: &str) -> u64 {
        let SocketAddr::V4(address) = text.parse().unwrap() else { panic!("{text}") };
        let [a, b] = address.port().to_be_bytes();
        self.put(&[&[2, 0, a, b][..], &address.ip().octets(), &[0; 8]].concat())
    }

    /// Waits for an event of a descriptor, so many milliseconds; those that came.
    fn poll(&mut self, descriptor: u64, events: u16, time: i32) -> u16 {
        let [low, high] = events.to_le_bytes();
        let at = self.put(&[&(descriptor as u32).to_le_bytes()[..], &[low, high, 9, 9]].concat());
        let found = self.ok(number::POLL, &[at, 1, time as u64]);
        let come = u16::from_le_bytes(self.get(at + 6, 2).try_into().unwrap());
        assert_eq!(found, u64::from(come != 0));
        come
    }

    fn option(&mut self, descriptor: u64, name: u64) -> i32 {
        let (value, len) = (self.put(&[0xff; 16]), self.put(&16_u32.to_le_bytes()));
        self.ok(number::GETSOCKOPT, &[descriptor, option::SOL_SOCKET, name, value, len]);
        self.int(value)
    }

    fn set_option(&mut self, descriptor: u64, level: u64, name: u64, value: &[u8]) -> i64 {
        let at = self.put(value);
        self.call(number::SETSOCKOPT, &[descriptor, level, name, at, value.len() as u64])
    }

    /// Ends the program; how, and what it said.
    fn exit(mut self, status: u64) -> (End, Vec<String>) {
        let end = self.try_call(number::EXIT_GROUP, &[status]).unwrap_err();
        self.world.borrow_mut().listen();
        (end, core::mem::take(&mut self.world.borrow_mut().said))
    }
}

#[test]
fn a_server_echoes_streams_of_both_families() {
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
    let mut clients: Option<Vec<Client>> = None;
    let expected = bytes.clone();
    let mut program = program(ADDRESS, move |world| {
        let new = || [false, true].map(|by_ip6| Client::new(world, by_ip6)).into();
        clients.get_or_insert_with(new).retain_mut(|client| {
            let is_done = client.step(world, &expected);
            if is_done {
                let now = world.now();
                world.peer.shutdown(now, client.id).unwrap();
            }
            !is_done
        });
    });
    let listener = program.ok(number::SOCKET, &[AF_INET6.into(), 1, 6]);
    assert_eq!(listener, 3);
    let any = program.put(&[&[10, 0, 0, 7][..], &[0; 24]].concat());
    program.ok(number::BIND, &[listener, any, 28]);
    program.ok(number::LISTEN, &[listener, 5]);
    assert_eq!(program.option(listener, option::SO_ACCEPTCONN), 1);
    let (peer, len, buffer) = (program.put(&[0; 28]), program.put(&28_u32.to_le_bytes()), HEAP);
    let mut peers = Vec::new();
    for _ in 0..2 {
        assert_eq!(program.poll(listener, event::IN, -1), event::IN);
        let stream = program.ok(number::ACCEPT, &[listener, peer, len]);
        assert_eq!(program.int(len), 28);
        peers.push(program.get(peer + 8, 16));
        let mut echoed = 0;
        loop {
            let count = program.ok(number::READ, &[stream, buffer, 200_000]);
            if count == 0 {
                break;
            }
            assert_eq!(program.ok(number::WRITE, &[stream, buffer, count]), count);
            echoed += count;
        }
        assert_eq!(echoed, bytes.len() as u64);
        program.ok(number::CLOSE, &[stream]);
        program.fails(number::READ, &[stream, buffer, 1], Errno::BadFile);
    }
    peers.sort();
    let mapped = [&[0; 10][..], &[0xff, 0xff], &PEER].concat();
    assert_eq!(peers[0], mapped);
    assert_eq!(peers[1][..2], [0xfd, 0]);
    assert_eq!(program.exit(0).0, End::Returned);
}

#[test]
fn a_listener_is_not_ready_while_there_are_as_many_streams_as_the_memory_permits() {
    let mut clients: Vec<Client> = Vec::new();
    let mut program = program_with(LEAST, ADDRESS, move |world| {
        if clients.is_empty() {
            clients = (0..20).map(|_| Client::new(world, false)).collect();
        }
    });
    let listener = program.socket(1);
    let any = program.address("0.0.0.0:7");
    program.ok(number::BIND, &[listener, any, 16]);
    program.ok(number::LISTEN, &[listener, 20]);
    let streams: Vec<u64> = (0..16).map(|_| program.ok(number::ACCEPT, &[listener, 0, 0])).collect();
    // Attack: peers that keep all streams, and make the program wait again and again.
    for _ in 0..100 {
        assert_eq!(program.poll(listener, event::IN, 1), 0);
    }
    let network = program.calls.network.clone().unwrap();
    assert_eq!(network.with(|network, _| network.waiting()), 1);
    program.ok(number::CLOSE, &[streams[0]]);
    assert_eq!(program.poll(listener, event::IN, 1000), event::IN);
    program.ok(number::ACCEPT, &[listener, 0, 0]);
}

/// A listener of the peer that answers what it gets with its length, and closes.
fn answerer() -> impl FnMut(&mut World) {
    let (mut listener, mut streams): (Option<SocketId>, Vec<SocketId>) = (None, Vec::new());
    move |world| {
        let now = world.now();
        let listener = *listener.get_or_insert_with(|| world.peer.listen((PEER, 80).into(), 4).unwrap());
        streams.extend(world.peer.accept(listener).map(|accepted| accepted.socket));
        streams.retain(|id| {
            let mut bytes = [0; 64];
            let Ok(count @ 1..) = world.peer.recv(now, *id, &mut bytes) else { return true };
            world.peer.send(now, *id, std::format!("{count} bytes").as_bytes()).unwrap();
            world.peer.close(now, *id).unwrap();
            false
        });
    }
}

#[test]
fn a_client_connects_with_and_without_waiting() {
    let mut program = program(ADDRESS, answerer());
    let (good, bad) = (program.address("10.0.0.1:80"), program.address("10.0.0.1:81"));
    let (question, answer) = (program.put(b"question"), program.put(&[0; 64]));
    let stream = program.socket(1);
    program.fails(number::READ, &[stream, answer, 1], Errno::NotConnected);
    program.fails(number::CONNECT, &[stream, bad, 16], Errno::Refused);
    program.ok(number::CONNECT, &[stream, good, 16]);
    program.fails(number::CONNECT, &[stream, good, 16], Errno::IsConnected);
    let len = program.put(&8_u32.to_le_bytes());
    program.ok(number::GETPEERNAME, &[stream, answer, len]);
    assert_eq!((program.get(answer, 9), program.int(len)), (vec![2, 0, 0, 80, 10, 0, 0, 1, 0], 16));
    assert_eq!(program.ok(number::SENDTO, &[stream, question, 8, 0, 0, 0]), 8);
    // All that was asked for, or up to the end; what is looked at stays.
    assert_eq!(program.ok(number::RECVFROM, &[stream, answer, 4, message::PEEK | message::WAITALL]), 4);
    assert_eq!(program.ok(number::RECVFROM, &[stream, answer, 64, message::WAITALL]), 7);
    assert_eq!(program.get(answer, 7), b"8 bytes");
    assert_eq!(program.ok(number::READ, &[stream, answer, 64]), 0);
    program.ok(number::SHUTDOWN, &[stream, 1]);
    program.fails(number::WRITE, &[stream, question, 8], Errno::BrokenPipe);

    let stream = program.socket(1 | O_NONBLOCK);
    program.fails(number::CONNECT, &[stream, bad, 16], Errno::InProgress);
    program.fails(number::CONNECT, &[stream, bad, 16], Errno::Already);
    let come = program.poll(stream, event::OUT, 1000);
    assert_eq!(come, event::OUT | event::ERR | event::HUP);
    assert_eq!(program.option(stream, option::SO_ERROR), Errno::Refused as i32);
    assert_eq!(program.option(stream, option::SO_ERROR), 0);
    program.fails(number::CONNECT, &[stream, good, 16], Errno::InProgress);
    program.fails(number::READ, &[stream, answer, 1], Errno::Again);
    assert_eq!(program.poll(stream, event::OUT, 1000), event::OUT);
    assert_eq!(program.option(stream, option::SO_ERROR), 0);
    assert_eq!(program.poll(stream, event::IN, 10), 0);
    let parts = program.words(&[question, 3, question + 3, 5]);
    assert_eq!(program.ok(number::WRITEV, &[stream, parts, 2]), 8);
    assert_eq!(program.poll(stream, event::IN | event::RDHUP, -1) & event::IN, event::IN);
    let parts = program.words(&[answer + 32, 2, answer, 20]);
    assert_eq!(program.ok(number::READV, &[stream, parts, 2]), 7);
    assert_eq!((program.get(answer, 5), program.get(answer + 32, 2)), (b"bytes".to_vec(), b"8 ".to_vec()));
    // The socket is bound before, and reset when it is closed.
    let bound = program.socket(1);
    let local = program.address("10.0.0.2:5555");
    program.ok(number::BIND, &[bound, local, 16]);
    program.fails(number::BIND, &[bound, local, 16], Errno::Invalid);
    program.ok(number::CONNECT, &[bound, good, 16]);
    program.ok(number::GETSOCKNAME, &[bound, answer, len]);
    assert_eq!(program.get(answer, 8), program.get(local, 8));
    assert_eq!(
        program.set_option(bound, option::SOL_SOCKET, option::SO_LINGER, &[1, 0, 0, 0, 0, 0, 0, 0]),
        0
    );
    program.ok(number::CLOSE, &[bound]);
    assert_eq!(program.exit(0).0, End::Returned);
}

#[test]
fn datagrams_pass_and_are_cut_and_filtered() {
    let mut socket: Option<SocketId> = None;
    let mut program = program(ADDRESS, move |world| {
        let now = world.now();
        let id = *socket.get_or_insert_with(|| world.peer.bind((PEER, 53).into()).unwrap());
        while let Ok((bytes, from)) = world.peer.recv_from(id) {
            let other = world.peer.bind((PEER, 0).into()).unwrap();
            world.peer.send_to(now, other, b"from another port", from).unwrap();
            world.peer.close(now, other).unwrap();
            world.peer.send_to(now, id, &[b"answer to ", &bytes[..]].concat(), from).unwrap();
        }
    });
    let (peer, out) = (program.address("10.0.0.1:53"), program.put(&[0; 64]));
    let (one, from, len) = (program.put(b"one"), program.put(&[0; 16]), program.put(&16_u32.to_le_bytes()));
    let socket = program.socket(2);
    program.fails(number::SENDTO, &[socket, one, 3, 0, 0, 0], Errno::NeedsAddress);
    program.fails(number::SENDTO, &[socket, one, 65_508, 0, peer, 16], Errno::MessageTooLong);
    let wait = program.words(&[0, 50_000]);
    program.ok(number::SETSOCKOPT, &[socket, option::SOL_SOCKET, option::SO_RCVTIMEO, wait, 16]);
    program.fails(number::RECVFROM, &[socket, out, 64, 0], Errno::Again);
    program.ok(number::SENDTO, &[socket, one, 3, 0, peer, 16]);
    let first = program.ok(number::RECVFROM, &[socket, out, 64, message::PEEK, from, len]);
    assert_eq!(program.get(out, first), b"from another port");
    assert_eq!(program.ok(number::RECVFROM, &[socket, out, 4, message::TRUNC]), 17);
    assert_eq!(program.ok(number::RECVFROM, &[socket, out, 64, 0, from, len]), 13);
    assert_eq!((program.get(from, 8), program.get(peer, 8)), (program.get(peer, 8), program.get(from, 8)));
    // A connected socket receives from its peer alone.
    program.ok(number::CONNECT, &[socket, peer, 16]);
    let parts = program.words(&[one, 1, one + 1, 2]);
    let sent = program.words(&[0, 0, parts, 2, 0, 0, 0]);
    assert_eq!(program.ok(number::SENDMSG, &[socket, sent, 0]), 3);
    let parts = program.words(&[out, 6, out + 32, 3]);
    let received = program.words(&[from, 16, parts, 2, 7, 7, 7]);
    assert_eq!(program.ok(number::RECVMSG, &[socket, received, 0]), 9);
    assert_eq!((program.get(out, 6), program.get(out + 32, 3)), (b"answer".to_vec(), b" to".to_vec()));
    assert_eq!(program.int(received + 8), 16);
    assert_eq!(program.get(received + 40, 12), [&[0; 8][..], &[message::TRUNC as u8, 0, 0, 0]].concat());
    assert_eq!(program.poll(socket, event::IN | event::OUT, 0), event::OUT);
    // Nobody has that port.
    let nobody = program.address("10.0.0.1:54");
    program.ok(number::CONNECT, &[socket, nobody, 16]);
    program.ok(number::WRITE, &[socket, one, 3]);
    program.fails(number::READ, &[socket, out, 64], Errno::Refused);
    let none = program.put(&[0; 16]);
    program.ok(number::CONNECT, &[socket, none, 16]);
    program.fails(number::WRITE, &[socket, one, 3], Errno::NeedsAddress);
    assert_eq!(program.option(socket, option::SO_TYPE), 2);
}

#[test]
fn others_do_not_prolong_a_wait() {
    let count = Rc::new(RefCell::new(0));
    let counted = count.clone();
    let mut id: Option<SocketId> = None;
    // Attack: a datagram whenever the program waits, some microseconds after the one before.
    let mut program = program(ADDRESS, move |world| {
        let now = world.now();
        let id = *id.get_or_insert_with(|| world.peer.bind((PEER, 54).into()).unwrap());
        world.peer.send_to(now, id, b"from another port", ([10, 0, 0, 2], 9).into()).unwrap();
        *counted.borrow_mut() += 1;
    });
    let (local, peer) = (program.address("0.0.0.0:9"), program.address("10.0.0.1:53"));
    let (socket, out) = (program.socket(2), program.put(&[0; 64]));
    program.ok(number::BIND, &[socket, local, 16]);
    program.ok(number::CONNECT, &[socket, peer, 16]);
    let wait = program.words(&[0, 5000]);
    program.ok(number::SETSOCKOPT, &[socket, option::SOL_SOCKET, option::SO_RCVTIMEO, wait, 16]);
    let (begun, before) = (program.calls.now(), *count.borrow());
    program.fails(number::RECVFROM, &[socket, out, 64, 0], Errno::Again);
    let passed = program.calls.now() - begun;
    assert!((5_000_000..5_100_000).contains(&passed), "{passed}");
    assert!(*count.borrow() - before >= 100, "datagrams came");
}

#[test]
fn the_stack_below_its_pointer_is_not_the_programs() {
    let mut program = program(ADDRESS, answerer());
    let (good, question) = (program.address("10.0.0.1:80"), program.put(b"question"));
    let stream = program.socket(1);
    program.ok(number::CONNECT, &[stream, good, 16]);
    program.ok(number::WRITE, &[stream, question, 8]);
    // A local variable of a function that has returned, and one that is partly below the stack pointer.
    for at in [STACK[0], POINTER - 64, POINTER - 1] {
        program.fails(number::RECVFROM, &[stream, at, 7, message::PEEK], Errno::Fault);
        program.fails(number::WRITE, &[stream, at, 7], Errno::Fault);
        program.fails(number::CLOCK_GETTIME, &[1, at], Errno::Fault);
    }
    assert_eq!(program.ok(number::READ, &[stream, POINTER, 7]), 7);
    assert_eq!(program.get(POINTER, 7), b"8 bytes");
    program.calls.ram.begin(STACK[0]);
    let below = program.get(STACK[0], POINTER - STACK[0]);
    assert!(below.iter().all(|byte| *byte == 0));
}

#[test]
fn lines_and_the_status_are_told() {
    let mut program = program(&[("argument", "one"), ("argument", "two")], |_| ());
    let words = program.calls.arguments().unwrap();
    let text = |at: u64| String::from_utf8(program.calls.ram.text(at, 100).unwrap()).unwrap();
    assert_eq!((words[0], text(words[2]), text(words[3]), words[4]), (3, "one".into(), "two".into(), 0));
    assert_eq!((text(words[5]), &words[6..]), ("GREETING=hello".into(), &[0, 6, 4096, 0, 0][..]));
    let long = "x".repeat(5000);
    for (descriptor, text) in
        [(1, "begun"), (2, "other\n"), (1, " and ended\nnext\n\n"), (1, &long), (2, "rest")]
    {
        let at = program.put(text.as_bytes());
        assert_eq!(program.ok(number::WRITE, &[descriptor, at, text.len() as u64]), text.len() as u64);
    }
    let terminal = program.put(&[7; 36]);
    program.ok(number::IOCTL, &[1, control::TCGETS, terminal]);
    program.fails(number::IOCTL, &[0, control::TCGETS, terminal], Errno::NoTerminal);
    assert_eq!(program.ok(number::READ, &[0, terminal, 36]), 0);
    for _ in 0..2 {
        program.fails(57, &[], Errno::NoCall);
    }
    let (end, said) = program.exit(3);
    assert_eq!(end, End::Failed);
    let count = |what: &str| said.iter().filter(|line| *line == what).count();
    assert_eq!(
        (count("other"), count("begun and ended"), count("next"), count("rest")),
        (1, 1, 1, 1),
        "{said:?}"
    );
    assert_eq!(said.iter().filter(|line| line.starts_with("xxx")).map(String::len).sum::<usize>(), 5000);
    assert_eq!(
        (
            count("the system call with number 57 does not exist here: it fails with ENOSYS"),
            count("wrong: exit status 3")
        ),
        (1, 1)
    );
}

#[test]
fn time_passes_while_it_sleeps() {
    let mut program = program(&[], |_| ());
    let time = program.put(&[0; 16]);
    let now = |program: &mut Program, clock| {
        program.ok(number::CLOCK_GETTIME, &[clock, time]);
        let [seconds, part] = program.calls.ram.pair(time).unwrap();
        seconds * 1_000_000 + part / 1000
    };
    let begun = now(&mut program, 1);
    let second = program.words(&[1, 500_000_000]);
    program.ok(number::NANOSLEEP, &[second, 0]);
    let passed = now(&mut program, 1) - begun;
    assert!((1_500_000..1_502_000).contains(&passed), "{passed}");
    // Up to a time; one that has passed is none.
    let until = program.words(&[5, 0]);
    for _ in 0..2 {
        program.ok(number::CLOCK_NANOSLEEP, &[1, 1, until, 0]);
        let passed = now(&mut program, 1);
        assert!((5_000_000..5_002_000).contains(&passed), "{passed}");
    }
    let begun = now(&mut program, 0);
    assert_eq!(program.ok(number::POLL, &[0, 0, 20]), 0);
    let set = program.words(&[8]);
    let wait = program.words(&[0, 30_000_000]);
    program.fails(number::PSELECT6, &[4, set, 0, 0, wait], Errno::BadFile);
    assert_eq!(program.ok(number::PSELECT6, &[0, 0, 0, 0, wait]), 0);
    let passed = now(&mut program, 0) - begun;
    assert!((50_000..52_000).contains(&passed), "{passed}");
    for wrong in [[u64::MAX, 0], [0, 1_000_000_000]] {
        let wrong = program.words(&wrong);
        program.fails(number::NANOSLEEP, &[wrong, 0], Errno::Invalid);
    }
    program.fails(number::CLOCK_GETTIME, &[99, time], Errno::Invalid);
    program.fails(number::CLOCK_GETTIME, &[0, 8], Errno::Fault);
}

#[test]
fn select_finds_what_is_ready() {
    let mut sent = false;
    let mut program = program(ADDRESS, move |world| {
        let now = world.now();
        if !core::mem::replace(&mut sent, true) {
            let id = world.peer.bind((PEER, 0).into()).unwrap();
            world.peer.send_to(now, id, b"x", ([10, 0, 0, 2], 9).into()).unwrap();
        }
    });
    let (socket, other) = (program.socket(2), program.socket(1));
    let local = program.address("0.0.0.0:9");
    program.ok(number::BIND, &[socket, local, 16]);
    program.ok(number::LISTEN, &[other, 1]);
    let bits = (1 << socket) | (1 << other);
    let (reads, writes) = (program.words(&[bits]), program.words(&[0]));
    assert_eq!(program.ok(number::PSELECT6, &[other + 1, reads, writes, 0, 0]), 1);
    assert_eq!(program.get(reads, 8), (1_u64 << socket).to_le_bytes());
    let (reads, writes) = (program.words(&[bits | 1]), program.words(&[bits | 2]));
    assert_eq!(program.ok(number::PSELECT6, &[other + 1, reads, writes, 0, 0]), 4);
    assert_eq!(program.get(reads, 8), (1 | (1_u64 << socket)).to_le_bytes());
    assert_eq!(program.get(writes, 8), (2 | (1_u64 << socket)).to_le_bytes());
}

#[test]
fn descriptors_are_few_and_shared() {
    let mut program = program(ADDRESS, |_| ());
    let null = program.put(b"/dev/null\0");
    let random = program.put(b"/dev/urandom\0");
    let missing = program.put(b"/etc/passwd\0");
    program.fails(number::OPENAT, &[0, missing, 0, 0], Errno::NoEntry);
    let file = program.ok(number::OPEN, &[random, 0]);
    let out = program.put(&[0; 16]);
    assert_eq!(program.ok(number::READ, &[file, out, 5]), 5);
    assert_eq!(program.get(out, 6), [0xef, 0xcd, 0xab, 0x89, 0x67, 0]);
    assert_eq!(program.ok(number::GETRANDOM, &[out, 16, 0]), 16);
    let copy = program.ok(number::DUP, &[file]);
    program.ok(number::FCNTL, &[copy, control::F_SETFL, O_NONBLOCK]);
    assert_eq!(program.ok(number::FCNTL, &[file, control::F_GETFL]) & O_NONBLOCK, O_NONBLOCK);
    assert_eq!(program.ok(number::FCNTL, &[file, control::F_DUPFD, 100]), 100);
    assert_eq!(program.ok(number::DUP2, &[1, 7]), 7);
    program.fails(number::DUP2, &[1, 1024], Errno::BadFile);
    program.fails(number::LSEEK, &[1, 0, 0], Errno::NoSeek);
    program.fails(number::FCNTL, &[file, control::F_DUPFD, u64::MAX], Errno::Invalid);
    let last = (0..2000).map(|_| program.call(number::OPEN, &[null, 0])).find(|file| *file < 0);
    assert_eq!(last, Some(-(Errno::TooManyFiles as i64)));
    program.fails(number::SOCKET, &[AF_INET.into(), 1, 0], Errno::TooManyFiles);
    program.ok(number::CLOSE, &[100]);
    assert_eq!(program.socket(1), 100);
    program.fails(number::CONNECT, &[1, null, 16], Errno::NoSocket);
    program.ok(number::CLOSE, &[100]);
    for (arguments, errno) in
        [([1, 1, 0], Errno::NoFamily), ([2, 3, 0], Errno::NoType), ([2, 1, 17], Errno::NoProtocol)]
    {
        program.fails(number::SOCKET, &arguments, errno);
    }
}

#[test]
fn without_an_address_there_is_no_network() {
    let mut program = program(&[], |_| ());
    program.fails(number::SOCKET, &[AF_INET.into(), 1, 0], Errno::NetworkDown);
    let (_, said) = program.exit(0);
    assert!(said.iter().any(|line| line.starts_with("address: it is missing")), "{said:?}");
}

#[test]
fn a_signal_to_itself_ends_a_program() {
    let mut program = program(&[], |_| ());
    let old = program.put(&[7; 40]);
    program.ok(number::RT_SIGACTION, &[13, 0, old, 8]);
    assert_eq!(program.get(old, 33), [&[0; 32][..], &[7]].concat());
    program.fails(number::KILL, &[1, 99], Errno::Invalid);
    assert_eq!(program.try_call(number::KILL, &[1, 6]), Err(End::Failed));
    program.world.borrow_mut().listen();
    assert!(program.world.borrow().has_said("wrong: signal 6"));
}

#[test]
fn calls_with_any_arguments_are_answered() {
    let mut program = program(ADDRESS, answerer());
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        // Knuth's multiplier (MMIX).
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let skipped = [number::PAUSE, number::RT_SIGSUSPEND, number::EXIT, number::EXIT_GROUP, number::KILL];
    for _ in 0..20_000 {
        let number = [random(64), random(330), 41 + random(15)][random(3) as usize];
        let mut arguments = [0; 6].map(|_: u64| match random(5) {
            0 => random(8),
            1 => BASE + random(END - BASE),
            2 => u64::MAX - random(20),
            3 => 1 << random(64),
            _ => random(100),
        });
        // What waits for ever is left out: files do not wait, and times are short.
        let is_sleep = [number::NANOSLEEP, number::CLOCK_NANOSLEEP].contains(&number);
        if skipped.contains(&number) || is_sleep {
            continue;
        }
        match number {
            number::POLL => arguments[2] = random(3),
            number::PPOLL => arguments[2] = 8,
            number::PSELECT6 => arguments[4] = 8,
            number::SOCKET => arguments[1] = O_NONBLOCK | random(3),
            number::FCNTL => arguments[2] |= O_NONBLOCK,
            number::IOCTL if arguments[1] == control::FIONBIO => continue,
            number::ACCEPT4 => arguments[3] = O_NONBLOCK,
            _ => {}
        }
        program.call(number, &arguments);
    }
    assert_eq!(program.exit(0).0, End::Returned);
}
