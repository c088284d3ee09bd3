//! Metrics of a running fabric: they agree with the commands, outlive its processes, and Prometheus reads them.

use crate::lab::frames::{LONG, next, program, send, send_to_all, switched};
use crate::lab::{Lab, Running, api, http, until};
use ringway_ring_client::Ring;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// Two ports with programs, one without, a link, a function and an unmodified program that does not run.
fn file() -> String {
    let ring =
        |name: &str, more: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n{more}");
    switched(&["left", "right", "nobody"])
        + &ring("near", "")
        + &ring("far", "")
        + &ring("own", "switch = \"main\"\n")
        + "[link.wan]\nports = [\"near\", \"far\"]\ndelay = \"1ms\"\n\
           [function.echo]\nclick = \"FromPort(own) -> EtherMirror -> ToPort(own)\"\nport = \"own\"\n\
           [program.web]\ncommand = [\"true\"]\nswitch = \"main\"\naddress = \"10.0.0.2/24\"\nstart = false\n"
}

fn up(name: &str, file: &str) -> (Lab, u16) {
    let lab = Lab::new(name, file);
    lab.ok(&["up", "lab.toml", "--detach", "--metrics=127.0.0.1:0"]);
    let port = port(&lab);
    (lab, port)
}

/// The TCP port of the metrics, which the log says.
fn port(lab: &Lab) -> u16 {
    let log = lab.log();
    let line = log.lines().find(|line| line.contains("metrics are served")).unwrap();
    line.split("127.0.0.1:")
        .nth(1)
        .unwrap()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap()
}

/// The status and the body of a GET request at a TCP port; the body is not chunked.
fn get(port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}

type Samples = BTreeMap<String, f64>;

/// Every sample by its series.
fn samples(text: &str) -> Samples {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(of, value)| (of.into(), value.parse().unwrap()))
        .collect()
}

fn scrape(port: u16) -> Samples {
    let (status, text) = get(port, "/metrics");
    assert_eq!(status, 200, "{text}");
    samples(&text)
}

/// Frames both ways, frames to a port without a peer, and frames that are refused.
fn traffic(rings: &mut [Ring; 2], first: u32) {
    for number in first..first + 20 {
        for (from, to) in [(0, 1), (1, 0)] {
            assert!(send_to_all(&mut rings[from], from as u8, number));
            while next(&mut rings[to], LONG).unwrap() != number {}
        }
        // From a group address.
        let mut bad = [1; 60];
        bad[..6].fill(0xff);
        assert!(rings[0].tx.push(&bad).unwrap());
        rings[0].sync().unwrap();
    }
}

/// The counters once nothing moves any more.
fn settled(lab: &Lab) -> Value {
    let stats = || lab.json(&["stats"])["ports"].clone();
    let mut last = stats();
    until("nothing moves", || {
        std::thread::sleep(Duration::from_millis(20));
        let now = stats();
        std::mem::replace(&mut last, now.clone()) == now
    });
    last
}

const QUEUE: [(&str, &str); 7] = [
    ("transmit_frames", "tx_frames"),
    ("transmit_bytes", "tx_bytes"),
    ("receive_frames", "rx_frames"),
    ("receive_bytes", "rx_bytes"),
    ("kicks", "kicks"),
    ("interrupts", "interrupts"),
    ("bursts", "bursts"),
];

#[test]
fn metrics_agree_with_ps_stats_and_drops() {
    let (lab, port) = up("metrics", &file());
    let mut rings = ["left", "right"].map(|name| program(&lab, name));
    traffic(&mut rings, 1);
    let stats = settled(&lab);
    let all = scrape(port);
    let mut dropped = 0.0;
    for stats in stats.as_array().unwrap() {
        let name = stats["name"].as_str().unwrap();
        for (number, queue) in stats["queues"].as_array().unwrap().iter().enumerate() {
            for (metric, field) in QUEUE {
                let series = format!(
                    "ringway_port_{metric}_total{{fabric=\"lab\",port=\"{name}\",queue=\"{number}\"}}"
                );
                assert_eq!(Some(all[&series]), queue[field].as_f64(), "{series}");
            }
        }
        for (direction, field) in [("transmit", "tx_drops"), ("receive", "rx_drops")] {
            let of =
                format!("ringway_port_drops_total{{fabric=\"lab\",port=\"{name}\",direction=\"{direction}\"");
            let shown = all.iter().filter(|(series, count)| series.starts_with(&of) && **count > 0.0);
            let shown: BTreeMap<&str, f64> =
                shown.map(|(series, count)| (series.rsplit('"').nth(1).unwrap(), *count)).collect();
            let known = stats["total"][field].as_object().unwrap();
            let known: BTreeMap<&str, f64> =
                known.iter().map(|(reason, count)| (&**reason, count.as_f64().unwrap())).collect();
            assert_eq!(shown, known, "{name} {direction}");
            dropped += known.values().sum::<f64>();
        }
    }
    assert!(dropped >= 20.0, "some were dropped: {stats}");
    let ps = lab.json(&["ps"]);
    let named = |list: &str, metric: &str, label: &str, up: &[&str]| {
        for one in ps[list].as_array().unwrap() {
            let series = format!("ringway_{metric}_up{{fabric=\"lab\",{label}={}}}", one["name"]);
            let is_up = up.contains(&one["state"].as_str().unwrap());
            assert_eq!(all[&series], f64::from(u8::from(is_up)), "{series}: {one}");
        }
    };
    named("ports", "port", "port", &["up"]);
    named("functions", "function", "function", &["running"]);
    named("programs", "program", "program", &["running"]);
    let table = lab.json(&["switch", "table", "main"])["entries"].as_array().unwrap().len();
    assert_eq!(all["ringway_switch_addresses{fabric=\"lab\",switch=\"main\"}"], table as f64);
    // The API's are the same but for what changes by itself.
    let (status, text) = http::answer(http::ask(&lab, "GET", "/metrics", &Value::Null));
    assert_eq!(status, 200);
    let of_api = samples(&text);
    let ports = |all: &Samples| {
        all.iter()
            .filter(|(of, _)| of.starts_with("ringway_port_"))
            .map(|(of, n)| (of.clone(), *n))
            .collect::<Samples>()
    };
    assert_eq!(ports(&of_api), ports(&all));
    assert_eq!(of_api.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
    // Nothing else is served there.
    assert_eq!(get(port, "/v1/fabric").0, 404);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"POST /metrics HTTP/1.0\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.0 405 "), "{text}");
    lab.ok(&["down"]);
}

/// Kills the data process, and waits for the next one.
fn kill_data(lab: &Lab) {
    let pid = || api::fabric(lab)["data_pid"].as_u64().unwrap();
    let before = pid();
    api::kill(before);
    until("another data process", || !matches!(pid(), 0) && pid() != before);
}

/// Kills the control process, and waits for the next one.
fn kill_control(lab: &Lab) {
    let pid = || lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap();
    let before = pid();
    api::kill(before);
    until("another control process", || lab.run(&["ps"]).status.success() && pid() != before);
}

/// No counter of a port is less than before.
fn goes_on(before: &Samples, now: &Samples) {
    for (series, value) in
        before.iter().filter(|(of, _)| of.starts_with("ringway_port_") && of.contains("_total{"))
    {
        assert!(now[series] >= *value, "{series} was {value} and is {}", now[series]);
    }
}

#[test]
fn counters_and_the_address_outlive_both_processes() {
    let (lab, port) = up("metrics-kills", &switched(&["left", "right"]));
    let mut rings = ["left", "right"].map(|name| program(&lab, name));
    traffic(&mut rings, 1);
    settled(&lab);
    let first = scrape(port);
    kill_data(&lab);
    let second = scrape(port);
    goes_on(&first, &second);
    kill_control(&lab);
    until("the address answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let third = scrape(port);
    goes_on(&second, &third);
    until("the ports are up", || ["left", "right"].iter().all(|port| lab.state(port) == "up"));
    traffic(&mut rings, 100);
    settled(&lab);
    let last = scrape(port);
    goes_on(&third, &last);
    let series = "ringway_port_transmit_frames_total{fabric=\"lab\",port=\"left\",queue=\"0\"}";
    assert_eq!(last[series] - third[series], 40.0);
    assert_eq!(last["ringway_data_restarts_total{fabric=\"lab\"}"], 1.0);
    lab.ok(&["down"]);
}

#[test]
fn two_hundred_ports_are_scraped_by_many_at_once_while_others_are_answered() {
    let port = |number| format!("[port.p{number}]\nkind = \"null\"\nswitch = \"main\"\n");
    let (lab, at) =
        up("metrics-many", &("[switch.main]\n".to_string() + &(0..200).map(port).collect::<String>()));
    std::thread::scope(|scope| {
        let scrapers: Vec<_> = (0..20).map(|_| scope.spawn(|| scrape(at))).collect();
        assert_eq!(lab.json(&["ps"])["ports"].as_array().unwrap().len(), 200);
        for scraper in scrapers {
            let all = scraper.join().unwrap();
            assert_eq!(all.keys().filter(|of| of.starts_with("ringway_port_up{")).count(), 200);
        }
    });
    // Clients that send nothing, a head without end, or a long body disturb nobody.
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(("127.0.0.1", at)).unwrap()).collect();
    let mut endless = TcpStream::connect(("127.0.0.1", at)).unwrap();
    let _ = endless.write_all(format!("GET /metrics HTTP/1.1\r\na: {}", "x".repeat(100_000)).as_bytes());
    let mut long = TcpStream::connect(("127.0.0.1", at)).unwrap();
    long.write_all(b"GET /metrics HTTP/1.0\r\ncontent-length: 100000000\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = long.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.0 413 "), "{answer}");
    assert!(!scrape(at).is_empty());
    drop(silent);
    lab.ok(&["down"]);
}

#[test]
fn the_file_may_name_the_address_and_it_stays_while_the_fabric_is_up() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let with = |address: &str| format!("[metrics]\naddress = \"{address}\"\n[switch.main]\n");
    let lab = Lab::new("metrics-file", &with(&free.to_string()));
    lab.ok(&["up", "lab.toml", "--detach"]);
    assert_eq!(scrape(free.port())["ringway_switch_ports{fabric=\"lab\",switch=\"main\"}"], 0.0);
    lab.write(&with("127.0.0.1:1"));
    let (code, why) = lab.fails(&["apply", "lab.toml"]);
    assert!(code == 1 && why.contains("the address of its metrics can't change"), "{why}");
    let (_, why) =
        lab.fails(&["--fabric", "other", "up", "lab.toml", "--detach", &format!("--metrics={free}")]);
    assert!(why.contains(&format!("the metrics: {free}: ")) && why.contains("--metrics"), "{why}");
    lab.ok(&["down"]);
}

/// The fenced blocks of docs/metrics.md in `language`.
fn shown(language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let fence = format!("```{language}\n");
    let blocks = page.split(&*fence).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_string()).collect()
}

/// Debian's Prometheus, with the page's configuration for a fabric's metrics.
struct Prometheus {
    _process: Running,
    port: u16,
}

impl Prometheus {
    fn start(lab: &Lab, metrics: u16) -> Prometheus {
        let config = &shown("yaml")[0];
        assert!(config.contains("127.0.0.1:9468"), "{config}");
        let config = config
            .replace("127.0.0.1:9468", &format!("127.0.0.1:{metrics}"))
            .replace("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s");
        std::fs::copy(root().join("contrib/prometheus/alerts.yml"), lab.folder.join("alerts.yml")).unwrap();
        std::fs::write(lab.folder.join("prometheus.yml"), config).unwrap();
        let mut check = Command::new("promtool");
        let checked =
            check.args(["check", "config", "prometheus.yml"]).current_dir(&lab.folder).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("prometheus");
        command.arg("--config.file=prometheus.yml").arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let log = std::fs::File::create(lab.folder.join("prometheus.log")).unwrap();
        command.current_dir(&lab.folder).stdout(Stdio::null()).stderr(log);
        let process = Running(command.spawn().unwrap());
        let ready = || TcpStream::connect(("127.0.0.1", port)).is_ok() && get(port, "/-/ready").0 == 200;
        until("Prometheus is ready", ready);
        Prometheus { _process: process, port }
    }

    fn ask(&self, path: &str) -> Value {
        let (status, body) = get(self.port, path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The result of a query.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.ask(&format!("/api/v1/query?query={encoded}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }
}

/// Every query of the dashboard, with values for its variables.
fn queries() -> Vec<String> {
    fn find(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| find(one, found)),
            Value::Object(keys) => {
                found.extend(keys.get("expr").and_then(Value::as_str).map(String::from));
                keys.values().for_each(|one| find(one, found));
            }
            _ => {}
        }
    }
    let text = std::fs::read_to_string(root().join("contrib/grafana/ringway.json")).unwrap();
    let mut found = Vec::new();
    find(&serde_json::from_str(&text).unwrap(), &mut found);
    let set = |query: String| {
        query.replace("$fabric", "lab").replace("$port", ".*").replace("$__rate_interval", "1m")
    };
    found.into_iter().map(set).collect()
}

#[test]
fn prometheus_reads_the_metrics_and_every_query_of_the_dashboard_has_series() {
    let installed = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if !installed("prometheus") || !installed("promtool") {
        return eprintln!("left out: prometheus is not installed");
    }
    let (lab, port) = up("metrics-prometheus", &file());
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    check.stdin.take().unwrap().write_all(get(port, "/metrics").1.as_bytes()).unwrap();
    let said = check.wait_with_output().unwrap();
    assert!(said.status.success() && said.stdout.is_empty() && said.stderr.is_empty(), "{said:?}");

    let prometheus = Prometheus::start(&lab, port);
    let mut rings = ["left", "right"].map(|name| program(&lab, name));
    let mut ends = ["near", "far"].map(|name| program(&lab, name));
    let queries = queries();
    assert!(queries.len() > 20, "{queries:?}");
    let mut number = 0;
    let mut pass = || {
        number += 100;
        traffic(&mut rings, number);
        send(&mut ends[0], number);
    };
    for query in &queries {
        until(query, || {
            pass();
            std::thread::sleep(Duration::from_millis(50));
            !prometheus.query(query).is_empty()
        });
    }
    // Processes are killed under traffic: for Prometheus no counter of a port goes back.
    kill_data(&lab);
    until("the ports are up", || ["left", "right"].iter().all(|port| lab.state(port) == "up"));
    pass();
    kill_control(&lab);
    let restarts = "ringway_data_restarts_total == 1";
    until("the restart is read", || {
        pass();
        !prometheus.query(restarts).is_empty()
    });
    for (metric, _) in QUEUE.iter().chain(&[("drops", "")]) {
        let went_back = prometheus.query(&format!("resets(ringway_port_{metric}_total[1h]) > 0"));
        assert!(went_back.is_empty(), "{went_back:?}");
    }

    let rules = prometheus.ask("/api/v1/rules");
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.len() > 5 && rules.iter().all(|rule| rule["lastError"].is_null()), "{rules:?}");
    let pending = |name: &str, port: &str| {
        let all = prometheus.ask("/api/v1/alerts");
        let all = all["data"]["alerts"].as_array().unwrap().clone();
        all.iter().any(|alert| alert["labels"]["alertname"] == name && alert["labels"]["port"] == port)
    };
    until("a port without a peer is noticed", || pending("RingwayPortDown", "nobody"));
    assert!(!pending("RingwayPortDown", "left"));
    lab.ok(&["down"]);
}

/// The page names every metric, and no other.
#[test]
fn the_page_names_every_metric() {
    let (lab, port) = up("metrics-page", &file());
    let (_, text) = get(port, "/metrics");
    let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let served: Vec<&str> = heads.map(|head| head.split(' ').next().unwrap()).collect();
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    for name in &served {
        assert!(page.contains(&format!("`{name}`")), "docs/metrics.md lacks {name}");
    }
    // Of objects that this fabric has not.
    let absent = [
        "ringway_guest_info",
        "ringway_guest_up",
        "ringway_host_up",
        "ringway_chain_up",
        "ringway_switch_flows",
    ];
    let named = page.split('`').filter(|word| word.starts_with("ringway_") && !word.contains(['{', '*']));
    for name in named {
        assert!(served.contains(&name) || absent.contains(&name), "docs/metrics.md names {name}");
    }
    lab.ok(&["down"]);
}
