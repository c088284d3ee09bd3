//! `ringway topo`: a topology without a file.

use crate::arguments::{Log, Shape, Target, Topo};
use crate::check;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::host;
use crate::text;
use crate::up::{FabricPaths, serve};
use ringway_control::keeper::Keeper;
use ringway_control::{TcpAddresses, run_dir};
use ringway_port::link::Settings;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{Error, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The fabric's name, unless `--fabric` gives another.
const DEFAULT_NAME: &str = "topo";

/// A file that exists for as long as the topology.
struct Temporary(PathBuf);

impl Temporary {
    /// Makes the file.
    ///
    /// Attack: a file or link of this name, in a folder where others can write: it is neither changed nor removed.
    fn create(path: PathBuf, text: &str) -> Result<Temporary, CommandError> {
        let failed = |error: Error, path: &Path| CommandError::Failed(format!("{}: {error}", path.display()));
        let mut file = File::create_new(&path).map_err(|error| failed(error, &path))?;
        let temporary = Temporary(path);
        file.write_all(text.as_bytes()).map_err(|error| failed(error, &temporary.0))?;
        Ok(temporary)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The folder may have been removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Brings a topology up, tests or uses it as requested, and removes it.
pub fn topo(target: &Target, json: bool, topo: Topo) -> Result<(), CommandError> {
    let name = target.fabric.as_deref().unwrap_or(DEFAULT_NAME);
    let text = describe(&topo, name)?;
    if topo.print {
        print!("{text}");
        return Ok(());
    }
    let commands = topo.exec.iter().map(|line| command(line, topo.hosts)).collect::<Result<Vec<_>, _>>()?;
    if let Some(host) = &topo.shell {
        known(host, topo.hosts)?;
    }
    if !rustix::process::geteuid().is_root() {
        return Err(CommandError::Failed(
            "hosts are network namespaces, which only root can create: run it as root".into(),
        ));
    }
    let base = run_dir::base();
    run_dir::make_base(&base).map_err(CommandError::because)?;
    run_dir::check_free(&base.join(name)).map_err(CommandError::because)?;
    let file = Temporary::create(base.join(format!(".{name}.topo.{}.toml", std::process::id())), &text)?;
    let (fabric, text) = check::load(target, &file.0)?;
    let place = FabricPaths::of(&fabric, target);
    let result = Arc::new(Mutex::new(Ok(())));
    let (socket, told, name) = (place.socket.clone(), result.clone(), name.to_string());
    let ready = move || {
        let used = move || {
            let used = session(socket.clone(), json, &topo, (&name, &commands));
            let is_over =
                topo.ping.is_some() || topo.shell.is_some() || !commands.is_empty() || used.is_err();
            *told.lock().unwrap_or_else(PoisonError::into_inner) = used;
            if is_over {
                // The fabric may be going down already.
                let _ = Client::to(socket).and_then(|mut client| client.post("/v1/shutdown"));
            }
        };
        std::thread::spawn(used);
    };
    let source = (fabric, file.0.clone(), text);
    let keeper = (Keeper::thread().map_err(CommandError::because)?, None);
    serve(source, (place.run, target.socket.clone()), keeper, TcpAddresses::default(), Log::Warnings, ready)?;
    std::mem::replace(&mut *result.lock().unwrap_or_else(PoisonError::into_inner), Ok(()))
}

/// Uses a topology that is up.
fn session(
    socket: PathBuf,
    json: bool,
    topo: &Topo,
    (name, commands): (&str, &[(String, String)]),
) -> Result<(), CommandError> {
    let mut client = Client::to(socket)?;
    let hosts = host::when_up(&mut client)?;
    if topo.ping.is_none() && commands.is_empty() {
        usage(topo, name);
    }
    if let Some(count) = topo.ping {
        host::ping(&mut client, json, count.max(1))?;
    }
    let shell = topo.shell.iter().map(|host| (host, None));
    let all = commands.iter().map(|(host, line)| (host, Some(line.clone()))).chain(shell);
    for (name, line) in all {
        let command = host::in_host(&hosts, name, line.as_slice())?;
        let host = hosts.iter().find(|host| host.name == *name);
        host.map_or(Ok(()), |host| host::run(host, command))?;
    }
    Ok(())
}

fn usage(topo: &Topo, name: &str) {
    let Topo { hosts, shape, .. } = topo;
    let on = match shape {
        Shape::Single => "on switch s1",
        Shape::Linear => "on a row of switches",
    };
    let values: Vec<String> =
        settings(topo).into_iter().map(|(key, value)| format!("{key} {value}")).collect();
    let values =
        if values.is_empty() { String::new() } else { format!("; each link has {}", values.join(", ")) };
    println!("{}up:{:#} fabric {name}: {hosts} hosts {on}{values}", text::GOOD, text::GOOD);
    if topo.shell.is_some() {
        return;
    }
    let other = if *hosts > 1 { "@h2" } else { "@h1" };
    println!("In another terminal:");
    for (words, what) in [
        (format!("host exec h1 -- ping {other}"), ""),
        ("host exec h1".into(), "a shell in h1"),
        ("host ping".into(), "each host pings each other one"),
        ("link show".into(), "observed delays and losses"),
        ("link set h1 delay=50ms".into(), ""),
    ] {
        println!("  ringway --fabric {name} {words:<30} {what}");
    }
    println!("Ctrl-C removes it.");
}

/// Splits a host and its command.
fn command(line: &str, hosts: u8) -> Result<(String, String), CommandError> {
    let Some((host, command)) = line.trim().split_once(char::is_whitespace) else {
        return Err(CommandError::Failed(format!(
            "--exec \"{line}\" has no command; write --exec 'h1 ping -c 3 @h2'"
        )));
    };
    known(host, hosts)?;
    Ok((host.into(), command.trim().into()))
}

fn known(host: &str, hosts: u8) -> Result<(), CommandError> {
    let number = host.strip_prefix('h').and_then(|number| number.parse::<u8>().ok());
    match number.filter(|number| (1..=hosts).contains(number) && host == format!("h{number}")) {
        Some(_) => Ok(()),
        None => Err(CommandError::Unknown(format!(
            "there is no host \"{}\"; there are h1 to h{hosts}",
            host.escape_debug()
        ))),
    }
}

/// The settings of each link.
fn settings(topo: &Topo) -> BTreeMap<String, String> {
    let Topo { rate, delay, jitter, loss, queue, .. } = topo;
    let all = [("rate", rate), ("delay", delay), ("jitter", jitter), ("loss", loss), ("queue", queue)];
    all.into_iter().filter_map(|(key, value)| Some((key.to_string(), value.clone()?))).collect()
}

/// The fabric file of a topology.
fn describe(topo: &Topo, name: &str) -> Result<String, CommandError> {
    let settings = settings(topo);
    if let Err(wrong) = Settings(settings.clone()).profile() {
        return Err(CommandError::Failed(format!("--{}: {}; {}", wrong.key, wrong.what, wrong.fix)));
    }
    // A JSON string is a TOML string, too.
    let pairs: Vec<String> =
        settings.iter().map(|(key, value)| format!("{key} = {}", text::to_json(value))).collect();
    let link = format!("link = {{ {} }}\n", pairs.join(", "));
    let mut file = format!("[fabric]\nname = \"{name}\"\n");
    // Writing to a string can't fail.
    let switches = if topo.shape == Shape::Linear { topo.hosts } else { 1 };
    for number in 1..=switches {
        let _ = write!(file, "\n[switch.s{number}]\n");
    }
    for number in 1..=topo.hosts {
        let switch = number.min(switches);
        let _ = write!(
            file,
            "\n[host.h{number}]\nswitch = \"s{switch}\"\naddress = \"10.0.0.{number}/24\"\n{link}"
        );
    }
    for number in 1..switches {
        let next = number + 1;
        let _ = write!(file, "\n[link.s{number}-s{next}]\nports = [\"s{number}\", \"s{next}\"]\n");
        pairs.iter().for_each(|pair| file += &format!("{pair}\n"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_control::file::{Host, read};

    fn topo(hosts: u8, shape: Shape, loss: &str) -> Topo {
        Topo {
            hosts,
            shape,
            rate: Some("100mbit".into()),
            delay: Some("20ms".into()),
            jitter: None,
            loss: Some(loss.into()),
            queue: Some("fq_codel".into()),
            ping: None,
            exec: Vec::new(),
            shell: None,
            print: false,
        }
    }

    #[test]
    fn every_topology_is_a_good_file() {
        let machine = Host { cores: vec![0], ..Host::default() };
        for (hosts, shape, switches, ports) in
            [(1, Shape::Single, 1, 3), (250, Shape::Single, 1, 750), (4, Shape::Linear, 4, 4 * 3 + 3 * 2)]
        {
            let text = describe(&topo(hosts, shape, "1%"), "lab").unwrap();
            let fabric = read("topo", &text, &machine).unwrap();
            assert_eq!((fabric.name.as_str(), fabric.hosts.len()), ("lab", usize::from(hosts)));
            assert_eq!((fabric.switches.len(), fabric.ports.len()), (switches, ports), "{shape:?}");
            assert!(fabric.warnings.is_empty(), "{:?}", fabric.warnings);
        }
    }

    #[test]
    fn a_file_that_is_there_is_neither_changed_nor_removed() {
        let folder = std::env::temp_dir().join(format!("ringway-topo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [precious, link, new] = ["precious", "link", "new"].map(|name| folder.join(name));
        std::fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        for taken in [&precious, &link] {
            assert!(Temporary::create(taken.clone(), "text").is_err());
        }
        assert!(link.is_symlink() && std::fs::read(&precious).unwrap() == b"precious");
        let made = Temporary::create(new.clone(), "text").unwrap();
        assert_eq!(std::fs::read(&new).unwrap(), b"text");
        drop(made);
        assert!(!new.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn wrong_values_are_refused_before_anything_is_made() {
        let wrong = describe(&topo(2, Shape::Single, "5"), "lab").unwrap_err().to_string();
        assert_eq!(wrong, "--loss: `loss`: \"5\" is not a share; write \"5%\", or a number below 1");
        assert_eq!(command("h2 ping -c 3 @h1", 2).unwrap(), ("h2".into(), "ping -c 3 @h1".into()));
        assert!(command("h1", 2).unwrap_err().to_string().contains("has no command"));
        let unknown = command("h3 date", 2).unwrap_err();
        assert_eq!(
            (unknown.code(), unknown.to_string()),
            (5, "there is no host \"h3\"; there are h1 to h2".into())
        );
        assert!(known("h02", 2).is_err() && known("2", 2).is_err());
    }
}
