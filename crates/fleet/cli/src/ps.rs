//! `ringway ps`.

use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::PORT;
use crate::show;
use crate::text::{self, Table, cell};
use ringway_control::api::{
    ChainView, FabricView, FunctionView, GuestView, HostView, PortView, ProgramView, WorkerView,
};
use serde::Serialize;

#[derive(Serialize)]
struct Ps {
    fabric: FabricView,
    ports: Vec<PortView>,
    hosts: Vec<HostView>,
    programs: Vec<ProgramView>,
    guests: Vec<GuestView>,
    functions: Vec<FunctionView>,
    chains: Vec<ChainView>,
}

/// Shows a fabric with its ports, hosts, programs, guests, functions and chains.
pub fn ps(target: &Target, json: bool) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let fabric: FabricView = client.get("/v1/fabric")?;
    let ports: Vec<PortView> = client.get("/v1/ports")?;
    let hosts: Vec<HostView> = client.get("/v1/hosts")?;
    let programs: Vec<ProgramView> = client.get("/v1/programs")?;
    let guests: Vec<GuestView> = client.get("/v1/guests")?;
    let functions: Vec<FunctionView> = client.get("/v1/functions")?;
    let chains: Vec<ChainView> = client.get("/v1/chains")?;
    if json {
        text::json(&Ps { fabric, ports, hosts, programs, guests, functions, chains });
        return Ok(());
    }
    let workers: Vec<String> = fabric.workers.iter().map(worker).collect();
    println!("fabric   {}, up for {}, from {}", fabric.name, span(fabric.uptime), fabric.file);
    println!("run      {} (control {}, data {})", fabric.run, fabric.pid, fabric.data_pid);
    println!("workers  {}", workers.join(", "));
    for worker in fabric.workers.iter().filter(|worker| !worker.note.is_empty()) {
        let style = text::FAIR;
        println!("{style}note{style:#}     {}: {}", worker.name, worker.note);
    }
    println!();
    port_table(ports).print();
    if !hosts.is_empty() {
        println!();
        crate::host::table(hosts).print();
    }
    if !programs.is_empty() {
        println!();
        crate::program::table(programs).print();
    }
    if !guests.is_empty() {
        println!();
        crate::guest::table(guests).print();
    }
    if !functions.is_empty() {
        println!();
        crate::function::table(functions).print();
    }
    if !chains.is_empty() {
        println!();
        crate::chain::table(chains).print();
    }
    Ok(())
}

/// A worker, on one line with the others.
fn worker(WorkerView { name, node, queues, active, .. }: &WorkerView) -> String {
    let node = node.map_or(String::new(), |node| format!(", node {node}"));
    format!("{name} ({active} of {queues} queues active{node})")
}

/// Lists the ports.
pub fn ports(target: &Target, json: bool) -> Result<(), CommandError> {
    show::list(&PORT, target, json, port_table)
}

fn port_table(ports: Vec<PortView>) -> Table {
    let mut table = Table::new(&["PORT", "KIND", "STATE", "TO", "WORKER", "PEER", "DETAIL"]);
    for port in ports {
        let detail = if port.detail.is_empty() { port.reason } else { port.detail };
        table.row(vec![
            cell(port.name),
            cell(port.kind),
            text::state(&port.state),
            cell(port.to),
            cell(port.worker),
            cell(port.peer),
            cell(detail),
        ]);
    }
    table
}

/// A duration for people.
pub fn span(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::{WorkerView, span, worker};

    #[test]
    fn durations_have_two_units() {
        let seconds = [5, 65, 3_725, 90_000];
        let shown = seconds.map(|seconds| span(seconds * 1_000_000_000));
        assert_eq!(shown, ["5 s", "1 min 5 s", "1 h 2 min", "1 d 1 h"]);
    }

    #[test]
    fn a_worker_s_node_is_shown_if_it_has_one() {
        let view = |node| WorkerView {
            name: "w".into(),
            node,
            queues: 2,
            active: 1,
            turns: 0,
            sleeps: 0,
            busy: 0,
            note: String::new(),
        };
        assert_eq!(worker(&view(None)), "w (1 of 2 queues active)");
        assert_eq!(worker(&view(Some(1))), "w (1 of 2 queues active, node 1)");
        assert_eq!(serde_json::to_value(view(Some(1))).unwrap()["node"], 1);
        assert!(serde_json::to_value(view(None)).unwrap().get("node").is_none());
    }
}
