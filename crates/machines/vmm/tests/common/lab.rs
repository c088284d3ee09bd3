//! Functions in guests on threads.

use super::machine;
use ringway_host::memfd;
use ringway_vmm::{
    FunctionEnd, FunctionEvent, FunctionStart, FunctionVm, Snapshot, SnapshotError, SnapshotHandle,
};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub const MEMORY: usize = 32 << 20;
pub const LONG: Duration = Duration::from_secs(60);

/// A function in a guest on a thread, with its socket.
pub struct Lab {
    pub socket: PathBuf,
    pub events: Receiver<FunctionEvent>,
    pub snapshot_handle: SnapshotHandle,
    thread: JoinHandle<FunctionEnd>,
}

/// Connects to a port by its number.
pub type Connect = fn(usize) -> io::Result<UnixStream>;

/// Starts a function; none, with a message, without KVM.
pub fn begin(text: &str, ports: &[&str], connect: Connect) -> Option<Lab> {
    machine()?;
    let start = FunctionStart {
        text: text.into(),
        title: "f.click".into(),
        ports: ports.iter().map(ToString::to_string).collect(),
        handlers: "handlers".into(),
        burst: 64,
        ..FunctionStart::default()
    };
    Some(run(FunctionVm::new(MEMORY, start).unwrap(), connect))
}

/// Runs a machine.
pub fn run(vm: FunctionVm, connect: impl FnMut(usize) -> io::Result<UnixStream> + Send + 'static) -> Lab {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let socket = std::env::temp_dir().join(format!("ringway-vm-{}-{count}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let (sender, events) = channel();
    let snapshot_handle = vm.snapshot_handle();
    let thread = std::thread::spawn(move || vm.run(&listener, connect, |event| drop(sender.send(event))));
    Lab { socket, events, snapshot_handle, thread }
}

pub fn nobody(_: usize) -> io::Result<UnixStream> {
    Err(io::ErrorKind::ConnectionRefused.into())
}

impl Lab {
    /// Takes a snapshot; its memory is in the file.
    pub fn snapshot(&self) -> Result<(Snapshot, OwnedFd), SnapshotError> {
        let file = memfd("snapshot", MEMORY).unwrap();
        let (sender, answer) = channel();
        self.snapshot_handle.snapshot(file.try_clone().unwrap(), move |result| drop(sender.send(result)));
        answer.recv_timeout(LONG).unwrap().map(|snapshot| (snapshot, file))
    }

    pub fn event(&self) -> FunctionEvent {
        self.events.recv_timeout(LONG).unwrap()
    }

    pub fn end(self) -> FunctionEnd {
        let end = self.thread.join().unwrap();
        std::fs::remove_file(&self.socket).unwrap();
        end
    }

    pub fn connect(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut reader = BufReader::new(stream);
        assert_eq!(line(&mut reader), "Click::ControlSocket/1.3\r\n");
        reader
    }
}

pub fn line(reader: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

/// The value of a handler.
pub fn read(reader: &mut BufReader<UnixStream>, handler: &str) -> String {
    reader.get_mut().write_all(format!("READ {handler}\n").as_bytes()).unwrap();
    assert_eq!(line(reader), format!("200 Read handler '{handler}' OK\r\n"));
    let length: usize = line(reader).trim().strip_prefix("DATA ").unwrap().parse().unwrap();
    let mut value = vec![0; length];
    reader.read_exact(&mut value).unwrap();
    String::from_utf8(value).unwrap()
}
