//! Kernel modules of the guest, as files in folders of the host.

use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Folders with modules of kernels, each in a folder named after the kernel's release: Debian's of User-Mode Linux, and
/// the usual one.
const FOLDERS: [&str; 2] = ["/usr/lib/uml/modules", "/lib/modules"];

/// The modules of a kernel.
#[derive(Debug, Default)]
pub struct Modules {
    /// Their folder.
    pub folder: PathBuf,
    /// By name: the file, and those of the modules that it needs, the last one first to be loaded (modules.dep(5)).
    files: HashMap<String, Vec<String>>,
}

fn name_of(file: &str) -> Option<String> {
    let name = file.rsplit('/').next()?.split(".ko").next()?;
    Some(name.replace('-', "_"))
}

impl Modules {
    /// Those of a release; none if they are not found, as of a kernel that has all it needs.
    pub fn of(release: &str) -> Modules {
        let folders = FOLDERS.iter().map(|folder| Path::new(folder).join(release));
        let found = folders.filter_map(|folder| {
            let text = std::fs::read_to_string(folder.join("modules.dep")).ok()?;
            Some(Modules { files: read(&text), folder })
        });
        found.into_iter().next().unwrap_or_default()
    }

    /// Loads a module, after those that it needs. One that is not there may be a part of the kernel.
    ///
    /// # Errors
    /// What can't be loaded, and why.
    pub fn load(&self, name: &str) -> Result<(), String> {
        for file in self.files.get(name).into_iter().flatten().rev() {
            let path = self.folder.join(file);
            let opened = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            match rustix::system::finit_module(&opened, c"", 0) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(format!("loading {}: {error}", path.display())),
            }
        }
        Ok(())
    }

    /// The controllers among the modules.
    pub fn controllers(&self) -> Vec<String> {
        let is_controller = |(name, files): (&String, &Vec<String>)| {
            let own = files.first()?.contains("/net/ipv4/tcp_") && !name.ends_with("_diag");
            own.then(|| name.strip_prefix("tcp_").map(String::from))?
        };
        let mut all: Vec<String> = self.files.iter().filter_map(is_controller).collect();
        all.sort();
        all
    }
}

fn read(text: &str) -> HashMap<String, Vec<String>> {
    let module = |line: &str| {
        let (file, needed) = line.split_once(':')?;
        let all = std::iter::once(file).chain(needed.split_whitespace()).map(String::from).collect();
        Some((name_of(file)?, all))
    };
    text.lines().filter_map(module).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_what_they_need_are_found() {
        let text = "kernel/drivers/net/virtio_net.ko: kernel/drivers/net/net_failover.ko \
                    kernel/net/core/failover.ko\n\
                    kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/ipv4/tcp_diag.ko:\nkernel/lib/crc-ccitt.ko.xz:\n\
                    kernel/net/mptcp/tcp_none.ko:\n";
        let modules = Modules { folder: "/nowhere".into(), files: read(text) };
        assert_eq!(modules.files["virtio_net"].last().unwrap(), "kernel/net/core/failover.ko");
        assert_eq!(modules.files["crc_ccitt"].len(), 1);
        assert_eq!(modules.controllers(), ["bbr"]);
        assert_eq!(modules.load("built_in"), Ok(()));
        let error = modules.load("virtio_net").unwrap_err();
        assert!(error.starts_with("/nowhere/kernel/net/core/failover.ko: "), "{error}");
    }
}
