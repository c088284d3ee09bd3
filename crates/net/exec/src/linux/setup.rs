//! Prepares the guest for a program: file systems, files, kernel modules, settings, the interface.

use super::modules::Modules;
use super::order::Order;
use super::{CONTROL, INTERFACE};
use ringway_host::{TapAddresses, TapSettings, configure_interface, mount_in_place, mount_new};
use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Kinds of file systems, where they are mounted, and with which options.
const MOUNTS: [(&str, &str, &str); 6] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devpts", "/dev/pts", "mode=620,ptmxmode=666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("tmpfs", "/run", "mode=755"),
];
/// Links that programs expect.
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];
/// In a network of its own a program may have any port, and ask for echoes.
const OPEN: [(&str, &str); 2] =
    [("net.ipv4.ip_unprivileged_port_start", "0"), ("net.ipv4.ping_group_range", "0 2147483647")];
/// Our files in the guest's `/run`.
const OWN: &str = "/run/ringway";
/// How long the driver of the interface may take.
const INTERFACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Prepares the guest.
///
/// # Errors
/// What is impossible, for people.
pub fn prepare(order: &Order) -> Result<(), String> {
    mount_all()?;
    for path in &order.writable {
        let shown = path.display();
        // Those in folders of the guest's own are not there yet.
        make_folders(path)?;
        let mounted = mount_new("hostfs", path, &path.to_string_lossy());
        mounted.map_err(|error| format!("mounting {shown}: {error}"))?;
    }
    if !order.folder.is_dir() {
        let shown = order.folder.display();
        return Err(format!(
            "{shown} is not in the program's file system, whose /tmp, /run and /dev are its own; start it in \
             another folder, or add --writable {shown}"
        ));
    }
    make_folders(Path::new(OWN))?;
    let modules = Modules::of(&release());
    let_the_kernel_load(&modules)?;
    show_files(&order.files)?;
    // Without a name of its own a guest works as well.
    let _ = rustix::system::sethostname(order.machine.as_encoded_bytes());
    bring_up_network(order, &modules)
}

fn mount_all() -> Result<(), String> {
    for (kind, at, options) in MOUNTS {
        make_folders(Path::new(at))?;
        mount_new(kind, Path::new(at), options)
            .map_err(|error| format!("mounting {kind} at {at}: {error}"))?;
    }
    for (to, at) in LINKS {
        // It may be there.
        let _ = symlink(to, at);
    }
    Ok(())
}

fn make_folders(path: &Path) -> Result<(), String> {
    match DirBuilder::new().recursive(true).mode(0o755).create(path) {
        Err(error) if !path.is_dir() => Err(format!("{}: {error}", path.display())),
        _ => Ok(()),
    }
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Lets the kernel load modules by itself, as for `tc qdisc add ... netem`, if the host has modprobe.
fn let_the_kernel_load(modules: &Modules) -> Result<(), String> {
    let found = ["/sbin/modprobe", "/usr/sbin/modprobe"].into_iter().find(|path| Path::new(path).exists());
    let (Some(modprobe), true) = (found, modules.folder.is_dir()) else { return Ok(()) };
    let folder = Path::new(OWN).join("lib/modules");
    make_folders(&folder)?;
    let script = Path::new(OWN).join("modprobe");
    let text = format!("#!/bin/sh\nexec {modprobe} -d {OWN} \"$@\"\n");
    let made = symlink(&modules.folder, folder.join(release()))
        .and_then(|()| write_new(&script, text.as_bytes(), 0o755))
        .and_then(|()| std::fs::write("/proc/sys/kernel/modprobe", script.as_os_str().as_encoded_bytes()));
    made.map_err(|error| format!("preparing modprobe: {error}"))
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    std::fs::write(path, content)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Shows files in place of the host's.
fn show_files(files: &[(PathBuf, Vec<u8>)]) -> Result<(), String> {
    for (number, (path, content)) in files.iter().enumerate() {
        let failed = |error: std::io::Error| format!("showing {}: {error}", path.display());
        // A link to a file below /run, where nothing of the host is.
        if let Ok(to) = std::fs::read_link(path)
            && !path.exists()
        {
            let target = path.parent().unwrap_or(Path::new("/")).join(to);
            make_folders(target.parent().unwrap_or(Path::new("/")))?;
            write_new(&target, content, 0o644).map_err(failed)?;
            continue;
        }
        if !path.exists() {
            continue;
        }
        let own = Path::new(OWN).join(number.to_string());
        write_new(&own, content, 0o644).map_err(failed)?;
        mount_in_place(&own, path).map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

fn bring_up_network(order: &Order, modules: &Modules) -> Result<(), String> {
    if !Path::new("/proc/sys/net/ipv6").exists() {
        // Without it there is no IPv6.
        modules.load("ipv6")?;
    }
    for module in &order.modules {
        modules.load(module)?;
    }
    let end = Instant::now() + INTERFACE_TIMEOUT;
    while !Path::new("/sys/class/net").join(&order.interface).exists() {
        if Instant::now() > end {
            return Err(format!("its interface {} did not appear within 5 s", order.interface));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for (name, value) in OPEN {
        // Only a convenience.
        let _ = set(name, value);
    }
    for name in ["default", "all", &order.interface] {
        // Addresses are usable at once, without a second in which it is asked whether others have them.
        let _ = set(&format!("net.ipv6.conf.{name}.accept_dad"), "0");
    }
    let of_interface = |name: &str| name.contains(".eth0.");
    for (name, value) in order.sysctls.iter().filter(|(name, _)| !of_interface(name)) {
        set_loading(name, value, modules)?;
    }
    let pair = |cidr: &ringway_netstack::Cidr| (cidr.address, cidr.prefix);
    let settings = TapSettings {
        name: INTERFACE.into(),
        queues: 1,
        mtu: order.mtu,
        offloads: false,
        mac: order.mac,
        address: order.addresses.first().map(pair),
        namespace: None,
    };
    let more = order.addresses.iter().skip(1).map(pair).collect();
    let addresses = TapAddresses { more, gateways: order.gateways.clone() };
    configure_interface(&order.interface, &settings, &addresses).map_err(|error| error.to_string())?;
    for (name, value) in order.sysctls.iter().filter(|(name, _)| of_interface(name)) {
        set_loading(name, value, modules)?;
    }
    Ok(())
}

fn set(name: &str, value: &str) -> std::io::Result<()> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, value.as_bytes()))
}

/// Sets a setting. What it names may be a module.
fn set_loading(name: &str, value: &str, modules: &Modules) -> Result<(), String> {
    match name {
        CONTROL => modules.load(&format!("tcp_{value}"))?,
        "net.core.default_qdisc" => modules.load(&format!("sch_{value}"))?,
        _ => {}
    }
    set(name, value).map_err(|error| match (name, error.kind()) {
        (CONTROL, ErrorKind::NotFound) => {
            let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
            let mut all: Vec<String> =
                available.unwrap_or_default().split_whitespace().map(String::from).collect();
            all.extend(modules.controllers());
            all.sort();
            all.dedup();
            let release = release();
            format!("--cc: Linux {release} has no \"{}\"; it has {}", value.escape_debug(), all.join(", "))
        }
        (_, ErrorKind::NotFound) => {
            format!("--sysctl: Linux {} has no {name}, or no {value} for it", release())
        }
        _ => format!("--sysctl: {name}={value}: {error}"),
    })
}
