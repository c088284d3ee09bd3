//! `ringway exec`.

use crate::arguments::{Exec, StackKind, Target};
use crate::command_error::CommandError;
use crate::ring_wait;
use crate::target::peer_socket;
use crate::text;
use ringway_exec::{
    Attachment, Cidr, Device, Direct, Emulated, Ended, ExecError, LaunchError, Link, Linux, Mode, Options,
    Prepared, RingRequest, Settings, TapDevice, TapSettings, UserNetwork, UserNetworkConfig, algorithm,
    name_server, prepare, sysctl,
};
use ringway_host::wait_readable;
use ringway_port::link;
use rustix::process::{Signal, geteuid, getpid, kill_process};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The first of the networks for programs and the host, of four addresses each (RFC 2544, C.2.2), and their number.
const FIRST_NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const MAX_NETWORKS: u32 = 1 << 15;
/// Exit statuses for a program that can't be executed, or is not there, as a shell has them.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The network of a program.
enum Network {
    Port(PathBuf),
    /// A vhost-user port, which a guest connects to by itself.
    VhostUser(PathBuf),
    /// An interface of the host.
    Host {
        tap: TapSettings,
        link: Option<Link>,
        /// Holds the network's number, so that no other program gets it.
        number: Arc<OwnedFd>,
    },
    /// Sockets of this process.
    User {
        config: Box<UserNetworkConfig>,
        link: Option<Link>,
    },
}

/// The network, and a program's place there.
struct Placed {
    network: Network,
    addresses: Vec<Cidr>,
    gateways: Vec<IpAddr>,
    dns: Vec<IpAddr>,
}

/// Runs `ringway exec`.
pub fn exec(target: &Target, exec: Exec) -> Result<(), CommandError> {
    let fabric = match &exec.supervised {
        Some(name) => {
            crate::name_process(&format!("ringway {name}"));
            Some(take_input().map_err(CommandError::because)?)
        }
        None => None,
    };
    if exec.direct && exec.stack != StackKind::Native {
        return Err(CommandError::Failed("--direct is for --stack native".into()));
    }
    let (settings, sysctls) = settings(&exec)?;
    let Placed { network, addresses, gateways, dns } = network(target, &exec, &settings)?;
    let mode = match exec.stack {
        StackKind::Native => Mode::Native,
        StackKind::Kernel => Mode::Kernel,
        StackKind::Linux => Mode::Linux,
    };
    let linux = linux(&exec, &network)?;
    let query = query(&exec)?;
    let has_link =
        matches!(network, Network::Host { link: Some(_), .. } | Network::User { link: Some(_), .. });
    let offloads = mode != Mode::Linux && !has_link;
    let prepared = prepare(Options {
        program: exec.program,
        mode,
        addresses,
        gateways,
        dns,
        mtu: exec.mtu,
        offloads,
        map_root: exec.map_root,
        settings,
        sequence_secret: (exec.stack == StackKind::Native).then(crate::stack::sequence_secret).flatten(),
        explain: exec.explain,
        sysctls,
        query,
        limits: exec.limit,
        direct: if exec.direct { Direct::PRELOADED } else { Direct::Off },
        linux,
        kill_after: exec.kill_after.map(|seconds| Duration::from_secs(seconds.into())),
        // A program of a fabric is started again.
        attachment: attachment(&network).filter(|_| exec.supervised.is_none()),
    });
    let prepared = prepared.map_err(failed)?;
    if let Some(fabric) = fabric {
        end_with(fabric).map_err(CommandError::because)?;
    }
    match run(prepared, network, mode)?.repeat() {
        0 => Ok(()),
        status => Err(CommandError::Status(status)),
    }
}

/// What another agent attaches the program to, if the first one is killed.
fn attachment(network: &Network) -> Option<Attachment> {
    match network {
        Network::Port(path) => Some(Attachment::Ring(path.clone())),
        Network::VhostUser(_) => None,
        Network::Host { tap, link, number } => {
            let (tap, link, number) = (tap.clone(), link.clone(), number.clone());
            Some(Attachment::Interface { tap, link, number })
        }
        Network::User { config, link } => {
            Some(Attachment::User { config: config.clone(), link: link.clone() })
        }
    }
}

/// Takes standard input, whose other end the processes of the fabric have, from what runs later.
pub fn take_input() -> std::io::Result<OwnedFd> {
    let input = rustix::stdio::stdin().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(&std::fs::File::open("/dev/null")?)?;
    Ok(input)
}

/// Asks this process to end when the last process of its fabric that can go on with it has ended.
fn end_with(fabric: OwnedFd) -> std::io::Result<()> {
    let wait = move || {
        // Nobody writes.
        while wait_readable(&[fabric.as_fd()], None).is_ok_and(|ready| !ready.contains(&true)) {}
        let _ = kill_process(getpid(), Signal::TERM);
    };
    std::thread::Builder::new().name("fabric".into()).spawn(wait).map(drop)
}

fn run(prepared: Prepared, network: Network, mode: Mode) -> Result<Ended, CommandError> {
    let ended = match network {
        Network::VhostUser(_) => prepared.run_connected(),
        Network::Port(path) => {
            let asked = match mode {
                Mode::Linux => RingRequest::whole(&path),
                Mode::Native | Mode::Kernel => RingRequest::new(&path),
            };
            let failed = |error| CommandError::Failed(format!("{}: {error}", path.display()));
            let (asked, signals) =
                (asked.map_err(failed)?, prepared.ending().map_err(CommandError::because)?);
            let is_here = ring_wait::comes(&path, asked.as_fd(), signals.as_fd())?;
            if let Some(signal) = (!is_here).then(|| signals.next()).flatten() {
                text::note(&ring_wait::ended(&path));
                return Ok(Ended::Signal(signal.number));
            }
            drop(signals);
            prepared.run(asked.device().map_err(failed)?)
        }
        Network::Host { tap, link, number: _number } => {
            let device = TapDevice::open(&tap).map_err(|error| {
                CommandError::Failed(format!(
                    "{error}; an interface of the host needs root, --user-network does not"
                ))
            })?;
            return run_over(prepared, device, link);
        }
        Network::User { config, link } => {
            let (network, device) = UserNetwork::start(*config).map_err(CommandError::because)?;
            let ended = run_over(prepared, device, link);
            network.finish().map_err(CommandError::because)?;
            return ended;
        }
    };
    ended.map_err(failed)
}

/// Runs the program on a device, behind a link if there is one.
fn run_over(
    prepared: Prepared,
    device: impl Device + 'static,
    link: Option<Link>,
) -> Result<Ended, CommandError> {
    let ended = match link {
        None => prepared.run(device),
        Some(link) => {
            let (profile, seed) = *link;
            prepared.run(Emulated::new(device, &profile, seed).map_err(CommandError::because)?)
        }
    };
    ended.map_err(failed)
}

fn failed(error: ExecError) -> CommandError {
    let ExecError::Launch(LaunchError::Program { error: reason, .. }) = &error else {
        return CommandError::because(error);
    };
    let status = if reason.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    let hint = match status {
        NOT_FOUND => "; `ringway guest exec NAME COMMAND` runs a command in a guest",
        _ => "",
    };
    CommandError::Failed(format!("{error}{hint}")).print(false);
    CommandError::Status(status)
}

/// Where `ringway stack` asks.
fn query(exec: &Exec) -> Result<Vec<PathBuf>, CommandError> {
    if exec.stack != StackKind::Native {
        let what = "--name: `ringway stack` shows native stacks; with others, use Linux's own tools";
        return if exec.name.is_some() { Err(CommandError::Failed(what.into())) } else { Ok(Vec::new()) };
    }
    let file = |path: &std::ffi::OsStr| {
        Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let like = match (&exec.supervised, &exec.port, exec.program.first()) {
        (Some(name), ..) => name.clone(),
        (None, Some(port), _) => file(port.as_ref()),
        (None, None, Some(program)) => file(program),
        (None, None, None) => String::new(),
    };
    crate::stack::place(exec.name.as_deref(), &like)
}

/// The network, and the program's addresses and gateways there.
fn network(target: &Target, exec: &Exec, settings: &Settings) -> Result<Placed, CommandError> {
    if let Some(port) = &exec.port {
        if exec.address.is_empty() {
            return Err(CommandError::Failed("--port needs an address: --address 10.0.0.2/24".into()));
        }
        let network = port_of(target, port, exec.stack)?;
        let (addresses, gateways) = (exec.address.clone(), exec.gateway.clone());
        return Ok(Placed { network, addresses, gateways, dns: exec.dns.clone() });
    }
    let (number, held) = own_network()?;
    let (addresses, hosts) = host_addresses(exec, number)?;
    let mut gateways: Vec<IpAddr> = exec.gateway.clone();
    if exec.address.is_empty() {
        gateways.splice(..0, hosts.iter().map(|host| host.address));
    }
    let mut dns = exec.dns.clone();
    let link = exec.link.as_deref().map(profile).transpose()?.map(Box::new);
    let is_user = exec.user_network || !geteuid().is_root();
    if exec.host_loopback && !is_user {
        return Err(CommandError::Failed("--host-loopback is for --user-network".into()));
    }
    let network = if is_user {
        // The gateway passes questions on.
        if dns.is_empty() {
            dns.extend(gateways.first());
        }
        let config = UserNetworkConfig {
            gateways: hosts,
            mtu: exec.mtu,
            offloads: link.is_none() && exec.stack != StackKind::Linux,
            settings: far_settings(exec, settings),
            name_server: name_server(),
            host_loopback: exec.host_loopback,
        };
        Network::User { config: Box::new(config), link }
    } else {
        let tap = TapSettings {
            name: format!("rwx{number}"),
            queues: 1,
            mtu: exec.mtu,
            offloads: link.is_none() && exec.stack != StackKind::Linux,
            mac: None,
            address: hosts.first().map(|host| (host.address, host.prefix)),
            namespace: None,
        };
        Network::Host { tap, link, number: Arc::new(held.into()) }
    };
    Ok(Placed { network, addresses, gateways, dns })
}

/// The program's addresses in a network with the host, and those of the host, which are its gateways.
fn host_addresses(exec: &Exec, number: u32) -> Result<(Vec<Cidr>, Vec<Cidr>), CommandError> {
    if exec.address.is_empty() {
        if let Some(gateway) = exec.gateway.first() {
            let what = "needs the program's address in its network: --address 10.0.0.2/24";
            return Err(CommandError::Failed(format!("--gateway {gateway} {what}")));
        }
        let first = FIRST_NETWORK + 4 * number;
        let (host, own) = (Ipv4Addr::from(first + 1), Ipv4Addr::from(first + 2));
        return Ok((vec![Cidr::new(own, 30)], vec![Cidr::new(host, 30)]));
    }
    if exec.gateway.is_empty() {
        let what = "--address without --port needs the host's address: --gateway 10.0.0.1";
        return Err(CommandError::Failed(what.into()));
    }
    // The network that they share.
    let near = |gateway: &IpAddr| {
        let near = exec.address.iter().find(|cidr| cidr.contains(*gateway));
        near.map(|near| Cidr::new(*gateway, near.prefix)).ok_or_else(|| {
            let what = "is in no network of --address: give an address of its network";
            CommandError::Failed(format!("--gateway {gateway} {what}"))
        })
    };
    Ok((exec.address.clone(), exec.gateway.iter().map(near).collect::<Result<_, _>>()?))
}

/// Settings of the stack at the far end of the link, which sends what the program receives: those of the program, and
/// its congestion controller if our stack has it.
fn far_settings(exec: &Exec, settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    if let Some(algorithm) = exec.cc.as_ref().and_then(|name| algorithm(name.as_bytes())) {
        settings.tcp_congestion_control = algorithm;
    }
    settings
}

/// A number for a network that no other program has: while it is held, a name is taken in the host's network namespace.
fn own_network() -> Result<(u32, UnixListener), CommandError> {
    let first = std::process::id();
    for number in (0..MAX_NETWORKS).map(|next| first.wrapping_add(next) % MAX_NETWORKS) {
        let name = SocketAddr::from_abstract_name(format!("ringway-exec-network/{number}"));
        match name.and_then(|name| UnixListener::bind_addr(&name)) {
            Ok(held) => return Ok((number, held)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(CommandError::because(error)),
        }
    }
    Err(CommandError::Failed(format!("all {MAX_NETWORKS} networks for programs and the host are in use")))
}

/// The guest, if the program is to run in one.
fn linux(exec: &Exec, network: &Network) -> Result<Linux, CommandError> {
    if exec.stack != StackKind::Linux {
        let given = [
            ("--writable", !exec.writable.is_empty()),
            ("--kernel", exec.kernel.is_some()),
            ("--memory", exec.memory.is_some()),
        ];
        return match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(CommandError::Failed(format!("{option} is for --stack linux"))),
            None => Ok(Linux::default()),
        };
    }
    let port = match network {
        Network::VhostUser(socket) => Some(socket.clone()),
        Network::Port(_) | Network::Host { .. } | Network::User { .. } => None,
    };
    let (kernel, writable) = (exec.kernel.clone(), exec.writable.clone());
    let memory = exec.memory.unwrap_or(Linux::default().memory);
    Ok(Linux { kernel, writable, memory, port })
}

/// A port of a running fabric, or the socket of a ring port or a pipe.
fn port_of(target: &Target, port: &str, stack: StackKind) -> Result<Network, CommandError> {
    let is_guest = stack == StackKind::Linux;
    let kinds: &[&str] = if is_guest { &["ring", "pipe", "vhost-user"] } else { &["ring", "pipe"] };
    let (kind, socket) = peer_socket(target, port, kinds)?;
    Ok(if kind == "vhost-user" { Network::VhostUser(socket) } else { Network::Port(socket) })
}

/// Reads the settings of the emulated link.
fn profile(text: &str) -> Result<(ringway_exec::Profile, u64), CommandError> {
    let mut settings = link::Settings::default();
    for word in text.split(',') {
        let pair = word.split_once('=').filter(|(key, _)| link::Settings::KEYS.contains(key));
        let Some((key, value)) = pair else {
            let keys = link::Settings::KEYS.join(", ");
            let word = word.escape_debug();
            return Err(CommandError::Failed(format!(
                "--link: \"{word}\" is not KEY=VALUE with a key of {keys}"
            )));
        };
        settings.0.insert(key.into(), value.into());
    }
    settings.profile().map_err(|wrong| CommandError::Failed(format!("--link: {}; {}", wrong.what, wrong.fix)))
}

/// The settings of our stack, or of the kernel's.
fn settings(exec: &Exec) -> Result<(Settings, Vec<(String, String)>), CommandError> {
    let mut all = Vec::new();
    for text in &exec.sysctl {
        let pair = text.split_once('=').filter(|(name, _)| !name.trim().is_empty());
        let Some((name, value)) = pair else {
            let text = text.escape_debug();
            return Err(CommandError::Failed(format!("--sysctl: \"{text}\" is not NAME=VALUE")));
        };
        all.push((name.trim().to_string(), value.to_string()));
    }
    if let Some(name) = &exec.cc {
        // Linux says itself what it has.
        if exec.stack != StackKind::Linux && algorithm(name.as_bytes()).is_none() {
            let name = name.escape_debug();
            return Err(CommandError::Failed(format!(
                "--cc: there is no \"{name}\"; use bbr, bbr3, cubic, reno or dctcp"
            )));
        }
        all.push(("net.ipv4.tcp_congestion_control".into(), name.clone()));
    }
    let mut settings = Settings::default();
    if exec.stack != StackKind::Native {
        // Attack: a name that leads elsewhere.
        let wrong = all.iter().find(|(name, _)| !name.starts_with("net.") || name.contains(['/', '\0']));
        return match wrong {
            None => Ok((settings, all)),
            Some((name, _)) => {
                let name = name.escape_debug();
                Err(CommandError::Failed(format!(
                    "--sysctl: \"{name}\" is not a setting of the network: net.ipv4.tcp_sack"
                )))
            }
        };
    }
    for (name, value) in &all {
        sysctl::set(&mut settings, name, value)
            .map_err(|text| CommandError::Failed(format!("--sysctl: {text}")))?;
    }
    Ok((settings, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_networks_of_their_own() {
        // All of one process, whose first choice is the same.
        let all: Vec<_> = (0..3).map(|_| own_network().unwrap_or_else(|_| panic!("no network"))).collect();
        let numbers: std::collections::BTreeSet<u32> = all.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers.len(), 3);
        let first = all[0].0;
        drop(all);
        assert_eq!(own_network().ok().map(|(number, _)| number), Some(first));
    }
}
