//! Floods of large requests: memory stays bounded, and others are answered meanwhile. A file of its own, since it looks
//! at the memory of the whole process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_place::engine::Object;
use ringway_place::object::Host;
use ringway_scheduler::{Bounds, Placer, Service, extender_thread, router, serve};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Clients of a flood, and requests of each.
const CLIENTS: usize = 32;
const REQUESTS: usize = 3;
/// Memory that a flood may take, in bytes.
const ROOM: usize = 64 << 20;

/// A figure of /proc/self/status in bytes.
fn memory(key: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// The API and the extender, each on its own thread.
fn start(place: &Placer) -> (SocketAddr, SocketAddr) {
    let [api, extender] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = (api.local_addr().unwrap(), extender.local_addr().unwrap());
    extender_thread(extender, place.clone()).unwrap();
    api.set_nonblocking(true).unwrap();
    let router = router(place.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let api = tokio::net::TcpListener::from_std(api).unwrap();
            serve(api, |_| None, router, Bounds::of_api(), std::future::pending()).await;
        });
    });
    addresses
}

fn request(path: &str, length: usize) -> String {
    let head = "HTTP/1.1\r\nhost: ringway\r\ncontent-type: application/json\r\ncontent-length:";
    format!("POST {path} {head} {length}\r\n\r\n")
}

/// Sends a body, and reads the answer's status and some of the rest; 0 if the connection was closed.
fn exchange(to: SocketAddr, path: &str, body: &[u8]) -> u16 {
    let Ok(mut stream) = TcpStream::connect(to) else { return 0 };
    // An answer that never comes fails the test instead of blocking it.
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let sent = stream.write_all(request(path, body.len()).as_bytes()).and_then(|()| stream.write_all(body));
    let mut start = [0; 64];
    let _ = sent.and_then(|()| stream.read_exact(&mut start));
    let text = String::from_utf8_lossy(&start);
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// Sends `body` again and again without reading an answer, until the other side takes no more.
fn only_write(to: SocketAddr, path: &str, body: &[u8], length: usize) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    for _ in 0..REQUESTS {
        let head = request(path, length);
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_err() {
            break;
        }
    }
    Some(stream)
}

/// Attack: the bodies of `request` on many connections. Returns the statuses of the answers.
fn flood(api: SocketAddr, attack: impl Fn() -> u16 + Sync) -> Vec<u16> {
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(exchange(api, "/v1/place/try", br#"{"new":[{"name":"v","memory_mb":1}]}"#), 200);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        let client = || (0..REQUESTS).map(|_| attack()).collect::<Vec<u16>>();
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let statuses = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        statuses
    })
}

#[test]
fn floods_take_little_memory_and_others_are_answered() {
    ringway_host::keep_little_memory();
    let service = Service::in_memory().unwrap();
    let host = Host { name: "h0".into(), cores: 4, threads: 4, memory_mb: 4096, ..Host::default() };
    service.put(vec![Object::Host(Box::new(host))]).unwrap();
    let (api, extender) = start(&Placer::on(service));
    let path = "/v1/place/extender/filter";
    let named = |count: usize, name: &str| {
        let names: Vec<String> = (0..count).map(|number| format!("\"{name}{number}\"")).collect();
        format!("{{\"Pod\":{{\"metadata\":{{\"name\":\"p\"}}}},\"NodeNames\":[{}]}}", names.join(","))
    };
    let containers = format!("{{\"Pod\":{{\"spec\":{{\"containers\":[{}{{}}]}}}}}}", "{},".repeat(29_000));
    let (many, long) = (named(400_000, "node"), named(19_000, &"n".repeat(200)));
    assert_eq!(exchange(extender, path, named(1, "h").as_bytes()), 200, "it is served");
    let before = memory("VmRSS");
    let (mut statuses, mut taken) = (Vec::new(), Vec::new());
    for body in [&many, &long, &containers] {
        statuses.push(flood(api, || exchange(extender, path, body.as_bytes())));
        taken.push((
            memory("VmHWM").saturating_sub(before) >> 20,
            memory("VmRSS").saturating_sub(before) >> 20,
        ));
    }
    // Objects for the API: many short ones, long names, and parts of which there are many.
    let list = |count: usize, object: &str| format!("[{}]", vec![object; count].join(","));
    let long = format!("{{\"vm\":{{\"name\":\"{}\"}}}}", "n".repeat(500));
    let parts = format!("{{\"host\":{{\"name\":\"h\",\"numa\":[{}{{}}]}}}}", "{},".repeat(240_000));
    let mut owner = Vec::new();
    for body in
        [list(15_000, &long), list(120_000, "{\"vm\":{}}"), list(900_000, "{\"vm\":{}}"), list(1, &parts)]
    {
        owner.push(flood(api, || exchange(api, "/v1/place/objects", body.as_bytes())));
        let peak = memory("VmHWM").saturating_sub(before) >> 20;
        taken.push((peak, memory("VmRSS").saturating_sub(before) >> 20));
    }
    // Bodies whose end never comes, and answers that nobody reads.
    let mut kept = Vec::new();
    for (body, more) in [(&long, 1), (&many[..(4 << 20) - 9].to_string(), 9), (&named(19_000, "n"), 0)] {
        let written = |_| only_write(extender, path, body.as_bytes(), body.len() + more);
        kept.extend((0..CLIENTS).filter_map(written));
        assert_eq!(exchange(api, "/v1/place/try", br#"{"new":[{"name":"v","memory_mb":1}]}"#), 200);
    }
    let most = memory("VmHWM").saturating_sub(before);
    drop(kept);
    assert!(statuses[0].iter().all(|status| matches!(status, 0 | 413 | 422 | 503)), "{statuses:?}");
    assert!(statuses[1].contains(&200), "some are answered: {statuses:?}");
    let refused = |status: &u16| matches!(status, 0 | 404 | 413 | 422 | 503);
    assert!(owner.iter().flatten().all(refused), "{owner:?}");
    assert!(owner[0].contains(&422), "some are looked at: {owner:?}");
    assert!(most < ROOM, "{} MB were taken; at most and at the end of each flood: {taken:?}", most >> 20);
    assert_eq!(exchange(extender, path, named(1, "h").as_bytes()), 200, "it is served still");
}

/// Attack: JSON that is nested so deeply that a reader's stack ends. The extender's answers have its errors; what no
/// reader wants is skipped without a stack.
#[test]
fn deeply_nested_bodies_are_answered() {
    let (api, extender) = start(&Placer::on(Service::in_memory().unwrap()));
    for depth in [128, 200, 100_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let objects = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        for path in ["/v1/place/objects", "/v1/place/try"] {
            for body in [nested.clone(), format!("{{\"new\":{nested}}}")] {
                let status = exchange(api, path, body.as_bytes());
                assert!((400..500).contains(&status), "{path}, {depth}: {status}");
            }
        }
        for path in ["/v1/place/extender/filter", "/v1/place/extender/prioritize"] {
            for key in ["Pod", "NodeNames", "other"] {
                for value in [&nested, &objects] {
                    let status = exchange(extender, path, format!("{{\"{key}\":{value}}}").as_bytes());
                    assert!((200..500).contains(&status), "{path} {key}, {depth}: {status}");
                }
            }
        }
    }
    let good = br#"{"Pod":{"metadata":{"name":"p"}},"NodeNames":["h"]}"#;
    assert_eq!(exchange(extender, "/v1/place/extender/filter", good), 200);
}
