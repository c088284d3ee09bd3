//! Metrics of the fabric, its workers, switches, guests, functions, programs, hosts and chains.

use super::Views;
use super::text::{Exposition, Type};

pub fn write(views: &Views, all: &mut Exposition) {
    whole(views, all);
    workers(views, all);
    switches(views, all);
    guests(views, all);
    functions(views, all);
    let (up, is_running) = (Type::Gauge, |state: &str| state == "running");
    let help = "Whether an unmodified program runs.";
    let mut family = all.family(up, "ringway_program_up", help, &["program"]);
    views.programs.iter().for_each(|one| family.flag(&[&one.name], is_running(&one.state)));
    let help = "How often a program was started again by itself.";
    let mut family = all.family(Type::Counter, "ringway_program_restarts_total", help, &["program"]);
    views.programs.iter().for_each(|one| family.sample(&[&one.name], one.restarts));
    let help = "Whether a host of the fabric is up.";
    let mut family = all.family(up, "ringway_host_up", help, &["host"]);
    views.hosts.iter().for_each(|one| family.flag(&[&one.name], one.state == "up"));
    let help = "Whether all functions of a chain run or start with the first frame.";
    let mut family = all.family(up, "ringway_chain_up", help, &["chain"]);
    views.chains.iter().for_each(|one| family.flag(&[&one.name], one.state == "up"));
}

fn whole(views: &Views, all: &mut Exposition) {
    let fabric = &views.fabric;
    let help = "The fabric, with the version of the program that serves it.";
    let mut family = all.family(Type::Gauge, "ringway_fabric_info", help, &["version"]);
    family.sample(&[&fabric.version], 1);
    let help = "Time since the fabric came up or its control process was started again.";
    all.family(Type::Gauge, "ringway_fabric_uptime_seconds", help, &[]).seconds(&[], fabric.uptime);
    let help = "Whether the data process runs.";
    all.family(Type::Gauge, "ringway_data_up", help, &[]).flag(&[], fabric.data_pid != 0);
    let help = "How often the data process was started again.";
    all.family(Type::Counter, "ringway_data_restarts_total", help, &[]).sample(&[], fabric.restarts);
}

fn workers(views: &Views, all: &mut Exposition) {
    let (workers, labels) = (&views.fabric.workers, &["worker"]);
    let help = "Queues that a worker serves.";
    let mut family = all.family(Type::Gauge, "ringway_worker_queues", help, labels);
    workers.iter().for_each(|worker| family.sample(&[&worker.name], worker.queues));
    let help = "Queues that a worker polls now.";
    let mut family = all.family(Type::Gauge, "ringway_worker_active_queues", help, labels);
    workers.iter().for_each(|worker| family.sample(&[&worker.name], worker.active));
    let help = "Turns of a worker since the data process began.";
    let mut family = all.family(Type::Counter, "ringway_worker_turns_total", help, labels);
    workers.iter().for_each(|worker| family.sample(&[&worker.name], worker.turns));
    let help = "How often a worker went to sleep since the data process began.";
    let mut family = all.family(Type::Counter, "ringway_worker_sleeps_total", help, labels);
    workers.iter().for_each(|worker| family.sample(&[&worker.name], worker.sleeps));
    let help = "Time of a worker's turns in which frames moved, since the data process began.";
    let mut family = all.family(Type::Counter, "ringway_worker_busy_seconds_total", help, labels);
    workers.iter().for_each(|worker| family.seconds(&[&worker.name], worker.busy));
    let help = "Whether a worker is blocked by a peer, or has another problem that `ringway ps` shows.";
    let mut family = all.family(Type::Gauge, "ringway_worker_impaired", help, labels);
    workers.iter().for_each(|worker| family.flag(&[&worker.name], !worker.note.is_empty()));
}

fn switches(views: &Views, all: &mut Exposition) {
    let switches = &views.fabric.switches;
    let help = "A switch, with its lookup.";
    let mut family = all.family(Type::Gauge, "ringway_switch_info", help, &["switch", "lookup"]);
    switches.iter().for_each(|switch| family.sample(&[&switch.name, &switch.lookup], 1));
    let help = "Ports of a switch.";
    let mut family = all.family(Type::Gauge, "ringway_switch_ports", help, &["switch"]);
    switches.iter().for_each(|switch| family.sample(&[&switch.name], switch.ports.len()));
    let help = "Flows of a switch with flow tables.";
    let mut family = all.family(Type::Gauge, "ringway_switch_flows", help, &["switch"]);
    switches.iter().for_each(|switch| {
        switch.flows.iter().for_each(|count| family.sample(&[&switch.name], count));
    });
    let help = "Addresses that a switch knows.";
    let mut family = all.family(Type::Gauge, "ringway_switch_addresses", help, &["switch"]);
    views.addresses.iter().for_each(|(switch, count)| family.sample(&[switch], count));
}

fn guests(views: &Views, all: &mut Exposition) {
    let help = "A guest, with its kind.";
    let mut family = all.family(Type::Gauge, "ringway_guest_info", help, &["guest", "kind"]);
    views.guests.iter().for_each(|guest| family.sample(&[&guest.name, &guest.kind], 1));
    let help = "Whether a guest runs.";
    let mut family = all.family(Type::Gauge, "ringway_guest_up", help, &["guest"]);
    views.guests.iter().for_each(|guest| family.flag(&[&guest.name], guest.state == "running"));
}

fn functions(views: &Views, all: &mut Exposition) {
    let help = "A function, with what separates it from the rest of the fabric.";
    let mut family = all.family(Type::Gauge, "ringway_function_info", help, &["function", "isolation"]);
    views.functions.iter().for_each(|one| family.sample(&[&one.name, &one.isolation], 1));
    let help = "Whether a function runs, or starts when it is needed.";
    let mut family = all.family(Type::Gauge, "ringway_function_up", help, &["function"]);
    let is_up = |state: &str| matches!(state, "running" | "draining" | "dormant");
    views.functions.iter().for_each(|one| family.flag(&[&one.name], is_up(&one.state)));
    let help = "How often a function was started again by itself since it was started.";
    let mut family = all.family(Type::Counter, "ringway_function_restarts_total", help, &["function"]);
    views.functions.iter().for_each(|one| family.sample(&[&one.name], one.restarts));
}
