//! Placement in a running fabric: its periodic work, and its service to clients other than its own commands.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Engine, Object};
use ringway_place::object::Fact;
use ringway_place::store::Embedded;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A fabric with a load, in a private folder. Dropping it ends the fabric and removes the folder.
struct Lab(PathBuf);

impl Lab {
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(words).current_dir(&self.0).env("RINGWAY_RUN", self.0.join("run"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ok(&words)).unwrap()
    }

    fn policies(&self) -> Vec<String> {
        let policies = self.json(&["place", "policies"]);
        policies.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_string()).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.run(&["down"]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until a condition holds, with a time limit for slow machines.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The status and the body of a request over TCP.
fn post(port: u16, path: &str, body: &Value) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let body = body.to_string();
    let head = "host: ringway\r\ncontent-type: application/json\r\nconnection: close";
    write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let status = reply.split(' ').nth(1).unwrap().parse().unwrap();
    (status, reply.split_once("\r\n\r\n").unwrap().1.to_string())
}

const LOAD: &str = "[fabric]\nname = \"lab\"\n[switch.main]\nlookup = \"static\"\n\
    static = { \"02:00:00:00:00:02\" = \"sink\" }\n[port.up-load]\nkind = \"source\"\nrate = \"1000pps\"\n\
    switch = \"main\"\n[port.sink]\nkind = \"null\"\nswitch = \"main\"\n";

const HOSTS: &str = "[cluster.default]\ninterval = 1\n\
    [host.a]\nstatus = \"preparing_for_maintenance\"\ncores = 4\nthreads = 4\nmemory-mb = 8192\n\
    [host.b]\ncores = 4\nthreads = 4\nmemory-mb = 8192\n[vm.v]\nhost = \"a\"\nstatus = \"up\"\n";

const LINK: &str = "[port.l0]\nkind = \"ring\"\nsocket = \"l0.sock\"\n\
    [port.l1]\nkind = \"ring\"\nsocket = \"l1.sock\"\n\
    [link.wan]\nports = [\"l0\", \"l1\"]\nrate = \"10Mbit\"\n";

#[test]
fn placement_runs_with_the_fabric_and_serves_kubernetes() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-fabric-{}", std::process::id())));
    std::fs::create_dir_all(&lab.0).unwrap();
    lab.write("lab.toml", &format!("{LOAD}{LINK}[policy.night]\nbase = \"packing\"\n"));
    lab.write("hosts.toml", HOSTS);
    lab.ok(&["up", "lab.toml", "--detach", "--extender=127.0.0.1:0"]);
    assert!(!lab.0.join("run/lab/placement.redb").exists(), "who places nothing leaves nothing");
    lab.ok(&["place", "put", "hosts.toml"]);
    assert!(lab.policies().contains(&"night".to_string()));
    // The fabric's own host belongs to no cluster until it is asked for.
    assert_eq!(lab.json(&["place", "hosts"]).as_array().unwrap().len(), 2);
    let joined = lab.json(&["place", "join"]);
    assert_eq!(
        (&joined["cluster"], lab.json(&["place", "join", "--cluster", "x"])),
        (&json!("default"), joined.clone())
    );

    // A host in evacuation is emptied without requesting a round of balancing.
    until("the VM is moved", || lab.ok(&["place", "balance", "--last"]).contains("v moved from a to b"));
    let here = |hosts: &Value| {
        hosts.as_array().unwrap().iter().find(|it| it["name"] != "a" && it["name"] != "b").cloned()
    };
    until("the load of a port shows", || {
        let host = here(&lab.json(&["place", "hosts"])).unwrap();
        host["facts"]["port_up_load_pps"].as_f64().is_some_and(|pps| pps > 0.0)
    });
    // The names of a link's ends have a slash, which names of facts can't have.
    let facts = here(&lab.json(&["place", "hosts"])).unwrap()["facts"].clone();
    let of_link = facts.as_object().unwrap().keys().filter(|name| name.starts_with("port_wan_")).count();
    assert!(of_link >= 2, "{facts}");

    // Policies are added and removed with the file.
    lab.write("lab.toml", &format!("{LOAD}[policy.day]\nbase = \"none\"\n"));
    let stdout = lab.ok(&["apply", "lab.toml"]);
    assert!(stdout.contains("add policy day") && stdout.contains("remove policy night"), "{stdout}");
    let policies = lab.policies();
    assert!(policies.contains(&"day".to_string()) && !policies.contains(&"night".to_string()));

    // Only the extender's paths are served on its address.
    let log = std::fs::read_to_string(lab.0.join("run/lab.log")).unwrap();
    let at = log.split("127.0.0.1:").nth(1).unwrap();
    let port: u16 = at.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
    let pod = json!({ "metadata": { "name": "web" }, "spec": { "containers": [] } });
    let args = json!({ "Pod": pod, "NodeNames": ["a", "b"] });
    let (status, body) = post(port, "/v1/place/extender/filter", &args);
    let reply: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &reply["NodeNames"]), (200, &json!(["b"])), "{body}");
    assert_eq!(post(port, "/v1/shutdown", &Value::Null).0, 404);
}

#[test]
fn placement_for_kubernetes_reports_a_second_process_and_a_killed_one() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-second-{}", std::process::id())));
    std::fs::create_dir_all(&lab.0).unwrap();
    // Nothing listens on this port.
    let config = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
        users: [{name: u, user: {}}]\n\
        contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n";
    lab.write("kube.conf", config);
    let serve = ["place", "kubernetes", "--kubeconfig", "kube.conf", "--listen", "127.0.0.1:0"];
    let mut served = lab.command(&serve).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it serves", || lab.run(&["place", "hosts"]).status.success());
    // A part of a CPU is shown as such.
    lab.write("part.toml", "[vm.part]\nmilli-cpus = 250\n");
    lab.ok(&["place", "put", "part.toml"]);
    assert!(lab.ok(&["place", "vms"]).contains(" 0.25 "));
    let failed = |words: &[&str]| {
        let output = lab.run(words);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let second = failed(&serve);
    let wanted = format!("is in use by process {}; end it", served.id());
    assert!(second.contains(&wanted) && !second.contains("ringway down"), "{second}");
    served.kill().unwrap();
    served.wait().unwrap();
    let killed = failed(&["place", "hosts"]);
    assert!(killed.contains("nor does `ringway place kubernetes` run"), "{killed}");
    assert!(lab.run(&["place", "policies"]).status.success(), "policies are shown without a service too");
}

const FEW: &str = "from ringway.placement import Filter\n\n\nclass Few(Filter):\n    \
    properties_validation = 'most=[0-9]+'\n\n    def do_filter(self, hosts, vm, args):\n        \
    return [host for host in hosts if host.vms_active < int(args['most'])]\n";

const RULES: &str = "[plugins.rules]\nfolder = \"rules\"\n\
    [policy.night]\nfilters = [\"Memory\", \"Few\"]\nrequired = [\"Few\"]\n\
    [cluster.default]\npolicy = \"night\"\ninterval = 0\nproperties = { most = 1 }\n";

/// The file's plugins, policies and clusters apply to the first query. Objects removed from the file while the fabric
/// is down are deleted when it is up again; objects added by the API stay.
#[test]
fn placement_follows_the_fabric_file() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-file-{}", std::process::id())));
    std::fs::create_dir_all(lab.0.join("rules")).unwrap();
    lab.write("rules/few.py", FEW);
    lab.write("lab.toml", &format!("{LOAD}{RULES}"));
    lab.write(
        "more.toml",
        "[policy.mine]\nbase = \"none\"\n[host.a]\ncores = 4\nthreads = 4\n\
        memory-mb = 8192\n[vm.v]\nhost = \"a\"\nstatus = \"up\"\n[vm.w]\n",
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab.ok(&["place", "put", "more.toml"]);
    assert!(lab.policies().contains(&"night".to_string()));
    let why = lab.ok(&["place", "why-not", "w", "a"]);
    assert!(why.contains("Few"), "a has as many as are allowed: {why}");

    // An invalid file is reported with the position of the error, and changes nothing.
    let line = LOAD.lines().count() + 4;
    lab.write("lab.toml", &format!("{LOAD}{}", RULES.replace("\"Few\"]\nreq", "\"Feww\"]\nreq")));
    let refused = lab.run(&["apply", "lab.toml"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    let wanted = format!("lab.toml:{line}:22: there is no filter \"Feww\"; did you mean \"Few\"?");
    assert!(refused.status.code() == Some(3) && stderr.contains(&wanted), "{stderr}");
    lab.write("lab.toml", &format!("{LOAD}{}", RULES.replace("most = 1", "most = 2")));
    assert_eq!(lab.ok(&["apply", "lab.toml"]), "change cluster default\n");
    assert!(!lab.ok(&["place", "why-not", "w", "a"]).contains("Few"));
    assert_eq!(lab.ok(&["apply", "lab.toml"]), "nothing to change\n");

    lab.ok(&["down"]);
    lab.write("lab.toml", LOAD);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let policies = lab.policies();
    assert!(
        policies.contains(&"mine".to_string()) && !policies.contains(&"night".to_string()),
        "{policies:?}"
    );
    let tried = lab.json(&["place", "try", "w"]);
    assert_eq!(tried["decision"]["choices"][0]["policy"], "none");
}

/// Guests are described in the fabric file; placement's inventory is not enough to start one.
#[test]
fn guests_missing_from_the_file_are_not_started_and_the_remedy_is_reported() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-start-{}", std::process::id())));
    std::fs::create_dir_all(&lab.0).unwrap();
    lab.write("lab.toml", LOAD);
    lab.write("more.toml", "[vm.wall]\nkind = \"function\"\n");
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab.ok(&["place", "put", "more.toml"]);
    for (name, wanted) in
        [("wall", "is known to placement only"), ("hall", "there is no guest or function hall")]
    {
        let refused = lab.run(&["place", "start", name]);
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        let how = format!("[function.{name}] and run `ringway apply`");
        assert!(
            refused.status.code() == Some(5) && stderr.contains(wanted) && stderr.contains(&how),
            "{stderr}"
        );
    }
    // Nothing is reserved, and this host has joined no cluster.
    assert_eq!(lab.json(&["place", "hosts"]), serde_json::json!([]));
    // A function that the file describes is started.
    let function = "[port.wire]\nkind = \"ring\"\nsocket = \"wire.sock\"\nswitch = \"main\"\n\
        [function.wall]\nports = [\"wire\"]\nstart = false\n\
        click = \"FromPort(wire) -> Discard; Idle -> ToPort(wire);\"\n";
    lab.write("lab.toml", &format!("{LOAD}{function}"));
    lab.ok(&["apply", "lab.toml"]);
    assert_eq!(lab.json(&["place", "start", "wall"])["placed"], true);
    until("it runs", || lab.json(&["function", "list"])[0]["state"] == "running");
}

const BROKEN: &str = "from ringway.placement import Filter\n\nclass Other(Filter:\n";

/// Plugins attached by an operator stay attached, in addition to those of the file; files that fail to load are
/// reported everywhere.
#[test]
fn attached_plugins_stay_and_load_errors_are_reported() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-kept-{}", std::process::id())));
    for (folder, text) in [("rules", FEW.to_string()), ("more", FEW.replace("Few", "Fewer"))] {
        std::fs::create_dir_all(lab.0.join(folder)).unwrap();
        lab.write(&format!("{folder}/few.py"), &text);
    }
    lab.write("lab.toml", &format!("{LOAD}{RULES}"));
    lab.write("rules/broken.py", BROKEN);
    let stdout_of = |words: &[&str]| {
        let output = lab.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).unwrap()
    };
    let line = LOAD.lines().count() + 1;
    let wanted = format!("warning: lab.toml:{line}:10: plugins.rules: broken.py:3: ");
    let checked = stdout_of(&["check", "lab.toml"]);
    assert!(checked.contains(&wanted), "{checked}");
    lab.ok(&["up", "lab.toml", "--detach"]);
    assert!(stdout_of(&["place", "plugins"]).contains("rules: broken.py:3: "));
    lab.write("more/broken.py", BROKEN);
    assert!(stdout_of(&["place", "plugins", "more"]).contains("more: broken.py:3: "));
    std::fs::remove_file(lab.0.join("more/broken.py")).unwrap();
    std::fs::remove_file(lab.0.join("rules/broken.py")).unwrap();
    lab.write(
        "more.toml",
        "[policy.fewer]\nfilters = [\"Memory\", \"Fewer\"]\nrequired = [\"Fewer\"]\n\
        properties = { most = 5 }\n[host.a]\nmemory-mb = 8192\n[vm.v]\npolicy = \"fewer\"\n",
    );
    lab.ok(&["place", "put", "more.toml"]);

    lab.ok(&["down"]);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let attached = lab.json(&["place", "plugins"]);
    let first = |from: &str| attached[from][0].as_str().unwrap().to_string();
    assert!(first("file").ends_with("/rules") && first("attached").ends_with("/more"), "{attached}");
    assert_eq!(attached["problems"], json!([]));
    assert_eq!(lab.json(&["place", "try", "v"])["decision"]["placed"], true);

    // Without the plugins, the policy that requires one reports it, and the decision can be explained.
    lab.ok(&["place", "plugins", "--none"]);
    let refused = lab.run(&["place", "run", "v"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    let wanted = "policy fewer requires a unit that failed: Fewer: there is no such unit now";
    assert!(refused.status.code() == Some(1) && why.contains(wanted), "{why}");
    let decision = lab.json(&["place", "decisions"])[0].clone();
    assert_eq!(decision["placed"], false);
    let id = decision["id"].to_string();
    assert!(lab.ok(&["place", "explain", &id]).contains(wanted));
    let nobody = lab.run(&["place", "explain", &id, "--host", "nosuch"]);
    let why = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(nobody.status.code() == Some(5) && why.contains("looked at no host nosuch"), "{why}");
    assert!(lab.ok(&["place", "why-not", "v", "a"]).contains("requires a unit that failed: Fewer"));
}

/// A folder that no plugin host can serve, since there is no Python, is not attached, and the command fails.
#[test]
fn a_folder_that_can_not_be_served_is_not_attached() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-unserved-{}", std::process::id())));
    std::fs::create_dir_all(lab.0.join("more")).unwrap();
    lab.write("more/few.py", FEW);
    lab.write("lab.toml", LOAD);
    let up = lab.command(&["up", "lab.toml", "--detach"]).env("PATH", &lab.0).output().unwrap();
    assert!(up.status.success(), "{up:?}");
    let refused = lab.run(&["place", "plugins", "more"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{why}");
    assert!(why.contains("more: python3: No such file") && why.contains("before stay"), "{why}");
    assert_eq!(lab.json(&["place", "plugins"])["attached"], json!([]));
}

/// Objects that would be created again can not be deleted: a host of the file, its measured load, and other objects of
/// the file.
#[test]
fn objects_described_by_the_file_can_not_be_removed() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-stays-{}", std::process::id())));
    std::fs::create_dir_all(&lab.0).unwrap();
    lab.write(
        "lab.toml",
        &format!(
            "{LOAD}[placement]\nthis-host = \"default\"\n[policy.night]\nbase = \"none\"\n\
            [cluster.default]\npolicy = \"night\"\n"
        ),
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    let here = lab.json(&["place", "hosts"])[0]["name"].as_str().unwrap().to_string();
    let socket = lab.0.join("run/lab/api.sock");
    for (path, wanted) in [
        (format!("host/{here}"), "is this host"),
        (format!("load/{here}"), "is this host"),
        ("policy/night".to_string(), "is of the fabric's file"),
        ("cluster/default".to_string(), "is of the fabric's file"),
    ] {
        let url = format!("http://ringway/v1/place/objects/{path}");
        let mut curl = Command::new("curl");
        let output =
            curl.arg("-s").arg("--unix-socket").arg(&socket).args(["-X", "DELETE", &url]).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(stdout.contains(wanted), "{path}: {stdout}");
    }
}

/// The clock may jump forwards or back while the fabric is down: facts and reservations from another time end, and
/// other objects stay usable.
#[test]
fn a_clock_jump_blocks_nothing() {
    const YEAR: u64 = 365 * 86_400_000;
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-jump-{}", std::process::id())));
    std::fs::create_dir_all(&lab.0).unwrap();
    lab.write("lab.toml", LOAD);
    lab.write(
        "hosts.toml",
        &format!("{}[vm.w]\n", HOSTS.replace("interval = 1", "interval = 0\ncool-down = 0")),
    );
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab.ok(&["place", "put", "hosts.toml"]);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    for (then, is_past) in [(now() + 10 * YEAR, false), (now() - YEAR, true)] {
        lab.ok(&["down"]);
        {
            let store = Embedded::open(&lab.0.join("run/lab/placement.redb"), then).unwrap();
            let engine = Engine::open(Arc::new(store)).unwrap();
            let only = ["b".to_string()].into();
            let ask =
                PlacementRequest { vms: vec!["w".into()], only, now: then, ..PlacementRequest::default() };
            assert!(engine.place(ask).unwrap().placed());
            let mut vm = engine.view(|model| (*model.vm("v").unwrap().vm).clone()).unwrap();
            vm.moved_at = Some(then);
            let fact = Fact {
                host: "b".into(),
                name: "heat".into(),
                value: 3.0,
                until: Some(then + YEAR / 2),
                pushed: Some(then),
            };
            engine.put(vec![Object::Vm(Box::new(vm)), Object::Fact(fact)]).unwrap();
        }
        lab.ok(&["up", "lab.toml", "--detach"]);
        let hosts = lab.json(&["place", "hosts"]);
        let b = hosts.as_array().unwrap().iter().find(|host| host["name"] == "b").unwrap();
        assert_eq!(b["facts"], json!({}), "{b}");
        if is_past {
            assert_eq!(b["pending"], 0, "a reservation of last year holds: {b}");
        } else {
            // The reservation ends at most a minute from now, or when it is released.
            lab.run(&["place", "release", "w"]);
        }
        let moves = lab.ok(&["place", "balance", "--dry-run"]);
        assert!(moves.contains("v would move from a to b"), "{moves}");
        let tried = lab.json(&["place", "run", "w", "--only", "b"]);
        let id = tried["id"].to_string();
        assert!(
            tried["placed"] == true && tried["at"].as_u64().unwrap().abs_diff(now()) < YEAR / 12,
            "{tried}"
        );
        assert!(lab.ok(&["place", "explain", &id]).contains("w: b by policy none"));
        lab.ok(&["place", "release", "w"]);
    }
}

/// What a balancer of oVirt's kind does at night: it stops all VMs by the SDK, then deactivates the hosts. In the
/// morning it activates them.
const NIGHT: &str = "from ovirtsdk.api import API\n\n\nclass Night:\n    \
    properties_validation = 'closed=(yes|no)'\n\n    def do_balance(self, hosts, args):\n        \
    api = API(url='http://host:port', username='user', password='')\n        \
    for host in api.hosts.list():\n            if args.get('closed') != 'yes':\n                \
    host.activate()\n                continue\n            \
    for vm in api.vms.list(query='host=%s' % host.name):\n                vm.stop()\n            \
    host.deactivate()\n\n    def do_filter(self, hosts, vm, args):\n        \
    print([] if args.get('closed') == 'yes' else hosts)\n";

#[test]
fn a_host_closes_at_night_and_opens_in_the_morning() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-night-{}", std::process::id())));
    std::fs::create_dir_all(lab.0.join("rules")).unwrap();
    lab.write("rules/night.py", NIGHT);
    let file = |closed: &str| {
        format!(
            "{LOAD}[port.wire]\nkind = \"ring\"\nsocket = \"wire.sock\"\nswitch = \"main\"\n\
            [function.wall]\nports = [\"wire\"]\nstart = false\n\
            click = \"FromPort(wire) -> Discard; Idle -> ToPort(wire);\"\n\
            [placement]\nthis-host = \"default\"\n[plugins.rules]\nfolder = \"rules\"\nlimit = \"10s\"\n\
            [policy.night]\nfilters = [\"Memory\", \"Night\"]\nbalancer = \"Night\"\n\
            weights = {{ OptimalForCpuPowerSaving = 1 }}\n\
            [cluster.default]\npolicy = \"night\"\ninterval = 0\nproperties = {{ closed = \"{closed}\" }}\n"
        )
    };
    lab.write("lab.toml", &file("no"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    assert_eq!(lab.json(&["place", "start", "wall"])["placed"], true);
    let state = || lab.json(&["function", "list"])[0]["state"].as_str().unwrap().to_string();
    until("it runs", || state() == "running");
    until("placement counts it", || lab.json(&["place", "hosts"])[0]["vms"] == 1);

    lab.write("lab.toml", &file("yes"));
    lab.ok(&["apply", "lab.toml"]);
    let round = lab.ok(&["place", "balance"]);
    assert!(round.contains("wall was stopped (Night)") && round.contains("goes into maintenance"), "{round}");
    until("it has stopped", || state() == "stopped");
    let status = || lab.json(&["place", "hosts"])[0]["status"].clone();
    until("the host is in maintenance", || status() == "maintenance");
    let (code, why) = {
        let refused = lab.run(&["place", "start", "wall"]);
        (refused.status.code(), String::from_utf8_lossy(&refused.stderr).into_owned())
    };
    assert!(code == Some(1) && why.contains("Status removed 1"), "{why}");

    lab.write("lab.toml", &file("no"));
    lab.ok(&["apply", "lab.toml"]);
    assert!(lab.ok(&["place", "balance"]).contains("is activated"));
    assert_eq!(status(), "up");
    assert_eq!(lab.json(&["place", "start", "wall"])["placed"], true);

    // A filter that raises forbids every host.
    let fails = NIGHT.replace("print([] if args.get('closed') == 'yes' else hosts)", "raise KeyError(vm)");
    lab.write("rules/night.py", &fails);
    until("the new file is used", || {
        let refused = lab.run(&["place", "try", "other", "--cpus", "1", "--memory", "64"]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        refused.status.code() == Some(1) && why.contains("requires a unit that failed: Night: exception")
    });
}

/// A filter whose answers are as long as they may be, or longer.
const LONG: &str = "from ringway.placement import Filter\n\n\nclass Long(Filter):\n    \
    def do_filter(self, hosts, vm, args):\n        \
    return ['x' * 3_900_000] if vm.memory < 200 else ['x' * 9_000_000]\n";

/// Clients of a flood.
const CLIENTS: usize = 32;
/// Times that the fabric is looked at in a flood.
const LOOKS: usize = 4;

/// Requests that a client of a flood repeats: method, path, body.
type Requests = Vec<(&'static str, &'static str, String)>;

/// The interfaces of `control` that others can flood, with what they send. The first is the extender's.
fn interfaces() -> Vec<(&'static str, Requests)> {
    let names: Vec<String> = (0..400_000).map(|name| format!("n{name}")).collect();
    let names = json!({ "Pod": { "metadata": { "name": "p" } }, "NodeNames": names });
    let objects = vec![json!({ "vm": { "name": "n".repeat(480) } }); 15_000];
    let described = format!("[{}0]", "0,".repeat(400_000));
    let departure = json!({ "name": "f", "function": described, "state": "x".repeat(7 << 20), "process": 1,
        "descriptor": 3, "inode": 1 });
    let function = |elements: usize| {
        let text = "Idle; ".repeat(elements);
        json!({ "name": "f", "configuration": text, "ports": ["none"] }).to_string()
    };
    let file = |text: String| json!({ "file": "/f.toml", "text": text }).to_string();
    let ports = |count: usize| (0..count).map(|port| format!("[port.p{port}]\n")).collect::<String>();
    let attempt =
        |memory: u32| json!({ "new": [{ "name": "w", "memory_mb": memory }], "policy": "night" }).to_string();
    vec![
        ("names for the extender", vec![("POST", "/v1/place/extender/filter", names.to_string())]),
        ("nothing", Vec::new()),
        ("plugins", vec![("POST", "/v1/place/try", attempt(100)), ("POST", "/v1/place/try", attempt(300))]),
        ("objects", vec![("POST", "/v1/place/objects", json!(objects).to_string())]),
        ("arrivals", vec![("POST", "/v1/arrivals", departure.to_string())]),
        (
            "functions",
            vec![("POST", "/v1/functions", function(1 << 20)), ("POST", "/v1/functions", function(10_000))],
        ),
        (
            "files",
            vec![
                ("PUT", "/v1/fabric", file(ports(280_000))),
                ("PUT", "/v1/fabric", file(ports(50_000))),
                ("PUT", "/v1/fabric", file(format!("{}\n[", "#".repeat((4 << 20) - 9)))),
            ],
        ),
    ]
}

/// Sends a request and waits for the first byte of the answer; what fails is not looked at.
fn send<S: Read + Write>(stream: std::io::Result<S>, (method, path, body): &(&str, &str, String)) {
    let Ok(mut stream) = stream else { return };
    let head = "host: ringway\r\ncontent-type: application/json\r\nconnection: close";
    let head = format!("{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n", body.len());
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    let _ = sent.and_then(|()| stream.read(&mut [0]));
}

/// Memory of a process by this key, in bytes.
fn memory(process: &str, key: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Times of `ringway ps` while clients repeat a flood, in order.
fn times_in_flood(lab: &Lab, flood: impl Fn() + Sync) -> Vec<Duration> {
    let over = AtomicBool::new(false);
    let repeat = || {
        while !over.load(Ordering::Relaxed) {
            flood();
        }
    };
    let mut times = std::thread::scope(|scope| {
        (0..CLIENTS).for_each(|_| drop(scope.spawn(repeat)));
        let look = || {
            std::thread::sleep(Duration::from_millis(50));
            let begin = Instant::now();
            (lab.run(&["ps"]).status.success(), begin.elapsed())
        };
        let looks: Vec<(bool, Duration)> = (0..LOOKS).map(|_| look()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(looks.iter().all(|(shown, _)| *shown), "{looks:?}");
        looks.into_iter().map(|(_, took)| took).collect::<Vec<_>>()
    });
    times.sort();
    times
}

/// Attack: each interface of `control` is flooded. The fabric answers `ps` meanwhile, and memory stays bounded. Times
/// are printed, and fail nothing.
#[test]
fn floods_of_any_interface_take_little_memory_and_ps_is_answered() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-flood-{}", std::process::id())));
    std::fs::create_dir_all(lab.0.join("plugins")).unwrap();
    lab.write("plugins/long.py", LONG);
    let policy = "[plugins.long]\nfolder = \"plugins\"\n[policy.night]\nfilters = [\"Memory\", \"Long\"]\n";
    lab.write("lab.toml", &format!("{LOAD}{policy}"));
    lab.write("hosts.toml", HOSTS);
    lab.ok(&["up", "lab.toml", "--detach", "--extender=127.0.0.1:0"]);
    lab.ok(&["place", "put", "hosts.toml"]);
    let log = std::fs::read_to_string(lab.0.join("run/lab.log")).unwrap();
    let at = log.split("127.0.0.1:").nth(1).unwrap();
    let port: u16 = at.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
    let control = std::fs::read_to_string(lab.0.join("run/lab/lock")).unwrap().trim().to_string();
    let socket = lab.0.join("run/lab/api.sock");
    let mut report = String::new();
    for (interface, requests) in interfaces() {
        // Sets the peak to what it has now.
        std::fs::write(format!("/proc/{control}/clear_refs"), "5").unwrap();
        let before = memory(&control, "VmRSS");
        let times = times_in_flood(&lab, || match &*requests {
            [] => std::thread::sleep(Duration::from_millis(100)),
            [one] if one.1.contains("extender") => send(TcpStream::connect(("127.0.0.1", port)), one),
            all => all.iter().for_each(|one| send(UnixStream::connect(&socket), one)),
        });
        let more = memory(&control, "VmHWM").saturating_sub(before) >> 20;
        let (median, most) = (times[LOOKS / 2], times[LOOKS - 1]);
        let line = format!("{interface}: ps took {median:?}, {most:?} at most; {more} MB more\n");
        print!("{line}");
        report += &line;
        assert!(more <= 64, "{report}");
    }
}
