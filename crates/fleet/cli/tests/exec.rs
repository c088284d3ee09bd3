//! `ringway exec` on ports of a fabric and with the host, and the examples of docs/exec.md.

use crate::lab::{Lab, until};
use std::process::{Command, Stdio};

/// The first block of the page in a language that has these words.
fn block(language: &str, words: &str) -> String {
    let page = include_str!("../../../../docs/exec.md");
    let mut blocks = page.split("\n```").filter_map(|part| part.strip_prefix(language));
    blocks.find(|block| block.contains(words)).unwrap().trim().to_string()
}

pub fn may_create_namespaces() -> bool {
    let may = Command::new("unshare")
        .args(["--user", "--net", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !may {
        eprintln!("not run: namespaces can't be created here");
    }
    may
}

#[test]
fn the_page_s_programs_run_on_the_ports_of_a_fabric() {
    if !may_create_namespaces() {
        return;
    }
    let file = block("toml", "[fabric]");
    let lab = Lab::new("exec", &file.replace("[fabric]\nname = \"lab\"\n", ""));
    for stack in ["native", "kernel"] {
        let script =
            block("sh", "http.server").replace("ringway exec", &format!("ringway exec --stack {stack}"));
        // The server ends with the script.
        let script = format!("{script}\nstatus=$?\nkill $!\nwait\nexit $status");
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_ringway")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).current_dir(&lab.folder).env("PATH", path);
        shell.env("RINGWAY_RUN", lab.folder.join("run")).stdin(Stdio::null());
        let output = shell.output().unwrap();
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{stack}: {text}{errors}");
        assert!(text.contains("[port.client]"), "{stack}: {text}{errors}");
        until("the ports are free", || lab.state("server") == "waiting" && lab.state("client") == "waiting");
        lab.ok(&["down"]);
    }
}

#[test]
fn wrong_words_are_explained() {
    let lab = Lab::new("exec-words", "");
    let fails = |words: &[&str], code: i32, part: &str| {
        let (status, text) = lab.fails(&[&["exec"], words, &["--", "true"]].concat());
        assert!(status == code && text.contains(part), "{words:?}: {status} {text}");
    };
    fails(&["--port", "/no/socket"], 1, "--port needs an address: --address 10.0.0.2/24");
    fails(&["--cc", "vegas"], 1, "there is no \"vegas\"; use bbr, bbr3, cubic, reno or dctcp");
    fails(&["--sysctl", "tcp_sack"], 1, "\"tcp_sack\" is not NAME=VALUE");
    fails(&["--sysctl", "=1"], 1, "\"=1\" is not NAME=VALUE");
    fails(&["--sysctl", "net.ipv4.tcp_sack=9"], 1, "\"9\" is not a number up to 1");
    fails(&["--link", "lost=1%"], 1, "\"lost=1%\" is not KEY=VALUE with a key of rate");
    fails(&["--link", "loss=two"], 1, "--link: `loss`");
    fails(&["--address", "10.0.0.2/24"], 1, "--address without --port needs the host's address");
    fails(&["--stack", "kernel", "--sysctl", "kernel.hostname=x"], 1, "is not a setting of the network");
    fails(&["--writable", "."], 1, "--writable is for --stack linux");
    fails(&["--stack", "kernel", "--direct"], 1, "--direct is for --stack native");
    fails(&["--stack", "linux", "--name", "a"], 1, "with others, use Linux's own tools");
    fails(&["--port", "a", "--address", "10.0.0.2/24"], 4, "no fabric is up");
    for (words, part) in [
        (["--address", "10.0.0.255/24"], "10.0.0.255 is the broadcast address of the network 10.0.0.0/24"),
        (["--address", "10.0.0.0/24"], "10.0.0.0 is the address of the network"),
        (["--address", "224.0.0.1/24"], "224.0.0.1 is a multicast address"),
        (["--address", "010.0.0.1/24"], "leave out leading zeros"),
        (["--address", "::/64"], ":: is the unspecified address"),
        (["--gateway", "224.0.0.1"], "224.0.0.1 is a multicast address"),
        (["--gateway", "127.0.0.1"], "127.0.0.1 is a loopback address"),
        (["--dns", "0.0.0.0"], "0.0.0.0 is the unspecified address"),
        (["--dns", "a.b"], "write the server's address, such as \"10.0.0.1\""),
    ] {
        fails(&words, 2, part);
    }
}

#[test]
fn a_program_reaches_the_host_over_an_emulated_link() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: an interface on the host needs root");
        return;
    }
    let lab = Lab::new("exec-host", "");
    // The host's side of each network has its own address.
    for (number, stack) in [(1, "native"), (2, "kernel")] {
        let (host, own) = (format!("198.19.{number}.1"), format!("198.19.{number}.2/24"));
        let server = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = server.local_addr().unwrap().port().to_string();
        let script = format!("exec 3<>/dev/tcp/{host}/{port}; echo hello >&3; cat <&3");
        let served = std::thread::spawn(move || {
            let (mut stream, peer) = server.accept().unwrap();
            let mut bytes = [0; 6];
            std::io::Read::read_exact(&mut stream, &mut bytes).unwrap();
            std::io::Write::write_all(&mut stream, b"bye").unwrap();
            (bytes, peer.ip().to_string())
        });
        let words = ["exec", "--stack", stack, "--link", "delay=5ms,rate=10Mbit", "--address", &own];
        let more = ["--gateway", &host, "--cc", "reno", "--", "bash", "-c", &script];
        assert_eq!(lab.ok(&[&words[..], &more].concat()), "bye", "{stack}");
        assert_eq!(served.join().unwrap(), (*b"hello\n", format!("198.19.{number}.2")), "{stack}");
    }
}

#[test]
fn a_program_reaches_the_host_without_an_interface_of_it() {
    if !may_create_namespaces() {
        return;
    }
    let lab = Lab::new("exec-user", "");
    for stack in ["native", "kernel"] {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port().to_string();
        // The gateway stands for the host, and answers questions for names.
        let script = "set -- $(ip route | grep default); exec 3<>/dev/tcp/$3/$PORT; echo hello >&3; cat <&3; \
                      grep -c \"^nameserver $3$\" /etc/resolv.conf";
        let script = script.replace("$PORT", &port);
        let served = std::thread::spawn(move || {
            let (mut stream, peer) = server.accept().unwrap();
            let mut bytes = [0; 6];
            std::io::Read::read_exact(&mut stream, &mut bytes).unwrap();
            std::io::Write::write_all(&mut stream, b"bye\n").unwrap();
            (bytes, peer.ip().to_string())
        });
        let words = ["exec", "--user-network", "--stack", stack, "--link", "delay=5ms,rate=10Mbit"];
        // Without the option, the gateway leads to no service of the host.
        let closed = format!(
            "set -- $(ip route | grep default); (exec 3<>/dev/tcp/$3/{port}) 2>/dev/null || echo closed"
        );
        assert_eq!(lab.ok(&[&words[..], &["--", "bash", "-c", &closed]].concat()), "closed\n", "{stack}");
        let text =
            lab.ok(&[&words[..], &["--host-loopback", "--cc", "reno", "--", "bash", "-c", &script]].concat());
        assert_eq!(text, "bye\n1\n", "{stack}");
        assert_eq!(served.join().unwrap(), (*b"hello\n", "127.0.0.1".to_string()), "{stack}");
    }
    for (words, what) in [
        (&["--gateway", "10.9.0.1"][..], "--gateway 10.9.0.1 needs"),
        (
            &["--address", "10.9.0.2/24", "--gateway", "10.9.0.1", "--gateway", "fd00::1"][..],
            "--gateway fd00::1 is in",
        ),
        (&["--address", "10.9.0.2/24", "--gateway", "10.8.0.1"][..], "--gateway 10.8.0.1 is in"),
    ] {
        let (status, text) = lab.fails(&[&["exec", "--user-network"], words, &["--", "true"]].concat());
        assert!(status == 1 && text.contains(what), "{text}");
    }
    let (status, text) = lab.fails(&["exec", "--user-network", "--port", "a", "--", "true"]);
    assert!(status == 2 && text.contains("cannot be used with"), "{text}");
}

#[test]
fn programs_in_user_mode_linux_use_both_kinds_of_ports() {
    if !may_create_namespaces() || !std::path::Path::new("/usr/bin/linux.uml").exists() {
        return;
    }
    let port = |name: &str, kind: &str| {
        format!("[port.{name}]\nkind = \"{kind}\"\nsocket = \"{name}.sock\"\nswitch = \"main\"\n")
    };
    let file = format!("[switch.main]\n{}{}", port("a", "ring"), port("b", "vhost-user"));
    let lab = Lab::new("exec-linux", &file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    for (server, client) in [("a", "b"), ("b", "a")] {
        let linux = |port: &str, own: &str| {
            let words = ["exec", "--stack", "linux", "--writable", ".", "--port", port, "--address", own];
            words.iter().map(ToString::to_string).chain(["--".into()]).collect::<Vec<String>>()
        };
        let mut serving = Command::new(env!("CARGO_BIN_EXE_ringway"));
        serving.args(linux(server, "10.0.0.1/24")).args(["python3", "-m", "http.server", "80"]);
        serving.current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run"));
        let mut serving = serving.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let get = "curl -sS --retry-connrefused --retry 40 --retry-delay 1 --max-time 60 \
                   http://10.0.0.1/lab.toml | cmp - lab.toml && ip -o link show eth0 | grep -c mtu";
        let words = linux(client, "10.0.0.2/24");
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["sh", "-c", get]).collect();
        assert_eq!(lab.ok(&words), "1\n", "{server} {client}");
        let pid = rustix::process::Pid::from_child(&serving);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        serving.wait().unwrap();
        until("the ports are free", || lab.state("a") == "waiting" && lab.state("b") == "waiting");
    }
    let (status, text) = lab.fails(&["exec", "--port", "b", "--address", "10.0.0.2/24", "--", "true"]);
    assert!(
        status != 0 && text.contains("port b is of kind vhost-user; a program's port is of kind ring"),
        "{text}"
    );
    lab.ok(&["down"]);
}
