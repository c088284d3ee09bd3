//! Functions requested at run time: `[function.NAME]` as JSON, read and checked as the table of a file is.
//!
//! The client is trusted, as the fabric file is; the configuration is not. It is therefore only checked in the
//! function's own process, which is confined: a configuration may name files, and elements may take memory and time
//! when they are configured.

use super::function::{KEYS, function, rules};
use super::{Fabric, Host, Outside, cross_checks, image, named};
use ringway_spec::file::{Diagnostics, Value as Values, parse};
use ringway_spec::{Function, names};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Functions that a fabric may have when one more is requested. Attack: requests without end.
pub const MOST: usize = 4096;

/// Longest name of a configuration's origin in bytes: Linux' `PATH_MAX`.
const LONGEST_SOURCE: usize = 4096;

/// A function that a request's keys describe, and what is wrong with them.
pub struct Described {
    function: Function,
    /// Its table as a file has it, with [`SHORT`] for a configuration's text.
    table: String,
    diagnostics: Diagnostics,
}

impl Described {
    /// Its table as a file has it, with [`SHORT`] for a configuration's text.
    pub fn table(&self) -> &str {
        &self.table
    }
}

impl fmt::Debug for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.function.name.fmt(f)
    }
}

/// The function that a request's keys describe. For keys of megabytes this takes long, and it needs no fabric.
///
/// # Errors
/// The keys describe none.
pub fn describe(mut keys: Map<String, Value>) -> Result<Described, String> {
    let Some(Value::String(name)) = keys.remove("name") else {
        return Err("the function has no `name`; add \"name\": \"...\"".into());
    };
    let source = source(keys.remove("source"))?;
    let (text, click) = file_of(&name, keys).map_err(|error| error.to_string())?;
    let diagnostics = Diagnostics::default();
    let table = parse(&text, usize::MAX, &diagnostics);
    let described = named(table.get_ref(), "function", &diagnostics).pop().and_then(function);
    let Some(mut function) = described else {
        return Err(diagnostics.into_messages(&format!("function.{name}")));
    };
    function.configuration.source = source;
    if let Some(click) = click.filter(|_| function.configuration.text == SHORT) {
        function.configuration.text = click;
    }
    Ok(Described { function, table: text, diagnostics })
}

/// The function of a request, if it can be added to `fabric`.
///
/// # Errors
/// All errors, except those of the configuration and of files.
pub fn read(described: Described, fabric: &mut Fabric, host: &Host) -> Result<Function, String> {
    let Described { function, diagnostics, .. } = described;
    has_room(fabric)?;
    is_free(&function.name, fabric)?;
    added(function, fabric, host, diagnostics)
}

/// Where a configuration comes from, as who gave it says.
///
/// # Errors
/// The value is no text, or too long. Attack: a name of megabytes in every list of functions.
pub fn source(source: Option<Value>) -> Result<Option<String>, String> {
    match source {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() <= LONGEST_SOURCE => Ok(Some(text)),
        Some(_) => Err(format!(
            "/source: it is no text of up to {LONGEST_SOURCE} bytes; name a file, or leave it out"
        )),
    }
}

fn has_room(fabric: &Fabric) -> Result<(), String> {
    let count = fabric.functions.len();
    let fix = "remove one with `ringway function destroy NAME`";
    let full = || format!("there are {count} functions, of {MOST} at most; {fix}");
    (count < MOST).then_some(()).ok_or_else(full)
}

fn is_free(name: &str, fabric: &Fabric) -> Result<(), String> {
    let is_taken = fabric.function(name).is_some() || fabric.guest(name).is_some();
    if is_taken { Err(format!("there is a function or guest {name} already")) } else { Ok(()) }
}

/// The function, if it can be added to `fabric`, and nothing is wrong with it yet.
fn added(
    function: Function,
    fabric: &mut Fabric,
    host: &Host,
    diagnostics: Diagnostics,
) -> Result<Function, String> {
    let table = format!("function.{}", function.name);
    if diagnostics.has_errors() {
        return Err(diagnostics.into_messages(&table));
    }
    fabric.functions.push(function);
    cross_checks::added_function(fabric, host, &diagnostics);
    let function = fabric.functions.pop().filter(|_| !diagnostics.has_errors());
    function.ok_or_else(|| diagnostics.into_messages(&table))
}

/// Stands for a configuration that is not empty.
pub(super) const SHORT: &str = "Idle;";

/// The keys as a file has them, and the configuration's text, for which the file has [`SHORT`]: a long text takes
/// long to write and to parse.
fn file_of(name: &str, mut keys: Map<String, Value>) -> Result<(String, Option<String>), toml::ser::Error> {
    if let Some(text) = keys.remove("configuration").filter(|_| !keys.contains_key("click")) {
        keys.insert("click".into(), text);
    }
    keys.retain(|_, value| !value.is_null());
    for key in KEYS.iter().filter(|key| matches!(key.value, Values::Size(_))) {
        let bytes = keys.get(key.name).and_then(Value::as_u64);
        keys.extend(bytes.map(|bytes| (key.name.into(), format!("{bytes}B").into())));
    }
    let click = match keys.get_mut("click") {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(std::mem::replace(text, SHORT.into())),
        _ => None,
    };
    let file = toml::to_string(&BTreeMap::from([("function", BTreeMap::from([(name, keys)]))]))?;
    Ok((file, click))
}

/// Checks a function with a configuration that comes from a snapshot or from another fabric, by the rules of a request.
///
/// # Errors
/// All errors of a request for it.
pub fn check(function: &Function, fabric: &mut Fabric, host: &Host) -> Result<(), String> {
    let name = &function.name;
    has_room(fabric)?;
    names::name(name).map_err(|(what, fix)| format!("{what}; {fix}"))?;
    is_free(name, fabric)?;
    let diagnostics = Diagnostics::of_paths(paths(function));
    let wrong = |key: &str, what: &str, fix: &str| {
        diagnostics.error(&diagnostics.of(&format!("function.{name}.{key}")), what, fix);
    };
    rules(function, &mut |key, (what, fix)| wrong(key, &what, &fix));
    if function.configuration.text.trim().is_empty() {
        wrong("click", "`click` is empty", "only a function with a configuration has snapshots, and moves");
    }
    // Attack: a description from elsewhere says what only the file of this fabric may.
    if function.chained || function.instance.is_some() || function.program.is_some() {
        wrong("", "it is a program, in a chain, or multiplies", "leave that to a fabric file");
    }
    added(function.clone(), fabric, host, diagnostics).map(drop)
}

/// The paths of its values, as a file has them.
fn paths(function: &Function) -> impl Iterator<Item = String> {
    let Function { name, ports, parameters, devices, .. } = function;
    let lists = [("ports", ports.len()), ("parameters", parameters.len()), ("devices", devices.len())];
    let entries = lists.into_iter().flat_map(|(key, count)| (0..count).map(move |at| format!("{key}.{at}")));
    let keys = KEYS.iter().map(|key| key.field().to_string()).chain(entries);
    // The checks between objects look at those that are described.
    let all = std::iter::once(format!("function.{name}"));
    all.chain(keys.map(move |key| format!("function.{name}.{key}")))
}

/// Reads the files that the function names.
///
/// # Errors
/// A file can't be read, or is no image.
pub fn load(mut function: Function, outside: &Outside<'_>) -> Result<Function, String> {
    let diagnostics = Diagnostics::default();
    if function.program.is_some() {
        image::load(&mut function, outside, &diagnostics);
    } else if let Some(file) = &function.configuration.file {
        let text = (outside.read)(&outside.folder.join(file)).map_err(|error| error.to_string());
        let text = text.and_then(|text| String::from_utf8(text).map_err(|error| error.to_string()));
        function.configuration.text = text.map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if diagnostics.has_errors() { Err(diagnostics.into_messages("")) } else { Ok(function) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::read as read_file;
    use proptest::prelude::*;
    use ringway_spec::Isolation;
    use serde_json::json;

    const FABRIC: &str = "[switch.s]\n[port.a]\nkind='ring'\nsocket='a'\nswitch='s'\n\
        [port.b]\nkind='ring'\nsocket='b'\nswitch='s'\n[port.n]\nkind='null'\nswitch='s'\n\
        [port.l]\nkind='ring'\nsocket='l'\n[port.m]\nkind='ring'\nsocket='m'\n[patch.p]\nports=['l','m']\n\
        [function.own]\nclick='Idle;'\nport='b'\n";

    fn host() -> Host {
        Host { cores: vec![0], ..Host::default() }
    }

    fn fabric() -> Fabric {
        read_file("f", FABRIC, &host()).unwrap()
    }

    /// The function of a request on port a with these keys changed.
    fn requested(changes: Value) -> Result<Function, String> {
        let mut keys = json!({ "name": "new", "configuration": "Idle;", "ports": ["a"] });
        let (Some(keys), Value::Object(changes)) = (keys.as_object_mut(), changes) else { unreachable!() };
        keys.extend(changes);
        read(describe(keys.clone())?, &mut fabric(), &host())
    }

    fn messages(changes: Value) -> String {
        requested(changes).map_or_else(|wrong| wrong, |function| function.name)
    }

    #[test]
    fn a_request_may_only_use_free_ring_ports() {
        let ports = |list: &[&str]| messages(json!({ "ports": list }));
        assert_eq!(ports(&["a"]), "new");
        let taken = "/ports/1: port b is function own's already; give each function a port of its own";
        assert_eq!(ports(&["a", "b"]), taken);
        assert_eq!(ports(&["a", "a"]), taken.replace("port b is function own's", "port a is function new's"));
        assert!(ports(&["x"]).starts_with("/ports/0: there is no port \"x\"; "));
        let kind = "/ports/0: port n is of kind null; a function's port is of kind ring";
        assert_eq!(ports(&["n"]), kind);
        assert_eq!(ports(&[]), "/ports: a function has 1 to 255 ports, not 0; name ring ports");
    }

    #[test]
    fn a_configuration_is_kept_as_it_is() {
        let long = "Idle; ".repeat(100_000);
        for text in ["Idle;", " Idle;\r\n\t", "'''\"\"\" \\ \u{1} \u{fffd}", &long] {
            for key in ["configuration", "click"] {
                let keys = json!({ "name": "new", "ports": ["a"], key: text });
                let Value::Object(keys) = keys else { unreachable!() };
                let function = read(describe(keys).unwrap(), &mut fabric(), &host()).unwrap();
                assert_eq!(function.configuration.text, text);
            }
        }
        assert!(messages(json!({ "configuration": "\n" })).contains("click"));
    }

    #[test]
    fn a_fabric_has_so_many_functions_at_most() {
        let mut fabric = fabric();
        let own = fabric.functions[0].clone();
        let new = Function { name: "new".into(), ports: vec!["a".into()], ..own.clone() };
        fabric.functions = vec![own; MOST - 1];
        assert_eq!(check(&new, &mut fabric, &host()), Ok(()));
        fabric.functions.push(fabric.functions[0].clone());
        let wrong = check(&new, &mut fabric, &host()).unwrap_err();
        assert!(wrong.starts_with("there are 4096 functions"), "{wrong}");
    }

    #[test]
    fn a_function_from_elsewhere_is_checked_as_a_request_is() {
        let vm = json!({ "isolation": "vm", "snapshots": false, "parameters": { "A": "1" } });
        let good = Function { name: "there".into(), ..requested(vm).unwrap() };
        let mut fabric = fabric();
        let before = fabric.functions.clone();
        assert_eq!(check(&good, &mut fabric, &host()), Ok(()));
        let mut wrong = |change: fn(&mut Function)| {
            let mut changed = good.clone();
            change(&mut changed);
            check(&changed, &mut fabric, &host()).unwrap_err()
        };
        let memory = "/memory: `memory` is 0B; use a value from 32MB to 2000MB";
        assert_eq!(wrong(|new| new.memory = 0), memory);
        assert!(wrong(|new| new.memory = 1 << 60).starts_with("/memory: "));
        assert_eq!(wrong(|new| new.burst = 0), "/burst: `burst` is 0; use a value from 1 to 64");
        assert!(wrong(|new| new.core = Some(9)).starts_with("/core: there is no core 9"));
        assert!(wrong(|new| new.core = Some(1 << 40)).starts_with("/core: `core` is 1099511627776; "));
        assert!(wrong(|new| new.idle = 1).contains("/idle: "));
        assert!(wrong(|new| new.isolation = Isolation::Process).starts_with("/snapshots: only a function"));
        assert!(wrong(|new| new.ports = Vec::new()).starts_with("/ports: a function has 1 to 255 ports"));
        assert!(wrong(|new| new.ports = vec!["a".into(); 256]).contains("function.there has 256 ports"));
        assert!(wrong(|new| new.ports = vec!["b".into()]).starts_with("/ports/0: port b is function own's"));
        assert!(wrong(|new| new.parameters[0].0 = "a b".into()).starts_with("/parameters/0: "));
        assert!(wrong(|new| new.devices = vec![("e".into(), "b".into())]).starts_with("/devices/0: "));
        assert!(wrong(|new| new.configuration.text = "\n".into()).starts_with("/click: `click` is empty"));
        assert!(wrong(|new| new.name = "../x".into()).starts_with("\"../x\" can't be a name"));
        assert_eq!(wrong(|new| new.name = "own".into()), "there is a function or guest own already");
        let chained = "it is a program, in a chain, or multiplies; leave that to a fabric file";
        assert!(wrong(|new| new.chained = true).contains(chained));
        assert_eq!(fabric.functions, before);
    }

    #[test]
    fn every_value_of_a_request_is_checked() {
        assert!(messages(json!({ "name": "../x" })).starts_with("\"../x\" can't be a name; use letters"));
        assert_eq!(messages(json!({ "name": "own" })), "there is a function or guest own already");
        let all = messages(json!({
            "memory": 1, "burst": 65, "core": 70_000, "isolation": "none", "parameters": { "a b": "" },
            "devices": { "eth0": "b" }, "memroy": 1, "idle": "30s",
        }));
        assert_eq!(all.lines().count(), 8, "{all}");
        for (memory, burst) in [(0, 64), (1_u64 << 60, 64), (64 << 20, 0)] {
            let wrong = messages(json!({ "memory": memory, "burst": burst }));
            assert!(wrong.contains("; use a value from "), "{memory} {burst}: {wrong}");
        }
        let memory = |isolation: &str, memory: u64| {
            messages(json!({ "isolation": isolation, "memory": memory, "core": null }))
        };
        assert_eq!(memory("vm", 16 << 20), "/memory: `memory` is 16MB; use a value from 32MB to 2000MB");
        assert_eq!(memory("vm", 4 << 30), "/memory: `memory` is 4GB; use a value from 32MB to 2000MB");
        assert_eq!(memory("process", 1 << 20), "/memory: `memory` is 1MB; use a value from 32MB to 1024GB");
        assert_eq!(
            requested(json!({ "source": "/a.click" })).unwrap().configuration.source.unwrap(),
            "/a.click"
        );
        assert!(messages(json!({ "source": "x".repeat(4097) })).starts_with("/source: "));
        assert!(messages(json!({ "source": 1 })).starts_with("/source: "));
        assert!(messages(json!({ "configuration": " \n" })).starts_with("/click: `click` is empty"));
        assert!(messages(json!({ "core": 9 })).starts_with("/core: there is no core 9"));
        assert_ne!(messages(json!({ "core": u64::MAX })), "new");
    }

    #[test]
    fn a_request_has_every_key_of_a_file() {
        let vm = requested(json!({ "isolation": "vm", "fallback": "process", "snapshots": false })).unwrap();
        assert!(vm.isolation == Isolation::Vm && vm.fallback && !vm.snapshots);
        let late = json!({ "ports": ["l"], "start": "first-frame", "idle": "30s" });
        let late = requested(late).unwrap();
        assert_eq!((late.first_frame, late.idle), (true, 30_000_000_000));
        assert!(!requested(json!({ "start": false })).unwrap().start);
        let program = json!({ "configuration": null, "image": "web.tiny", "address": "10.0.0.2/24" });
        let program = requested(program).unwrap().program.unwrap();
        assert_eq!(program.settings, [("address".to_string(), "10.0.0.2/24".to_string())]);
        assert!(messages(json!({ "start": "first-frame" })).starts_with("/start: the first frame can't"));
        assert!(messages(json!({ "fallback": "process" })).starts_with("/fallback: only a function with"));
        assert!(messages(json!({ "instances": { "max": 2 } })).contains("is in no chain"));
    }

    proptest! {
        #[test]
        fn texts_stay_as_they_are(text in "[\\PC\r\n\t\"'\\\\]{1,60}x", value in any::<String>()) {
            let function = requested(json!({ "configuration": text, "parameters": { "A": value } })).unwrap();
            prop_assert_eq!(function.configuration.text, text);
            prop_assert_eq!(&function.parameters[0].1, &value);
        }
    }

    #[test]
    fn the_schema_of_a_request_has_every_key() {
        let schema =
            serde_json::to_value(<crate::api::NewFunction as utoipa::PartialSchema>::schema()).unwrap();
        for key in KEYS {
            assert!(schema["properties"][key.field()].is_object(), "{}: {schema}", key.field());
        }
    }
}
