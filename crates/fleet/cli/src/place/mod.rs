//! `ringway place`.

pub mod arguments;
mod drain;
mod kubernetes;
mod operate;
mod output;
mod save;
mod show;
mod simulate;
mod source;
mod store;

pub use save::replace;

use crate::arguments::Target;
use crate::command_error::CommandError;
use crate::text;
use arguments::{PlaceArguments, PlaceCommand, Vms};
use ringway_place::object::{Vm, VmStatus};
use ringway_scheduler::plugins::Options;
use ringway_scheduler::{BalanceRequest, ExplainView, FactPush, PlaceRequest, WhyNotRequest};
use source::Source;

/// Runs `ringway place`.
pub fn place(target: &Target, json: bool, arguments: PlaceArguments) -> Result<(), CommandError> {
    let plugins = source::options(&arguments.plugins, arguments.unconfined);
    let inventory = arguments.inventory.as_deref();
    if let PlaceCommand::Simulate(options) = &arguments.command {
        return simulate::simulate(options, inventory, plugins, json);
    }
    if let PlaceCommand::Store { store, command } = arguments.command {
        return store::store(target, store, command, json);
    }
    if let PlaceCommand::Kubernetes(options) = arguments.command {
        return kubernetes::serve(target, inventory, plugins, options);
    }
    let command = arguments.command;
    if let Some(why) = inventory.and_then(|_| command.needs_a_fabric()) {
        return Err(CommandError::Failed(why.into()));
    }
    let mut source = Source::of(target, inventory, plugins, &command)?;
    let changed = inventory.filter(|_| command.changes_objects());
    let before = changed.map(|file| save::InventoryBefore::of(file, &source)).transpose()?;
    let done = ask(&mut source, command, arguments.unconfined, json);
    // What a command did before it failed is saved too.
    match before {
        Some(before) => before.save(&source).and(done),
        None => done,
    }
}

/// Runs commands that send a request to placement, in a fabric or in this process.
fn ask(source: &mut Source, command: PlaceCommand, unconfined: bool, json: bool) -> Result<(), CommandError> {
    match command {
        PlaceCommand::Run(vms) => {
            let request = request(source, vms)?;
            let decision = source.place(request)?;
            output::decision(&decision, json)
        }
        PlaceCommand::Try(vms) => {
            let request = request(source, vms)?;
            let explained = source.attempt(request)?;
            output::attempt(&explained, json)
        }
        PlaceCommand::WhyNot { vm, host, policy } => {
            let request = PlaceRequest { vms: vec![vm], policy, ..PlaceRequest::default() };
            output::why_not(&source.why_not(WhyNotRequest { host, request })?, json);
            Ok(())
        }
        PlaceCommand::Explain { what, host } => explain(source, &what, host.as_deref(), json),
        PlaceCommand::Decisions { count } => {
            output::decisions(&source.decisions(count)?, json);
            Ok(())
        }
        PlaceCommand::Start { guest } => output::decision(&source.start(&guest)?, json),
        PlaceCommand::Confirm { vms } => vms.iter().try_for_each(|vm| source.vm(vm, "confirm")),
        PlaceCommand::Release { vms } => vms.iter().try_for_each(|vm| source.vm(vm, "release")),
        PlaceCommand::Balance { cluster, dry_run, rounds, last } => {
            let request = BalanceRequest { cluster, dry_run, rounds, ..BalanceRequest::default() };
            let steps = if last { source.last_rounds()? } else { source.balance(request)? };
            output::balance(&steps, json);
            Ok(())
        }
        PlaceCommand::Hosts => {
            output::hosts(&source.hosts()?, json);
            Ok(())
        }
        PlaceCommand::Policies { units: true } => {
            output::units(&source.units()?, json);
            Ok(())
        }
        PlaceCommand::Policies { units: false } => {
            output::policies(&source.policies()?, json);
            Ok(())
        }
        PlaceCommand::Put { file } => {
            let objects = source::read(&file, &source.beside()?)?;
            let count = objects.len();
            let revision = source.put(objects)?;
            if json {
                text::json(&revision);
            } else {
                println!("{count} objects are in, revision {}", revision.revision);
            }
            Ok(())
        }
        PlaceCommand::Plugins { folders, none } => {
            attach(source, source::options(&folders, unconfined), none, json)
        }
        PlaceCommand::Fact { host, name, value, ttl } => {
            let push = FactPush { host, name, value, ttl: ttl.map(|seconds| seconds.saturating_mul(1000)) };
            source.facts(vec![push]).map(drop)
        }
        PlaceCommand::Simulate(_) | PlaceCommand::Kubernetes(_) => Ok(()),
        command => operate::operate(source, command, json),
    }
}

fn explain(source: &mut Source, what: &str, host: Option<&str>, json: bool) -> Result<(), CommandError> {
    let (explained, note) = explained(source, what)?;
    if let (Some(note), false) = (note, json) {
        println!("{note}");
    }
    output::explain(&explained, host, json)
}

/// Largest number of decisions that are searched for one about a VM.
const MAX_SEARCHED: usize = 10_000;

/// The explanation of a decision, by its number or by a VM, and a note for people.
fn explained(source: &mut Source, what: &str) -> Result<(ExplainView, Option<String>), CommandError> {
    let known = source.vms()?.into_iter().find(|view| view.vm.name == what);
    let Some(known) = known else {
        return match what.parse() {
            Ok(id) => Ok((source.explain(id)?, None)),
            // The request names the similar VM.
            Err(_) => Ok((source.attempt(of_vm(what))?, None)),
        };
    };
    let newest = source
        .decisions(MAX_SEARCHED)?
        .into_iter()
        .find(|decision| decision.choices.iter().any(|choice| choice.vms.iter().any(|vm| vm == what)));
    if let Some(decision) = newest {
        return Ok((source.explain(decision.id)?, None));
    }
    let place = match known.vm.host.filter(|_| known.vm.status != VmStatus::Down) {
        Some(host) => format!("{what} runs on {host}, without a decision"),
        None => format!("{what} was not placed yet"),
    };
    let explained = source.attempt(PlaceRequest { stay: true, ..of_vm(what) })?;
    Ok((explained, Some(format!("{place}; this would be decided now:"))))
}

fn of_vm(vm: &str) -> PlaceRequest {
    PlaceRequest { vms: vec![vm.into()], ..PlaceRequest::default() }
}

/// Attaches plugin folders, or shows the attached ones.
fn attach(source: &mut Source, plugins: Options, none: bool, json: bool) -> Result<(), CommandError> {
    if plugins.is_empty() && !none {
        output::attached(&source.attached()?, json);
        return Ok(());
    }
    output::units(&source.plugins(plugins)?, json);
    source.warn()
}

/// Builds the request; `--cpus` and `--memory` describe VMs that placement does not know.
fn request(source: &mut Source, vms: Vms) -> Result<PlaceRequest, CommandError> {
    let mut request = PlaceRequest {
        policy: vms.policy,
        only: vms.only.into_iter().collect(),
        without: vms.without.into_iter().collect(),
        seed: vms.seed,
        ..PlaceRequest::default()
    };
    if vms.cpus.is_none() && vms.memory.is_none() {
        request.vms = vms.vms;
        return Ok(request);
    }
    let known: Vec<String> = source.vms()?.into_iter().map(|view| view.vm.name).collect();
    for name in vms.vms {
        if known.contains(&name) {
            return Err(CommandError::Failed(format!("VM {name} is known; leave --cpus and --memory out")));
        }
        let standard = Vm::default();
        request.new.push(Vm {
            name,
            cores: vms.cpus.unwrap_or(standard.cores),
            memory_mb: vms.memory.unwrap_or(standard.memory_mb),
            ..standard
        });
    }
    Ok(request)
}
