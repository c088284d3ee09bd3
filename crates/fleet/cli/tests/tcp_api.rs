//! The API at a TCP address: who may do what, and clients that mean it ill.

use crate::lab::api::kill;
use crate::lab::{Lab, Running, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

const FILE: &str = "[switch.main]\n[port.a]\nkind = \"null\"\nswitch = \"main\"\n\
    [port.b]\nkind = \"ring\"\nsocket = \"b.sock\"\nswitch = \"main\"\n";

/// A fabric whose API is at a TCP address of this host, and the clients of each role.
struct Remote {
    lab: Lab,
    address: String,
}

impl Remote {
    fn up(name: &str, api: &str) -> Remote {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let lab = Lab::new(name, &format!("[api]\naddress = \"{free}\"\n{api}\n{FILE}"));
        lab.ok(&["up", "lab.toml", "--detach"]);
        for role in ["read", "operate", "admin"] {
            let token = lab.ok(&["token", "add", role, "--role", role]);
            std::fs::write(lab.folder.join(role), token).unwrap();
        }
        Remote { lab, address: free }
    }

    fn token(&self, role: &str) -> String {
        std::fs::read_to_string(self.lab.folder.join(role)).unwrap().trim().into()
    }

    fn certificate(&self) -> String {
        self.lab.socket("api.crt").display().to_string()
    }

    /// curl for a path.
    fn command(&self, path: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--noproxy", "*", "--cacert", &self.certificate()]);
        curl.arg(format!("https://{}{path}", self.address));
        curl
    }

    /// curl's status and body of an answer, with these words in addition.
    fn curl(&self, path: &str, words: &[&str]) -> (u16, String) {
        let common = ["--show-error", "--write-out", "\n%{http_code}"];
        let output = self.command(path).args(common).args(words).output().unwrap();
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.into())
    }

    fn ask(&self, role: &str, method: &str, path: &str, body: &Value) -> u16 {
        let token = format!("authorization: Bearer {}", self.token(role));
        let mut words = vec!["--request", method, "--header", &token];
        let text = body.to_string();
        if !body.is_null() {
            words.extend(["--header", "content-type: application/json", "--data", &text]);
        }
        self.curl(path, &words).0
    }

    /// The program's own client, by this proof of the fabric.
    fn ringway(&self, role: &str, ca: &str, words: &[&str]) -> std::process::Output {
        let url = format!("https://{}", self.address);
        let common = ["--api", &url, "--token-file", role, "--ca", ca];
        self.lab.run(&common.iter().chain(words).copied().collect::<Vec<_>>())
    }

    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

#[test]
fn each_role_may_do_what_it_is_for_and_no_more() {
    let remote = Remote::up("tcp-roles", "");
    let trace = json!({ "frame": "arp" });
    let port = json!({ "name": "new", "kind": "null", "switch": "main" });
    for (method, path, body, expected) in [
        ("GET", "/v1/ports", Value::Null, [200, 200, 200]),
        ("GET", "/openapi.json", Value::Null, [200, 200, 200]),
        ("GET", "/metrics", Value::Null, [200, 200, 200]),
        ("GET", "/v1/place/hosts", Value::Null, [200, 200, 200]),
        ("POST", "/v1/ports/b/trace", trace, [200, 200, 200]),
        ("POST", "/v1/ports/b/trace", json!({ "frame": "arp", "inject": true }), [403, 200, 200]),
        ("PATCH", "/v1/ports/b", json!({ "tag": 10 }), [403, 200, 200]),
        // A function's own handlers may replace its configuration.
        ("PUT", "/v1/functions/none/handlers/hotconfig", json!({ "value": "" }), [403, 403, 404]),
        ("PUT", "/v1/functions/none/handlers/.hotconfig", json!({ "value": "" }), [403, 403, 404]),
        ("PUT", "/v1/functions/none/handlers/c.reset", json!({ "value": "" }), [403, 404, 404]),
        ("POST", "/v1/ports", port, [403, 403, 200]),
        ("DELETE", "/v1/ports/new", Value::Null, [403, 403, 204]),
        ("GET", "/v1/audit", Value::Null, [403, 403, 200]),
        ("GET", "/v1/fabric/file", Value::Null, [403, 403, 200]),
        ("GET", "/v1/tokens", Value::Null, [403, 403, 200]),
        ("GET", "/v1/none", Value::Null, [404, 404, 404]),
        ("PUT", "/v1/ports", Value::Null, [403, 403, 403]),
    ] {
        let found = ["read", "operate", "admin"].map(|role| remote.ask(role, method, path, &body));
        let is_as_expected = found.iter().zip(expected).all(|(found, expected)| {
            // Which 2xx it is, is another matter.
            *found == expected || (found / 100 == 2 && expected / 100 == 2)
        });
        assert!(is_as_expected, "{method} {path}: {found:?}");
    }
    let audit = remote.lab.json(&["audit"]);
    let of = |token: &str, status: u64| {
        audit.as_array().unwrap().iter().any(|entry| {
            entry["token"] == token && entry["status"] == status && entry["address"] == "127.0.0.1"
        })
    };
    assert!(of("read", 403) && of("operate", 200) && of("admin", 200), "{audit}");
    let table = remote.lab.ok(&["audit"]);
    assert!(table.contains("operate@127.0.0.1"), "{table}");
    // What is removed is refused at once.
    assert_eq!(remote.ask("operate", "GET", "/v1/ports", &Value::Null), 200);
    remote.lab.ok(&["token", "remove", "operate"]);
    assert_eq!(remote.ask("operate", "GET", "/v1/ports", &Value::Null), 401);
    let (code, why) = remote.lab.fails(&["token", "remove", "operate"]);
    assert!(code != 0 && why.contains("there is no token operate"), "{why}");
    let list = remote.lab.json(&["token", "list"]);
    assert_eq!(list, json!([{ "name": "read", "role": "read" }, { "name": "admin", "role": "admin" }]));
    let stored = std::fs::read_to_string(remote.lab.socket("tokens")).unwrap();
    assert!(!stored.contains(&remote.token("read")["ringway_".len()..]), "{stored}");
}

#[test]
fn other_hosts_other_origins_and_guessed_tokens_are_refused() {
    let remote = Remote::up("tcp-hostile", "hosts = [\"lab.example\"]");
    let token = format!("authorization: Bearer {}", remote.token("admin"));
    let status = |words: &[&str]| remote.curl("/v1/ports", words).0;
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&["--header", &token]), 200);
    assert_eq!(status(&["--header", &token, "--header", "host: evil.example"]), 421);
    assert_eq!(status(&["--header", &token, "--header", "host: lab.example"]), 200);
    assert_eq!(status(&["--header", &token, "--header", "origin: https://evil.example"]), 403);
    assert_eq!(status(&["--header", &token, "--header", "sec-fetch-site: cross-site"]), 403);
    let own = format!("origin: https://{}", remote.address);
    assert_eq!(status(&["--header", &token, "--header", &own]), 200);
    assert_eq!(status(&["--header", "authorization: Basic YTpi"]), 401);
    let (_, text) = remote.curl("/v1/ports", &["--header", &token, "--include"]);
    for header in [
        "content-security-policy: default-src 'none'",
        "x-content-type-options: nosniff",
        "x-frame-options: DENY",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
    ] {
        assert!(text.to_lowercase().contains(&header.to_lowercase()), "{header}: {text}");
    }
    assert!(!text.to_lowercase().contains("access-control-allow"), "{text}");
    // A body of nobody is not received.
    let large = remote.lab.folder.join("large");
    std::fs::write(&large, vec![b'x'; 4 << 20]).unwrap();
    let words = ["--request", "PUT", "--header", "expect:", "--write-out", "%{http_code}", "--data-binary"];
    let body = format!("@{}", large.display());
    let output = remote.command("/v1/fabric").args(words).arg(body).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("401"), "{output:?}");
    // Plain HTTP has no answer.
    let mut plain = remote.stream();
    plain.write_all(b"GET /v1/ports HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // Guesses end with a pause, for the right token too; the socket answers.
    let former = format!("authorization: Bearer ringway_{:064x}", u64::MAX);
    let again: Vec<u16> = (0..11).map(|_| status(&["--header", &former])).collect();
    assert_eq!(again, [401; 11], "the same one again is one guess");
    let guesses: Vec<u16> = (0..12)
        .map(|guess| status(&["--header", &format!("authorization: Bearer ringway_{guess:064x}")]))
        .collect();
    assert_eq!(guesses.iter().filter(|status| **status == 401).count(), 8, "{guesses:?}: two were before");
    assert_eq!(guesses.last(), Some(&429));
    let (late, text) = remote.curl("/v1/ports", &["--header", &token, "--include"]);
    assert!(late == 429 && text.to_lowercase().contains("retry-after:"), "{text}");
    remote.lab.ok(&["ps"]);
    assert!(remote.lab.log().contains("wrong tokens for the API"), "{}", remote.lab.log());
}

#[test]
fn the_program_is_a_client_of_another_host() {
    let remote = Remote::up("tcp-cli", "");
    let log = remote.lab.log();
    let fingerprint = log.split("fingerprint=").nth(1).unwrap().split_whitespace().next().unwrap();
    let by_print = format!("sha256:{}", fingerprint.trim_matches('"'));
    for ca in [remote.certificate(), by_print] {
        let ps = remote.ringway("read", &ca, &["ps", "--json"]);
        let ps: Value = serde_json::from_slice(&ps.stdout).unwrap_or_else(|_| panic!("{ps:?}"));
        assert_eq!(ps["fabric"]["name"], "lab");
    }
    let fails = |role: &str, ca: &str, words: &[&str]| {
        let output = remote.ringway(role, ca, words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let ca = remote.certificate();
    assert!(fails("read", &ca, &["port", "set", "b", "tag=3"]).contains("needs the role operate"));
    assert!(remote.ringway("operate", &ca, &["port", "set", "b", "tag=3"]).status.success());
    assert!(fails("operate", &ca, &["port", "remove", "b"]).contains("needs the role admin"));
    assert!(fails("read", &format!("sha256:{}", "0".repeat(64)), &["ps"]).contains("no fabric answers at"));
    for local in
        [&["capture", "b"][..], &["pktgen", "rx", "b"], &["host", "exec", "h", "--", "id"], &["upgrade"]]
    {
        assert!(fails("read", &ca, local).contains("without --api"), "{local:?}");
    }
    assert!(fails("lab.toml", &ca, &["ps"]).contains("it has no token"));
    // The file can be applied from elsewhere, by an admin.
    std::fs::write(remote.lab.folder.join("wrong"), "ringway_0\n").unwrap();
    assert!(fails("wrong", &ca, &["ps"]).contains("the token is unknown"));
    let applied = remote.ringway("admin", &ca, &["apply", "lab.toml"]);
    assert!(applied.status.success(), "{applied:?}");
    let events = remote.ringway("read", &ca, &["events", "--json"]);
    assert!(String::from_utf8_lossy(&events.stdout).contains("change port b"), "{events:?}");
    let down = remote.ringway("admin", &ca, &["down"]);
    assert!(down.status.success(), "{down:?}");
    until("the fabric is down", || !remote.lab.socket("api.sock").exists());
    until("its files are gone", || {
        !remote.lab.socket("tokens").exists() && !remote.lab.socket("api.key").exists()
    });
}

#[test]
fn a_fabric_goes_on_without_the_address_while_its_files_are_wrong() {
    let remote = Remote::up("tcp-files", "");
    let fabric = || remote.lab.json(&["ps"])["fabric"].clone();
    let before = fabric();
    std::fs::write(remote.lab.socket("tokens"), "no token\n").unwrap();
    kill(before["pid"].as_u64().unwrap());
    until("another control process goes on", || {
        let said = remote.lab.run(&["ps", "--json"]).stdout;
        let ps: Value = serde_json::from_slice(&said).unwrap_or_default();
        ps["fabric"]["pid"].is_i64() && ps["fabric"]["pid"] != before["pid"]
    });
    assert_eq!(fabric()["data_pid"], before["data_pid"]);
    assert!(remote.lab.log().contains("the API is not served at its TCP address"), "{}", remote.lab.log());
    remote.lab.ok(&["down"]);
}

#[test]
fn a_client_proves_itself_by_a_certificate() {
    let folder = std::env::temp_dir().join(format!("ringway-clients-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let openssl = |words: &str| {
        let output = Command::new("openssl").args(words.split(' ')).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=authority -days 30"));
    let of = "-x509 -CA ca.crt -CAkey ca.key -addext basicConstraints=critical,CA:FALSE";
    for name in ["laptop", "other"] {
        openssl(&format!("req {of} {key} -keyout {name}.key -out {name}.crt -subj /CN={name} -days 30"));
    }
    let purpose = "-addext extendedKeyUsage=serverAuth";
    openssl(&format!("req {of} {purpose} {key} -keyout site.key -out site.crt -subj /CN=site -days 30"));
    openssl(&format!("req -x509 {key} -keyout fake.key -out fake.crt -subj /CN=laptop -days 30"));
    let remote = Remote::up("tcp-certificates", &format!("client-ca = \"{}/ca.crt\"", folder.display()));
    let own =
        |name: &str| [format!("{}/{name}.crt", folder.display()), format!("{}/{name}.key", folder.display())];
    let [laptop, laptop_key] = own("laptop");
    remote.lab.ok(&["token", "add", "laptop", "--role", "operate", "--certificate", &laptop]);
    let status = |name: &str, words: &[&str]| {
        let [certificate, key] = own(name);
        let own = ["--cert", &certificate, "--key", &key];
        remote.curl("/v1/ports", &own.iter().chain(words).copied().collect::<Vec<_>>()).0
    };
    assert_eq!(status("laptop", &[]), 200);
    assert_eq!(status("other", &[]), 401, "of the authority, but nobody's");
    let both = std::fs::read_to_string(&laptop).unwrap() + &std::fs::read_to_string(laptop_key).unwrap();
    std::fs::write(remote.lab.folder.join("both.pem"), both).unwrap();
    let set = remote.ringway("both.pem", &remote.certificate(), &["port", "set", "b", "tag=7"]);
    assert!(set.status.success(), "{set:?}");
    let [site, _] = own("site");
    remote.lab.ok(&["token", "add", "site", "--role", "read", "--certificate", &site]);
    for (name, why) in [("fake", "not of the authority"), ("site", "not for clients")] {
        let [certificate, key] = own(name);
        let words = ["--cert", &certificate, "--key", &key];
        let output = remote.command("/v1/ports").args(words).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{why}: {output:?}");
    }
    let list = remote.lab.json(&["token", "list"]);
    assert!(list[3]["certificate"].as_str().is_some_and(|hash| hash.len() == 64), "{list}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn slow_and_many_clients_keep_nobody_out() {
    let remote = Remote::up("tcp-slow", "");
    // More than the server keeps, which say nothing.
    let silent: Vec<TcpStream> = (0..300).map(|_| remote.stream()).collect();
    assert_eq!(remote.ask("read", "GET", "/v1/ports", &Value::Null), 200);
    // A handshake that is not made within its time ends the connection.
    let mut slow = remote.stream();
    slow.write_all(&[0x16]).unwrap();
    let mut answer = Vec::new();
    let read = slow.read_to_end(&mut answer);
    assert!(read.is_ok() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    drop(silent);
    // Heads are bounded.
    let long = format!("x-long: {}", "x".repeat(100 << 10));
    let words = ["--write-out", "%{http_code}", "--header", &long];
    let output = remote.command("/v1/ports").args(words).output().unwrap();
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(status.ends_with("431") || !output.status.success(), "{output:?}");
}

#[test]
fn watchers_are_bounded_and_end_with_their_client() {
    let remote = Remote::up("tcp-watchers", "");
    let curl = |role: &str, words: &[&str]| {
        let token = format!("authorization: Bearer {}", remote.token(role));
        let mut curl = remote.command("/v1/events?follow=true");
        curl.args(["--no-buffer", "--header", &token]).args(words);
        curl
    };
    let watch = |role| {
        let words = ["--max-time", "5", "--write-out", "%{http_code}", "--output", "/dev/null"];
        String::from_utf8_lossy(&curl(role, &words).output().unwrap().stdout).into_owned()
    };
    let fill = |watchers: &mut Vec<Running>, role| {
        // On a busy machine some do not connect in time.
        watchers.retain_mut(|watcher| watcher.0.try_wait().unwrap().is_none());
        while watchers.len() < 32 {
            watchers.push(Running(curl(role, &[]).stdout(Stdio::null()).spawn().unwrap()));
        }
    };
    let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
    until("the last watcher of a token is refused", || {
        fill(&mut of_one, "read");
        watch("read") == "503"
    });
    assert_eq!(watch("admin"), "200", "another token has its own");
    until("the last watcher is refused", || {
        fill(&mut of_one, "read");
        fill(&mut of_other, "operate");
        watch("admin") == "503"
    });
    assert_eq!(remote.ask("read", "GET", "/v1/ports", &Value::Null), 200);
    drop((of_one, of_other));
    until("there is room again", || watch("read") == "200");
}

#[test]
fn the_address_and_its_tokens_stay_when_control_is_killed() {
    let remote = Remote::up("tcp-kill", "");
    let before = std::fs::read(remote.lab.socket("api.crt")).unwrap();
    let control = remote.lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap();
    kill(control);
    until("another control process serves", || {
        remote.lab.run(&["ps", "--json"]).status.success()
            && remote.lab.json(&["ps"])["fabric"]["pid"].as_u64() != Some(control)
    });
    assert_eq!(std::fs::read(remote.lab.socket("api.crt")).unwrap(), before);
    assert_eq!(remote.ask("admin", "GET", "/v1/tokens", &Value::Null), 200);
    // The address can't change, and is saved.
    let saved = remote.lab.ok(&["save"]);
    assert!(saved.contains(&format!("address = \"{}\"", remote.address)), "{saved}");
    remote.lab.write(FILE);
    let (_, why) = remote.lab.fails(&["apply", "lab.toml"]);
    assert!(why.contains("how its API is served by TCP can't change"), "{why}");
}

#[test]
fn without_an_address_there_are_no_tokens() {
    let lab = Lab::new("tcp-none", FILE);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let (_, why) = lab.fails(&["token", "list"]);
    assert!(why.contains("--listen"), "{why}");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let words = ["--fabric", "other", "up", "lab.toml", "--detach", &format!("--listen={taken}")];
    let (_, why) = lab.fails(&words);
    assert!(why.contains(&format!("the API: {taken}: ")) && why.contains("--listen"), "{why}");
    drop(other);
    lab.ok(&words);
    assert_eq!(lab.json(&["--fabric", "other", "token", "list"]), json!([]));
}
