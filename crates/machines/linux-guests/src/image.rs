//! A guest's boot files: a kernel with its network modules, and an initial file system made of this host's
//! programs.
use crate::fetch::{self, quiet};
use ringway_host::{OwnFile, check_own_folder, open_own, read_file};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first process of a guest.
const INIT: &str = concat!(include_str!("init.sh"), include_str!("agent.sh"));
/// Modules for networking, in loading order. A missing module is assumed to be built in.
const VIRTIO: &[&str] =
    &["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci"];
const NETWORK: &[&str] = &["failover", "net_failover", "virtio_net", "macvlan"];
/// Programs of this host that are copied to a guest with their libraries; the first is required.
const PROGRAMS: &[&str] = &["iperf3", "ethtool", "ping"];
/// Modules that drivers of emulated cards need, in loading order.
const DEPENDENCIES: &[&str] = &["pps_core", "ptp", "mii"];
/// Packages with a kernel for virtual machines, and with one that also has drivers of emulated cards: Debian's,
/// Ubuntu's.
const PACKAGES: &[&str] = &["linux-image-cloud-amd64", "linux-image-virtual"];
const WITH_CARDS: &[&str] = &["linux-image-amd64", "linux-image-virtual"];

/// Attack: a device as a guest's script. Largest size in bytes of a file in a guest's initial file system.
const LARGEST: usize = 1 << 30;

/// Why a guest's kernel or file system could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program of the host is missing.
    #[error("{0} is missing on this host; install it (scripts/setup.sh does)")]
    Missing(String),
    /// No kernel was found or could be downloaded.
    #[error(
        "no guest kernel: {0}; set RINGWAY_KERNEL to a kernel image and RINGWAY_MODULES to its modules folder"
    )]
    Kernel(String),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    move |source| Error::File { path: path.to_path_buf(), source }
}

/// A kernel image and the folder with its modules.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The image that the virtual machine boots.
    pub image: PathBuf,
    /// The folder `modules/RELEASE`.
    pub modules: PathBuf,
}

/// User-Mode Linux of this host's package: the kernel is a program.
pub fn uml() -> Result<Kernel, Error> {
    let image = program("linux.uml").ok_or_else(|| Error::Missing("user-mode-linux".into()))?;
    let modules = newest(Path::new("/usr/lib/uml/modules"))
        .ok_or_else(|| Error::Kernel("User-Mode Linux has no /usr/lib/uml/modules".into()))?;
    Ok(Kernel { image, modules })
}

/// A kernel for QEMU with `drivers` of emulated cards: the one named by `RINGWAY_KERNEL`, one downloaded before, this
/// host's own, or a fresh download.
pub fn qemu(drivers: &[&str]) -> Result<Kernel, Error> {
    if let (Some(image), Some(modules)) =
        (std::env::var_os("RINGWAY_KERNEL"), std::env::var_os("RINGWAY_MODULES"))
    {
        return Ok(Kernel { image: image.into(), modules: modules.into() });
    }
    let (plain, full) = (cache().join("kernel"), cache().join("kernel-cards"));
    let known = [&*plain, Path::new("/"), &*full].into_iter().find_map(|root| kernel_under(root, drivers));
    if let Some(kernel) = known {
        return Ok(kernel);
    }
    let (folder, packages) = if drivers.is_empty() { (plain, PACKAGES) } else { (full, WITH_CARDS) };
    fetched_once(&folder, |fresh| fetch::download(fresh, packages))?;
    kernel_under(&folder, drivers).ok_or_else(|| {
        let wanted = if drivers.is_empty() { "kernel".into() } else { drivers.join(", ") };
        Error::Kernel(format!("no {wanted} below {}", folder.display()))
    })
}

/// Drivers of emulated cards with the modules that they need, in loading order.
pub fn with_dependencies<'d>(drivers: &'d [&'d str]) -> impl Iterator<Item = &'d str> {
    DEPENDENCIES.iter().filter(|_| !drivers.is_empty()).chain(drivers).copied()
}

/// Downloads a kernel to `folder`, atomically, unless another guest that starts at the same time just did.
fn fetched_once(folder: &Path, fetch: impl FnOnce(&Path) -> Result<(), Error>) -> Result<(), Error> {
    let (lock, fresh) = (folder.with_extension("lock"), folder.with_extension("new"));
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above).map_err(file(above))?;
        // Attack: another user's folder, such as in /tmp if there is no home.
        check_own_folder(above).map_err(file(above))?;
    }
    let held = open_own(&lock, OwnFile::Keep, 0o644).map_err(file(&lock))?;
    fetch::lock(&held).map_err(file(&lock))?;
    if kernel_under(folder, &[]).is_some() {
        return Ok(());
    }
    for left_over in [&fresh, folder] {
        let _ = fs::remove_dir_all(left_over);
    }
    fetch(&fresh)?;
    fs::rename(&fresh, folder).map_err(file(folder))
}

/// The folder for downloads: `$XDG_CACHE_HOME/ringway`, or `~/.cache/ringway`.
pub fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    base.or_else(home).unwrap_or_else(std::env::temp_dir).join("ringway")
}

/// A readable kernel with its modules below `boot` and `lib/modules`, or `usr/lib/modules`, that has `drivers`.
fn kernel_under(root: &Path, drivers: &[&str]) -> Option<Kernel> {
    let mut images: Vec<PathBuf> =
        fs::read_dir(root.join("boot")).ok()?.flatten().map(|entry| entry.path()).collect();
    images.sort();
    images.into_iter().rev().find_map(|image| {
        let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_string();
        fs::File::open(&image).ok()?;
        let folders = [root.join("lib/modules"), root.join("usr/lib/modules")];
        let modules = folders.iter().map(|folder| folder.join(&release)).find(|folder| folder.is_dir())?;
        let built_in = fs::read_to_string(modules.join("modules.builtin")).unwrap_or_default();
        let has = |driver: &&str| {
            built_in.contains(&format!("/{driver}.ko\n")) || module(&modules, driver).is_some()
        };
        drivers.iter().all(has).then_some(Kernel { image, modules })
    })
}

fn newest(folder: &Path) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).max()
}

/// The path of a program of this host.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The libraries that the dynamic linker loads for a program, with itself.
pub fn libraries(of: &Path) -> Vec<PathBuf> {
    let listed = quiet(Command::new("ldd").arg(of)).unwrap_or_default();
    let text = String::from_utf8_lossy(&listed).into_owned();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Additional contents of an initial file system.
#[derive(Debug, Default)]
pub struct More<'a> {
    /// A shell script to run once the network is up.
    pub script: Option<&'a Path>,
    /// Modules to load before those of the network.
    pub modules: Vec<&'a str>,
    /// Programs and libraries of this host, copied to the same paths.
    pub carried: &'a [PathBuf],
}

/// Writes the initial file system for `kernel` to `path`: busybox, iperf3 with its libraries, the modules, our first
/// process, and `more`.
pub fn write(kernel: &Kernel, more: &More<'_>, path: &Path) -> Result<(), Error> {
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "modules", "usr", "usr/bin", "lib", "lib64"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    archive.device("dev/null", 1, 3);
    archive.file("init", 0o755, INIT.as_bytes());
    if let Some(script) = more.script {
        archive.copy("script", script)?;
    }
    let busybox = program("busybox").ok_or_else(|| Error::Missing("busybox-static".into()))?;
    archive.copy("bin/busybox", &busybox)?;
    for (index, name) in PROGRAMS.iter().enumerate() {
        match program(name) {
            Some(found) => archive.program(&format!("usr/bin/{name}"), &found)?,
            None if index == 0 => return Err(Error::Missing((*name).to_string())),
            None => {}
        }
    }
    for carried in more.carried {
        archive.with_libraries(carried)?;
    }
    for (index, name) in VIRTIO.iter().chain(&more.modules).chain(NETWORK).enumerate() {
        if let Some(found) = module(&kernel.modules, name) {
            archive.file(&format!("modules/{index:02}-{name}.ko"), 0o644, &unpacked(&found)?);
        }
    }
    fs::write(path, archive.finish()).map_err(file(path))
}

/// A module's file somewhere below `folder`, compressed or not.
fn module(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut open = vec![folder.join("kernel")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            let stem =
                entry.file_name().to_string_lossy().split('.').next().unwrap_or_default().replace('-', "_");
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if stem == name {
                return Some(path);
            }
        }
    }
    None
}

fn unpacked(path: &Path) -> Result<Vec<u8>, Error> {
    let tool = match path.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return read_file(path, LARGEST).map_err(file(path)),
    };
    quiet(Command::new(tool).arg("-dc").arg(path))
        .map_err(|reason| Error::Kernel(format!("{tool} -dc {}: {reason}", path.display())))
}

/// A file system archive in the "newc" format of cpio (Linux's early-userspace/buffer-format).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    names: Vec<String>,
}

/// Metadata of an archive entry.
#[derive(Default)]
struct Entry {
    mode: u32,
    device: (u32, u32),
}

impl Archive {
    fn folder(&mut self, name: &str) {
        self.entry(name, &Entry { mode: 0o040_755, ..Entry::default() }, &[]);
    }

    fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, &Entry { mode: 0o020_600, device: (major, minor) }, &[]);
    }

    fn file(&mut self, name: &str, permissions: u32, content: &[u8]) {
        self.entry(name, &Entry { mode: 0o100_000 | permissions, ..Entry::default() }, content);
    }

    fn copy(&mut self, name: &str, from: &Path) -> Result<(), Error> {
        let content = read_file(from, LARGEST).map_err(file(from))?;
        self.file(name, 0o755, &content);
        Ok(())
    }

    /// A program and the libraries that the dynamic linker would load for it, each at its own path.
    fn program(&mut self, name: &str, from: &Path) -> Result<(), Error> {
        self.copy(name, from)?;
        self.libraries(from)
    }

    /// A file at its own path, and the libraries that the dynamic linker would load for it.
    fn with_libraries(&mut self, from: &Path) -> Result<(), Error> {
        self.at_its_path(from)?;
        self.libraries(from)
    }

    fn at_its_path(&mut self, from: &Path) -> Result<(), Error> {
        if let Some(parent) = from.parent() {
            self.parents(parent);
        }
        self.copy(from.to_string_lossy().trim_start_matches('/'), from)
    }

    fn libraries(&mut self, of: &Path) -> Result<(), Error> {
        for library in &libraries(of) {
            self.at_its_path(library)?;
            // glibc loads libgcc_s at run time to cancel a thread (pthread_cancel(3)), so ldd(1) doesn't list it.
            let unwinder = library.with_file_name("libgcc_s.so.1");
            if library.file_name().is_some_and(|name| name == "libc.so.6") && unwinder.exists() {
                self.at_its_path(&unwinder)?;
            }
        }
        Ok(())
    }

    fn parents(&mut self, folder: &Path) {
        if let Some(above) = folder.parent() {
            self.parents(above);
            self.folder(folder.to_string_lossy().trim_start_matches('/'));
        }
    }

    /// Appends an entry once, since two programs may share a library.
    fn entry(&mut self, name: &str, entry: &Entry, content: &[u8]) {
        if self.names.iter().any(|other| other == name) {
            return;
        }
        self.names.push(name.to_string());
        self.append(name, entry, content);
    }

    fn append(&mut self, name: &str, entry: &Entry, content: &[u8]) {
        let fields = [
            self.names.len() as u32,
            entry.mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            entry.device.0,
            entry.device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            // Writing to a vector cannot fail.
            let _ = write!(self.bytes, "{field:08x}");
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.append("TRAILER!!!", &Entry::default(), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn an_archive_contains_each_entry_once_and_aligned() {
        let mut archive = Archive::default();
        archive.folder("a");
        archive.file("a/b", 0o644, b"12345");
        archive.file("a/b", 0o644, b"again");
        archive.device("c", 5, 1);
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(text.matches("070701").count(), 4, "three entries and the trailer");
        assert!(text.starts_with("07070100000001000041ed"), "inode 1, a folder with mode 755");
        assert!(text.contains("12345") && !text.contains("again"));
        assert!(text.contains("TRAILER!!!\0"));
    }

    #[test]
    fn a_program_is_packed_with_implicitly_loaded_libraries() {
        let Some(shell) =
            program("bash").filter(|_| Path::new("/lib/x86_64-linux-gnu/libgcc_s.so.1").exists())
        else {
            return;
        };
        let mut archive = Archive::default();
        archive.libraries(&shell).unwrap();
        let has = |name: &str| archive.names.iter().any(|own| own.ends_with(name));
        assert!(has("/libc.so.6") && has("/libgcc_s.so.1"), "{:?}", archive.names);
    }

    #[test]
    fn concurrent_guests_fetch_a_kernel_once_and_a_damaged_one_again() {
        let base = std::env::temp_dir().join(format!("ringway-kernel-{}", std::process::id()));
        let (folder, fetches) = (base.join("kernel"), AtomicUsize::new(0));
        fs::create_dir_all(folder.join("boot")).unwrap();
        fs::write(folder.join("boot/vmlinuz-0"), b"its modules never came").unwrap();
        let broken = fetched_once(&folder, |fresh| {
            fs::create_dir_all(fresh).unwrap();
            Err(Error::Kernel("no network".into()))
        });
        assert!(broken.is_err() && kernel_under(&folder, &[]).is_none());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let fetch = |fresh: &Path| {
                        fetches.fetch_add(1, Relaxed);
                        assert!(!fresh.exists());
                        fs::create_dir_all(fresh.join("boot")).unwrap();
                        fs::write(fresh.join("boot/vmlinuz-1"), b"x").unwrap();
                        fs::create_dir_all(fresh.join("lib/modules/1")).unwrap();
                        Ok(())
                    };
                    fetched_once(&folder, fetch).unwrap();
                    assert_eq!(kernel_under(&folder, &[]).unwrap().modules, folder.join("lib/modules/1"));
                });
            }
        });
        assert_eq!(fetches.into_inner(), 1);
        let modules = folder.join("lib/modules/1");
        let has = |drivers: &[&str]| kernel_under(&folder, drivers).is_some();
        assert!(!has(&["e1000"]));
        fs::create_dir(modules.join("kernel")).unwrap();
        fs::write(modules.join("kernel/e1000.ko.xz"), b"x").unwrap();
        fs::write(modules.join("modules.builtin"), b"kernel/drivers/net/e1000e.ko\n").unwrap();
        assert!(has(&["e1000", "e1000e"]) && !has(&["e1000", "8139cp"]));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn modules_are_found_by_name_with_any_compression() {
        let folder = std::env::temp_dir().join(format!("ringway-modules-{}", std::process::id()));
        let deep = folder.join("kernel/drivers/net");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("virtio_net.ko"), b"x").unwrap();
        fs::write(deep.join("net-failover.ko.xz"), b"x").unwrap();
        assert_eq!(module(&folder, "virtio_net"), Some(deep.join("virtio_net.ko")));
        assert_eq!(module(&folder, "net_failover"), Some(deep.join("net-failover.ko.xz")));
        assert_eq!(module(&folder, "virtio"), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
