//! Runs every command of docs/placement.md and docs/plugins.md, in their order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with all files that the pages mention, and a running fabric. Dropping it removes both.
struct Lab(PathBuf);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,\
    deletion_time,scheduled_time\npod-0,2000,4096,0,0,,LS,Running,0,50,0\n";
const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nnode-0,32000,65536,0,\n";
const HOSTS: &str = r#"{"hosts": [{"id": "h", "name": "host"}], "vms": [{"id": "v", "host": "h"}]}"#;

impl Lab {
    fn new(name: &str) -> Lab {
        let lab = Lab(std::env::temp_dir().join(format!("ringway-{name}-{}", std::process::id())));
        copy(&root().join("examples/placement"), &lab.0.join("examples/placement"));
        copy(&root().join("examples/plugins"), &lab.0.join("examples/plugins"));
        copy(&root().join("examples/plugins"), &lab.0.join("plugins"));
        let files = [
            ("lab.toml", "[fabric]\nname = \"lab\"\n[switch.main]\n"),
            ("openb_pod_list_default.csv", PODS),
            ("openb_node_list_all_node.csv", NODES),
            ("hosts.json", HOSTS),
        ];
        for (name, text) in files {
            std::fs::write(lab.0.join(name), text).unwrap();
        }
        lab
    }

    fn command(&self, line: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_ringway")).parent().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.0).env("RINGWAY_RUN", self.0.join("run"));
        command.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
        // As if the package were installed, which the scheduler proxy needs.
        command.env("PYTHONPATH", root().join("python"));
        command.env_remove("RINGWAY_LOG");
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// The output of a command that must succeed.
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The address of kube-scheduler's extender.
    fn extender(&self) -> String {
        let log = std::fs::read_to_string(self.0.join("run/lab.log")).unwrap();
        let port: String =
            log.split("127.0.0.1:").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
        format!("127.0.0.1:{port}")
    }

    /// Starts a server that prints its address, queries it, and ends it.
    fn serve(&self, line: &str) {
        // A free port, since tests run concurrently.
        let line = format!("exec {line} --listen localhost:0");
        let mut server = self.command(&line).stderr(Stdio::piped()).spawn().unwrap();
        let mut line_read = String::new();
        BufReader::new(server.stderr.take().unwrap()).read_line(&mut line_read).unwrap();
        let port = line_read.trim().rsplit(' ').next().unwrap().to_string();
        let ask = format!("xmlrpc.client.ServerProxy('http://localhost:{port}').discover()");
        let asked = self.run(&format!("python3 -c \"import xmlrpc.client; print({ask})\""));
        server.kill().unwrap();
        server.wait().unwrap();
        let units = String::from_utf8_lossy(&asked.stdout).into_owned();
        assert!(
            units.contains("MaxVms"),
            "{line}: {line_read}{units}{}",
            String::from_utf8_lossy(&asked.stderr)
        );
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.run("ringway down");
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Commands after `$ ` in the page's `console` blocks.
fn shown(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
    let mut commands = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(fence) => inside = fence == "console",
            None if inside => commands.extend(line.strip_prefix("$ ").map(str::to_string)),
            None => {}
        }
    }
    commands
}

#[test]
fn every_command_of_the_pages_works() {
    let lab = Lab::new("place-docs");
    lab.ok("ringway up lab.toml --detach --extender=127.0.0.1:0");
    let commands: Vec<String> = ["placement.md", "plugins.md"].into_iter().flat_map(shown).collect();
    for line in &commands {
        if line.contains("scheduler_proxy") {
            lab.serve(line);
            continue;
        }
        let here = line.replace("/run/ringway/", "run/").replace("127.0.0.1:10263", &lab.extender());
        let printed = lab.ok(&here);
        // These print nothing on success.
        let silent = [
            " confirm ",
            " release ",
            " fact ",
            " DELETE ",
            "/confirm",
            "--reason",
            "--remove",
            " load ",
            " remove ",
        ];
        let is_silent = silent.iter().any(|word| line.contains(word));
        assert_eq!(printed.is_empty(), is_silent, "{line}: {printed}");
        let refused = printed.contains("\"Error\":") && !printed.contains("\"Error\":\"\"");
        assert!(!refused && !printed.contains("\"error\":"), "{line}: {printed}");
        let moves = line.contains("inventory.toml balance --dry-run");
        assert!(!moves || printed.contains("mail would move from old"), "{line}: {printed}");
    }
    let shows = |what: &str| assert!(commands.iter().any(|line| line.contains(what)), "no page shows {what}");
    ["/v1/place/try", "/v1/place/objects/", "/extender/filter", "/extender/prioritize"]
        .iter()
        .for_each(|what| shows(what));
    let uses =
        |what: &str| commands.iter().any(|line| line.starts_with("ringway place") && line.contains(what));
    let verbs = ["run", "try", "why-not", "explain", "decisions", "confirm", "release", "balance", "hosts"];
    for verb in verbs.iter().chain(&[
        "policies", "put", "plugins", "fact", "simulate", "start", "drain", "cordon", "uncordon", "show",
    ]) {
        // Starting a guest needs a kernel; tests/place_guest.rs tests it.
        assert!(*verb == "start" || uses(&format!(" {verb}")), "no page shows `ringway place {verb}`");
    }
}

/// The examples of docs/plugins.md behave as documented.
#[test]
fn the_example_plugins_decide() {
    let lab = Lab::new("place-plugins");
    let on = "ringway place --inventory examples/placement/rules.toml --plugins examples/plugins";
    let has = |words: &str, what: &str| {
        let output = lab.run(&format!("{on} {words}"));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains(what), "{words}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    };
    has("why-not new node-0 --policy few", "MaxVms: has 2 VMs, at most 2");
    has("why-not new late --policy office", "Hours: takes VMs from 25 to 25 o'clock only");
    has("try new --policy calm --without late", "node-1");
    has(
        "balance --cluster night --dry-run --rounds 3",
        "night-0 becomes down (SleepByHour: nothing runs on it at night)",
    );
    has("balance --cluster shop --dry-run", "till is to stop (closed_at_night)");
    has("balance --cluster shop --dry-run", "shop would go into maintenance (closed_at_night)");
    has(
        "balance --cluster busy --dry-run",
        "mail would move from busy-0 to busy-1 (RelieveOverloaded: busy-0 is at 75 %)",
    );
}

/// Azure's trace of 2020, an SQLite file, is read by Python.
#[test]
fn azure_traces_are_converted_by_python() {
    let lab = Lab::new("place-azure");
    let script = "import sqlite3\n\
        c = sqlite3.connect('packing_trace_zone_a_v1.sqlite')\n\
        c.execute('create table vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic)')\n\
        c.execute('create table vm (vmId, tenantId, vmTypeId, priority, starttime, endtime)')\n\
        c.executemany('insert into vmType values (?, ?, ?, ?, ?, 0, 0, 0)',\n\
            [(0, 1, 0, 0.5, 0.25), (1, 1, 1, 0.9, 0.9), (2, 2, 0, 0.025, 0.01)])\n\
        c.executemany('insert into vm values (?, 0, ?, 0, ?, ?)',\n\
            [(1, 1, 0.0, None), (2, 1, 0.1, None), (3, 1, 0.2, None), (4, 2, 0.3, 0.4)])\n\
        c.commit()\n";
    std::fs::write(lab.0.join("make.py"), script).unwrap();
    lab.ok("python3 make.py");
    let simulate = "ringway place simulate --trace packing_trace_zone_a_v1.sqlite --format azure \
        --hosts 1 --policy packing --json";
    let reports: serde_json::Value = serde_json::from_str(&lab.ok(simulate)).unwrap();
    // Two VMs of half the machine's CPUs each fit; the third and the small one do not.
    assert_eq!((&reports[0]["placed"], &reports[0]["rejected"]), (&2.into(), &2.into()), "{reports}");
    std::fs::write(lab.0.join("other.sqlite"), b"SQLite format 3\0 but nothing more").unwrap();
    let output = lab.run(&simulate.replace("packing_trace_zone_a_v1", "other"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("has tables vm and vmType"), "{stderr}");
}
