//! Watching and binding in Kubernetes, with exchanges recorded from kube-apiserver 1.34 (`kubernetes/`), and
//! with an API server that restarts, expires revisions, or is overloaded.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_place::object::Vm;
use ringway_scheduler::kubernetes::{BackOff, Kubernetes};
use ringway_scheduler::{Bounds, Placer, Service, serve_extender};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NODES: &str = include_str!("kubernetes/nodes.json");
const PODS: &str = include_str!("kubernetes/pods.json");
const NODE_EVENTS: &str = include_str!("kubernetes/nodes.watch");
const POD_EVENTS: &str = include_str!("kubernetes/pods.watch");
const EMPTY: &str = r#"{ "metadata": { "resourceVersion": "7" }, "items": [] }"#;

/// An answer of the API server.
#[derive(Clone)]
enum Answer {
    Whole(u16, String),
    /// Lines, and then the end of the answer.
    Lines(String),
    /// Lines, and then nothing more.
    Open(String),
    /// The connection ends without a reply.
    HangUp,
}

fn whole(body: &str) -> Answer {
    Answer::Whole(200, body.into())
}

/// An API server with scripted answers, which records requests. Unscripted watches stay silent; unscripted
/// lists are empty.
#[derive(Clone, Default)]
struct Server {
    nodes: Arc<Mutex<VecDeque<Answer>>>,
    pods: Arc<Mutex<VecDeque<Answer>>>,
    bindings: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Server {
    fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream.unwrap()));
            }
        });
        address
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
                head += &line;
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let asked = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_string();
            let answer = self.next(&asked);
            self.asked.lock().unwrap().push((asked, String::from_utf8(body).unwrap()));
            let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
            let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let sent = match &answer {
                Answer::Whole(status, body) => {
                    write!(stream, "HTTP/1.1 {status} -\r\ncontent-length: {}\r\n\r\n{body}", body.len())
                }
                Answer::Lines(lines) => write!(stream, "{chunked}{}0\r\n\r\n", chunk(lines)),
                Answer::Open(lines) if lines.is_empty() => write!(stream, "{chunked}"),
                Answer::Open(lines) => write!(stream, "{chunked}{}", chunk(lines)),
                Answer::HangUp => return,
            };
            if sent.is_err() {
                return;
            }
        }
    }

    fn next(&self, asked: &str) -> Answer {
        let answers = match asked {
            asked if asked.contains("/binding") => &self.bindings,
            asked if asked.contains("/nodes") => &self.nodes,
            _ => &self.pods,
        };
        let silent = || if asked.contains("watch=1") { Answer::Open(String::new()) } else { whole(EMPTY) };
        answers.lock().unwrap().pop_front().unwrap_or_else(silent)
    }

    /// The requests that contain `what`.
    fn asked(&self, what: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|(asked, _)| asked.clone()).filter(|asked| asked.contains(what)).collect()
    }
}

/// Placement that follows a server, with its thread.
struct Lab {
    server: Server,
    service: Service,
    extender: SocketAddr,
    kubeconfig: PathBuf,
}

impl Lab {
    fn new(name: &str, nodes: Vec<Answer>, pods: Vec<Answer>) -> Lab {
        let server = Server::default();
        *server.nodes.lock().unwrap() = nodes.into();
        *server.pods.lock().unwrap() = pods.into();
        Lab::of(name, server, Service::in_memory().unwrap())
    }

    fn of(name: &str, server: Server, service: Service) -> Lab {
        let kubeconfig = std::env::temp_dir().join(format!("rw-kubernetes-{name}-{}", std::process::id()));
        let text = json!({
            "current-context": "lab",
            "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "us" } }],
            "clusters": [{ "name": "lab", "cluster": { "server": format!("http://{}", server.start()) } }],
            "users": [{ "name": "us", "user": { "token": "secret" } }],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let (followed, path) = (service.clone(), kubeconfig.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let back_off = BackOff { first: Duration::from_millis(1), most: Duration::from_millis(4) };
                let _following = Kubernetes::follow(&followed, &path, None, "default", back_off).unwrap();
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                serve_extender(listener, Placer::on(followed), Bounds::of_extender()).await;
            });
        });
        Lab { server, service, extender: receiver.recv().unwrap(), kubeconfig }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let mut stream = TcpStream::connect(self.extender).unwrap();
        let body = body.to_string();
        let head = "host: ringway\r\ncontent-type: application/json\r\nconnection: close";
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_string())
    }

    fn extend(&self, verb: &str, body: &Value) -> Value {
        let (_, reply) = self.ask("POST", &format!("/v1/place/extender/{verb}"), body);
        serde_json::from_str(&reply).unwrap()
    }

    fn bind(&self, pod: &str, node: &str) -> String {
        let binding = json!({ "PodName": pod, "PodNamespace": "shop", "PodUID": "u1", "Node": node });
        self.extend("bind", &binding)["Error"].as_str().unwrap().to_string()
    }

    fn until(&self, what: &str, holds: impl Fn(&Lab) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds(self) {
            assert!(Instant::now() < end, "never: {what}; {:?}", self.server.asked(""));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn is_synced(&self) -> bool {
        self.ask("GET", "/healthz", &Value::Null) == (200, "ok\n".into())
    }

    fn vms(&self) -> Vec<Vm> {
        self.service.vms().unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

fn node(name: &str, cpus: u32) -> Value {
    let room = json!({ "cpu": cpus.to_string(), "memory": "16Gi", "pods": "110" });
    json!({ "metadata": { "name": name }, "status": { "capacity": room, "allocatable": room } })
}

fn list(revision: u32, items: &[Value]) -> Answer {
    whole(&json!({ "metadata": { "resourceVersion": revision.to_string() }, "items": items }).to_string())
}

fn pod(name: &str, cpu: &str) -> Value {
    let metadata = json!({ "name": name, "namespace": "shop", "uid": "u1" });
    let containers = json!([{ "name": "c", "resources": { "requests": { "cpu": cpu } } }]);
    json!({ "metadata": metadata, "spec": { "containers": containers } })
}

/// A line of a watch about a pod on a node.
fn event(kind: &str, revision: u32, mut pod: Value, node: &str) -> String {
    pod["metadata"]["resourceVersion"] = revision.to_string().into();
    pod["spec"]["nodeName"] = node.into();
    json!({ "type": kind, "object": pod }).to_string() + "\n"
}

fn expired() -> String {
    let status = json!({ "kind": "Status", "code": 410, "message": "too old resource version: 7 (205)" });
    json!({ "type": "ERROR", "object": status }).to_string() + "\n"
}

#[test]
fn recorded_replies_of_a_real_api_server_are_followed() {
    let lab = Lab::new(
        "recorded",
        vec![whole(NODES), Answer::Open(NODE_EVENTS.into())],
        vec![whole(PODS), Answer::Open(POD_EVENTS.into())],
    );
    // Lists have node-1 and the pod `web`; then node-2 and `db` are added, and `web` is deleted.
    lab.until("db runs alone", |lab| lab.vms().iter().map(|vm| vm.name.as_str()).eq(["default.db"]));
    lab.until("both nodes", |lab| lab.service.hosts().unwrap().iter().map(|row| row.cpus).eq([1, 8]));
    let vm = lab.vms().remove(0);
    assert_eq!((vm.host.as_deref(), vm.milli_cpus, vm.memory_mb), (Some("node-2"), Some(1750), 544));
    assert!(vm.labels.contains(&"app=db".to_string()));
    let rows = lab.service.hosts().unwrap();
    // The kubelet has not reported node-1 as ready yet.
    assert_eq!((rows[0].facts["node_ready"], rows[0].facts["taint_dedicated"]), (0.0, 2.0));
    assert_eq!((rows[1].facts["node_ready"], rows[1].facts["taint_dedicated"]), (1.0, 0.0));
    assert_eq!(rows[1].vcpus, 1.75);
    lab.until("it is well", Lab::is_synced);
    // A new node is usable at once; one with a taint that the pod does not tolerate is not.
    let mut api = pod("api", "500m");
    // A new node has this taint until its kubelet reports that it is ready.
    api["spec"]["tolerations"] = json!([{ "key": "node.kubernetes.io/not-ready", "operator": "Exists" }]);
    let asked = json!({ "Pod": api, "NodeNames": ["node-1", "node-2", "node-3"] });
    let reply = lab.extend("filter", &asked);
    assert_eq!(reply["NodeNames"], json!(["node-2"]));
    let why = "the pod does not tolerate its taint dedicated=gpu:NoSchedule";
    assert_eq!(reply["FailedNodes"]["node-1"], why);
    assert_eq!(reply["FailedAndUnresolvableNodes"]["node-3"], "Ringway does not know this node");
    let lists = lab.server.asked("limit=500");
    assert!(lists[0].starts_with("GET /api/v1/") && lists.len() == 2, "{lists:?}");
    assert!(lab.server.asked("nodeName!%3D,status.phase!%3DSucceeded").len() >= 2);
}

#[test]
fn an_interrupted_watch_resumes_at_its_version() {
    let events = event("ADDED", 11, pod("one", "1"), "n1") + &event("ADDED", 12, pod("two", "1"), "n1");
    let bookmark = json!({ "type": "BOOKMARK", "object": { "metadata": { "resourceVersion": "20" } } });
    let later = event("DELETED", 13, pod("one", "1"), "n1") + &bookmark.to_string() + "\n";
    let half = event("ADDED", 14, pod("four", "1"), "n1");
    let lab = Lab::new(
        "again",
        vec![list(5, &[node("n1", 8)])],
        vec![
            list(10, &[]),
            Answer::Lines(events),
            Answer::HangUp,
            Answer::Whole(503, "overloaded".into()),
            Answer::Lines(later + &half[..half.len() / 2]),
            Answer::Lines("no JSON\n".into()),
            Answer::Open(event("ADDED", 21, pod("three", "1"), "n1")),
        ],
    );
    lab.until("three", |lab| lab.vms().iter().map(|vm| vm.name.as_str()).eq(["shop.three", "shop.two"]));
    let watched: Vec<String> =
        lab.server.asked("/pods?").into_iter().filter(|it| it.contains("watch=1")).collect();
    let from: Vec<&str> = watched.iter().map(|it| it.rsplit("resourceVersion=").next().unwrap()).collect();
    assert_eq!(from[..6], ["10", "12", "12", "12", "20", "20"]);
    assert_eq!(lab.server.asked("/pods?").len() - watched.len(), 1, "one list was enough");
    let (_, metrics) = lab.ask("GET", "/metrics", &Value::Null);
    assert!(metrics.contains("ringway_kubernetes_events_total{resource=\"pods\"} 4"), "{metrics}");
    assert!(!metrics.contains("ringway_kubernetes_failures_total{resource=\"pods\"} 0"), "{metrics}");
}

#[test]
fn an_expired_watch_lists_again_and_removes_missing_objects() {
    let mut over = pod("over", "1");
    over["spec"]["nodeName"] = "n1".into();
    over["status"]["phase"] = "Succeeded".into();
    let mut kept = pod("kept", "1");
    kept["spec"]["nodeName"] = "n1".into();
    let mut first = kept.clone();
    first["metadata"]["name"] = "gone".into();
    // A list in two pages, the second of which fails.
    let page = json!({ "metadata": { "resourceVersion": "9", "continue": "a b" }, "items": [first] });
    let lab = Lab::new(
        "compacted",
        vec![list(5, &[node("n1", 8), node("n2", 8)]), Answer::Lines(expired()), list(300, &[node("n1", 4)])],
        vec![
            whole(&page.to_string()),
            Answer::Whole(410, json!({ "code": 410, "message": "expired" }).to_string()),
            list(10, &[first.clone(), kept.clone()]),
            Answer::Whole(410, "{}".into()),
            list(300, &[kept, over]),
        ],
    );
    lab.until("one pod", |lab| lab.vms().iter().map(|vm| vm.name.as_str()).eq(["shop.kept"]));
    lab.until("one node", |lab| lab.service.hosts().unwrap().len() == 1);
    lab.until("it is smaller", |lab| lab.service.hosts().unwrap()[0].cpus == 4);
    assert!(!lab.server.asked("continue=a%20b").is_empty());
}

#[test]
fn no_request_is_answered_before_the_first_list() {
    let broken = Answer::Whole(403, json!({ "code": 403, "message": "pods is forbidden" }).to_string());
    let lab = Lab::new("unknown", vec![list(5, &[node("n1", 8)])], vec![broken.clone(); 5000]);
    lab.until("the reason", |lab| lab.ask("GET", "/healthz", &Value::Null).1.contains("pods is forbidden"));
    assert_eq!(lab.ask("GET", "/healthz", &Value::Null).0, 503);
    let asked = json!({ "Pod": pod("api", "1"), "NodeNames": ["n1"] });
    let error = lab.extend("filter", &asked)["Error"].as_str().unwrap().to_string();
    assert!(error.starts_with("not in step with Kubernetes yet: "), "{error}");
    assert!(lab.bind("api", "n1").starts_with("not in step with Kubernetes yet: "));
    lab.server.pods.lock().unwrap().clear();
    lab.until("it is well", Lab::is_synced);
    assert_eq!(lab.extend("filter", &asked)["NodeNames"], json!(["n1"]));
}

#[test]
fn a_binding_is_stored_before_the_reply() {
    let lab = Lab::new("bind", vec![list(5, &[node("n1", 2), node("n2", 2)])], vec![list(5, &[])]);
    lab.until("it is well", Lab::is_synced);
    let answers = |answers: Vec<Answer>| *lab.server.bindings.lock().unwrap() = answers.into();
    let pending = || lab.service.hosts().unwrap().iter().map(|row| row.pending).sum::<i32>();
    let asked = |name| json!({ "Pod": pod(name, "1500m"), "NodeNames": ["n1", "n2"] });
    assert!(lab.bind("web", "n1").starts_with("no request within 15 minutes described pod shop.web"));
    lab.extend("filter", &asked("web"));
    // A binding refused by the server is not made here either.
    let taken = json!({ "code": 409, "message": "pod web is already assigned to node \"n9\"" });
    answers(vec![Answer::Whole(409, taken.to_string())]);
    assert_eq!(lab.bind("web", "n1"), "the API server: pod web is already assigned to node \"n9\"");
    assert_eq!((pending(), lab.vms().len()), (0, 0));
    // If the outcome is unknown, the pod counts until it is known.
    answers(vec![Answer::HangUp]);
    assert!(lab.bind("web", "n1").starts_with("the API server: "));
    assert_eq!((pending(), lab.vms().len()), (1, 1));
    answers(vec![Answer::Whole(201, r#"{ "status": "Success" }"#.into())]);
    assert_eq!(lab.bind("web", "n1"), "");
    assert_eq!((pending(), lab.service.hosts().unwrap()[0].vcpus), (1, 1.5));
    let request = lab.server.asked.lock().unwrap().last().cloned().unwrap();
    assert_eq!(request.0, "POST /api/v1/namespaces/shop/pods/web/binding");
    let written: Value = serde_json::from_str(&request.1).unwrap();
    assert_eq!(
        written,
        json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": { "name": "web", "namespace": "shop", "uid": "u1" },
            "target": { "apiVersion": "v1", "kind": "Node", "name": "n1" },
        })
    );
    // A node without room according to our policy is refused without asking the server.
    let mut packed = asked("api");
    packed["Pod"]["metadata"]["annotations"] = json!({ "ringway/policy": "packing" });
    assert_eq!(lab.extend("filter", &packed)["NodeNames"], json!(["n2"]));
    let error = lab.bind("api", "n1");
    assert!(error.contains("VCpuCapacity removed 1"), "{error}");
    assert_eq!(lab.server.asked("/binding").len(), 3);
    let wrong = json!({ "PodName": "a/../b", "PodNamespace": "shop", "PodUID": "", "Node": "n1" });
    assert!(!lab.extend("bind", &wrong)["Error"].as_str().unwrap().is_empty());
    assert_eq!(lab.server.asked("/binding").len(), 3, "a name is no path");
}

/// Bound pods count, so pods are packed.
#[test]
fn bound_pods_count_for_packing() {
    let names: Vec<String> = (0..20).map(|at| format!("n{at:02}")).collect();
    let nodes: Vec<Value> = names.iter().map(|name| node(name, 8)).collect();
    let lab = Lab::new("packing", vec![list(5, &nodes)], vec![list(5, &[])]);
    lab.until("it is well", Lab::is_synced);
    for at in 0..40 {
        let mut pod = pod(&format!("p{at}"), "1");
        pod["metadata"]["annotations"] = json!({ "ringway/policy": "packing" });
        let reply = lab.extend("filter", &json!({ "Pod": pod, "NodeNames": names }));
        let asked = json!({ "Pod": pod, "NodeNames": reply["NodeNames"] });
        let scores = lab.extend("prioritize", &asked);
        let best = scores.as_array().unwrap().iter().max_by_key(|score| score["Score"].as_i64()).unwrap();
        lab.server.bindings.lock().unwrap().push_back(Answer::Whole(201, "{}".into()));
        assert_eq!(lab.bind(&format!("p{at}"), best["Host"].as_str().unwrap()), "");
    }
    let used = lab.service.hosts().unwrap().iter().filter(|row| row.pending > 0).count();
    assert_eq!(used, 5, "40 pods of 1 CPU fill 5 nodes of 8");
    let decisions = lab.service.decisions(100).unwrap();
    assert_eq!(decisions.len(), 80, "one that was made for each pod, and one that reserved");
    let (status, metrics) = lab.ask("GET", "/metrics", &Value::Null);
    assert_eq!(status, 200);
    for line in [
        "ringway_hosts 20",
        "ringway_reservations 40",
        "ringway_decisions_total 80",
        "ringway_extender_duration_seconds_count{verb=\"bind\"} 40",
        "ringway_extender_failures_total{verb=\"bind\"} 0",
        "ringway_kubernetes_bindings_total{result=\"ok\"} 40",
        "ringway_kubernetes_synced{resource=\"pods\"} 1",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in {metrics}");
    }
}

/// A bound pod's resources move from its reservation to the running VM, wherever they were reserved.
#[test]
fn pod_events_settle_reservations() {
    let lab = Lab::new("settled", vec![list(5, &[node("n1", 4), node("n2", 4)])], vec![list(5, &[])]);
    lab.until("it is well", Lab::is_synced);
    lab.extend("filter", &json!({ "Pod": pod("web", "1"), "NodeNames": ["n1", "n2"] }));
    lab.server.bindings.lock().unwrap().push_back(Answer::HangUp);
    assert!(!lab.bind("web", "n1").is_empty());
    assert_eq!(lab.service.hosts().unwrap()[0].pending, 1);
    let mut bound = pod("web", "1");
    bound["spec"]["nodeName"] = "n2".into();
    let server = Server::default();
    *server.nodes.lock().unwrap() = vec![list(5, &[node("n1", 4), node("n2", 4)])].into();
    *server.pods.lock().unwrap() = vec![list(6, &[bound])].into();
    let mut service = Service::in_memory().unwrap();
    service.engine = lab.service.engine.clone();
    let second = Lab::of("settled-2", server, service);
    // As after a restart: the store has a reservation, the server a pod elsewhere.
    second.until("it is settled", |lab| lab.vms()[0].runs());
    let rows = second.service.hosts().unwrap();
    assert_eq!((rows[0].pending, rows[0].vms, rows[1].vms), (0, 0, 1));
    second.until("it is well", Lab::is_synced);
    let error = second.bind("web", "n1");
    assert_eq!(error, "pod shop.web runs on n2 already");
}
