//! The channel between a function's guest and its monitor, with a guest that sends arbitrary messages and writes
//! arbitrary words anywhere in the channel's memory.

use ringway_host::{Mapping, memfd};
use ringway_mem::{Region, Words};
use ringway_vmm::channel::{Channel, MESSAGE, ToGuest, ToMonitor, WINDOW};
use ringway_vmm::{Conversation, FunctionEvent};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports of the function.
const PORTS: usize = 3;
/// Longest line or reason of a guest, a part of a message included.
const LONGEST: usize = (64 << 10) + MESSAGE;

/// A socket on which the monitor listens.
struct Socket {
    listener: UnixListener,
    path: std::path::PathBuf,
}

impl Socket {
    fn new() -> io::Result<Socket> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ringway-fuzz-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        Ok(Socket { listener: UnixListener::bind(&path)?, path })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

thread_local! {
    static SOCKET: Socket = Socket::new().unwrap_or_else(|error| panic!("a socket in /tmp: {error}"));
}

fn memory() -> Result<Region, ringway_host::HostError> {
    let bytes = Channel::bytes().unwrap_or_default() as usize;
    Ok(Arc::new(Mapping::shared(memfd("fuzz", bytes)?, 0, bytes)?).region())
}

/// Lets the monitor handle what a guest sends, and writes into the memory.
pub fn run(data: &[u8]) {
    // What was parsed is not longer than what it was parsed from.
    let again = ToMonitor::from_bytes(data).map(|message| message.to_bytes());
    assert!(again.is_none_or(|again| again.len() <= data.len().max(4)));
    let _ = ToGuest::from_bytes(data);
    SOCKET.with(|socket| talk(socket, data));
}

fn talk(socket: &Socket, data: &[u8]) {
    let Ok(region) = memory() else { return };
    let monitor = Channel::create(region.clone());
    let (Ok(monitor), Ok(mut guest)) = (monitor, Channel::attach(region.clone())) else {
        panic!("a new channel is one")
    };
    let Ok(mut conversation) = Conversation::new(monitor, PORTS, &socket.listener) else { return };
    let Ok(mut program) = UnixStream::connect(&socket.path) else { return };
    let _ = program.set_nonblocking(true);
    let connect = &mut |port: usize| {
        assert!(port < PORTS);
        Err(io::ErrorKind::ConnectionRefused.into())
    };
    let event = &mut |event: FunctionEvent| match event {
        FunctionEvent::Wrong(text) | FunctionEvent::Line(text) => assert!(text.len() <= 3 * LONGEST),
        FunctionEvent::Up(_) => {}
    };
    // Accepts the program, so that the socket's queue never fills.
    if conversation.round(0, connect, event).is_err() {
        panic!("a silent guest breaks no rule");
    }
    let mut rest = data;
    for now in 1..64 {
        let Some(([operation, len], more)) = rest.split_first_chunk() else { break };
        let (part, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        match operation % 4 {
            0 => drop(program.write(part)),
            1 if part.len() >= 8 => {
                let (offset, word) = part.split_at(4);
                let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                let memory = ringway_mem::Memory::new(vec![region.clone()]);
                let at = (u64::from(number(offset)) % region.len) & !3;
                let span = memory.as_ref().ok().and_then(|memory| memory.user_span(at, 4));
                if let Some(words) = span.and_then(Words::<u32>::new) {
                    words.store(0, number(&word[..4]));
                }
            }
            _ => guest.send(part.to_vec()),
        }
        let _ = guest.flush();
        if conversation.round(now * 1_000_000, connect, event).is_err() {
            return;
        }
        // What the program gets is bounded by the window.
        let mut bytes = vec![0; 2 * WINDOW as usize];
        if let Ok(count) = program.read(&mut bytes) {
            assert!(count <= WINDOW as usize);
        }
        while let Ok(Some(message)) = guest.receive() {
            let _ = ToGuest::from_bytes(message);
        }
    }
}

/// Messages of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let messages = [
        ToMonitor::Up([1, 2, 3]),
        ToMonitor::Wrong(true, b"why"),
        ToMonitor::Print(false, b"line"),
        ToMonitor::Wanted(1, true),
        ToMonitor::Released(1, b"why"),
        ToMonitor::Data(0, b"bytes"),
        ToMonitor::Taken(0, 1),
        ToMonitor::Closed(0),
    ];
    let operation = |kind: u8, part: &[u8]| [&[kind, part.len() as u8], part].concat();
    let all = messages.map(|message| operation(2, &message.to_bytes())).concat();
    let words = [operation(0, b"READ a.b\n"), operation(1, &[0, 0, 4, 0, 0, 0, 0, 65]), all.clone()].concat();
    vec![
        all,
        words,
        [operation(0, &[b'x'; 200]), operation(2, &ToMonitor::Taken(0, 200).to_bytes())].concat(),
    ]
}
