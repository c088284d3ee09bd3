//! Placement over HTTP: concurrent clients, and invalid requests.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_place::engine::Object;
use ringway_place::object::{Host, Vm};
use ringway_scheduler::{Bounds, Placer, Service, Timeouts, router, serve_extender};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// An API on its own port, with its thread and its store.
struct Api {
    service: Service,
    address: SocketAddr,
    extender: SocketAddr,
    folder: PathBuf,
}

impl Api {
    fn new(name: &str) -> Api {
        Api::with(name, Timeouts::default())
    }

    /// An API whose extender has these time limits.
    fn with(name: &str, timeouts: Timeouts) -> Api {
        let folder = std::env::temp_dir().join(format!("rw-http-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let service = Service::open(&folder.join("place.redb")).unwrap();
        let place = Placer::on(service.clone());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let bind = || tokio::net::TcpListener::bind("127.0.0.1:0");
                let (api, extender) = (bind().await.unwrap(), bind().await.unwrap());
                sender.send((api.local_addr().unwrap(), extender.local_addr().unwrap())).unwrap();
                let place_of_extender = place.clone();
                let bounds = Bounds { timeouts, ..Bounds::of_extender() };
                tokio::spawn(serve_extender(extender, place_of_extender, bounds));
                axum::serve(api, router(place)).await.unwrap();
            });
        });
        let (address, extender) = receiver.recv().unwrap();
        Api { service, address, extender, folder }
    }

    fn hosts(&self, count: usize, cores: u32, memory_mb: u64) {
        let host =
            |index| Host { name: format!("h{index}"), cores, threads: cores, memory_mb, ..Host::default() };
        let hosts = (0..count).map(|index| Object::Host(Box::new(host(index))));
        self.service.put(hosts.collect()).unwrap();
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The status and the body of an answer.
fn send(address: SocketAddr, path: &str, body: &[u8]) -> (u16, String) {
    by("POST", address, path, body)
}

/// Sends a request with any method; returns the status and the body of the answer.
fn by(method: &str, address: SocketAddr, path: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = "host: ringway\r\ncontent-type: application/json\r\nconnection: close";
    write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n", body.len()).unwrap();
    // The server may refuse a body before reading all of it.
    let _ = stream.write_all(body);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    let reply = String::from_utf8_lossy(&reply).into_owned();
    let status = reply.split(' ').nth(1).map_or(0, |status| status.parse().unwrap());
    (status, reply.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_string()))
}

fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = send(address, path, body.to_string().as_bytes());
    (status, serde_json::from_str(&text).unwrap_or_default())
}

/// Eight clients request more than is available, and some release it: nothing is overbooked or lost.
#[test]
fn concurrent_requesters_never_overbook() {
    let api = Api::new("storm");
    api.hosts(4, 16, 8192);
    let placed: usize = std::thread::scope(|scope| {
        let work = |requester: usize| {
            let address = api.address;
            move || {
                let mut kept = 0;
                for round in 0..10 {
                    let name = format!("v{requester}-{round}");
                    let vm = json!({ "name": name, "memory_mb": 1500, "cores": 1 });
                    let (status, decision) = post(address, "/v1/place", &json!({ "new": [vm] }));
                    assert_eq!(status, 200, "{decision}");
                    if decision["placed"] == true && round % 3 == 0 {
                        let path = format!("/v1/place/vms/{name}/release");
                        assert_eq!(send(address, &path, b"").0, 204);
                    } else if decision["placed"] == true {
                        let path = format!("/v1/place/vms/{name}/confirm");
                        assert_eq!(send(address, &path, b"").0, 204);
                        kept += 1;
                    }
                }
                kept
            }
        };
        let threads: Vec<_> = (0..8).map(|requester| scope.spawn(work(requester))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // Five VMs of 1500 MB with overhead fit on a host, and eighty were requested.
    assert_eq!(placed, 20);
    let hosts = api.service.hosts().unwrap();
    let mut vms: BTreeMap<String, u64> = BTreeMap::new();
    for vm in api.service.vms().unwrap().into_iter().filter(Vm::runs) {
        *vms.entry(vm.host.unwrap()).or_default() += vm.memory_mb;
    }
    for host in &hosts {
        assert!(host.schedulable_mb >= 0 && host.pending == 0 && host.vms == 5, "{host:?}");
        assert!(vms[&host.name] <= 8192, "{host:?}");
    }
}

/// Every path reports errors and continues.
#[test]
fn every_request_gets_a_reply() {
    let api = Api::new("wrong");
    api.hosts(2, 4, 4096);
    let deep = "[".repeat(100_000);
    let wrong: [&[u8]; 6] = [b"", b"{", b"\"x\"", b"{\"vms\": 7}", b"\xff\xfe\x00", deep.as_bytes()];
    let paths = ["", "/try", "/why-not", "/objects", "/facts", "/balance"];
    for path in paths.map(|path| format!("/v1/place{path}")) {
        for body in wrong {
            let (status, text) = send(api.address, &path, body);
            assert!(status == 422 && text.contains("error"), "{path} {body:?}: {status} {text}");
        }
    }
    let absurd = [
        json!([{ "host": { "name": "x", "cores": 0 } }]),
        json!([{ "host": { "name": "x/y", "cores": 1, "threads": 1, "memory_mb": 1 } }]),
        json!([{ "host": { "name": "x", "cores": 4_000_000_000u32, "threads": 4_000_000_000u32 } }]),
        json!([{ "vm": { "name": "v", "memory_mb": u64::MAX } }]),
        json!([{ "vm": { "name": "v", "properties": { "HighUtilization": "7" } } }]),
        json!([{ "vm": { "name": "v", "policy": "nobody's" } }]),
        json!([{ "cluster": { "name": "c", "properties": { "Hihg": "7" } } }]),
        json!([{ "cluster": { "name": "c", "policy": "nobody's" } }]),
        json!([{ "fact": { "host": "h0", "name": "9x", "value": 1 } }]),
        json!([{ "load": { "host": "h0", "cpu_percent": 900 } }]),
        json!([{ "blacklist": { "host": "a b", "reason": "" } }]),
        json!([{ "policy": { "name": "p", "weights": [{ "name": "HA", "factor": 4_000_000_000u32 }] } }]),
        json!([{ "policy": { "name": "p", "filters": [{ "name": "CPU", "position": "first" },
            { "name": "Memory", "position": "first" }] } }]),
        json!([{ "policy": { "name": "p", "weights": [{ "name": "Packing", "factor": -1 }] } }]),
    ];
    let before = serde_json::to_value(api.service.hosts().unwrap()).unwrap();
    for objects in absurd {
        // A valid object in the same request is not added either.
        let mut all = vec![json!({ "host": { "name": "good" } })];
        all.extend(objects.as_array().unwrap().iter().cloned());
        let (status, body) = post(api.address, "/v1/place/objects", &Value::Array(all));
        let refused = status == 422 || status == 404;
        assert!(refused && body["error"].as_str().is_some_and(|body| body.len() > 10), "{objects}: {body}");
    }
    assert_eq!(serde_json::to_value(api.service.hosts().unwrap()).unwrap(), before);
}

#[test]
fn the_extender_survives_requests_that_kubernetes_never_sends() {
    let api = Api::new("extender");
    api.hosts(3, 4, 4096);
    let path = "/v1/place/extender/filter";
    let pod = json!({ "metadata": { "name": "web" }, "spec": { "containers": [] } });
    let names = |count| (0..count).map(|index| format!("h{}", index % 4)).collect::<Vec<String>>();
    let filter = |count| post(api.extender, path, &json!({ "Pod": pod, "NodeNames": names(count) }));
    let (status, reply) = filter(20_000);
    assert_eq!((status, &reply["NodeNames"]), (200, &json!(["h0", "h1", "h2"])));
    let (status, more) = filter(20_001);
    let error = "`NodeNames` has more than 20000 names";
    assert_eq!((status, &more["Error"], &more["NodeNames"]), (200, &json!(error), &Value::Null));
    let (status, many) = filter(200_000);
    assert_eq!((status, many["error"].as_str().unwrap().contains("more than 60000 values")), (422, true));
    assert_eq!(reply["FailedAndUnresolvableNodes"].as_object().unwrap().len(), 1);
    let request = |what: Value| {
        let container = json!({ "resources": { "requests": what } });
        json!({ "metadata": { "name": "web" }, "spec": { "containers": [container] } })
    };
    let wrong = [
        json!({}),
        json!({ "Pod": {}, "NodeNames": ["h0"] }),
        json!({ "Pod": pod }),
        json!({ "Pod": pod, "NodeNames": "h0" }),
        json!({ "Pod": { "metadata": { "name": "a b" } }, "NodeNames": ["h0"] }),
        json!({ "Pod": { "metadata": { "name": "x".repeat(100_000) } }, "NodeNames": ["h0"] }),
        json!({ "Pod": request(json!({ "cpu": "much" })), "NodeNames": ["h0"] }),
        json!({ "Pod": request(json!({ "cpu": "9".repeat(400) })), "NodeNames": ["h0"] }),
        json!({ "Pod": request(json!({ "memory": "1e300" })), "NodeNames": ["h0"] }),
        json!({ "Pod": { "metadata": { "name": "w", "annotations": { "ringway/policy": "none\u{0}" } } },
            "NodeNames": ["h0"] }),
    ];
    for args in wrong {
        let (status, reply) = post(api.extender, path, &args);
        let error = reply["Error"].as_str().unwrap_or_default();
        assert!(status == 200 && !error.is_empty() && reply["NodeNames"].is_null(), "{args}: {reply}");
    }
    for body in ["", "{", "null", "[1]", &"{\"Pod\":".repeat(50_000)] {
        let (status, reply) = send(api.extender, path, body.as_bytes());
        assert!(status == 200 && reply.contains("\"Error\":\""), "{status} {reply}");
        assert_eq!(send(api.extender, "/v1/place/extender/prioritize", body.as_bytes()).0, 422);
    }
    // More than 4 MB is not even read.
    let (_, reply) = send(api.extender, path, &vec![b' '; (4 << 20) + 1]);
    assert!(reply.is_empty() || reply.contains("too long; it may have 4 MB at most"), "{reply}");
    let (status, reply) = post(api.extender, path, &json!({ "Pod": pod, "NodeNames": ["h1"] }));
    assert_eq!((status, &reply["NodeNames"]), (200, &json!(["h1"])));
}

/// A request whose head has a different length than its body.
fn promised(address: SocketAddr, length: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = "host: ringway\r\ncontent-type: application/json\r\nconnection: close";
    let path = "/v1/place/extender/filter";
    // The server may refuse and close before everything is sent.
    let _ = stream.write_all(format!("POST {path} HTTP/1.1\r\n{head}\r\n{length}\r\n\r\n").as_bytes());
    let _ = stream.write_all(body);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

/// Wrong lengths, endless chunks, hundreds of silent connections: the next request is answered, and so are complete
/// chunks.
#[test]
fn silent_and_invalid_clients_block_no_others() {
    // No time-out occurs during the test.
    let long = Duration::from_secs(3600);
    let api = Api::with("liars", Timeouts { first: long, idle: long, whole: long });
    api.hosts(2, 4, 4096);
    let pod = json!({ "metadata": { "name": "web" }, "spec": { "containers": [] } });
    let body = json!({ "Pod": pod, "NodeNames": ["h0"] });
    let text = body.to_string();
    let more = format!("content-length: {}", text.len() + 1000);
    for length in [
        more.as_str(),
        "content-length: 3",
        "content-length: -1",
        "content-length: 99999999999999999999999",
        "content-length: 18446744073709551615",
        "content-length: 3\r\ncontent-length: 4",
        "content-length: 3\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked",
        "transfer-encoding: gzip",
        "content-encoding: gzip\r\ncontent-length: 20",
    ] {
        let reply = promised(api.extender, length, text.as_bytes());
        assert!(!reply.contains("\"NodeNames\":[\"h0\"]"), "{length}: {reply}");
    }
    let chunk = promised(api.extender, "transfer-encoding: chunked", b"ffffffffffffffff\r\n{}");
    assert!(!chunk.contains("\"NodeNames\":["), "{chunk}");
    let chunks = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
    let reply = promised(api.extender, "transfer-encoding: chunked", chunks.as_bytes());
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("\"NodeNames\":[\"h0\"]"), "{reply}");
    let head = "x: y\r\n".repeat(200_000);
    let reply = promised(api.extender, &head, b"");
    assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 4"), "{reply}");

    let silent: Vec<TcpStream> = (0..400).map_while(|_| TcpStream::connect(api.extender).ok()).collect();
    let half: Vec<TcpStream> =
        silent.iter().filter_map(|stream| stream.try_clone().ok()).step_by(2).collect();
    half.iter()
        .for_each(|mut stream| drop(stream.write_all(b"POST /v1/place/extender/filter HTTP/1.1\r\nho")));
    let (status, reply) = post(api.extender, "/v1/place/extender/filter", &body);
    assert_eq!((status, &reply["NodeNames"]), (200, &json!(["h0"])));
    assert_eq!(silent.len(), 400);
}

/// Deleted objects exist and are unused; all errors are in the body.
#[test]
fn missing_and_used_objects_are_reported() {
    let api = Api::new("delete");
    api.hosts(2, 4, 4096);
    let delete = |path: &str| {
        let (status, text) = by("DELETE", api.address, &format!("/v1/place/{path}"), b"");
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        assert!(
            status == 204 || body["error"].as_str().is_some_and(|text| text.len() > 10),
            "{path}: {text}"
        );
        (status, body["error"].as_str().unwrap_or_default().to_string())
    };
    let new = json!({ "name": "v", "memory_mb": 64 });
    assert_eq!(post(api.address, "/v1/place", &json!({ "new": [new], "only": ["h0"] })).0, 200);
    let fact = json!([{ "host": "h1", "name": "heat", "value": 3 }]);
    assert_eq!(post(api.address, "/v1/place/facts", &fact).0, 200);
    for (path, status, message) in [
        ("objects/host/h0", 409, "host h0 has VM v"),
        ("objects/host/nobody", 404, "there is no host nobody"),
        ("objects/policy/none", 409, "policy none is built in"),
        ("objects/cluster/default", 409, "cluster default has host h0"),
        ("objects/pending/v", 404, "objects of kind `pending` can't be removed"),
        ("objects/fact/h1%2Fheat", 404, "objects of kind `fact` can't be removed"),
        ("objects/decision/00000000000000000001", 404, "objects of kind `decision` can't be removed"),
        ("objects/x/y", 404, "objects of kind `x` can't be removed"),
        ("facts/h1/cold", 404, "there is no fact cold about host h1"),
        ("facts/h1/heat", 204, ""),
        ("objects/vm/v", 204, ""),
        ("objects/vm/v", 404, "there is no VM v"),
        ("objects/host/h0", 204, ""),
        ("objects/host/h0", 404, "there is no host h0"),
        ("objects", 405, "DELETE is not for this path"),
        ("hosts", 405, "DELETE is not for this path"),
    ] {
        let (got, why) = delete(path);
        assert!(got == status && why.starts_with(message), "{path}: {got} {why}");
    }
    assert_eq!(post(api.address, "/v1/place/facts", &fact).0, 200);
    for (method, path, status) in [
        ("GET", "/v1/place/decisions/first", 422),
        ("GET", "/v1/place/decisions?count=many", 422),
        ("PUT", "/v1/place", 405),
        ("GET", "/v1/place/extender/filter", 405),
    ] {
        let (got, text) = by(method, api.address, path, b"");
        assert!(got == status && text.contains("\"error\":"), "{method} {path}: {got} {text}");
    }
    for (method, path, status) in
        [("POST", "/v1/place/hosts", 404), ("GET", "/", 404), ("DELETE", "/v1/place/extender/bind", 405)]
    {
        let (got, text) = by(method, api.extender, path, b"");
        assert!(got == status && text.contains("\"error\":"), "{method} {path}: {got} {text}");
    }
}

/// Objects that requests refer to must exist.
#[test]
fn unknown_hosts_are_reported() {
    let api = Api::new("names");
    api.hosts(2, 4, 4096);
    let vm = json!({ "name": "v", "memory_mb": 64 });
    for (path, body, message) in [
        ("try", json!({ "new": [vm], "only": ["h0", "h7"] }), "there is no host h7"),
        ("try", json!({ "new": [vm], "without": ["h7"] }), "there is no host h7"),
        ("", json!({ "new": [vm], "only": ["h7"] }), "there is no host h7"),
        ("", json!({ "new": [vm], "policy": "nobody's" }), "there is no policy nobody's"),
        ("facts", json!([{ "host": "h7", "name": "heat", "value": 3 }]), "there is no host h7"),
        ("facts", json!([{ "host": "h0", "name": "vms", "value": 3 }]), "a built-in figure"),
        ("objects", json!([{ "blacklist": { "host": "h7" } }]), "there is no host h7"),
        ("objects", json!([{ "vm": { "name": "v", "status": "up", "host": "h7" } }]), "there is no host h7"),
        ("objects", json!([{ "vm": { "name": "v", "moved_at": 1u64 << 60 } }]), "`moved_at` is"),
    ] {
        let (status, reply) = post(api.address, format!("/v1/place/{path}").trim_end_matches('/'), &body);
        let error = reply["error"].as_str().unwrap_or_default();
        assert!(
            (status == 404 || status == 422) && error.contains(message),
            "{path} {body}: {status} {reply}"
        );
    }
    assert!(api.service.vms().unwrap().is_empty(), "what was refused left something");
}

/// Whether the other side closed the connection.
fn is_over(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(count) => count == 0,
        Err(error) => !matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut | std::io::ErrorKind::Interrupted
        ),
    }
}

/// Attack: a connection kept alive by single bytes.
#[test]
fn slow_senders_are_disconnected() {
    let (short, long) = (Duration::from_millis(700), Duration::from_secs(3600));
    let first = Timeouts { first: short, idle: long, whole: long };
    let whole = Timeouts { whole: short, ..first };
    let head = "POST /v1/place/extender/filter HTTP/1.1\r\nhost: ringway\r\n";
    for (name, timeouts, begin) in [
        ("head", first, format!("{head}x-long: ")),
        ("body", Timeouts { first: long, ..whole }, format!("{head}content-length: 9999\r\n\r\n")),
    ] {
        let api = Api::with(&format!("dribble-{name}"), timeouts);
        let mut stream = TcpStream::connect(api.extender).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        stream.write_all(begin.as_bytes()).unwrap();
        // The connection is closed eventually; a loaded machine may take longer.
        let dribbled =
            (0..2000).take_while(|_| !is_over(&mut stream) && stream.write_all(b"x").is_ok()).count();
        assert!(dribbled < 2000, "{name}: it is still open");
    }
}

/// kube-scheduler binds many pods at once, each over a connection.
#[test]
fn more_clients_than_connections_are_all_answered() {
    let api = Api::new("many");
    let mut clients: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut client = TcpStream::connect(api.extender).unwrap();
            client.write_all(b"GET /healthz HTTP/1.1\r\nhost: ringway\r\n\r\n").unwrap();
            client
        })
        .collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let mut head = [0; 15];
        client.read_exact(&mut head).unwrap_or_else(|error| panic!("client {number}: {error}"));
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
}

/// A silent connection is closed soon; one that made a request is kept for the next.
#[test]
fn clients_with_a_request_have_a_longer_timeout() {
    let long = Duration::from_secs(3600);
    let api = Api::with("first", Timeouts { first: Duration::from_millis(300), idle: long, whole: long });
    let mut known = TcpStream::connect(api.extender).unwrap();
    let mut ask = || {
        known.write_all(b"GET / HTTP/1.1\r\nhost: ringway\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            known.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 404"), "{head}");
        let length = head.split_once("content-length: ").unwrap().1.split_once('\r').unwrap().0;
        known.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
    };
    ask();
    let mut silent = TcpStream::connect(api.extender).unwrap();
    assert!(is_over(&mut silent));
    ask();
}

/// Runs the test `name` again, in a mount namespace with a disk of 64 MB, and returns `true`; in that process, returns
/// `false`.
fn on_a_small_disk(name: &str) -> bool {
    const SMALL: &str = "RINGWAY_SMALL_DISK";
    if std::env::var_os(SMALL).is_some() {
        return false;
    }
    let unshare = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let mount = "mount -t tmpfs -o size=64m small /mnt && TMPDIR=/mnt exec \"$0\" --exact \"$1\"";
    let mut command = Command::new("unshare");
    command.args([unshare, "sh", "-c", mount]).arg(std::env::current_exe().unwrap()).arg(name);
    assert!(command.env(SMALL, "yes").status().unwrap().success());
    true
}

#[test]
fn a_full_disk_is_reported_until_there_is_room() {
    if on_a_small_disk("http::a_full_disk_is_reported_until_there_is_room") {
        return;
    }
    let api = Api::new("disk");
    api.hosts(2, 16, 65_536);
    let mut ballast = File::create(std::env::temp_dir().join("ballast")).unwrap();
    while ballast.write_all(&[0; 1 << 12]).is_ok() {}
    let mut accepted = 0;
    let mut put = || {
        let labels: Vec<String> = (0..4000).map(|at| format!("{at:060}")).collect();
        let vm = json!([{ "vm": { "name": format!("v{accepted}"), "labels": labels } }]);
        let (status, body) = post(api.address, "/v1/place/objects", &vm);
        accepted += usize::from(status != 507);
        (status, body, accepted)
    };
    let (_, body, _) = (0..200).map(|_| put()).find(|(status, ..)| *status == 507).unwrap();
    assert!(body["error"].as_str().unwrap().contains("disk is full"), "{body}");
    let asked = json!({ "new": [{ "name": "w", "memory_mb": 1 }] });
    let (status, body) = post(api.address, "/v1/place", &asked);
    assert_eq!(status, 507, "{body}");
    // Accepted objects are stored; possibly also the one in progress when the disk became full.
    let count =
        || serde_json::from_str::<Vec<Value>>(&by("GET", api.address, "/v1/place/vms", b"").1).unwrap().len();
    let accepted = put().2;
    assert!((accepted..=accepted + 1).contains(&count()));
    ballast.set_len(0).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let accepted = loop {
        let (status, body, accepted) = put();
        if status != 507 {
            assert!(status < 300, "{status} {body}");
            break accepted;
        }
        assert!(Instant::now() < end, "{body}");
    };
    assert_eq!(count(), accepted);
    assert_eq!(post(api.address, "/v1/place", &asked).0, 200);
}
