//! Advice for commands that other tools have: an unknown command is answered with the one that does it here.

use crate::arguments::Arguments;
use anstream::eprintln;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use std::ffi::OsString;
use std::process::exit;

/// The command below which the words are unknown, the words, and the advice.
type Row = (&'static str, &'static str, &'static str);

const ROWS: &[Row] = &[
    (
        "",
        "status st list ls show info get describe inspect",
        "`ringway ps` shows ports, guests, functions and chains, `ringway stats` their counters",
    ),
    ("", "counters metrics rates traffic", "`ringway stats --watch` shows rates, `ringway stats` counters"),
    ("", "watch monitor htop", "`ringway top` shows what uses processors, `ringway stats --watch` rates"),
    (
        "",
        "ssh attach shell sh enter xterm term iperf iperf3 mn cmd",
        "`ringway guest exec NAME COMMAND` runs a command in a guest, \
         `ringway host exec NAME -- COMMAND` in a host",
    ),
    (
        "",
        "ping pingall pingpair",
        "`ringway host ping` lets each host ping each other one; `ringway topo --ping` does so in a new \
         topology",
    ),
    ("", "events", "`ringway logs` prints what happened in the fabric, `ringway place events` in placement"),
    ("", "config", "`ringway check FILE` checks a fabric file, `ringway ps` shows what is up"),
    (
        "",
        "scale replicas",
        "set `instances` in [function.NAME] of the fabric file, then `ringway apply FILE`",
    ),
    (
        "",
        "start run boot launch create-fabric serve daemon deploy",
        "`ringway up FILE --detach` brings a fabric up; `ringway guest start NAME` and \
         `ringway function start NAME` start a part of it",
    ),
    (
        "",
        "stop kill halt quit shutdown poweroff destroy",
        "`ringway down` takes a fabric down; `ringway guest stop NAME` and `ringway function stop NAME` stop \
         a part of it",
    ),
    (
        "",
        "restart reboot",
        "`ringway guest stop NAME && ringway guest start NAME` and \
         `ringway function stop NAME && ringway function start NAME` do that",
    ),
    ("", "reload refresh update upgrade edit", "change the fabric file, then `ringway apply FILE`"),
    (
        "",
        "set change",
        "change the fabric file, then `ringway apply FILE`; `ringway link set NAME KEY=VALUE` changes a \
         link at once",
    ),
    (
        "",
        "add create new rm remove del delete",
        "change the fabric file, then `ringway apply FILE`; `ringway function create NAME` and \
         `ringway function destroy NAME` need no file",
    ),
    ("", "validate verify lint plan diff", "`ringway check FILE` reports all errors of a fabric file"),
    (
        "",
        "test",
        "`ringway check FILE` reports all errors of a fabric file, `ringway function test FILE` tests \
         configurations",
    ),
    (
        "",
        "drain cordon uncordon taint",
        "`ringway place drain HOST` moves VMs away from a host, `ringway place uncordon HOST` ends that; \
         `ringway port down NAME` disconnects a port",
    ),
    (
        "",
        "tcpdump dump pcap sniff mirror tshark wireshark",
        "`ringway capture PORT` shows a port's frames, `ringway capture PORT -w FILE` writes them; \
         `ringway capture --install-extcap` lets Wireshark list ports",
    ),
    (
        "",
        "log journal journalctl dmesg tail follow console",
        "`ringway logs` prints the log of a fabric that `up --detach` brought up, `ringway guest logs NAME` \
         a guest's console",
    ),
    (
        "",
        "wait",
        "`ringway guest wait` waits until guests are up; `ringway up FILE --detach` waits for the fabric",
    ),
    (
        "",
        "save export",
        "`ringway place store backup FILE` saves placement; a fabric is described by its file",
    ),
    ("", "enable disable connect disconnect", "`ringway port up NAME` and `ringway port down NAME` do that"),
    ("", "mac macs arp addresses", "`ringway switch table NAME` shows the addresses that a switch knows"),
    (
        "",
        "trace",
        "`ringway function graph NAME` draws a function with its packets, `ringway click` runs one",
    ),
    ("", "snapshots", "`ringway snapshot list` lists snapshots of functions in VMs"),
    ("", "chains", "`ringway chain list` lists chains"),
    ("", "workers threads", "`ringway worker list` lists the threads that move frames"),
    ("", "patch patches", "`ringway port list` shows what each port is joined to, `ringway graph` draws it"),
    ("chain", "ls ps status info", "`ringway chain list` shows the chains"),
    (
        "chain",
        "add create new rm remove delete set",
        "describe chains in the fabric file as [chain.NAME], then `ringway apply FILE`",
    ),
    (
        "chain",
        "start stop restart",
        "`ringway function start NAME` and `ringway function stop NAME` start and stop a function of a chain",
    ),
    ("chain", "log logs", "`ringway chain show NAME` shows which function does not run, and why"),
    ("worker", "ls ps status info stats top", "`ringway worker list` shows the workers"),
    (
        "worker",
        "add create new rm remove delete set start stop",
        "describe workers in the fabric file as [worker.NAME], then `ringway apply FILE`",
    ),
    ("worker", "log logs", "`ringway logs` prints the log of a fabric that `up --detach` brought up"),
    ("snapshot", "ls ps status info", "`ringway snapshot list` lists the snapshots"),
    ("snapshot", "add create new take", "`ringway function snapshot NAME SNAPSHOT` takes a snapshot"),
    ("snapshot", "rm delete forget", "`ringway snapshot remove NAME` removes a snapshot"),
    (
        "snapshot",
        "start stop clone restore load set",
        "`ringway function clone SNAPSHOT NAME --port PORT` creates a function that goes on from one",
    ),
    ("snapshot", "log logs", "`ringway function logs NAME` prints the log of a function"),
    ("function", "snapshots", "`ringway snapshot list` lists the snapshots"),
    ("function", "forget", "`ringway snapshot remove NAME` removes a snapshot"),
    ("", "plugin plugins", "`ringway place plugins` shows folders of plugins"),
    (
        "",
        "cluster clusters policy policies group groups fact facts decisions balance",
        "`ringway place --help` lists what placement has, such as `ringway place clusters`",
    ),
    ("", "completion", "`ringway completions SHELL` prints them"),
    ("", "version", "`ringway --version` prints it"),
    (
        "",
        "setup install init configure",
        "`ringway doctor` checks this host; `ringway up FILE` needs no more",
    ),
    ("", "vm vms guests domain machine container containers", "`ringway guest list` shows guests"),
    ("", "functions fn nf element", "`ringway function list` shows functions"),
    (
        "",
        "ports interfaces iface nic",
        "`ringway port list` shows ports; `ringway port up NAME` connects one",
    ),
    (
        "",
        "switches bridge br fdb vswitch",
        "`ringway switch list` shows switches, `ringway switch table NAME` the addresses that one knows",
    ),
    (
        "",
        "net network topology",
        "`ringway graph > FABRIC.svg` draws ports, switches and links, `ringway link show` shows links",
    ),
    ("", "links netem tc", "`ringway link show` shows links, `ringway link set NAME KEY=VALUE` changes them"),
    (
        "",
        "hosts nodes node",
        "`ringway host list` shows the fabric's hosts, `ringway place hosts` those that VMs are placed on",
    ),
    ("", "schedule", "`ringway place run VM` decides where a VM runs"),
    (
        "host",
        "ls ps status info get describe inspect",
        "`ringway host list` shows the hosts and their programs, `ringway host show NAME` one",
    ),
    ("host", "log console output tail", "`ringway host logs NAME` prints what its programs have written"),
    ("host", "top stats", "`ringway top` shows what uses processors, `ringway stats NAME` a port's counters"),
    (
        "host",
        "run shell sh ssh attach enter xterm",
        "`ringway host exec NAME -- COMMAND` runs a command in a host, and a shell without one",
    ),
    (
        "host",
        "start stop restart create add new rm remove delete set",
        "describe hosts in the fabric file as [host.NAME], then `ringway apply FILE`",
    ),
    ("host", "pingall", "`ringway host ping` lets each host ping each other one"),
    ("host", ANY, "`ringway host exec NAME -- COMMAND` runs a command in a host"),
    ("", "migrate move clone", "`ringway function --help` lists what functions in VMs can do"),
    ("", "build image", "`ringway tiny build FOLDER` builds a program's image"),
    ("", "api", "`ringway openapi` prints the description of the control API"),
    (
        "guest",
        "ls ps status info get describe inspect",
        "`ringway guest list` shows the guests, `ringway guest show NAME` one",
    ),
    ("guest", "run boot up resume", "`ringway guest start NAME` starts a guest"),
    ("guest", "log console tail dmesg", "`ringway guest logs NAME` prints what its console has said"),
    (
        "guest",
        "top stats",
        "`ringway top` shows what uses processors, `ringway profile NAME` where a guest's time goes",
    ),
    (
        "guest",
        "suspend migrate snapshot clone save",
        "the monitor of the guest does that, such as QEMU by QMP; functions in VMs do: see \
         `ringway function --help`",
    ),
    (
        "guest",
        "kill shutdown halt poweroff down reboot restart destroy pause",
        "`ringway guest stop NAME` stops a guest, `ringway guest start NAME` starts it again",
    ),
    ("guest", "shell sh ssh attach enter", "`ringway guest exec NAME COMMAND` runs a command in a guest"),
    (
        "guest",
        "create add new rm remove delete set",
        "describe guests in the fabric file as [guest.NAME], then `ringway apply FILE`",
    ),
    (
        "function",
        "ls ps status info describe inspect",
        "`ringway function list` shows the functions, `ringway function show NAME` one",
    ),
    ("function", "rm remove delete kill", "`ringway function destroy NAME` stops a function and forgets it"),
    ("function", "add new run", "`ringway function create NAME` creates a function and starts it"),
    ("function", "pause freeze drain", "`ringway function suspend NAME` suspends a function"),
    ("function", "unpause continue thaw", "`ringway function resume NAME` lets it go on"),
    ("function", "restart", "`ringway function stop NAME && ringway function start NAME` does that"),
    (
        "function",
        "reload replace edit apply",
        "`ringway function update NAME FILE` replaces its configuration",
    ),
    ("function", "move", "`ringway function migrate NAME --to SOCKET` moves it to another fabric"),
    (
        "function",
        "copy fork restore load",
        "`ringway function clone SNAPSHOT NAME` makes one from a snapshot",
    ),
    ("function", "save checkpoint", "`ringway function snapshot NAME SNAPSHOT` takes a snapshot"),
    (
        "function",
        "trace profile",
        "`ringway function graph NAME` draws a function with its packets, \
         `ringway function read NAME profile` shows the time of each element",
    ),
    ("function", "scale", "set `instances` in [function.NAME] of the fabric file, then `ringway apply FILE`"),
    ("function", "deploy", "`ringway function create NAME` creates a function and starts it"),
    (
        "function",
        "get exec handler handlers call",
        "`ringway function read NAME list` shows elements, `ringway function read NAME HANDLER` a value",
    ),
    (
        "function",
        "log console tail events",
        "`ringway function logs NAME` prints what the fabric's log has of it, `ringway function show NAME` \
         why it ended",
    ),
    ("function", "set", "`ringway function write NAME ELEMENT.HANDLER VALUE` writes a handler"),
    (
        "function",
        "top stats",
        "`ringway top` shows what functions use, `ringway stats NAME` a port's counters",
    ),
    (
        "port",
        "ls ps status info get describe inspect",
        "`ringway port list` shows ports, `ringway port show NAME` one, `ringway stats` counters",
    ),
    (
        "port",
        "log logs events",
        "`ringway logs` prints the fabric's log, `ringway port show NAME` why it has no peer",
    ),
    ("port", "stats counters", "`ringway stats NAME` shows a port's counters"),
    ("port", "enable connect on start", "`ringway port up NAME` connects a port's cable"),
    ("port", "disable disconnect off stop drain", "`ringway port down NAME` disconnects a port's cable"),
    (
        "port",
        "add create new rm remove delete set",
        "describe ports in the fabric file as [port.NAME], then `ringway apply FILE`",
    ),
    (
        "switch",
        "ls ps status info get describe inspect",
        "`ringway switch list` shows switches, `ringway switch show NAME` one",
    ),
    (
        "switch",
        "log logs stats counters",
        "`ringway stats` shows the counters of ports, `ringway logs` the log",
    ),
    (
        "switch",
        "fdb macs mac addresses dump",
        "`ringway switch table NAME` shows the addresses that a switch knows",
    ),
    (
        "switch",
        "add create new rm remove delete set start stop up down",
        "describe switches in the fabric file as [switch.NAME], then `ringway apply FILE`",
    ),
    ("program", "ls ps status info", "`ringway program list` shows programs"),
    (
        "program",
        "add create new rm remove delete set",
        "describe programs in the fabric file as [program.NAME], then `ringway apply FILE`",
    ),
    (
        "program",
        "run exec",
        "`ringway exec` runs a program; [program.NAME] in the fabric file lets the fabric do so",
    ),
    ("program", "log", "`ringway program logs NAME` prints what a program has written"),
    ("program", "kill", "`ringway program stop NAME` ends a program"),
    ("program", "reload", "`ringway program restart NAME` starts it again"),
    ("stack", "ls ps status info", "`ringway stack list` shows the programs"),
    (
        "stack",
        "add create new start run",
        "`ringway exec --name NAME` starts a program with a stack of its own",
    ),
    (
        "stack",
        "rm remove delete stop kill",
        "a stack ends with its program, and `ringway stack list` shows its process",
    ),
    ("stack", "set", "`ringway exec --sysctl NAME=VALUE` starts a program with other settings"),
    ("stack", "log logs", "`ringway exec --explain` prints how each socket is served"),
    ("stack", "ip", "`ringway stack route NAME` and `ringway stack neigh NAME` show what `ip` does"),
    ("stack", "nstat stats counters", "`ringway stack netstat NAME` shows counters"),
    ("stack", "neighbor neighbour arp", "`ringway stack neigh NAME` shows neighbours"),
    ("link", "ls ps status info get describe inspect", "`ringway link show` shows links"),
    (
        "link",
        "log logs",
        "`ringway link show` shows drops and late frames, `ringway logs` prints the fabric's log",
    ),
    ("link", "down stop", "`ringway link set NAME loss=100%` lets nothing pass"),
    ("link", "up start reset", "`ringway link set NAME loss=` sets a value back to its default"),
    ("link", "stats counters", "`ringway link show` shows delays and losses that were observed"),
    ("link", "change edit update", "`ringway link set NAME KEY=VALUE` changes a link"),
    (
        "link",
        "add create new rm remove delete",
        "describe links in the fabric file as [link.NAME], then `ringway apply FILE`",
    ),
    ("place", "ls list status nodes", "`ringway place hosts` shows hosts, `ringway place vms` VMs"),
    ("place", "evacuate", "`ringway place drain HOST` moves VMs away from a host"),
    ("place", "undrain", "`ringway place uncordon HOST` lets a host get VMs again"),
    ("place", "schedule", "`ringway place run VM` decides where VMs run"),
    (
        "place",
        "create add new set import",
        "`ringway place put FILE` adds or changes hosts, VMs and policies; `ringway place run VM` decides \
         where VMs run",
    ),
    ("place", "rm delete del", "`ringway place remove KIND NAME` removes an object"),
    (
        "place",
        "stop",
        "`ringway place release VM` ends a VM's reservation, `ringway guest stop NAME` stops a guest",
    ),
    (
        "place",
        "log logs history",
        "`ringway place events` shows changes, `ringway place decisions` decisions",
    ),
    (
        "place",
        "reason why",
        "`ringway place explain ID` explains a decision, `ringway place why-not VM HOST` a host",
    ),
    (
        "place",
        "migrate move evict",
        "`ringway place run VM` decides where a VM runs, `ringway place drain HOST` moves all",
    ),
    ("place", "get describe inspect", "`ringway place show KIND NAME` shows all settings of an object"),
    ("place", "taint", "`ringway place cordon HOST` closes a host to new VMs"),
    ("place", "rebalance", "`ringway place balance` proposes moves"),
    (
        "tiny",
        "list ls show status set stop logs log rm remove delete",
        "a program that runs is a function: see `ringway function list`",
    ),
    ("tiny", "init create add", "`ringway tiny new FOLDER` makes a folder with a program"),
    ("tiny", "compile make", "`ringway tiny build FOLDER` builds a program's image"),
    ("tiny", "run start", "a fabric file runs it: [function.NAME] image = \"FILE\", then `ringway up FILE`"),
];

/// Any word, if clap knows none that is similar.
const ANY: &str = "*";
/// Options that have a value, and may stand before the command.
const WITH_VALUE: [&str; 2] = ["--socket", "--fabric"];

/// Prints why the command line is refused, and ends this process.
pub fn explain(error: &clap::Error, words: &[OsString]) -> ! {
    if let Some(why) = unwanted_name(error, words) {
        eprintln!("{}error:{:#} {why}", crate::text::BAD, crate::text::BAD);
        exit(error.exit_code())
    }
    let Some((below, word, advice)) = advice(error, words) else { error.exit() };
    let space = if below.is_empty() { "" } else { " " };
    eprintln!(
        "{}error:{:#} `ringway {below}{space}{word}` is no command; {advice}",
        crate::text::BAD,
        crate::text::BAD
    );
    exit(error.exit_code())
}

/// Where an unknown word stands, the word, and the advice, if there is some.
fn advice(error: &clap::Error, words: &[OsString]) -> Option<(&'static str, String, &'static str)> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let below = command_above(&Arguments::command(), words, word);
    let of = |wanted: &str| {
        ROWS.iter().find(|(own, known, _)| *own == below && known.split(' ').any(|one| one == wanted))
    };
    let is_like_none = error.get(ContextKind::SuggestedSubcommand).is_none();
    let row = of(word).or_else(|| of(ANY).filter(|_| is_like_none));
    row.map(|(own, _, advice)| (*own, word.clone(), *advice))
}

/// What to do about a name after a command that has none, which other tools take for that of the fabric.
fn unwanted_name(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument || word.starts_with('-') {
        return None;
    }
    let (mut command, mut above) = (&Arguments::command(), Vec::new());
    for known in words.iter().filter_map(|word| word.to_str()).take_while(|own| own != word) {
        if let Some(next) = command.find_subcommand(known) {
            command = next;
            above.push(known);
        }
    }
    let above = above.join(" ");
    // These are not about a fabric.
    let is_about_one = !above.is_empty() && !matches!(&*above, "doctor" | "openapi");
    let takes_none = command.get_positionals().next().is_none() && !command.has_subcommands();
    (is_about_one && takes_none).then(|| {
        format!(
            "`ringway {above}` takes no name; write `ringway --fabric {word} {above}` if it is a fabric's"
        )
    })
}

/// The last command before `word`; nothing if there is none.
fn command_above(root: &Command, words: &[OsString], word: &str) -> String {
    let (mut command, mut above) = (root, String::new());
    let mut words = words.iter().filter_map(|word| word.to_str());
    while let Some(next) = words.next() {
        if WITH_VALUE.contains(&next) {
            words.next();
        } else if let Some(known) = command.find_subcommand(next) {
            (command, above) = (known, next.into());
        } else if next == word {
            break;
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn answer(line: &str) -> Option<&'static str> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Arguments::try_parse_from([OsString::from("ringway")].iter().chain(&words)).err()?;
        advice(&error, &words).map(|(_, _, advice)| advice)
    }

    #[test]
    fn words_of_other_tools_are_answered_with_commands() {
        let is = |line: &str, start: &str| {
            let found = answer(line).unwrap_or_default();
            assert!(found.starts_with(start), "{line}: {found}");
        };
        is("status", "`ringway ps` shows");
        is("ls", "`ringway ps` shows");
        is("ssh left ip addr", "`ringway guest exec NAME COMMAND`");
        is("drain", "`ringway place drain HOST`");
        is("tcpdump left", "`ringway capture PORT` shows");
        is("--fabric guest --json status", "`ringway ps` shows");
        is("function ls", "`ringway function list`");
        is("guest status", "`ringway guest list`");
        is("port ls", "`ringway port list`");
        is("guest console left", "`ringway guest logs NAME`");
        is("events", "`ringway logs`");
        is("place add", "`ringway place put FILE`");
        is("link stop wan", "`ringway link set NAME loss=100%`");
        is("tiny list", "a program that runs is a function");
        is("host set h1", "describe hosts in the fabric file");
        is("host h1 ping -c 1 h2", "`ringway host exec NAME -- COMMAND`");
        is("host shell h1", "`ringway host exec NAME -- COMMAND`");
        is("link down wan", "`ringway link set NAME loss=100%`");
        assert_eq!(answer("host lst"), None, "clap has a similar word");
        assert_eq!(answer("frobnicate"), None, "clap's own message");
        assert_eq!(answer("ps --wrong"), None);
    }

    #[test]
    fn every_noun_has_or_answers_every_common_verb() {
        let verbs = "list ls show status add create rm remove delete set start stop log logs";
        let mut root = Arguments::command();
        root.build();
        let mut missing = Vec::new();
        let is_noun = |command: &&Command| command.has_subcommands() && command.get_name() != "help";
        for noun in root.get_subcommands().filter(is_noun) {
            let name = noun.get_name();
            let mut verbs: Vec<&str> = verbs.split(' ').collect();
            // A tiny program, and what placement decides on, are listed by other commands.
            if !["tiny", "place"].contains(&name) {
                for verb in ["list", "show"] {
                    assert!(noun.find_subcommand(verb).is_some(), "{name} {verb}");
                    verbs.retain(|other| *other != verb);
                }
            }
            let unanswered =
                verbs.into_iter().filter(|verb| noun.find_subcommand(verb).is_none() && !has_row(name, verb));
            missing.extend(unanswered.map(|verb| format!("{name} {verb}")));
        }
        let known = |verb: &&str| root.find_subcommand(verb).is_none() && !has_row("", verb);
        missing.extend(verbs.split(' ').filter(known).map(String::from));
        assert_eq!(missing, [] as [String; 0]);
    }

    fn has_row(below: &str, word: &str) -> bool {
        ROWS.iter().any(|(own, words, _)| *own == below && words.split(' ').any(|one| one == word))
    }

    #[test]
    fn a_fabric_that_is_named_as_for_other_tools_is_answered_with_the_option() {
        let answer = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = Arguments::try_parse_from([OsString::from("ringway")].iter().chain(&words)).err()?;
            unwanted_name(&error, &words)
        };
        for (line, right) in [
            ("down lab", "--fabric lab down"),
            ("ps lab", "--fabric lab ps"),
            ("host list lab", "--fabric lab host list"),
        ] {
            assert!(answer(line).is_some_and(|why| why.contains(&format!("`ringway {right}`"))), "{line}");
        }
        for line in ["ps --lab", "openapi lab", "down", "stats left right", "frobnicate lab"] {
            assert_eq!(answer(line), None, "{line}");
        }
    }

    #[test]
    fn every_row_is_of_unknown_words_and_names_commands_that_exist() {
        let mut root = Arguments::command();
        root.build();
        let mut seen = std::collections::HashSet::new();
        for (below, words, advice) in ROWS {
            let above = if below.is_empty() { Some(&root) } else { root.find_subcommand(below) };
            let above = above.unwrap_or_else(|| panic!("{below}"));
            for word in words.split(' ') {
                assert!(above.find_subcommand(word).is_none(), "`{below} {word}` is a command");
                assert!(seen.insert((below, word)), "`{below} {word}` is in two rows");
            }
            assert!(advice.contains('`') && !advice.ends_with('.'), "{advice}");
            for quoted in advice.split('`').skip(1).step_by(2) {
                for line in quoted.split(" && ") {
                    let Some(rest) = line.strip_prefix("ringway ") else { continue };
                    let is_command =
                        |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
                    let mut command = &root;
                    for word in rest.split(' ').take_while(is_command).filter(|word| !word.starts_with('-')) {
                        // A value, such as `list` of `read NAME list`, follows words in capitals.
                        command = command.find_subcommand(word).unwrap_or_else(|| panic!("{quoted}: {word}"));
                    }
                }
            }
        }
    }
}
