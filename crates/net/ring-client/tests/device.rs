//! PCI devices that are not those of a port: they stay as they are.
#![allow(clippy::unwrap_used)]

use ringway_ring_client::{Ring, RingError};
use std::path::{Path, PathBuf};

/// A folder as sysfs has for a device that is not enabled, with 256 bytes of registers.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, vendor: &str, device: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("ringway-ring-client-device-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let folder = Folder(path);
        for (file, text) in [("vendor", vendor), ("device", device), ("enable", "0\n")] {
            std::fs::write(folder.0.join(file), text).unwrap();
        }
        std::fs::write(folder.0.join("resource0"), [0x5a; 256]).unwrap();
        folder
    }

    fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.0.join(file)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Path::new(&self.0));
    }
}

#[test]
fn a_device_of_another_maker_is_neither_enabled_nor_written() {
    let folder = Folder::new("other", "0x8086\n", "0x100e\n");
    let error = Ring::open(&folder.0).unwrap_err();
    assert!(matches!(error, RingError::Device { vendor: 0x8086, device: 0x100e }), "{error}");
    assert_eq!((folder.read("enable"), folder.read("resource0")), (b"0\n".to_vec(), vec![0x5a; 256]));
}

#[test]
fn registers_of_another_device_of_the_same_number_are_not_written() {
    let folder = Folder::new("ivshmem", "0x1af4\n", "0x1110\n");
    let error = Ring::open(&folder.0).unwrap_err();
    assert!(matches!(error, RingError::NoRing), "{error}");
    assert_eq!(folder.read("resource0"), [0x5a; 256]);
}
