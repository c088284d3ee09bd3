//! TAP interfaces: creation, and frame I/O.
//!
//! A frame is preceded by the first ten bytes of `virtio_net_hdr`, little-endian (Linux'
//! Documentation/networking/tuntap.rst, virtio 1.3, 5.1.6).

use crate::error::{HostError, Named};
use ringway_mem::{Span, SpanMut};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Bytes of the header in front of each frame.
pub const TAP_HEADER: usize = 10;
/// Largest number of leading bytes of a frame from our own memory, in addition to its pieces.
pub const TAP_HEAD: usize = 64;
/// Largest number of pieces of a frame after its head.
pub const TAP_PIECES: usize = 72;
/// Maximum number of queues of an interface (the kernel's MAX_TAP_QUEUES).
const QUEUES: u16 = 256;

/// Settings of an interface.
#[derive(Clone, Debug)]
pub struct TapSettings {
    /// Its name, at most 15 bytes. An existing interface is used if it is a TAP with the same number of
    /// queues that no process uses.
    pub name: String,
    /// Queue pairs.
    pub queues: u16,
    /// Its MTU.
    pub mtu: u16,
    /// Whether the host's stack may leave checksums and segmentation undone.
    pub offloads: bool,
    /// Its Ethernet address; one of the kernel's choice if none.
    pub mac: Option<[u8; 6]>,
    /// An address and the length of its prefix.
    pub address: Option<(IpAddr, u8)>,
    /// Name of a network namespace as in `ip netns`, or its path; ours if none.
    pub namespace: Option<String>,
}

/// What an interface has besides its first address.
#[derive(Clone, Debug, Default)]
pub struct TapAddresses {
    /// Further addresses, each with the length of its prefix.
    pub more: Vec<(IpAddr, u8)>,
    /// Gateways of default routes.
    pub gateways: Vec<IpAddr>,
}

/// Why a frame could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapFault {
    /// No frame is available, or there is no room for one.
    Again,
    /// The interface is down.
    Down,
    /// The interface was removed.
    Gone,
    /// The kernel is out of memory.
    NoMemory,
    /// The kernel refuses the frame, or can't read its memory.
    Refused,
}

impl TapFault {
    #[cold]
    fn from(error: Errno) -> TapFault {
        match error {
            Errno::AGAIN | Errno::INTR => TapFault::Again,
            Errno::IO => TapFault::Down,
            Errno::BADFD | Errno::NODEV => TapFault::Gone,
            Errno::NOMEM | Errno::NOBUFS => TapFault::NoMemory,
            _ => TapFault::Refused,
        }
    }
}

/// Lets an interface last until its network namespace ends, also without its queues: whoever closes the last of them
/// does not wait then until the kernel has removed the interface, which takes tens of milliseconds.
pub(crate) fn last_with_namespace(queue: &OwnedFd) -> Result<(), Errno> {
    let persistent: libc::c_ulong = 1;
    // SAFETY: the descriptor is open, and the argument is a number, not a pointer.
    let done = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETPERSIST, persistent) };
    if done >= 0 { Ok(()) } else { Err(last_error()) }
}

/// The file of a network namespace: its path, or its name as in `ip netns`.
pub fn namespace_path(namespace: &str) -> PathBuf {
    if namespace.contains('/') { namespace.into() } else { PathBuf::from("/run/netns").join(namespace) }
}

/// Creates the interface, or opens the existing one, and brings it up. Returns one non-blocking descriptor
/// per queue.
pub fn open_tap(settings: &TapSettings) -> Result<Vec<OwnedFd>, HostError> {
    open_tap_with(settings, &TapAddresses::default())
}

/// Opens or creates the interface with further addresses and default routes. Returns one non-blocking descriptor per
/// queue.
pub fn open_tap_with(settings: &TapSettings, addresses: &TapAddresses) -> Result<Vec<OwnedFd>, HostError> {
    let Some(namespace) = &settings.namespace else { return open_here(settings, addresses) };
    let path = namespace_path(namespace);
    let failed = |why: &str, error| HostError::Tap {
        name: settings.name.clone(),
        what: format!("{why} the network namespace {}", path.display()),
        error,
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let space = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| failed("opening", error))?;
    // On a separate thread, since a thread may be unable to return from another namespace.
    let within = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            rustix::thread::move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&space),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )
            .map_err(|error| failed("entering", error))?;
            open_here(settings, addresses)
        });
        thread.join()
    });
    within.unwrap_or_else(|_| Err(failed("working in", Errno::IO)))
}

/// One interface's configuration, in the kernel's form.
pub(crate) struct Request<'s> {
    settings: &'s TapSettings,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl<'s> Request<'s> {
    pub(crate) fn new(settings: &'s TapSettings) -> Result<Request<'s>, HostError> {
        let bytes = settings.name.as_bytes();
        let wrong = bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.contains(&0);
        if wrong || settings.queues == 0 || settings.queues > QUEUES {
            let what = "naming it, or counting its queues".into();
            return Err(HostError::Tap { name: settings.name.clone(), what, error: Errno::INVAL });
        }
        let mut name = [0; libc::IFNAMSIZ];
        name.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as libc::c_char);
        Ok(Request { settings, name })
    }

    pub(crate) fn ifreq(&self) -> libc::ifreq {
        // SAFETY: all zeros is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request
    }

    fn fail(&self, what: &str, error: Errno) -> HostError {
        HostError::Tap { name: self.settings.name.clone(), what: what.into(), error }
    }

    /// An ioctl with a pointer argument.
    pub(crate) fn ioctl<T>(
        &self,
        fd: &OwnedFd,
        number: libc::Ioctl,
        argument: &mut T,
        what: &str,
    ) -> Result<(), HostError> {
        // SAFETY: the descriptor is open, and every caller gives the type that the number stands for.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), number, std::ptr::from_mut(argument)) };
        if done >= 0 { Ok(()) } else { Err(self.fail(what, last_error())) }
    }

    /// An ioctl with an integer argument.
    fn ioctl_value(&self, fd: &OwnedFd, number: libc::Ioctl, value: libc::c_ulong) -> Result<(), Errno> {
        // SAFETY: the descriptor is open, and the argument is a number, not a pointer.
        if unsafe { libc::ioctl(fd.as_raw_fd(), number, value) } >= 0 { Ok(()) } else { Err(last_error()) }
    }

    /// Creates the interface, or opens another queue of it. The kernel may choose the name.
    pub(crate) fn create(&mut self, kind: libc::c_int) -> Result<OwnedFd, HostError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty());
        let fd = fd.map_err(|error| self.fail("opening /dev/net/tun", error))?;
        let mut request = self.ifreq();
        request.ifr_ifru.ifru_flags = kind as libc::c_short;
        self.ioctl(&fd, libc::TUNSETIFF, &mut request, "creating it (TUNSETIFF)")?;
        self.name = request.ifr_name;
        Ok(fd)
    }

    pub(crate) fn name(&self) -> String {
        let bytes: Vec<u8> = self.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn queue(&mut self) -> Result<OwnedFd, HostError> {
        let mut flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if self.settings.queues > 1 {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        let fd = self.create(flags)?;
        let mut size = TAP_HEADER as libc::c_int;
        self.ioctl(&fd, libc::TUNSETVNETHDRSZ, &mut size, "setting its header's size")?;
        let mut little: libc::c_int = 1;
        self.ioctl(&fd, libc::TUNSETVNETLE, &mut little, "setting its header's byte order")?;
        self.offloads(&fd)?;
        Ok(fd)
    }

    fn offloads(&self, fd: &OwnedFd) -> Result<(), HostError> {
        let number = libc::TUNSETOFFLOAD;
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        let wanted = if self.settings.offloads { [tcp | udp, tcp] } else { [0, 0] };
        // Kernels before 6.2 don't support UDP segmentation.
        let set = |flags: libc::c_uint| self.ioctl_value(fd, number, flags.into());
        let set = set(wanted[0]).or_else(|_| set(wanted[1]));
        set.map_err(|error| self.fail("setting its offloads", error))
    }

    /// Sets MTU and addresses, and brings the interface up.
    pub(crate) fn configure(&self) -> Result<(), HostError> {
        let control = control_socket(rustix::net::AddressFamily::INET)?;
        let mut request = self.ifreq();
        request.ifr_ifru.ifru_mtu = self.settings.mtu.into();
        self.ioctl(&control, libc::SIOCSIFMTU, &mut request, "setting its MTU")?;
        if let Some(mac) = self.settings.mac {
            let mut request = self.ifreq();
            let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
            address.sa_data.iter_mut().zip(mac).for_each(|(to, from)| *to = from as libc::c_char);
            request.ifr_ifru.ifru_hwaddr = address;
            self.ioctl(&control, libc::SIOCSIFHWADDR, &mut request, "setting its Ethernet address")?;
        }
        self.set(&control, 0, self.settings.address.as_slice())?;
        self.bring_up(&control)
    }

    /// Adds further addresses and default routes.
    pub(crate) fn add(&self, addresses: &TapAddresses) -> Result<(), HostError> {
        let control = control_socket(rustix::net::AddressFamily::INET)?;
        let has_v4 = matches!(self.settings.address, Some((IpAddr::V4(_), _)));
        self.set(&control, usize::from(has_v4), &addresses.more)?;
        addresses.gateways.iter().try_for_each(|gateway| match *gateway {
            IpAddr::V4(gateway) => self.add_default_route(gateway),
            IpAddr::V6(gateway) => self.add_default_route6(gateway),
        })
    }

    /// Sets addresses, those of IPv4 with numbers from `number` on.
    fn set(&self, control: &OwnedFd, mut number: usize, addresses: &[(IpAddr, u8)]) -> Result<(), HostError> {
        for address in addresses {
            match *address {
                (IpAddr::V4(address), prefix) => {
                    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
                    self.set_v4(control, libc::SIOCSIFADDR, number, address.octets())?;
                    self.set_v4(control, libc::SIOCSIFNETMASK, number, mask.to_be_bytes())?;
                    number += 1;
                }
                (IpAddr::V6(address), prefix) => {
                    let control = control_socket(rustix::net::AddressFamily::INET6)?;
                    self.set_v6(&control, address.octets(), prefix.min(128))?;
                }
            }
        }
        Ok(())
    }

    fn bring_up(&self, control: &OwnedFd) -> Result<(), HostError> {
        let mut request = self.ifreq();
        self.ioctl(control, libc::SIOCGIFFLAGS, &mut request, "reading its flags")?;
        // SAFETY: the kernel filled in the flags, and every bit pattern is valid for them.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        self.ioctl(control, libc::SIOCSIFFLAGS, &mut request, "bringing it up")
    }

    /// Sets the host's default route to a gateway behind the interface.
    pub(crate) fn add_default_route(&self, gateway: Ipv4Addr) -> Result<(), HostError> {
        let control = control_socket(rustix::net::AddressFamily::INET)?;
        // SAFETY: all zeros is a valid `rtentry`.
        let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
        (route.rt_dst, route.rt_genmask) = (v4_address([0; 4]), v4_address([0; 4]));
        route.rt_gateway = v4_address(gateway.octets());
        route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
        self.ioctl(&control, libc::SIOCADDRT, &mut route, "adding the default route")
    }

    /// Adds IPv6's default route.
    fn add_default_route6(&self, gateway: Ipv6Addr) -> Result<(), HostError> {
        let control = control_socket(rustix::net::AddressFamily::INET6)?;
        let mut named = self.ifreq();
        self.ioctl(&control, libc::SIOCGIFINDEX, &mut named, "reading its index")?;
        let mut route = Route6 {
            gateway: gateway.octets(),
            metric: 1024,
            flags: u32::from(libc::RTF_UP | libc::RTF_GATEWAY),
            // SAFETY: the kernel filled in the index, and every bit pattern is valid for it.
            index: unsafe { named.ifr_ifru.ifru_ifindex },
            ..Route6::default()
        };
        match self.ioctl(&control, libc::SIOCADDRT, &mut route, "adding the default route") {
            Err(HostError::Tap { error: Errno::EXIST, .. }) => Ok(()),
            result => result,
        }
    }

    /// Sets one of the interface's addresses, or its mask: number 0 is the interface's own, others are aliases.
    fn set_v4(
        &self,
        control: &OwnedFd,
        ioctl: libc::Ioctl,
        number: usize,
        octets: [u8; 4],
    ) -> Result<(), HostError> {
        let mut request = self.ifreq();
        if number > 0 {
            request.ifr_name = self.label(number)?;
        }
        request.ifr_ifru.ifru_addr = v4_address(octets);
        self.ioctl(control, ioctl, &mut request, "setting its address")
    }

    /// The label of an alias. One that is cut could be the interface's own name, whose address would be replaced.
    fn label(&self, number: usize) -> Result<[libc::c_char; libc::IFNAMSIZ], HostError> {
        let text = format!("{}:{number}", self.name());
        if text.len() >= libc::IFNAMSIZ {
            return Err(self.fail("labelling a further IPv4 address", Errno::NAMETOOLONG));
        }
        let mut label = [0; libc::IFNAMSIZ];
        label.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
        Ok(label)
    }

    fn set_v6(&self, control: &OwnedFd, octets: [u8; 16], prefix: u8) -> Result<(), HostError> {
        let mut named = self.ifreq();
        self.ioctl(control, libc::SIOCGIFINDEX, &mut named, "reading its index")?;
        let mut request = libc::in6_ifreq {
            ifr6_addr: libc::in6_addr { s6_addr: octets },
            ifr6_prefixlen: prefix.into(),
            // SAFETY: the kernel filled in the index, and every bit pattern is valid for it.
            ifr6_ifindex: unsafe { named.ifr_ifru.ifru_ifindex },
        };
        match self.ioctl(control, libc::SIOCSIFADDR, &mut request, "setting its address") {
            // The address is already set.
            Err(HostError::Tap { error: Errno::EXIST, .. }) => Ok(()),
            result => result,
        }
    }
}

/// The kernel's `in6_rtmsg` (`linux/ipv6_route.h`), whose fields are private in `libc`.
#[repr(C)]
#[derive(Default)]
struct Route6 {
    destination: [u8; 16],
    source: [u8; 16],
    gateway: [u8; 16],
    kind: u32,
    destination_prefix: u16,
    source_prefix: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    index: libc::c_int,
}

/// A socket for ioctls about interfaces.
pub(crate) fn control_socket(family: rustix::net::AddressFamily) -> Result<OwnedFd, HostError> {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, rustix::net::SocketType::DGRAM, flags, None).named("socket")
}

/// Brings an existing interface up.
pub(crate) fn bring_up(name: &str) -> Result<(), HostError> {
    let settings = TapSettings {
        name: name.into(),
        queues: 1,
        mtu: 0,
        offloads: false,
        mac: None,
        address: None,
        namespace: None,
    };
    let control = control_socket(rustix::net::AddressFamily::INET)?;
    Request::new(&settings)?.bring_up(&control)
}

fn v4_address(octets: [u8; 4]) -> libc::sockaddr {
    let mut address = libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: [0; 14] };
    // A `sockaddr_in` has the port in the first two bytes, then the address.
    address.sa_data[2..6].iter_mut().zip(octets).for_each(|(to, from)| *to = from as libc::c_char);
    address
}

fn open_here(settings: &TapSettings, addresses: &TapAddresses) -> Result<Vec<OwnedFd>, HostError> {
    let mut request = Request::new(settings)?;
    let queues = (0..settings.queues).map(|_| request.queue()).collect::<Result<_, _>>()?;
    request.configure()?;
    request.add(addresses)?;
    Ok(queues)
}

pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Whether this kernel segments UDP on TAPs (Linux 6.2 and later).
pub fn tap_knows_uso() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 2)
}

/// Reads the next frame with its header; returns their total length.
#[inline]
pub fn tap_read(queue: BorrowedFd<'_>, to: SpanMut<'_>) -> Result<usize, TapFault> {
    let pointer = std::ptr::with_exposed_provenance_mut(to.as_span().address());
    // SAFETY: the span's bytes are mapped writable, and no reference covers them; the kernel writes there
    // like any peer.
    let count = unsafe { libc::read(queue.as_raw_fd(), pointer, to.len()) };
    usize::try_from(count).map_err(|_| TapFault::from(last_error()))
}

/// Writes one frame: its header, the first bytes from our memory, the rest from the peer's memory. The kernel
/// reads the peer's memory itself, once; missing memory is an error.
#[inline]
pub fn tap_write(
    queue: BorrowedFd<'_>,
    header: &[u8; TAP_HEADER],
    head: &[u8],
    tail: &[Span<'_>],
) -> Result<(), TapFault> {
    let mut start = [0; TAP_HEADER + TAP_HEAD];
    let len = TAP_HEADER + head.len();
    if head.len() > TAP_HEAD || tail.len() > TAP_PIECES {
        return Err(TapFault::Refused);
    }
    start[..TAP_HEADER].copy_from_slice(header);
    start[TAP_HEADER..len].copy_from_slice(head);
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; TAP_PIECES + 1];
    pieces[0].write(libc::iovec { iov_base: start.as_mut_ptr().cast(), iov_len: len });
    for (piece, span) in pieces[1..].iter_mut().zip(tail) {
        let iov_base = std::ptr::with_exposed_provenance_mut(span.address());
        piece.write(libc::iovec { iov_base, iov_len: span.len() });
    }
    let count = (1 + tail.len()) as libc::c_int;
    // SAFETY: the first `count` pieces are written above; each names bytes that stay mapped during the call,
    // of which the kernel only reads.
    let written = unsafe { libc::writev(queue.as_raw_fd(), pieces.as_ptr().cast(), count) };
    if written >= 0 { Ok(()) } else { Err(TapFault::from(last_error())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        let settings = TapSettings {
            name: "an interface's name".into(),
            queues: 1,
            mtu: 1500,
            offloads: true,
            mac: None,
            address: None,
            namespace: None,
        };
        let refused = |settings: &TapSettings| {
            matches!(open_tap(settings), Err(HostError::Tap { error: Errno::INVAL, .. }))
        };
        assert!(refused(&settings));
        assert!(refused(&TapSettings { name: String::new(), ..settings.clone() }));
        assert!(refused(&TapSettings { name: "t".into(), queues: 0, ..settings.clone() }));
        let nowhere = TapSettings { name: "t".into(), namespace: Some("/nowhere".into()), ..settings };
        assert!(matches!(open_tap(&nowhere), Err(HostError::Tap { error: Errno::NOENT, .. })));
    }

    #[test]
    fn a_label_of_an_alias_is_never_cut() {
        let label = |name: &str, number| {
            let settings = TapSettings {
                name: name.into(),
                queues: 1,
                mtu: 1500,
                offloads: true,
                mac: None,
                address: None,
                namespace: None,
            };
            let label = Request::new(&settings).unwrap().label(number)?;
            Ok::<_, HostError>(label.map(|byte| byte as u8))
        };
        assert_eq!(label("thirteen-byte", 9).unwrap(), *b"thirteen-byte:9\0");
        for (name, number) in [("thirteen-byte", 10), ("fourteen-bytes", 1), ("fifteen-bytes-1", 1)] {
            assert!(matches!(label(name, number), Err(HostError::Tap { error: Errno::NAMETOOLONG, .. })));
        }
    }

    #[test]
    fn tap_io_on_other_descriptors_returns_errors() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let fd = std::os::fd::AsFd::as_fd(&ours);
        let mut bytes = [0; 100];
        assert_eq!(tap_read(fd, SpanMut::of(&mut bytes)), Err(TapFault::Again));
        let piece = Span::of(&[1, 2, 3]);
        assert_eq!(tap_write(fd, &[0; TAP_HEADER], &[0; 65], &[piece]), Err(TapFault::Refused));
        assert_eq!(tap_write(fd, &[0; TAP_HEADER], &[0; 64], &[piece; 3]), Ok(()));
    }
}
