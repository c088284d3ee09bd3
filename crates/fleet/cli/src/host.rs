//! `ringway host`: commands in the fabric's hosts.

use crate::arguments::{HostCommand, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::logs;
use crate::object_kind::HOST;
use crate::show;
use crate::text::{self, Table, cell};
use ringway_control::api::HostView;
use ringway_spec::file::either;
use serde::Serialize;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long interfaces may take to be up.
const UP_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs `ringway host`.
pub fn host(target: &Target, json: bool, command: HostCommand) -> Result<(), CommandError> {
    match command {
        HostCommand::Show { name } => show::show(&HOST, target, json, &name),
        HostCommand::Logs { name, logs } => logs::host(target, json, &name, &logs),
        HostCommand::List => show::list(&HOST, target, json, table),
        HostCommand::Exec { name, command } => {
            let hosts: Vec<HostView> = Client::connect(target)?.get(HOST.all)?;
            let mut command = in_host(&hosts, &name, &command)?;
            enter(find(&hosts, &name)?)?;
            let program = command.get_program().to_string_lossy().into_owned();
            Err(CommandError::Failed(format!("{program}: {}", command.exec())))
        }
        HostCommand::Ping { count } => ping(&mut Client::connect(target)?, json, count),
    }
}

/// The hosts as `ringway ps` shows them.
pub fn table(hosts: Vec<HostView>) -> Table {
    let mut table = Table::new(&["HOST", "STATE", "INTERFACES", "ADDRESSES", "PROGRAMS"]);
    for HostView { name, state, interfaces, programs, .. } in hosts {
        let addresses = interfaces.iter().flat_map(|interface| &interface.addresses);
        let addresses: Vec<&str> = addresses.map(|address| &**address).collect();
        let interfaces =
            interfaces.iter().map(|interface| format!("{} ({})", interface.name, interface.state));
        let programs = programs.iter().map(|program| match program.reason.is_empty() {
            true => format!("{} ({})", program.command, program.state),
            false => format!("{} ({}: {})", program.command, program.state, program.reason),
        });
        table.row(vec![
            cell(name),
            cell(state),
            cell(interfaces.collect::<Vec<_>>().join(" ")),
            cell(addresses.join(" ")),
            cell(programs.collect::<Vec<_>>().join(", ")),
        ]);
    }
    table
}

/// The host of this name.
fn find<'h>(hosts: &'h [HostView], name: &str) -> Result<&'h HostView, CommandError> {
    hosts.iter().find(|host| host.name == name).ok_or_else(|| {
        let there = match hosts {
            [] => "the fabric has no hosts; [host.NAME] in its file describes one".into(),
            _ => format!("there is {}", either(hosts.iter().map(|host| &*host.name))),
        };
        CommandError::Unknown(format!("there is no host \"{}\"; {there}", name.escape_debug()))
    })
}

/// A host's first address, without the length of its prefix.
fn address(host: &HostView) -> Option<&str> {
    let first = host.interfaces.iter().flat_map(|interface| &interface.addresses).next()?;
    first.split('/').next()
}

/// Moves this thread into a host.
fn enter(host: &HostView) -> Result<(), CommandError> {
    if host.state == "stopping" {
        let why = "all that runs in it is being ended, which takes some seconds at most; then try again";
        return Err(CommandError::Failed(format!("host {}: {why}", host.name)));
    }
    let failed = |error| CommandError::Failed(format!("host {}: {error}; this needs root", host.name));
    ringway_host::enter_namespace(Path::new(&host.namespace)).map_err(failed)
}

/// A command for a host, in which @HOST is replaced by an address, as a word and in URLs (`http://@HOST:80/`); a shell
/// if there are no words.
pub fn in_host(hosts: &[HostView], name: &str, words: &[String]) -> Result<Command, CommandError> {
    find(hosts, name)?;
    let address_of = |other: &str| {
        let address = address(find(hosts, other)?);
        let none = || CommandError::Failed(format!("host {other} has no address"));
        address.map(String::from).ok_or_else(none)
    };
    let replaced = |word: &String| match word.strip_prefix('@').filter(|name| !name.is_empty()) {
        Some(other) => address_of(other),
        None => match word.split_once("//@") {
            None => Ok(word.clone()),
            Some((scheme, rest)) => {
                let (other, rest) = rest.split_at(rest.find([':', '/', '?']).unwrap_or(rest.len()));
                let address = address_of(other)?;
                let address = if address.contains(':') { format!("[{address}]") } else { address };
                Ok(format!("{scheme}//{address}{rest}"))
            }
        },
    };
    let words: Vec<String> = match words {
        // Words of a shell's command.
        [line] if line.contains('@') => {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            vec![words.iter().map(replaced).collect::<Result<Vec<_>, _>>()?.join(" ")]
        }
        words => words.iter().map(replaced).collect::<Result<_, _>>()?,
    };
    let mut command = match &*words {
        [] => {
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            Command::new(shell.unwrap_or_else(|| "/bin/sh".into()))
        }
        [line] => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", line]);
            shell
        }
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
    };
    command.env("RINGWAY_HOST", name);
    Ok(command)
}

/// Runs a command in a host until it ends, on a thread of its own.
pub fn run(host: &HostView, mut command: Command) -> Result<(), CommandError> {
    let ran = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            enter(host)?;
            command.status().map_err(CommandError::because)
        });
        thread.join()
    });
    let status = ran.unwrap_or_else(|_| Err(CommandError::Failed("the command's thread failed".into())))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(CommandError::Status(u8::try_from(code).unwrap_or(1))),
        None => Err(CommandError::Failed(status.to_string())),
    }
}

/// The hosts, once all of their interfaces are up.
pub fn when_up(client: &mut Client) -> Result<Vec<HostView>, CommandError> {
    let end = Instant::now() + UP_TIMEOUT;
    loop {
        let hosts: Vec<HostView> = client.get("/v1/hosts")?;
        let mut interfaces = hosts.iter().flat_map(|host| &host.interfaces);
        match interfaces.find(|interface| interface.state != "up") {
            None => return Ok(hosts),
            Some(down) if Instant::now() >= end => {
                return Err(CommandError::Late(format!(
                    "port {} is {}; see `ringway ps`",
                    down.port, down.state
                )));
            }
            Some(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// The result of pinging one host from another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct PingResult {
    from: String,
    to: String,
    sent: u32,
    answered: u32,
    /// Mean round-trip time in milliseconds.
    mean: Option<f64>,
    /// Standard deviation of the round-trip time in milliseconds.
    deviation: Option<f64>,
}

/// Pings each host from each other one.
pub fn ping(client: &mut Client, json: bool, count: u32) -> Result<(), CommandError> {
    let hosts = when_up(client)?;
    if hosts.iter().filter(|host| address(host).is_some()).count() < 2 {
        return Err(CommandError::Failed(
            "a fabric whose hosts ping each other has two with addresses".into(),
        ));
    }
    let all: Vec<Result<Vec<PingResult>, CommandError>> = std::thread::scope(|scope| {
        let from = hosts.iter().filter(|host| address(host).is_some());
        let threads: Vec<_> = from.map(|host| scope.spawn(|| ping_from(host, &hosts, count))).collect();
        let failed = |_| Err(CommandError::Failed("the thread of a host's pings failed".into()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(failed)).collect()
    });
    let all: Vec<PingResult> = all.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    let total = |of: fn(&PingResult) -> u32| all.iter().map(|answers| u64::from(of(answers))).sum::<u64>();
    let (sent, answered) = (total(|answers| answers.sent), total(|answers| answers.answered));
    if json {
        text::json(&all);
    } else {
        answers(&all).print();
        let lost = (sent - answered.min(sent)) as f64 * 100.0 / sent.max(1) as f64;
        println!("{answered} of {sent} pings answered, {lost:.1}% lost");
    }
    if answered == 0 { Err(CommandError::Failed("no host reaches another one".into())) } else { Ok(()) }
}

fn answers(all: &[PingResult]) -> Table {
    let mut table = Table::new(&["FROM", "TO", ">SENT", ">ANSWERED", ">RTT", ">DEVIATION"]);
    let time = |time: Option<f64>| time.map(|time| format!("{time:.2} ms")).unwrap_or_default();
    for PingResult { from, to, sent, answered, mean, deviation } in all {
        table.row(vec![
            cell(from),
            cell(to),
            cell(sent),
            cell(answered),
            cell(time(*mean)),
            cell(time(*deviation)),
        ]);
    }
    table
}

/// Pings all others from one host, one after the other.
fn ping_from(from: &HostView, hosts: &[HostView], count: u32) -> Result<Vec<PingResult>, CommandError> {
    enter(from)?;
    let others = hosts.iter().filter(|host| host.name != from.name);
    let others = others.filter_map(|host| Some((host, address(host)?)));
    let mut all = Vec::new();
    for (to, address) in others {
        let mut command = Command::new("ping");
        command
            .args(["-n", "-q", "-i", "0.2", "-W", "5", "-c", &count.to_string(), address])
            .env("LC_ALL", "C");
        let output = command.output().map_err(|error| {
            CommandError::Failed(format!("ping: {error}; install it, such as by `apt install iputils-ping`"))
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let answers = parse(&text).ok_or_else(|| {
            let why = String::from_utf8_lossy(&output.stderr);
            CommandError::Failed(format!("ping from {} to {}: {}", from.name, to.name, why.trim()))
        })?;
        all.push(PingResult { from: from.name.clone(), to: to.name.clone(), ..answers });
    }
    Ok(all)
}

/// Reads what ping prints at its end.
fn parse(text: &str) -> Option<PingResult> {
    let line = text.lines().find(|line| line.contains(" packets transmitted"))?;
    let number = |part: &str| part.split_whitespace().next()?.parse().ok();
    let mut parts = line.split(", ");
    let (sent, answered) = (number(parts.next()?)?, number(parts.next()?)?);
    let times = text.lines().find_map(|line| line.strip_prefix("rtt ")?.split_once(" = "));
    let times: Vec<f64> = times
        .map(|(_, times)| {
            times.trim_end_matches(" ms").split('/').filter_map(|time| time.parse().ok()).collect()
        })
        .unwrap_or_default();
    let (mean, deviation) = (times.get(1).copied(), times.get(3).copied());
    Some(PingResult { sent, answered, mean, deviation, ..PingResult::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_control::api::HostInterfaceView;

    fn hosts() -> Vec<HostView> {
        let host = |name: &str, addresses: &[&str]| HostView {
            name: name.into(),
            state: "up".into(),
            namespace: "/nowhere".into(),
            interfaces: vec![HostInterfaceView {
                name: "eth0".into(),
                port: name.into(),
                state: "up".into(),
                addresses: addresses.iter().map(ToString::to_string).collect(),
            }],
            programs: Vec::new(),
            output: String::new(),
        };
        vec![host("h1", &["10.0.0.1/24", "fd00::1/64"]), host("h2", &["10.0.0.2/24"]), host("h3", &[])]
    }

    #[test]
    fn words_with_a_host_s_name_are_its_address() {
        let shown = |name: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            in_host(&hosts(), name, &words).map(|command| {
                let all = std::iter::once(command.get_program()).chain(command.get_args());
                all.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join("|")
            })
        };
        assert_eq!(shown("h1", &["ping", "-c", "3", "@h2"]).unwrap(), "ping|-c|3|10.0.0.2");
        assert_eq!(shown("h2", &["ping @h1; date"]).unwrap_err().code(), 5, "@h1; is no host");
        assert_eq!(shown("h2", &["ping @h1 ; date"]).unwrap(), "/bin/sh|-c|ping 10.0.0.1 ; date");
        assert_eq!(shown("h2", &["mail", "a@h1", "@"]).unwrap(), "mail|a@h1|@");
        assert_eq!(shown("h1", &["curl", "http://@h2:80/a"]).unwrap(), "curl|http://10.0.0.2:80/a");
        assert_eq!(shown("h1", &["curl", "http://@h2"]).unwrap(), "curl|http://10.0.0.2");
        assert_eq!(shown("h1", &["curl", "http://@h4/"]).unwrap_err().code(), 5);
        assert_eq!(
            shown("h9", &["date"]).unwrap_err().to_string(),
            "there is no host \"h9\"; there is h1, h2 or h3"
        );
        assert_eq!(shown("h1", &["ping", "@h3"]).unwrap_err().to_string(), "host h3 has no address");
    }

    #[test]
    fn what_ping_prints_is_read() {
        let text = "PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n\n--- 10.0.0.2 ping statistics ---\n\
                    3 packets transmitted, 2 received, 33.3333% packet loss, time 403ms\n\
                    rtt min/avg/max/mdev = 40.110/40.302/40.623/0.201 ms\n";
        let expected = PingResult {
            sent: 3,
            answered: 2,
            mean: Some(40.302),
            deviation: Some(0.201),
            ..PingResult::default()
        };
        assert_eq!(parse(text), Some(expected));
        let none = "1 packets transmitted, 0 received, +1 errors, 100% packet loss, time 0ms\n";
        assert_eq!(parse(none), Some(PingResult { sent: 1, ..PingResult::default() }));
        assert_eq!(parse("ping: connect: Network is unreachable"), None);
    }
}
