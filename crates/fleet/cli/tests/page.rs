//! The page for browsers: its files, the stream of rates, and what a browser shows.

use crate::lab::{Lab, Running, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Frames flow on a switch and over a link, through a function, and to a port that nobody serves.
const FILE: &str = "[switch.main]\n\
    [port.gen]\nkind = \"source\"\nrate = \"2kpps\"\nswitch = \"main\"\n\
    [port.sink]\nkind = \"null\"\nswitch = \"main\"\n\
    [port.idle]\nkind = \"ring\"\nsocket = \"idle.sock\"\nswitch = \"main\"\n\
    [port.own]\nkind = \"ring\"\nsocket = \"own.sock\"\nswitch = \"main\"\n\
    [port.far]\nkind = \"source\"\nrate = \"1kpps\"\n\
    [port.near]\nkind = \"null\"\n\
    [link.wan]\nports = [\"far\", \"near\"]\n\
    [function.count]\nports = [\"own\"]\nconfig = \"count.click\"\n";

fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../page")
}

/// A fabric with the page, and the page's URL with a token.
fn up(name: &str) -> (Lab, String) {
    let lab = Lab::new(name, FILE);
    std::fs::write(lab.folder.join("count.click"), "FromPort(own) -> c :: Counter -> Discard;").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = lab.json(&["up", "lab.toml", "--detach", &format!("--page={free}")]);
    let url = told["page"].as_str().unwrap().to_string();
    assert!(url.starts_with(&format!("http://{free}/#token=ringway_")), "{url}");
    (lab, url)
}

/// The address and the token of a URL.
fn parts(url: &str) -> (&str, &str) {
    url.trim_start_matches("http://").split_once("/#token=").unwrap()
}

/// curl's status and output.
fn curl(url: &str, words: &[&str]) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--noproxy", "*", "--include", "--write-out", "\n%{http_code}"]);
    let output = curl.args(words).arg(url).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), text.into())
}

/// A stream of rates.
fn watch(address: &str, token: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!("GET /v1/rates HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// The next rates of a stream.
fn next(stream: &mut BufReader<TcpStream>) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).unwrap();
        }
    }
}

fn port<'v>(rates: &'v Value, name: &str) -> &'v Value {
    rates["ports"].as_array().unwrap().iter().find(|port| port["name"] == name).unwrap()
}

#[test]
fn files_are_for_everybody_and_the_fabric_for_those_with_a_token() {
    let (lab, url) = up("page-files");
    let (address, token) = parts(&url);
    let at = |path: &str, words: &[&str]| curl(&format!("http://{address}{path}"), words);
    let scripts = ["/page.js", "/layout.js"].map(|path| (path, "text/javascript"));
    for (path, kind) in [("/", "text/html"), ("/page.css", "text/css")].into_iter().chain(scripts) {
        let (status, text) = at(path, &["--header", "sec-fetch-site: cross-site"]);
        let text = text.to_lowercase();
        assert!(status == 200 && text.contains(&format!("content-type: {kind}")), "{path}: {text:.500}");
        assert!(text.contains("script-src 'self'") && text.contains("frame-ancestors 'none'"), "{text:.500}");
        assert!(!text.contains("unsafe-inline") && !text.contains("set-cookie"), "{text:.500}");
    }
    assert_eq!(at("/", &["--header", "host: evil.example"]).0, 421);
    assert_eq!(at("/v1/ports", &[]).0, 401);
    let bearer = format!("authorization: Bearer {token}");
    assert_eq!(at("/v1/audit", &["--header", &bearer]).0, 403, "it operates");
    let own = format!("origin: http://{address}");
    assert_eq!(at("/v1/ports", &["--header", &bearer, "--header", &own]).0, 200);
    let other = format!("origin: https://{address}");
    assert_eq!(at("/v1/ports", &["--header", &bearer, "--header", &other]).0, 403);
    // Another URL takes the place of the former one.
    let again = lab.ok(&["page"]);
    assert!(again.trim() != url && again.starts_with(&format!("http://{address}/#token=")), "{again}");
    assert_eq!(at("/v1/ports", &["--header", &bearer]).0, 401);
    let reads = lab.json(&["page", "--role", "read", "--name", "wall"]);
    let bearer = format!("authorization: Bearer {}", parts(reads["url"].as_str().unwrap()).1);
    assert_eq!(at("/v1/ports/idle/down", &["--request", "POST", "--header", &bearer]).0, 403);
    let log = lab.log();
    assert!(log.contains("the page is served") && !log.contains("token=ringway_"), "{log}");
}

#[test]
fn rates_are_read_once_for_all_who_watch_and_watchers_are_bounded() {
    let (lab, url) = up("page-rates");
    let (address, token) = parts(&url);
    let (mut one, mut other) = (watch(address, token), watch(address, token));
    let times = |stream: &mut _| (0..4).map(|_| next(stream)["time"].as_u64().unwrap()).collect::<Vec<_>>();
    let (of_one, of_other) = (times(&mut one), times(&mut other));
    assert!(of_one.iter().any(|time| of_other.contains(time)), "one reading is for both");
    until("frames pass", || {
        let rates = next(&mut one);
        let sent = port(&rates, "gen")["tx_frames"].as_f64().unwrap();
        (1000.0..4000.0).contains(&sent) && port(&rates, "sink")["rx_frames"].as_f64().unwrap() > 1000.0
    });
    let rates = next(&mut one);
    let stats = lab.json(&["stats"]);
    let drops = port(&rates, "idle")["dropped"].as_object().unwrap().clone();
    let known = port(&stats, "idle")["total"]["rx_drops"].as_object().unwrap();
    assert!(drops.keys().eq(known.keys()), "as the command says: {drops:?}, {known:?}");
    let seconds = rates["seconds"].as_f64().unwrap();
    assert!(seconds >= 1.0, "at most once a second: {seconds}");
    // As many as there may be, of a token and of all, of which none reads.
    let [wall, door] = ["wall", "door"].map(|name| {
        let told = lab.json(&["page", "--role", "read", "--name", name]);
        parts(told["url"].as_str().unwrap()).1.to_string()
    });
    let take = |token: &str| {
        let (mut stream, mut line) = (watch(address, token), String::new());
        stream.read_line(&mut line).unwrap();
        line.contains(" 200 ").then_some(stream)
    };
    let of_one: Vec<_> = std::iter::from_fn(|| take(token)).collect();
    let of_wall: Vec<_> = std::iter::from_fn(|| take(&wall)).collect();
    assert_eq!((of_one.len(), of_wall.len()), (30, 32));
    assert!(take(&door).is_none());
    next(&mut one);
    drop((of_one, of_wall));
    until("there is room again", || take(&door).is_some());
}

#[test]
fn a_fabric_in_the_foreground_prints_the_address_once() {
    let lab = Lab::new("page-front", "[switch.main]\n");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = lab.command(&["up", "lab.toml", &format!("--page={free}")]);
    let mut process = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut output = BufReader::new(process.0.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with(&format!("page http://{free}/#token=ringway_")), "{line}");
    lab.ok(&["down"]);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    let without = Lab::new("page-none", "[switch.main]\n");
    without.ok(&["up", "lab.toml", "--detach"]);
    assert!(without.fails(&["page"]).1.contains("--page"));
}

#[test]
fn no_token_is_written_to_the_journal() {
    let lab = Lab::new("page-journal", "[switch.main]\n");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let path = lab.folder.join("journal");
    let journal = std::fs::File::create(&path).unwrap();
    let seen = journal.metadata().unwrap();
    let mut command = lab.command(&["up", "lab.toml", "--detach", &format!("--page={free}")]);
    command.env("JOURNAL_STREAM", format!("{}:{}", seen.dev(), seen.ino()));
    assert!(command.stdout(journal).status().unwrap().success());
    let said = std::fs::read_to_string(path).unwrap();
    assert!(said.contains(&format!("http://{free}/")) && !said.contains("token="), "{said}");
    assert_eq!(lab.json(&["token", "list"]), json!([]));
}

/// Installs what the page is built with, if there is npm.
fn has_npm() -> bool {
    if Command::new("npm").arg("--version").output().is_err() {
        eprintln!("not run: there is no npm");
        return false;
    }
    if !sources().join("node_modules/esbuild").exists() {
        let install = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
        let done = Command::new("npm").args(install).current_dir(sources()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    true
}

fn node(words: &[&str]) -> String {
    let output = Command::new("node").args(words).current_dir(sources()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_built_files_are_what_the_sources_give_and_a_browser_shows_them() {
    if !has_npm() {
        return;
    }
    node(&["node_modules/typescript/bin/tsc", "-p", "."]);
    node(&["build.mjs", "--check"]);
    let known = ["/usr/bin/chromium", "/usr/bin/chromium-browser"];
    let Some(browser) = known.into_iter().find(|path| PathBuf::from(path).exists()) else {
        eprintln!("not run: there is no chromium");
        return;
    };
    let (lab, url) = up("page-browser");
    let pictures = std::env::var("PICTURES").unwrap_or_else(|_| lab.folder.display().to_string());
    let said = node(&["test/page.mjs", &url, &pictures, browser]);
    assert!(said.contains(" passed, 0 failed"), "{said}");
    assert!(lab.json(&["link", "show"])[0]["directions"].to_string().contains("10ms"), "by the slider");
    let said = node(&["test/hour.mjs", browser]);
    assert!(said.contains("3 passed, 0 failed"), "{said}");
}
