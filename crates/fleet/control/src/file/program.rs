//! `[program.NAME]`.

use super::{Fabric, external_names};
use crate::kinds::ring;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{ExecProgram, ProgramStack, Restart, Socket, To, addresses, names};
use std::path::PathBuf;

/// The controllers of the native stack.
const CONTROLLERS: &[(&str, &str)] =
    &[("bbr", "bbr"), ("bbr3", "bbr3"), ("cubic", "cubic"), ("reno", "reno"), ("dctcp", "dctcp")];
/// Most words of a command, and settings and variables.
const WORDS: usize = 1024;

/// Reads a program. On a switch it has a port of its own, of the program's name.
pub fn program(mut section: Section<'_>, diagnostics: &Diagnostics, fabric: &mut Fabric) {
    let Some(name) = section.path.strip_prefix("program.").map(String::from) else { return };
    let command = command(&mut section);
    let port = section.string("port", "a");
    let switch = section.string("switch", "main");
    let own: Vec<_> = addresses_of(&mut section);
    let gateways = gateways_of(&mut section, &own);
    let dns = section.strings("dns", "[\"10.0.0.1\"]").unwrap_or_default();
    let dns = dns
        .iter()
        .enumerate()
        .filter_map(|(at, text)| section.checked(&format!("dns.{at}"), addresses::server(text)));
    let dns = dns.collect();
    let stack = section.word("stack", ProgramStack::ALL).unwrap_or_default();
    let cc = match stack {
        ProgramStack::Native => section.word("cc", CONTROLLERS).map(String::from),
        ProgramStack::Kernel | ProgramStack::Linux => section.string("cc", "cubic"),
    };
    let writable = section.strings("writable", "[\"/srv/www\"]").unwrap_or_default();
    if !writable.is_empty() && stack != ProgramStack::Linux {
        let what = "`writable` is for programs with stack = \"linux\", whose files are read-only otherwise";
        section.error("writable", what, "take it out, or write stack = \"linux\"");
    }
    let direct = section.boolean("direct").unwrap_or_default();
    if direct && stack != ProgramStack::Native {
        let what = "`direct` is for programs with stack = \"native\"";
        section.error("direct", what, "take it out, or write stack = \"native\"");
    }
    let user = section.parsed("user", "www-data", |text| names::account(text).map(String::from));
    let program = ExecProgram {
        command,
        addresses: own,
        gateways,
        dns,
        mtu: section.number("mtu", 1280..=65_521).unwrap_or(1500) as u16,
        stack,
        direct,
        writable: writable.into_iter().map(PathBuf::from).collect(),
        cc,
        sysctls: sysctls(&mut section),
        folder: section.string("folder", "/srv/www").map(PathBuf::from),
        environment: environment(&mut section),
        restart: section.word("restart", Restart::ALL).unwrap_or_default(),
        nofile: section.number("nofile", 16..=1 << 20),
        memory: section.size("memory", 1 << 20..=1 << 40),
        cpu: section.number("cpu", 1..=1 << 30),
        start: section.boolean("start").unwrap_or(true),
        port: port.clone().unwrap_or_else(|| name.clone()),
        name,
        user,
    };
    match (section.has("port"), section.has("switch")) {
        (true, true) => {
            let what = format!("{} has a `port`, and a `switch`", section.path);
            section.error("switch", what, "keep one: the port says where it leads");
        }
        (false, false) => section.missing("port", "add port = \"NAME\" of a ring port, or switch = \"NAME\""),
        _ => {}
    }
    add(&section, diagnostics, fabric, (program, port.is_some(), switch));
    section.finish(|key| match key {
        "run" | "program" | "exec" | "arguments" => {
            Some("write command = [\"nginx\", \"-g\", \"daemon off;\"]".into())
        }
        "env" => Some("write environment = { NAME = \"value\" }".into()),
        "directory" | "cwd" | "workdir" => Some("write folder = \"/srv/www\"".into()),
        "image" | "click" | "config" => Some("that is a function: [function.NAME]".into()),
        _ => None,
    });
}

/// Adds a program, and the port that it has of its own on a switch.
fn add(
    section: &Section<'_>,
    diagnostics: &Diagnostics,
    fabric: &mut Fabric,
    (program, has_port, switch): (ExecProgram, bool, Option<String>),
) {
    match switch {
        _ if has_port => fabric.programs.push(program),
        Some(_) if fabric.port(&program.name).is_some() => {
            let what = format!("there is a port {} too, and a program's own port has its name", program.name);
            diagnostics.error(&section.at, what, "rename one, or write `port` in place of `switch`");
        }
        Some(switch) => {
            let path = PathBuf::from(format!("{}.sock", program.name));
            let socket = Socket { path, owner: program.user.clone(), group: None, mode: None };
            fabric.ports.push(ring::of_function(&program.name, Some(socket), To::Switch(switch)));
            fabric.programs.push(program);
        }
        // The missing key was reported.
        None => {}
    }
}

fn command(section: &mut Section<'_>) -> Vec<String> {
    let example = "[\"nginx\", \"-g\", \"daemon off;\"]";
    let words = section.words("command", example);
    match words.as_ref().map(|words| words.first()) {
        None if section.has("command") => {}
        None => section.missing("command", &format!("add command = {example}")),
        Some(None) => {
            section.error("command", "a command without a program", format!("write command = {example}"));
        }
        Some(Some(first)) if first.is_empty() => section.error("command.0", "\"\" is no program", "name one"),
        Some(Some(_)) => {}
    }
    let words = words.unwrap_or_default();
    if words.len() > WORDS {
        section.error(
            "command",
            format!("a command of {} words", words.len()),
            format!("use {WORDS} at most"),
        );
    }
    for (at, _) in words.iter().enumerate().filter(|(_, word)| word.contains('\0')) {
        section.error(&format!("command.{at}"), "a word with a zero byte", "take it out");
    }
    words
}

fn addresses_of(section: &mut Section<'_>) -> Vec<ringway_spec::IpNet> {
    let texts = section.one_or_many("address", "addresses", "10.0.0.2/24");
    if texts.is_empty() && !section.has("address") && !section.has("addresses") {
        section.missing("address", "add address = \"10.0.0.2/24\"");
    }
    let key = if section.has("addresses") { "addresses." } else { "address." };
    let read = |(at, text): (usize, &String)| {
        section.checked(&format!("{key}{at}"), addresses::interface_address(text))
    };
    texts.iter().enumerate().filter_map(read).collect()
}

fn gateways_of(section: &mut Section<'_>, own: &[ringway_spec::IpNet]) -> Vec<std::net::IpAddr> {
    let texts = section.one_or_many("gateway", "gateways", "10.0.0.1");
    let key = if section.has("gateways") { "gateways." } else { "gateway." };
    // With a wrong address, its network is not known.
    let nets = (!own.is_empty()).then_some(own);
    let read =
        |(at, text): (usize, &String)| section.checked(&format!("{key}{at}"), addresses::gateway(text, nets));
    texts.iter().enumerate().filter_map(read).collect()
}

fn sysctls(section: &mut Section<'_>) -> Vec<(String, String)> {
    let all = section.pairs("sysctl", "{ \"net.ipv4.tcp_sack\" = \"0\" }");
    for (at, (name, _)) in all.iter().enumerate() {
        // Attack: a name that leads elsewhere.
        if !name.starts_with("net.") || name.contains(['/', '=', '\0']) {
            let what = format!("\"{name}\" is not a setting of the network");
            section.error(&format!("sysctl.{at}"), what, "use one such as net.ipv4.tcp_sack");
        }
    }
    all
}

fn environment(section: &mut Section<'_>) -> Vec<(String, String)> {
    let all = section.pairs("environment", "{ NAME = \"value\" }");
    for (at, (name, value)) in all.iter().enumerate() {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let what = format!("\"{}\" can't be a variable", name.escape_debug());
            section.error(&format!("environment.{at}"), what, "use a name without `=`");
        }
    }
    all
}

/// The numbers of a user and its group, and its folder.
pub struct Account {
    pub user: u32,
    pub group: u32,
    pub home: Option<PathBuf>,
}

/// The account of this name, or number, in a text such as passwd(5).
pub fn account(name: &str, text: &str) -> Option<Account> {
    let user = external_names::number(name, text)?;
    let of = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_its = fields.get(2)?.parse() == Ok(user);
        let home = fields.get(5).map(PathBuf::from);
        is_its.then(|| Some(Account { user, group: fields.get(3)?.parse().ok()?, home }))?
    };
    // A number without a name has a group of its own.
    Some(text.lines().find_map(of).unwrap_or(Account { user, group: user, home: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_number() {
        let text = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:www:/var/www:/bin/false\n";
        let found = |name: &str| {
            account(name, text).map(|account| (account.user, account.group, account.home.unwrap_or_default()))
        };
        assert_eq!(found("web"), Some((33, 34, "/var/www".into())));
        assert_eq!(found("33"), found("web"));
        assert_eq!(found("1234"), Some((1234, 1234, PathBuf::new())));
        assert_eq!(found("nobody"), None);
    }
}
