//! `instances` in `[function.NAME]`: functions that multiply under load.

use super::desired::Fabric;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Function, Instance, InstanceEnd, Instances, Isolation, MOST_INSTANCES};

/// The parameters that each instance has in addition to the file's.
pub const PARAMETERS: [&str; 3] = ["INSTANCE", "INSTANCES", "INSTANCE_PORTS"];
/// Ports that are shared among the instances.
const PORTS: (u32, u32) = (1024, 65_536);
/// Flows that are remembered by default, and at least and at most.
const FLOWS: (u32, u64, u64) = (1 << 17, 64, 1 << 24);
const SECOND: u64 = 1_000_000_000;
/// Nanoseconds that frames of an instance wait for a full port, or for one that another worker has locked: instances
/// of several workers contend for their neighbours' ports, and a worker may be preempted meanwhile.
pub const HOLD: u64 = SECOND / 10;
/// The longest of the times.
const HOUR: u64 = 3600 * SECOND;

/// Reads the table.
pub fn instances(section: &mut Section<'_>, function: &str) -> Option<Instance> {
    let mut table = section.table("instances", "{ min = 1, max = 4 }")?;
    let most = u64::from(MOST_INSTANCES);
    let max = table.number("max", 1..=most);
    if max.is_none() && !table.has("max") {
        table.missing("max", "add max = 4");
    }
    let min = table.number("min", 1..=most).unwrap_or(1);
    if let Some(max) = max.filter(|max| min > *max) {
        table.error("min", format!("`min` is {min}"), format!("`max` is {max}: use up to that"));
    }
    let flows = table.number("flows", FLOWS.1..=FLOWS.2).map_or(FLOWS.0, |flows| flows as u32);
    let idle = table.duration("idle", SECOND..=HOUR, "60s").unwrap_or(60 * SECOND);
    let shrink = table.duration("shrink", SECOND / 10..=HOUR, "10s").unwrap_or(10 * SECOND);
    let drain = table.duration("drain", SECOND..=HOUR, "300s").unwrap_or(300 * SECOND);
    table.finish(|_| None);
    let (min, max) = (min as u16, max? as u16);
    let instances = Instances { min, max, flows, idle, shrink, drain };
    Some(Instance { of: function.into(), number: 1, instances })
}

/// Checks the functions that multiply: each is in a chain, and its parameters have other names than an instance's.
pub fn check<'f>(functions: impl IntoIterator<Item = &'f Function>, diagnostics: &Diagnostics) {
    for function in functions.into_iter().filter(|function| function.instance.is_some()) {
        let name = &function.name;
        let at = |key: &str| diagnostics.of(&format!("function.{name}.{key}"));
        if !function.chained {
            let fix = "its flows are shared among instances where it is in a chain: [chain.NAME]";
            diagnostics.error(&at("instances"), format!("function {name} is in no chain"), fix);
        }
        if function.core.is_some() {
            let what = format!("all instances of function {name} would have one core");
            diagnostics.error(&at("core"), what, "leave `core` out");
        }
        for (index, (parameter, _)) in function.parameters.iter().enumerate() {
            if PARAMETERS.contains(&&**parameter) {
                let what = format!("each instance of function {name} has its own {parameter}");
                diagnostics.error(&at(&format!("parameters.{index}")), what, "give it another name");
            }
        }
    }
}

/// Gives every instance its parameters, and adds the further ones. Those have no configuration yet.
pub fn multiply(fabric: &mut Fabric) {
    let mut further = Vec::new();
    for function in &mut fabric.functions {
        let Some(own) = function.instance.clone().filter(|_| function.chained) else { continue };
        for number in 2..=own.instances.max {
            let mut other = Function {
                name: Instance::name(&own.of, number),
                // The first instance starts them.
                start: false,
                first_frame: false,
                instance: Some(Instance { number, ..own.clone() }),
                ..function.clone()
            };
            other.parameters.extend(parameters(number, own.instances.max));
            further.push(other);
        }
        function.parameters.extend(parameters(1, own.instances.max));
    }
    fabric.functions.extend(further);
}

/// The parameters of an instance.
fn parameters(number: u16, max: u16) -> [(String, String); 3] {
    let share = (PORTS.1 - PORTS.0) / u32::from(max);
    let first = PORTS.0 + share * u32::from(number - 1);
    let values = [number.to_string(), max.to_string(), format!("{first}-{}", first + share - 1)];
    let mut values = values.into_iter();
    PARAMETERS.map(|name| (name.into(), values.next().unwrap_or_default()))
}

/// Gives further instances the configurations of the first ones.
pub fn copy_configurations(fabric: &mut Fabric) {
    let first: Vec<Function> =
        fabric.functions.iter().filter(|one| one.instance.is_some()).cloned().collect();
    for function in fabric.functions.iter_mut().filter(|function| function.is_further_instance()) {
        let of = function.instance.as_ref().map(|instance| &instance.of);
        let found = first.iter().find(|first| Some(&first.name) == of);
        found.into_iter().for_each(|first| function.configuration.clone_from(&first.configuration));
    }
}

/// The end `side` of an instance.
pub fn end(function: &Function, side: usize) -> Option<InstanceEnd> {
    let Instance { of, number, instances } = function.instance.clone()?;
    let Instances { flows, idle, drain, .. } = instances;
    Some(InstanceEnd { of, number: number - 1, side: side as u16, flows, idle, drain })
}

/// The worker of an instance's ends, if the first one's is `worker`: instances in the data process are on different
/// workers, as long as there are enough.
pub fn worker(fabric: &Fabric, function: &Function, worker: Option<&String>) -> Option<String> {
    let further = function.instance.as_ref().map_or(0, |instance| usize::from(instance.number - 1));
    let worker = worker?;
    if function.isolation != Isolation::Worker || further == 0 {
        return Some(worker.clone());
    }
    let first = fabric.workers.iter().position(|own| own.name == *worker).unwrap_or(0);
    fabric.workers.get((first + further) % fabric.workers.len()).map(|worker| worker.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Host, read};

    const FILE: &str = "[port.a]\nkind='null'\n[port.b]\nkind='null'\n[worker.v]\n[worker.w]\nports=['a']\n\
        [chain.c]\nports=['a','b']\nfunctions=['f']\n[function.f]\nports=['l','r']\nisolation='worker'\n\
        click='FromPort(l) -> ToPort(r); FromPort(r) -> ToPort(l);'\ninstances={max=3}\n";

    fn fabric(text: &str) -> Result<Fabric, String> {
        let host = Host { cores: vec![0], ..Host::default() };
        read("f", text, &host).map_err(|problems| problems.to_string())
    }

    #[test]
    fn instances_have_ends_parameters_and_workers_of_their_own() {
        let fabric = fabric(FILE).unwrap();
        let names: Vec<&str> = fabric.functions.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["f", "f/2", "f/3"]);
        assert_eq!(fabric.functions[1].parameters[2].1, "22528-44031");
        assert_eq!(fabric.functions[2].parameters[2].1, "44032-65535");
        let port = |name: &str| fabric.port(name).unwrap().clone();
        let workers: Vec<_> =
            ["f.l", "f/2.l", "f/3.r"].iter().map(|name| port(name).worker.unwrap()).collect();
        assert_eq!(workers, ["w", "v", "w"]);
        assert_eq!(port("f/2.r").to, port("f.r").to);
        assert_eq!(port("f/3.r").instance.map(|end| (end.number, end.side)), Some((2, 1)));
    }

    #[test]
    fn wrong_tables_are_errors() {
        let wrong = |from: &str, to: &str| fabric(&FILE.replace(from, to)).unwrap_err();
        let about = |text: String, what: &str| assert!(text.contains(what), "{text}");
        about(wrong("{max=3}", "{min=4,max=3}"), "`min` is 4; `max` is 3: use up to that");
        about(wrong("{max=3}", "{max=17}"), "`max` is 17; use a value from 1 to 16");
        about(wrong("{max=3}", "{min=1}"), "max = 4");
        about(wrong("{max=3}", "{max=2}\ncore=0"), "core");
        about(wrong("{max=3}", "{max=2}\nparameters={INSTANCE='3'}"), "has its own INSTANCE");
        about(
            wrong("[chain.c]\nports=['a','b']\nfunctions=['f']", "[patch.p]\nports=['a','b']"),
            "in no chain",
        );
    }
}
