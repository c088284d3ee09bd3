//! The ring port that a name of netmap means.

use crate::Result;
use ringway_ring_client::devices;
use std::path::{Path, PathBuf};

/// The user of this process.
pub fn user() -> u32 {
    // SAFETY: the call takes nothing.
    unsafe { libc::geteuid() }
}

/// Whether this process has rights that its user lacks (setuid, setgid, file capabilities). Attack: this user has set
/// the variables that say where fabrics are, or has passed a descriptor; such a process is served nothing.
pub fn is_privileged() -> bool {
    // SAFETY: the call reads what the kernel said when the program was started.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The folders with the run directories of fabrics, as `ringway` finds them.
fn base() -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = user();
    folder("RINGWAY_RUN").unwrap_or_else(|| match (user, folder("XDG_RUNTIME_DIR")) {
        (0, _) => "/run/ringway".into(),
        (_, Some(runtime)) => runtime.join("ringway"),
        _ => format!("/tmp/ringway-{user}").into(),
    })
}

/// The folder of pipes, beside that of the run directories.
pub fn pipes() -> PathBuf {
    let mut folder = base().into_os_string();
    folder.push("-netmap");
    folder.into()
}

/// The folders with the run directories of the fabrics that a program may mean.
pub fn runs() -> Vec<PathBuf> {
    if let Some(folder) = std::env::var_os("RINGWAY_NETMAP").filter(|folder| !folder.is_empty()) {
        return vec![folder.into()];
    }
    let folders = std::fs::read_dir(base());
    folders.into_iter().flatten().flatten().map(|folder| folder.path()).collect()
}

/// The socket of a port in a run directory; or else the switch's, with the port to open there, if the switch lets
/// programs do that.
fn within(folder: &Path, switch: Option<&str>, port: &str) -> Option<PathBuf> {
    let made = [format!("{port}.sock"), port.to_string(), persistent(port)].map(|name| folder.join(name));
    let open = || {
        let switches = folder.join("switches");
        let switch = switch.filter(|switch| is_socket(&switches.join(switch)))?;
        Some(switches.join(format!("{switch}:{port}")))
    };
    made.into_iter().find(|path| is_socket(path)).or_else(open)
}

/// The name of the socket of a persistent VALE port (`vale.rs`).
pub fn persistent(port: &str) -> String {
    format!("{port}.vale")
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|data| data.file_type().is_socket())
}

/// Whether a part of a path can be the name of a port or a switch.
pub fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_letter)
}

/// In a guest: the PCI device of a port of kind `ring-pci` with the name `ringN`, by the order of their addresses.
pub fn device(name: &str) -> Option<PathBuf> {
    let number = name.strip_prefix("ring")?;
    // One spelling a device: what is opened twice is known by its name.
    let index: usize = number.parse().ok().filter(|index: &usize| index.to_string() == number)?;
    devices().into_iter().nth(index)
}

/// The socket of the port `name`, as netmap's kernel side gets it: `PORT` or `valeSWITCH:PORT`.
pub fn socket(name: &str) -> Result<PathBuf> {
    let (switch, port) = match name.strip_prefix("vale").and_then(|rest| rest.split_once(':')) {
        Some((switch, port)) => (Some(switch), port),
        None => (None, name),
    };
    if !is_name(port) {
        return Err(libc::ENXIO);
    }
    // `vale` without more is a switch in netmap; here it can only be that of a port that exists.
    let switch = switch.filter(|switch| is_name(switch));
    let folders = runs();
    let mut found = folders.iter().filter_map(|folder| within(folder, switch, port));
    let first = found.next().ok_or(libc::ENXIO)?;
    // Two fabrics have such a port: which one is meant, only the variable says.
    if found.next().is_some() { Err(libc::ENOTUNIQ) } else { Ok(first) }
}
