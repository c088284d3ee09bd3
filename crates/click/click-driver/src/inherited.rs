//! Resources passed by the parent process: a confined process can neither listen nor connect.

use ringway_elements::platform::Uses;
use ringway_host::{receive_with, send_with};
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};

/// Ring ports that the parent connects to, and sockets on which it listens for us.
#[derive(Default)]
pub struct Inherited {
    /// Names of the ports.
    pub ports: Vec<String>,
    /// Devices of the configuration, and the port that each stands for.
    pub devices: Vec<(String, String)>,
    /// Socket for requesting ports: the request is one byte, the port's index; the reply is one byte, 0 with
    /// the connected socket, or else the error number.
    pub connector: Option<UnixStream>,
    /// Listening sockets, with their names in configurations.
    pub listeners: Vec<(String, UnixListener)>,
    /// A socket by which connections come that the parent accepted, with its name in configurations.
    pub callers: Option<(String, UnixStream)>,
}

thread_local! {
    // A router and its elements stay on one thread.
    static INHERITED: RefCell<Option<Inherited>> = const { RefCell::new(None) };
}

/// Elements of this thread use only these ports from now on; with `None`, any that they can connect to.
/// Returns the previous value.
pub fn set(inherited: Option<Inherited>) -> Option<Inherited> {
    INHERITED.replace(inherited)
}

/// Runs `run` with these resources. Returns its result, and what is left of them. Afterwards the previous resources are
/// restored, also after a panic.
pub(crate) fn with<R>(inherited: Option<Inherited>, run: impl FnOnce() -> R) -> (R, Option<Inherited>) {
    struct Former(Option<Inherited>);
    impl Drop for Former {
        fn drop(&mut self) {
            set(self.0.take());
        }
    }
    let _former = Former(set(inherited));
    let result = run();
    (result, set(None))
}

/// The port that a device stands for.
pub(crate) fn port_of_device(device: &str) -> Result<String, String> {
    INHERITED.with_borrow(|inherited| {
        let devices = inherited.as_ref().map_or(&[][..], |inherited| &inherited.devices);
        Uses { ports: Vec::new(), devices: devices.to_vec() }.port_of_device(device)
    })
}

/// Checks that this process may use a port.
pub(crate) fn check_port(port: &str) -> Result<(), String> {
    INHERITED.with_borrow(|inherited| match inherited {
        Some(inherited) => Uses { ports: inherited.ports.clone(), devices: Vec::new() }.check_port(port),
        None => check_path(port),
    })
}

/// Checks that there can be a socket at this path: there may be none yet.
fn check_path(path: &str) -> Result<(), String> {
    if let Err(error) = std::os::unix::net::SocketAddr::from_pathname(path) {
        return Err(format!("PORT: {path}: {error}"));
    }
    match std::fs::metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            Err(format!("PORT: {path} is not a socket; name the socket of a ring port"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(format!("PORT: {path}: {error}")),
        _ => Ok(()),
    }
}

/// Whether this thread's elements use ports that the parent connects to.
pub(crate) fn is_set() -> bool {
    INHERITED.with_borrow(Option::is_some)
}

/// A socket connected to this port.
pub(crate) fn connect(port: &str) -> io::Result<UnixStream> {
    INHERITED.with_borrow(|inherited| match inherited {
        None => UnixStream::connect(port),
        Some(inherited) => inherited.connect(port),
    })
}

/// The listening socket of this name, if it was passed and is not in use.
pub(crate) fn listener(name: &str) -> Option<UnixListener> {
    INHERITED.with_borrow_mut(|inherited| {
        let listeners = &mut inherited.as_mut()?.listeners;
        let at = listeners.iter().position(|(own, _)| own == name)?;
        Some(listeners.swap_remove(at).1)
    })
}

/// The socket of this name by which connections come, if it was passed and is not in use.
pub(crate) fn callers(name: &str) -> Option<UnixStream> {
    INHERITED.with_borrow_mut(|inherited| {
        inherited.as_mut()?.callers.take_if(|(own, _)| own == name).map(|(_, callers)| callers)
    })
}

impl Inherited {
    fn connect(&self, port: &str) -> io::Result<UnixStream> {
        let at = self.ports.iter().position(|own| own == port).ok_or(io::ErrorKind::NotFound)?;
        let connector = self.connector.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        ask(connector, u8::try_from(at).map_err(io::Error::other)?)
    }
}

/// A socket connected to the port of this number, by the parent.
///
/// # Errors
/// The parent's, or that it is gone.
pub fn ask(connector: &UnixStream, number: u8) -> io::Result<UnixStream> {
    send_with(connector.as_fd(), &[number], &[]).map_err(io::Error::other)?;
    let mut answer = [0];
    let (count, mut descriptors) =
        receive_with(connector.as_fd(), &mut answer, 1).map_err(io::Error::other)?;
    match (count, answer, descriptors.pop()) {
        (0, ..) => Err(io::ErrorKind::BrokenPipe.into()),
        (_, [0], Some(socket)) => Ok(socket.into()),
        (_, [error], _) => Err(io::Error::from_raw_os_error(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_requested_by_its_number() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ports = ["a", "b"].map(String::from).to_vec();
        let inherited = Inherited { ports, connector: Some(ours), ..Inherited::default() };
        let (given, mut kept) = UnixStream::pair().unwrap();
        let keeper = std::thread::spawn(move || {
            let mut asked = [0];
            receive_with(theirs.as_fd(), &mut asked, 0).unwrap();
            send_with(theirs.as_fd(), &[0], &[given.as_fd()]).unwrap();
            receive_with(theirs.as_fd(), &mut asked, 0).unwrap();
            send_with(theirs.as_fd(), &[libc_enoent()], &[]).unwrap();
            asked
        });
        let mut socket = inherited.connect("b").unwrap();
        io::Write::write_all(&mut socket, b"x").unwrap();
        let mut byte = [0];
        io::Read::read_exact(&mut kept, &mut byte).unwrap();
        assert_eq!(byte, *b"x");
        assert_eq!(inherited.connect("b").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(keeper.join().unwrap(), [1]);
        assert!(inherited.connect("c").is_err() && inherited.connect("b").is_err(), "the other end is gone");
    }

    #[test]
    fn a_path_where_no_socket_can_be_is_an_error() {
        let folder = std::env::temp_dir().join(format!("ringway-inherited-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("file");
        std::fs::write(&file, "").unwrap();
        let socket = folder.join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let check = |path: &std::path::Path| check_port(path.to_str().unwrap());
        assert_eq!(check(&socket), Ok(()));
        assert_eq!(check(&folder.join("later")), Ok(()));
        assert_eq!(check(&folder.join("folder/later")), Ok(()));
        for wrong in [&file, &folder, &file.join("socket"), &folder.join("x".repeat(200))] {
            assert!(check(wrong).unwrap_err().starts_with("PORT: "), "{wrong:?}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn libc_enoent() -> u8 {
        rustix::io::Errno::NOENT.raw_os_error() as u8
    }
}
