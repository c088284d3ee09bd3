//! Requests to the fabrics of the examples, at random: the saved file describes what runs.

use super::*;
use crate::change;
use crate::file::{
    Host, Outside, describe_function, read, read_function, table_name, table_of, with_port, with_switch,
    without_port, without_switch,
};
use proptest::prelude::*;
use ringway_spec::{Isolation, Port, To};
use serde_json::{Map, Value as Json, json};
use std::path::{Path, PathBuf};

fn host() -> Host {
    let run = Some(PathBuf::from("/run/ringway/saved"));
    Host { cores: vec![0, 1], run, ..Host::default() }
}

fn described(text: &str) -> Fabric {
    let fabric = read("saved.toml", text, &host()).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    fabric.resolve(Path::new("/run/ringway/saved"), Path::new("/saved"))
}

fn files() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples =
        std::fs::read_dir(root.join("../../../examples")).unwrap().map(|entry| entry.unwrap().path());
    let own = ["tests/file/good.toml", "tests/formats/fabric.toml"].map(|own| root.join(own));
    let all = examples.filter(|path| path.extension().is_some_and(|end| end == "toml")).chain(own);
    let mut all: Vec<PathBuf> = all.collect();
    all.sort();
    all.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

fn keys(keys: Json) -> Map<String, Json> {
    let Json::Object(keys) = keys else { unreachable!() };
    keys
}

fn pick<T>(all: &[T], number: usize) -> Option<&T> {
    all.get(number % all.len().max(1))
}

/// A fabric as requests have changed it.
struct Changed {
    running: Fabric,
    added: Added,
}

impl Changed {
    fn add_switch(&mut self, number: usize) {
        let name = format!("added{}", number % 4);
        let keys = keys(json!({ "name": name, "ageing": "7s" }));
        let Ok(target) = with_switch(keys.clone(), &self.running, &host(), &outside()) else { return };
        self.running = target;
        self.added.extend(table_of("switch", keys));
    }

    fn add_port(&mut self, number: usize) {
        let name = format!("new{}", number % 5);
        let Some(switch) = pick(&self.running.switches, number) else { return };
        let mut own = keys(json!({ "name": name, "kind": "ring", "socket": format!("{name}.sock") }));
        own.insert("switch".into(), json!(switch.name));
        own.insert("hold".into(), if number.is_multiple_of(2) { Json::Null } else { json!("7us") });
        if number.is_multiple_of(3) {
            own.insert("link".into(), json!({ "delay": "3ms" }));
        }
        let Ok(target) = with_port(own.clone(), &self.running, &host(), &outside()) else { return };
        self.running = target;
        self.added.extend(table_of("port", own));
    }

    fn remove(&mut self, number: usize) {
        let switch = pick(&self.running.switches, number).map(|switch| switch.name.clone());
        if let Some(target) = switch.as_ref().and_then(|name| without_switch(name, &self.running).ok()) {
            self.running = target;
            self.added.remove(&table_name("switch", &switch.unwrap_or_default()));
        }
        let port = pick(&self.running.ports, number).map(|port| port.name.clone());
        if let Some(target) = port.as_ref().and_then(|name| without_port(name, &self.running).ok()) {
            self.running = target;
            self.added.remove(&table_name("port", &port.unwrap_or_default()));
        }
    }

    fn set_link(&mut self, number: usize) {
        let is_link = |port: &&mut Port| link::of(port).is_some();
        let mut all: Vec<&mut Port> = self.running.ports.iter_mut().filter(is_link).collect();
        let index = number % all.len().max(1);
        let Some(port) = all.get_mut(index) else { return };
        let Some((_, _, mut settings)) = link::of(port) else { return };
        match number % 3 {
            0 => drop(settings.remove("delay")),
            1 => drop(settings.insert("loss".into(), "2%".into())),
            _ => drop(settings.insert("delay".into(), format!("{}ms", number % 50))),
        }
        **port = link::with(port, settings);
    }

    fn set_port(&mut self, number: usize) {
        let Some(port) = pick(&self.running.ports, number).map(|port| port.name.clone()) else { return };
        // The port of a host or program has no table, which `differences` would say.
        let running = &self.running;
        let is_of_program = running.programs.iter().any(|program| program.port == port);
        if is_of_program || running.host(&port).is_some() {
            return;
        }
        let mirrored = pick(&self.running.ports, number / 6).map(|port| port.name.clone());
        let changes = match number % 6 {
            5 => json!({ "mirror": [mirrored], "mirror-vlans": [1, "3-4"], "mirror-snap": 64 + number % 9 }),
            4 => {
                json!({
                    "rate-from": "100Mb/s",
                    "burst-from": "1MB",
                    "rate-to": "3kbit",
                    "storm": "1500pps",
                    "learn-rate": 9, "reassembly": true
                })
            }
            0 => json!({ "tag": number % 9 + 1 }),
            1 if number.is_multiple_of(2) => json!({ "service-tag": number % 9 + 1 }),
            1 => json!({ "trunks": [number % 9 + 1, "20-29"], "native": 20, "vlan-protocol": "802.1ad" }),
            2 => {
                json!({
                    "isolated": true,
                    "allow": ["10.0.0.2", "2001:db8::/64"],
                    "allow-mac": "02:00:00:00:00:01"
                })
            }
            _ => json!({ "tag": null, "trunks": null, "isolated": null, "allow": null, "allow-mac": null }),
        };
        // A port that is not on a switch has none.
        if let Ok(target) = policy::with_port_keys(&port, keys(changes), &self.running) {
            self.running = target;
        }
    }

    fn create_function(&mut self, number: usize) {
        let is_on_switch =
            |port: &&Port| port.kind.name() == "ring" && matches!(port.to, Some(To::Switch(_)));
        let ports: Vec<String> =
            self.running.ports.iter().filter(is_on_switch).map(|port| port.name.clone()).collect();
        let Some(port) = pick(&ports, number) else { return };
        let name = format!("f{}", number % 3);
        let own =
            json!({ "name": name, "ports": [port], "click": "Idle;\n// \"quoted\" '''", "memory": 64 << 20 });
        let new = describe_function(keys(own)).unwrap();
        let table = new.table().to_string();
        let Ok(function) = read_function(new, &mut self.running, &host()) else { return };
        self.added.insert(table_name("function", &name), table);
        self.running.functions.push(function);
    }

    fn change_function(&mut self, number: usize) {
        let is_own = |function: &&mut Function| {
            function.instance.is_none()
                && function.program.is_none()
                && function.isolation != Isolation::Worker
        };
        let mut all: Vec<&mut Function> = self.running.functions.iter_mut().filter(is_own).collect();
        let index = number % all.len().max(1);
        let Some(function) = all.get_mut(index) else { return };
        if number.is_multiple_of(2) || function.chained {
            let text = format!("Idle -> Discard; // {number}\n");
            function.configuration =
                ringway_spec::Configuration { file: None, source: Some("here".into()), text };
        } else {
            let name = function.name.clone();
            self.running.functions.retain(|function| function.name != name);
            self.added.remove(&table_name("function", &name));
        }
    }

    fn carrier(&mut self, number: usize) {
        let index = number % self.running.ports.len().max(1);
        let Some(port) = self.running.ports.get_mut(index) else { return };
        let kind = kinds::find(port.kind.name(), &[]).unwrap();
        if let Some(changed) = kind.with_carrier(port, number.is_multiple_of(2)) {
            *port = changed;
        }
    }
}

fn outside() -> Outside<'static> {
    Outside {
        folder: Path::new("/saved"),
        read: &|_| Ok(Vec::new()),
        look: &|_| Err(std::io::ErrorKind::NotFound.into()),
        own: &|_| Ok(()),
        check: &|_| Vec::new(),
    }
}

/// The differences between the saved file and what runs.
fn differences(text: &str, changed: &Changed) -> (Vec<String>, String) {
    let known = described(text);
    let saved = edited(text, (&known, &changed.running), &changed.added, &[]).unwrap();
    let target = described(&saved);
    let there = change::between(&changed.running, &target, &[]);
    let back = change::between(&target, &changed.running, &[]);
    (there.iter().chain(&back).map(ToString::to_string).collect(), saved)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_saved_file_describes_what_runs(
        which in any::<prop::sample::Index>(),
        requests in prop::collection::vec((0_usize..8, 0_usize..1000), 0..12),
    ) {
        let files = files();
        let text = &files[which.index(files.len())];
        let mut changed = Changed { running: described(text), added: Added::new() };
        for (what, number) in &requests {
            match what {
                0 => changed.add_switch(*number),
                1 => changed.add_port(*number),
                2 => changed.remove(*number),
                3 => changed.set_link(*number),
                4 => changed.create_function(*number),
                5 => changed.change_function(*number),
                6 => changed.carrier(*number),
                _ => changed.set_port(*number),
            }
        }
        let (differences, saved) = differences(text, &changed);
        prop_assert!(differences.is_empty(), "{differences:?}\n{saved}");
    }
}

#[test]
fn a_file_that_still_describes_what_runs_stays_as_it_is() {
    for text in files() {
        let changed = Changed { running: described(&text), added: Added::new() };
        assert_eq!(differences(&text, &changed), (Vec::new(), text));
    }
}

#[test]
fn comments_and_other_tables_stay() {
    let text = "# Ours.\n[switch.main] # the only one\n\n# Out.\n[port.left]\n\
        kind = \"null\"\nswitch = \"main\"\n\n\
        # In.\n[port.right]\nkind = \"null\"\nswitch = \"main\"\nlink = { delay = \"1ms\" } # slow\n\n\
        [worker.w]\nports = [\"left\", \"right\"]\n";
    let mut changed = Changed { running: described(text), added: Added::new() };
    changed.running = without_port("left", &changed.running).unwrap();
    for port in &mut changed.running.ports {
        if let Some((_, _, mut settings)) = link::of(port) {
            settings.insert("delay".into(), "5ms".into());
            *port = link::with(port, settings);
        }
    }
    let (differences, saved) = differences(text, &changed);
    assert!(differences.is_empty(), "{differences:?}\n{saved}");
    for part in
        ["# Ours.\n[switch.main] # the only one\n", "# In.\n[port.right]\n", "delay = \"5ms\"", "# slow"]
    {
        assert!(saved.contains(part), "{part} is not in {saved}");
    }
    assert!(!saved.contains("left"), "{saved}");
}
