//! PCI devices that a program drives from user space: their memory, and an interrupt where vfio-pci has the device.

use crate::error::{HostError, Named};
use crate::event::EventFd;
use crate::memory::Mapping;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Requests of `linux/vfio.h`.
const SET_IOMMU: u32 = 0x3b66;
const GROUP_SET_CONTAINER: u32 = 0x3b68;
const GROUP_GET_DEVICE_FD: u32 = 0x3b6a;
const DEVICE_GET_REGION_INFO: u32 = 0x3b6c;
const DEVICE_SET_IRQS: u32 = 0x3b6e;
const TYPE1_IOMMU: libc::c_ulong = 1;
const NOIOMMU_IOMMU: libc::c_ulong = 8;
/// The region of the configuration space, its command register, and the bits for memory accesses and bus mastering,
/// without which there are no message-signalled interrupts.
const CONFIG: u32 = 7;
const COMMAND: u64 = 4;
const COMMAND_BITS: u16 = 6;
const MSIX: u32 = 2;
/// An eventfd is set, that the interrupt signals.
const EVENTFD_TRIGGER: u32 = 4 | 32;

/// `struct vfio_region_info`.
#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

/// `struct vfio_irq_set` for one eventfd.
#[repr(C)]
struct IrqSet {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    eventfd: i32,
}

/// A device by its folder in sysfs. While vfio-pci has it, this value is its only user.
#[derive(Debug)]
pub struct PciDevice {
    path: PathBuf,
    vfio: Option<Vfio>,
}

#[derive(Debug)]
struct Vfio {
    device: OwnedFd,
    _group: OwnedFd,
    _container: OwnedFd,
}

fn open(path: &Path, flags: OFlags, call: &'static str) -> Result<OwnedFd, HostError> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).named(call)
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// An ioctl with a pointer argument; returns its result.
fn ioctl<T>(
    fd: BorrowedFd<'_>,
    request: u32,
    argument: *mut T,
    call: &'static str,
) -> Result<i32, HostError> {
    // SAFETY: the descriptor is open, and every caller points to a value of the type that the request stands for.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::Ioctl, argument) };
    if done >= 0 { Ok(done) } else { Err(last_error()).named(call) }
}

impl PciDevice {
    /// Opens the device whose folder is `path`, `/sys/bus/pci/devices/ADDRESS`. This enables the device, and resets it
    /// if vfio-pci has it: look at its identity first.
    pub fn open(path: &Path) -> Result<PciDevice, HostError> {
        let driver = std::fs::read_link(path.join("driver")).ok();
        let has_vfio = driver.is_some_and(|driver| driver.ends_with("vfio-pci"));
        let vfio = if has_vfio { Some(Vfio::open(path)?) } else { None };
        if vfio.is_none() && std::fs::read_to_string(path.join("enable")).is_ok_and(|text| text.trim() == "0")
        {
            std::fs::write(path.join("enable"), "1").named("enabling the PCI device")?;
        }
        Ok(PciDevice { path: path.into(), vfio })
    }

    /// The vendor and device numbers of the device whose folder is `path`, which need not be open and stays as it is.
    pub fn identity(path: &Path) -> Result<[u16; 2], HostError> {
        let number = |name: &str| {
            let text = std::fs::read_to_string(path.join(name)).named("reading the PCI device's identity")?;
            let digits = text.trim().trim_start_matches("0x");
            u16::from_str_radix(digits, 16)
                .map_err(|_| Errno::INVAL)
                .named("reading the PCI device's identity")
        };
        Ok([number("vendor")?, number("device")?])
    }

    /// Maps base address register `bar`.
    pub fn map(&self, bar: u32) -> Result<Arc<Mapping>, HostError> {
        match &self.vfio {
            Some(vfio) => {
                let info = vfio.region(bar)?;
                Mapping::of_device(&vfio.device, info.offset, info.size as usize)
            }
            None => {
                let path = self.path.join(format!("resource{bar}"));
                let file = open(&path, OFlags::RDWR | OFlags::SYNC, "opening the PCI device's memory")?;
                let size = rustix::fs::fstat(&file).named("fstat of the PCI device's memory")?.st_size;
                Mapping::of_device(&file, 0, size as usize)
            }
        }
    }

    /// An eventfd that its first message-signalled interrupt (MSI-X) signals; `None` if vfio-pci does not have it.
    pub fn interrupt(&self) -> Result<Option<EventFd>, HostError> {
        let Some(vfio) = &self.vfio else { return Ok(None) };
        vfio.become_master()?;
        let event = EventFd::new()?;
        let (argsz, eventfd) = (size_of::<IrqSet>() as u32, event.as_fd().as_raw_fd());
        let mut set = IrqSet { argsz, flags: EVENTFD_TRIGGER, index: MSIX, start: 0, count: 1, eventfd };
        ioctl(vfio.device.as_fd(), DEVICE_SET_IRQS, &raw mut set, "VFIO_DEVICE_SET_IRQS")?;
        Ok(Some(event))
    }
}

impl Vfio {
    fn open(path: &Path) -> Result<Vfio, HostError> {
        let group = std::fs::read_link(path.join("iommu_group")).named("finding the device's IOMMU group")?;
        let number = group.file_name().unwrap_or_default().to_os_string();
        let container = open(Path::new("/dev/vfio/vfio"), OFlags::RDWR, "opening /dev/vfio/vfio")?;
        let (file, iommu) = Vfio::group(&number.to_string_lossy())?;
        let mut fd = container.as_raw_fd();
        ioctl(file.as_fd(), GROUP_SET_CONTAINER, &raw mut fd, "VFIO_GROUP_SET_CONTAINER")?;
        // SAFETY: the descriptor is open, and the argument is a number, not a pointer.
        if unsafe { libc::ioctl(container.as_raw_fd(), SET_IOMMU as libc::Ioctl, iommu) } < 0 {
            return Err(last_error()).named("VFIO_SET_IOMMU");
        }
        let name = path.canonicalize().named("finding the PCI device")?;
        let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = CString::new(name).map_err(|_| Errno::INVAL).named("naming the PCI device")?;
        let device =
            ioctl(file.as_fd(), GROUP_GET_DEVICE_FD, name.as_ptr().cast_mut(), "VFIO_GROUP_GET_DEVICE_FD")?;
        // SAFETY: the call succeeded, so it returned a new descriptor that is ours.
        let device = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(device) };
        Ok(Vfio { device, _group: file, _container: container })
    }

    /// The group's file, and the kind of its IOMMU.
    fn group(number: &str) -> Result<(OwnedFd, libc::c_ulong), HostError> {
        let folder = Path::new("/dev/vfio");
        match open(&folder.join(number), OFlags::RDWR, "opening the device's IOMMU group") {
            Ok(file) => Ok((file, TYPE1_IOMMU)),
            Err(error) => {
                let without = folder.join(format!("noiommu-{number}"));
                let file = open(&without, OFlags::RDWR, "opening the device's group without an IOMMU");
                file.map(|file| (file, NOIOMMU_IOMMU)).map_err(|_| error)
            }
        }
    }

    fn region(&self, index: u32) -> Result<RegionInfo, HostError> {
        let argsz = size_of::<RegionInfo>() as u32;
        let mut info = RegionInfo { argsz, index, ..RegionInfo::default() };
        ioctl(self.device.as_fd(), DEVICE_GET_REGION_INFO, &raw mut info, "VFIO_DEVICE_GET_REGION_INFO")?;
        Ok(info)
    }

    fn become_master(&self) -> Result<(), HostError> {
        let at = self.region(CONFIG)?.offset + COMMAND;
        let mut command = [0; 2];
        rustix::io::pread(&self.device, &mut command, at)
            .named("reading the PCI device's command register")?;
        let command = u16::from_le_bytes(command) | COMMAND_BITS;
        let done = rustix::io::pwrite(&self.device, &command.to_le_bytes(), at);
        done.named("writing the PCI device's command register").map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_no_device_is_refused_with_a_reason() {
        let error = PciDevice::identity(Path::new("/sys/kernel")).unwrap_err().to_string();
        assert!(error.contains("PCI device's identity"), "{error}");
        let device = PciDevice::open(Path::new("/sys/kernel")).unwrap();
        let error = device.map(2).unwrap_err().to_string();
        assert!(error.contains("PCI device's memory"), "{error}");
        assert!(device.interrupt().unwrap().is_none());
    }
}
