//! Runs a program whose network is a datagram socket that this process inherits, a frame a datagram; for tests.
//!
//! `exec-on-socket DESCRIPTOR|tap:NAME|user native|kernel|linux ADDRESS/PREFIX,... PROGRAM ARGUMENTS`
//!
//! Variables: `CC`, `DNS`, `EXPLAIN`, `QUERY`, `DIRECT`; with `linux` `CC` is one of the guest's, `SYSCTL` a setting,
//! `WRITABLE` a folder, `KERNEL` a file.

use ringway_exec::{
    Attachment, Cidr, Direct, Emulated, Linux, Mode, Options, UserNetwork, UserNetworkConfig, algorithm,
    be_first_process, prepare,
};
use ringway_link::Profile;
use ringway_netstack::Settings;
use ringway_sockets::{TapDevice, TapSettings};
use std::error::Error;
use std::process::ExitCode;

/// By the variable `DIRECT`: `request`, or after how many calls a connection moves.
fn direct() -> Result<Direct, Box<dyn Error>> {
    Ok(match std::env::var("DIRECT").as_deref() {
        Err(_) => Direct::Off,
        Ok("request") => Direct::OnRequest,
        Ok(after) => Direct::Preloaded { after: after.parse()? },
    })
}

fn run(words: &[std::ffi::OsString]) -> Result<u8, Box<dyn Error>> {
    let [descriptor, mode, address, program @ ..] = words else { return Err("too few arguments".into()) };
    let text = |word: &std::ffi::OsString| word.to_str().map(str::to_string).ok_or("not UTF-8");
    let descriptor = text(descriptor)?;
    let congestion = std::env::var("CC").ok().and_then(|name| algorithm(name.as_bytes()));
    let congestion = congestion.unwrap_or_default();
    let is_user = descriptor == "user";
    let gateways: Vec<Cidr> = if is_user { vec!["10.0.0.254/24".parse()?] } else { Vec::new() };
    let settings = Settings { tcp_congestion_control: congestion, ..Settings::default() };
    let config = user_network(&gateways, &settings);
    let prepared = prepare(Options {
        program: program.to_vec(),
        mode: match mode.to_str() {
            Some("native") => Mode::Native,
            Some("linux") => Mode::Linux,
            _ => Mode::Kernel,
        },
        addresses: text(address)?.split(',').map(str::parse).collect::<Result<_, _>>()?,
        gateways: gateways.iter().map(|gateway| gateway.address).collect(),
        dns: std::env::var("DNS").ok().map(|server| server.parse()).transpose()?.into_iter().collect(),
        mtu: 1500,
        offloads: false,
        map_root: false,
        settings,
        sequence_secret: None,
        explain: std::env::var_os("EXPLAIN").is_some(),
        sysctls: if mode == "linux" { sysctls()? } else { Vec::new() },
        linux: Linux {
            kernel: std::env::var_os("KERNEL").map(Into::into),
            writable: std::env::var_os("WRITABLE").map(Into::into).into_iter().collect(),
            ..Linux::default()
        },
        query: std::env::var_os("QUERY").map(Into::into).into_iter().collect(),
        limits: Vec::new(),
        direct: direct()?,
        kill_after: None,
        attachment: is_user.then(|| {
            let link = Some(Box::new((Profile::default(), 1)));
            Attachment::User { config: Box::new(config.clone()), link }
        }),
    })?;
    if is_user {
        let (network, device) = UserNetwork::start(config)?;
        let ended = prepared.run(Emulated::new(device, &Profile::default(), 1)?)?;
        network.finish()?;
        return Ok(ended.repeat());
    }
    let device = match descriptor.strip_prefix("tap:") {
        Some(name) => TapDevice::open(&TapSettings {
            name: name.into(),
            queues: 1,
            mtu: 1500,
            offloads: false,
            mac: None,
            address: None,
            namespace: None,
        })?,
        None => {
            let own = rustix::process::getpid().as_raw_nonzero().get();
            TapDevice::of(ringway_host::Threads::default().descriptor(own, descriptor.parse()?)?)
        }
    };
    let device = Emulated::new(device, &Profile::default(), 1)?;
    Ok(prepared.run(device)?.repeat())
}

/// A network with the host by sockets.
fn user_network(gateways: &[Cidr], settings: &Settings) -> UserNetworkConfig {
    let (gateways, settings) = (gateways.to_vec(), settings.clone());
    let (name_server, host_loopback) = (None, true);
    UserNetworkConfig { gateways, mtu: 1500, offloads: false, settings, name_server, host_loopback }
}

fn sysctls() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let controller = std::env::var("CC").ok().map(|name| ("net.ipv4.tcp_congestion_control".into(), name));
    let setting = std::env::var("SYSCTL").ok();
    let setting = setting.map(|text| text.split_once('=').map(|(name, value)| (name.into(), value.into())));
    Ok(controller.into_iter().chain(setting.map(|pair| pair.ok_or("no NAME=VALUE")).transpose()?).collect())
}

fn main() -> ExitCode {
    be_first_process();
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    match run(&words) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("exec-on-socket: {error}");
            ExitCode::from(125)
        }
    }
}
