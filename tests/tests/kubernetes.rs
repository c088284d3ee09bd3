//! Placement for a Kubernetes cluster with the real kube-apiserver and kube-scheduler, as in docs/placement.md.
//! `KUBERNETES` names the folder of these two programs; without it nothing is tested. etcd is Debian's package
//! `etcd-server`. Nodes are only objects: no kubelet runs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringway_tests::eventually;
use ringway_tests::fabric::program;
use ringway_tests::folder::Folder;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const NODES: usize = 20;
/// CPUs of a node.
const CPUS: usize = 8;
/// Pods whose binding is timed.
const TIMED: usize = 1000;
/// Measurements of each kind, in turn.
const ROUNDS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(180);

/// A program that is ended on drop.
struct Running(Child);

impl Running {
    fn start(folder: &Path, name: &str, program: &Path, arguments: &[String]) -> Running {
        let log = File::create(folder.join(format!("{name}.log"))).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments).current_dir(folder);
        command.env("RINGWAY_RUN", folder.join("run")).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Running(command.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A free port.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// etcd, kube-apiserver and placement, in a separate folder.
struct Lab {
    programs: PathBuf,
    server: String,
    extender: u16,
    placement: Option<Running>,
    _api: Running,
    _etcd: Running,
    /// Removed when no process writes to it any more.
    folder: Folder,
}

impl Lab {
    fn new(programs: PathBuf) -> Lab {
        let folder = Folder::new("kubernetes").unwrap();
        let path = folder.path();
        let (clients, peers, api, extender) = (port(), port(), port(), port());
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let etcd = words(&format!(
            "--data-dir etcd --listen-client-urls {0} --advertise-client-urls {0} --listen-peer-urls {1} \
             --initial-advertise-peer-urls {1} --initial-cluster default={1}",
            url(clients),
            url(peers)
        ));
        let etcd = Running::start(path, "etcd", Path::new("etcd"), &etcd);
        let key =
            Command::new("openssl").args(["genrsa", "-out", "sa.key", "2048"]).current_dir(path).output();
        assert!(key.unwrap().status.success());
        std::fs::write(path.join("tokens"), "secret,admin,admin,\"system:masters\"\n").unwrap();
        let arguments = words(&format!(
            "--etcd-servers {} --bind-address 127.0.0.1 --secure-port {api} --cert-dir certs \
             --service-account-issuer https://kubernetes.default --service-account-key-file sa.key \
             --service-account-signing-key-file sa.key --token-auth-file tokens --authorization-mode RBAC \
             --disable-admission-plugins ServiceAccount --service-cluster-ip-range 10.99.0.0/24",
            url(clients)
        ));
        let running = Running::start(path, "apiserver", &programs.join("kube-apiserver"), &arguments);
        let server = format!("https://127.0.0.1:{api}");
        let lab = Lab { folder, programs, server, extender, placement: None, _api: running, _etcd: etcd };
        assert!(eventually(TIMEOUT, || lab.api("GET", "/readyz", &[]).status.success()), "no API server");
        lab.kubeconfig();
        lab
    }

    fn kubeconfig(&self) {
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: lab\nclusters:\n- name: lab\n  \
             cluster:\n    server: {}\n    certificate-authority: certs/apiserver.crt\n\
             contexts:\n- name: lab\n  context: {{cluster: lab, user: us}}\n\
             users:\n- name: us\n  user: {{token: secret}}\n",
            self.server
        );
        std::fs::write(self.folder.path().join("lab.conf"), config).unwrap();
    }

    fn api(&self, method: &str, path: &str, more: &[&str]) -> Output {
        // The API server refuses a PATCH of any other type.
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut curl = Command::new("curl");
        curl.args(["-s", "-S", "-f", "--cacert", "certs/apiserver.crt", "-X", method]).args(more);
        curl.args(["-H", "Authorization: Bearer secret", "-H", &format!("Content-Type: {kind}")]);
        curl.arg(format!("{}{path}", self.server)).current_dir(self.folder.path()).output().unwrap()
    }

    fn ok(&self, method: &str, path: &str, more: &[&str]) -> String {
        let output = self.api(method, path, more);
        assert!(output.status.success(), "{method} {path}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts `ringway place kubernetes`.
    fn place(&mut self, policy: &str) {
        // The previous process holds the run directory until it has ended.
        self.placement = None;
        let listen = format!("127.0.0.1:{}", self.extender);
        let arguments =
            ["place", "kubernetes", "--kubeconfig", "lab.conf", "--listen", &listen, "--policy", policy];
        let arguments = arguments.map(str::to_string);
        self.placement = Some(Running::start(self.folder.path(), "ringway", &program(), &arguments));
        assert!(eventually(TIMEOUT, || self.figure("healthz").is_some()), "placement is not well");
    }

    /// The body of a successful response from the extender's address.
    fn figure(&self, what: &str) -> Option<String> {
        // Without curl: its start would load a core while pods are timed.
        let mut stream = TcpStream::connect(("127.0.0.1", self.extender)).ok()?;
        write!(stream, "GET /{what} HTTP/1.1\r\nhost: ringway\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.strip_prefix("HTTP/1.1 200").map(str::to_string)
    }

    fn metric(&self, line: &str) -> u64 {
        let metrics = self.figure("metrics").unwrap();
        let found = metrics.lines().find_map(|it| it.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or_else(|| panic!("no {line} in {metrics}"))
    }

    fn ringway(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(program());
        command.env("RINGWAY_RUN", self.folder.path().join("run")).args(["--json", "place"]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn add_node(&self, name: &str) {
        let body = json!({ "metadata": { "name": name } }).to_string();
        self.ok("POST", "/api/v1/nodes", &["-d", &body]);
        // TaintNodesByCondition makes every new node unready, and no kubelet reports otherwise here.
        let ready = json!({ "spec": { "taints": null } }).to_string();
        self.ok("PATCH", &format!("/api/v1/nodes/{name}"), &["-d", &ready]);
        let room = json!({ "cpu": CPUS.to_string(), "memory": "32Gi", "pods": "1000" });
        let conditions = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "status": { "capacity": room, "allocatable": room, "conditions": conditions } });
        self.ok("PATCH", &format!("/api/v1/nodes/{name}/status"), &["-d", &status.to_string()]);
    }

    /// Creates pods with this CPU request.
    fn pods(&self, prefix: &str, count: usize, cpu: &str) {
        let containers =
            json!([{ "name": "c", "image": "none", "resources": { "requests": { "cpu": cpu } } }]);
        let pod = json!({ "metadata": { "generateName": prefix }, "spec": { "containers": containers } });
        std::fs::write(self.folder.path().join("pod.json"), pod.to_string()).unwrap();
        let path = format!("/api/v1/namespaces/default/pods?n=[1-{count}]");
        self.ok("POST", &path, &["-d", "@pod.json", "--parallel", "--parallel-max", "8", "-o", "/dev/null"]);
    }

    fn no_pods(&self) {
        let path = "/api/v1/namespaces/default/pods?gracePeriodSeconds=0";
        self.ok("DELETE", path, &["-o", "/dev/null"]);
        assert!(eventually(TIMEOUT, || self.metric("ringway_vms") == 0), "pods stay");
    }

    /// Number of bound pods per node, according to the API server.
    fn bound(&self) -> BTreeMap<String, usize> {
        let pods: Value =
            serde_json::from_str(&self.ok("GET", "/api/v1/namespaces/default/pods", &[])).unwrap();
        let mut nodes = BTreeMap::new();
        for node in
            pods["items"].as_array().unwrap().iter().filter_map(|pod| pod["spec"]["nodeName"].as_str())
        {
            *nodes.entry(node.to_string()).or_default() += 1;
        }
        nodes
    }

    /// Starts kube-scheduler with the page's configuration, and an extender of these verbs or none.
    fn scheduler(&self, verbs: Option<&str>) -> Running {
        let page = include_str!("../../docs/placement.md");
        let (_, shown) = page.split_once("```yaml\n").unwrap();
        let (common, extender) = shown.split_once("```").unwrap().0.split_once("extenders:\n").unwrap();
        let common = common.replace("/etc/kubernetes/scheduler.conf", "lab.conf").replace("1000", "5000");
        let address = format!("127.0.0.1:{}", self.extender);
        let extender = extender.replace("127.0.0.1:10263", &address);
        let extender = verbs.map_or(String::new(), |verbs| {
            assert!(extender.contains(ALL_VERBS), "{extender}");
            format!("extenders:\n{}", extender.replace(ALL_VERBS, verbs))
        });
        let config = format!("{common}leaderElection:\n  leaderElect: false\n{extender}");
        std::fs::write(self.folder.path().join("scheduler.yaml"), config).unwrap();
        let arguments = ["--config", "scheduler.yaml", "--secure-port", "0"].map(str::to_string);
        Running::start(self.folder.path(), "scheduler", &self.programs.join("kube-scheduler"), &arguments)
    }

    /// Rate of bound pods, with many waiting.
    fn rate(&self, extender: Option<&str>) -> f64 {
        self.pods("timed-", TIMED, "10m");
        let _scheduler = self.scheduler(extender);
        let mut first = None;
        let end = Instant::now() + TIMEOUT;
        loop {
            let (bound, now) = (self.metric("ringway_vms") as usize, Instant::now());
            assert!(now < end, "{bound} of {TIMED} pods are bound");
            match first {
                None if bound > 0 => first = Some((bound, now)),
                Some((before, since)) if bound == TIMED => {
                    return (bound - before) as f64 / now.duration_since(since).as_secs_f64();
                }
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

const RATES: Option<&str> = Some("  filterVerb: filter\n  prioritizeVerb: prioritize\n");
/// Those of the page.
const ALL_VERBS: &str = "  filterVerb: filter\n  prioritizeVerb: prioritize\n  bindVerb: bind\n";
const BINDS: Option<&str> = Some(ALL_VERBS);
const BEST: Option<&str> = Some("  filterVerb: best\n");
const BEST_BINDS: Option<&str> = Some("  filterVerb: best\n  bindVerb: bind\n");

#[test]
fn pods_are_placed_with_a_real_kube_scheduler() {
    let Some(programs) = std::env::var_os("KUBERNETES").filter(|folder| !folder.is_empty()) else {
        eprintln!("KUBERNETES names no folder with kube-apiserver and kube-scheduler: nothing is tested");
        return;
    };
    let programs = PathBuf::from(programs);
    for program in ["kube-apiserver", "kube-scheduler"].map(|name| programs.join(name)) {
        assert!(program.is_file(), "{} is not there, which KUBERNETES names", program.display());
    }
    let mut lab = Lab::new(programs);
    (0..NODES).for_each(|at| lab.add_node(&format!("node-{at:02}")));
    lab.place("packing");
    assert_eq!(lab.metric("ringway_hosts"), NODES as u64);

    // Bound pods count: pods of 1 CPU fill one node after the other, whichever component writes the bindings.
    let mut written = 0;
    for extender in [BINDS, RATES, BEST_BINDS] {
        written += if extender == RATES { 0 } else { 40 };
        let _scheduler = lab.scheduler(extender);
        for count in 1..=40 {
            lab.pods("one-", 1, "1");
            assert!(eventually(TIMEOUT, || lab.metric("ringway_vms") == count), "pod {count} is not bound");
        }
        let nodes = lab.bound();
        assert!(nodes.values().sum::<usize>() == 40 && nodes.len() == 40 / CPUS, "{nodes:?}");
        let bindings = lab.metric("ringway_kubernetes_bindings_total{result=\"ok\"}");
        assert_eq!(bindings, written, "only where it is asked to");
        lab.no_pods();
    }

    // Allocations match the API server's, also after a restart that missed changes.
    {
        let _scheduler = lab.scheduler(BINDS);
        lab.pods("part-", 60, "250m");
        assert!(eventually(TIMEOUT, || lab.metric("ringway_vms") == 60), "not all are bound");
        lab.placement = None;
        lab.add_node("late");
        lab.place("packing");
        let rows = lab.ringway(&["hosts"]);
        let accounts = rows.as_array().unwrap().iter().filter(|row| row["vms"] != 0);
        let accounts: BTreeMap<String, usize> = accounts
            .map(|row| (row["name"].as_str().unwrap().to_string(), row["vms"].as_u64().unwrap() as usize))
            .collect();
        assert_eq!(accounts, lab.bound());
        let promised: f64 = rows.as_array().unwrap().iter().map(|row| row["vcpus"].as_f64().unwrap()).sum();
        assert!((promised - 15.0).abs() < 1e-6, "{promised}");
        assert!(rows.as_array().unwrap().iter().any(|row| row["name"] == "late"), "a new node needs no put");

        // A pod that fits no node: the reason is stored and readable.
        lab.pods("large-", 1, "9");
        let no_host = |lab: &Lab| {
            let decisions = lab.ringway(&["decisions"]);
            decisions.as_array().unwrap().iter().any(|it| it["placed"] == false)
        };
        // kube-scheduler itself finds no node, and does not query the extender: the test does.
        let pod = json!({ "metadata": { "name": "large", "namespace": "default" }, "spec": { "containers": [
            { "resources": { "requests": { "cpu": "9" } } }] } });
        let asked = json!({ "Pod": pod, "NodeNames": ["node-00", "late"] }).to_string();
        let url = format!("http://127.0.0.1:{}/v1/place/extender/filter", lab.extender);
        let curl = ["-s", "-f", "-H", "Content-Type: application/json", "-d", &asked, &url];
        assert!(Command::new("curl").args(curl).output().unwrap().status.success());
        assert!(no_host(&lab));
    }
    lab.no_pods();
    print_rates(&mut lab);
}

/// Prints the rate of bound pods with the extender, and by kube-scheduler alone.
fn print_rates(lab: &mut Lab) {
    lab.place("none");
    let kinds = [
        ("alone", None),
        ("with filter, prioritize, bind", BINDS),
        ("with filter, prioritize", RATES),
        ("with best, bind", BEST_BINDS),
        ("with best", BEST),
    ];
    let mut rates = kinds.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, extender), rates) in kinds.iter().zip(&mut rates) {
            rates.push(lab.rate(*extender));
            lab.no_pods();
        }
    }
    for ((name, _), mut rates) in kinds.into_iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        let (least, median, most) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
        eprintln!("kube-scheduler {name}: {median:.0} pods bound a second ({least:.0} to {most:.0})");
    }
}
