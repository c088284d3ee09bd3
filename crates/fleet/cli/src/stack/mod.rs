//! `ringway stack`: what a program's TCP/IP stack has, in the words of Linux's tools.

mod netstat;
mod socket;
mod ss;

pub use socket::{place, sequence_secret};

use crate::arguments::{StackCommand, Trace};
use crate::command_error::CommandError;
use crate::text::{self, Table, cell};
use ringway_exec::query::{About, Neighbor, Reply, Request, Route, Socket};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Most points of a trace.
const MAX_POINTS: usize = 4096;
/// Time between two checks whether a connection has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Runs `ringway stack`.
pub fn stack(json: bool, command: StackCommand) -> Result<(), CommandError> {
    match command {
        StackCommand::List => list(json),
        StackCommand::Show { name } => show(json, &name),
        StackCommand::Ss { name, all, listening, udp } => {
            let sockets = socket::find(&name)?.sockets().map_err(|error| silent(&name, &error))?;
            let sockets = ss::select(sockets, ss::SocketFilter { all, listening, udp });
            print(json, &sockets, || ss::table(&sockets))
        }
        StackCommand::Netstat { name } => {
            let counters = socket::find(&name)?.counters().map_err(|error| silent(&name, &error))?;
            print(json, &counters, || netstat::lines(&counters))
        }
        StackCommand::Sysctl { name, settings } => sysctl(json, &name, &settings),
        StackCommand::Route { name, v6 } => {
            let Reply::Routes(routes) = ask(&name, &Request::Routes)? else { return Err(other(&name)) };
            let of = |route: &Route| {
                let own = route.prefsrc.as_ref().or(route.gateway.as_ref());
                own.is_some_and(|own| own.contains(':')) == v6
            };
            let routes: Vec<Route> = routes.into_iter().filter(of).collect();
            print(json, &routes, || routes.iter().rev().map(route).collect())
        }
        StackCommand::Neigh { name } => {
            let Reply::Neighbors(all) = ask(&name, &Request::Neighbors)? else { return Err(other(&name)) };
            print(json, &all, || all.iter().map(neighbor).collect())
        }
        StackCommand::Trace(options) => trace(&options),
    }
}

fn ask(name: &str, request: &Request) -> Result<Reply, CommandError> {
    socket::find(name)?.ask(request).map_err(|error| silent(name, &error))
}

fn silent(name: &str, error: &std::io::Error) -> CommandError {
    let name = name.escape_debug();
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            CommandError::Late(format!("program {name}: it does not answer; it may be stopped"))
        }
        std::io::ErrorKind::UnexpectedEof => CommandError::Unknown(format!("program {name} has ended")),
        _ => CommandError::Failed(format!("program {name}: {error}")),
    }
}

fn other(name: &str) -> CommandError {
    CommandError::Failed(format!("program {}: it answers another question", name.escape_debug()))
}

/// Prints JSON, or lines for people.
fn print<T: Serialize>(json: bool, value: &T, lines: impl FnOnce() -> String) -> Result<(), CommandError> {
    match json {
        true => text::json(value),
        false => text::foreign(&lines()),
    }
    Ok(())
}

/// A program of the list.
#[derive(Serialize)]
struct ListedStack {
    name: String,
    #[serde(flatten)]
    about: About,
}

fn list(json: bool) -> Result<(), CommandError> {
    let running = socket::running();
    let all: Vec<ListedStack> =
        running.into_iter().map(|(name, about)| ListedStack { name, about }).collect();
    if json {
        text::json(&all);
        return Ok(());
    }
    let mut table = Table::new(&["NAME", ">PROCESS", "ADDRESSES", "PROGRAM"]);
    for ListedStack { name, about: About { program, process, addresses } } in all {
        table.row(vec![cell(name), cell(process), cell(addresses.join(" ")), cell(program)]);
    }
    table.print();
    Ok(())
}

fn show(json: bool, name: &str) -> Result<(), CommandError> {
    let mut client = socket::find(name)?;
    let failed = |error: std::io::Error| silent(name, &error);
    let Reply::About(about) = client.ask(&Request::About).map_err(failed)? else { return Err(other(name)) };
    let sockets = client.sockets().map_err(failed)?;
    if json {
        text::json(&ListedStack { name: name.into(), about });
        return Ok(());
    }
    let count = |of: fn(&Socket) -> bool| sockets.iter().filter(|socket| of(socket)).count();
    let (connections, listening) =
        (count(|socket| socket.info.is_some()), count(|socket| socket.state == "LISTEN"));
    let datagrams = count(|socket| socket.netid == "udp");
    println!("name       {name}");
    println!("program    {}", ringway_spec::printable(&about.program));
    println!("process    {}", about.process);
    println!("addresses  {}", about.addresses.join(" "));
    println!("sockets    {connections} connections, {listening} listening, {datagrams} of UDP");
    Ok(())
}

/// Whether a setting is one that is named, or below one.
fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn sysctl(json: bool, name: &str, wanted: &[String]) -> Result<(), CommandError> {
    let Reply::Sysctls(all) = ask(name, &Request::Sysctls)? else { return Err(other(name)) };
    let is_known = |above: &&String| all.iter().any(|(name, _)| is_below(name, above));
    if let Some(unknown) = wanted.iter().find(|above| !is_known(above)) {
        let unknown = unknown.escape_debug();
        let fix = format!("`ringway stack sysctl {name}` shows all");
        return Err(CommandError::Unknown(format!("the native stack has no setting \"{unknown}\"; {fix}")));
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|above| is_below(name, above));
    let shown: Vec<_> = all.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    if json {
        let map: std::collections::BTreeMap<_, _> = shown.into_iter().collect();
        text::json(&map);
        return Ok(());
    }
    print(false, &(), || shown.iter().map(|(name, value)| format!("{name} = {value}\n")).collect())
}

/// A line of `ip route`.
fn route(route: &Route) -> String {
    let Route { dst, gateway, dev, prefsrc } = route;
    match (gateway, prefsrc) {
        (Some(gateway), _) => format!("{dst} via {gateway} dev {dev}\n"),
        (None, Some(own)) if own.contains(':') => format!("{dst} dev {dev} proto kernel\n"),
        (None, Some(own)) => format!("{dst} dev {dev} proto kernel scope link src {own}\n"),
        (None, None) => format!("{dst} dev {dev}\n"),
    }
}

/// A line of `ip neigh`.
fn neighbor(neighbor: &Neighbor) -> String {
    let Neighbor { dst, dev, lladdr, state } = neighbor;
    match lladdr {
        Some(lladdr) => format!("{dst} dev {dev} lladdr {lladdr} {state}\n"),
        None => format!("{dst} dev {dev} {state}\n"),
    }
}

/// The connection that is meant.
fn choose<'s>(sockets: &'s [Socket], options: &Trace) -> Result<&'s Socket, CommandError> {
    let mut connections = sockets.iter().filter(|socket| socket.info.is_some());
    let moved = |socket: &Socket| {
        let info = socket.info.as_ref();
        info.map_or(0, |info| info.tcpi_bytes_acked + info.tcpi_bytes_received)
    };
    let (found, what) = match &options.connection {
        None => {
            let live = connections.filter(|socket| !matches!(&*socket.state, "TIME-WAIT" | "UNCONN"));
            (live.max_by_key(|socket| moved(socket)), "has no connection now".to_string())
        }
        Some(address) => (
            connections.find(|socket| socket.local == *address || socket.peer == *address),
            format!("has no connection of {}", address.escape_debug()),
        ),
    };
    let name = &options.name;
    found.ok_or_else(|| {
        CommandError::Unknown(format!("program {name} {what}; `ringway stack ss {name}` shows those it has"))
    })
}

fn trace(options: &Trace) -> Result<(), CommandError> {
    let failed = |error: std::io::Error| silent(&options.name, &error);
    let mut client = socket::find(&options.name)?;
    let sockets = client.sockets().map_err(failed)?;
    let id = choose(&sockets, options)?.id;
    client.ask(&Request::Record(id, MAX_POINTS)).map_err(failed)?;
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    let last = loop {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(POLL_INTERVAL));
        let reply = client.ask(&Request::Trace(id, options.format.into())).map_err(failed)?;
        let Reply::Trace { text, ended } = reply else { return Err(other(&options.name)) };
        if ended || Instant::now() >= end {
            break text;
        }
    };
    // The program may have ended.
    let _ = client.ask(&Request::Record(id, 0));
    match &options.output {
        Some(path) => std::fs::write(path, last)
            .map_err(|error| CommandError::Failed(format!("{}: {error}", path.display()))),
        None => {
            print!("{last}");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_and_neighbours_are_lines_of_ip() {
        let line = |dst: &str, gateway: Option<&str>, own: Option<&str>| {
            let (gateway, prefsrc) = (gateway.map(Into::into), own.map(Into::into));
            route(&Route { dst: dst.into(), gateway, dev: "eth0".into(), prefsrc })
        };
        assert_eq!(line("default", Some("10.0.0.1"), None), "default via 10.0.0.1 dev eth0\n");
        let own = "10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.2\n";
        assert_eq!(line("10.0.0.0/24", None, Some("10.0.0.2")), own);
        assert_eq!(line("fd00::/64", None, Some("fd00::2")), "fd00::/64 dev eth0 proto kernel\n");
        let known = Neighbor {
            dst: "10.0.0.1".into(),
            dev: "eth0".into(),
            lladdr: Some("02:00:00:00:00:01".into()),
            state: "REACHABLE".into(),
        };
        assert_eq!(neighbor(&known), "10.0.0.1 dev eth0 lladdr 02:00:00:00:00:01 REACHABLE\n");
        let asked = Neighbor { lladdr: None, state: "INCOMPLETE".into(), ..known };
        assert_eq!(neighbor(&asked), "10.0.0.1 dev eth0 INCOMPLETE\n");
    }

    #[test]
    fn settings_are_selected_by_their_beginnings() {
        assert!(
            is_below("net.ipv4.tcp_rmem", "net.ipv4") && is_below("net.ipv4.tcp_rmem", "net.ipv4.tcp_rmem")
        );
        assert!(!is_below("net.ipv4.tcp_rmem", "net.ipv4.tcp") && !is_below("net.ipv4", "net.ipv4.tcp_rmem"));
    }
}
