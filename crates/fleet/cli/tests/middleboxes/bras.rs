//! A Linux guest's `pppd` opens PPPoE sessions of the broadband access server, with users of the server's own and of
//! FreeRADIUS.
use super::{example, function, read, write_file};
use crate::lab::net::{Script, can_create_taps, file_server, namespace, tap, within};
use crate::lab::{Lab, Running, at_once, until};
use ringway_linux_guests::{Attachment, Guest, Interface, Runner, Spec, image};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time limits for a guest's boot and for a command in it, on a loaded machine.
const BOOT: Duration = Duration::from_secs(120);
const BOUND: Duration = Duration::from_secs(60);
/// PPP's modules, and those that they and IPv6 need, in loading order.
const MODULES: [&str; 6] = ["crc_ccitt", "ipv6", "slhc", "ppp_generic", "pppox", "pppoe"];
const FILE: usize = 300_000;

/// FreeRADIUS with one user, and files for reports; `@` is its folder.
const RADIUS: &str = r#"
prefix = /usr
libdir = /usr/lib/freeradius
logdir = @
run_dir = @
pidfile = @/pid
security {
    status_server = no
}
client bras {
    ipaddr = 192.0.2.1
    secret = testing123
}
modules {
    pap { }
    chap { }
    files { filename = @/users }
    detail { filename = @/detail }
}
server default {
    listen {
        type = auth
        ipaddr = 192.0.2.254
        port = 1812
    }
    listen {
        type = acct
        ipaddr = 192.0.2.254
        port = 1813
    }
    authorize {
        chap
        files
        pap
    }
    authenticate {
        Auth-Type PAP {
            pap
        }
        Auth-Type CHAP {
            chap
        }
    }
    post-auth {
        update reply {
            Message-Authenticator := 0x00
        }
        Post-Auth-Type REJECT {
            update reply {
                Message-Authenticator := 0x00
            }
        }
    }
    accounting {
        detail
    }
}
"#;
const USERS: &str = "carol Cleartext-Password := \"looking-glass\"\n\tFramed-IP-Address = 198.51.100.77,\n\
    \tSession-Timeout = 3600,\n\tClass = 0x414243\n";

struct Site {
    lab: Lab,
    guest: Guest,
    outside: String,
    isolation: &'static str,
    _server: Script,
}

impl Site {
    fn new(isolation: &'static str, plugin: PathBuf, outside: &str) -> Site {
        let function = function("bras", isolation, "", "");
        let parameters = "parameters = { RADIUS = \"192.0.2.254\", SECRET = \"testing123\", \
            INTERIM = \"1s\", RECHALLENGE = \"1s\", ECHO = \"10s\" }";
        let file = format!(
            "[patch.inner]\nports = [\"inside\", \"client\"]\n\
             [patch.outer]\nports = [\"outside\", \"server\"]\n\
             [port.client]\nkind = \"vhost-user\"\nsocket = \"client.sock\"\nmode = \"0666\"\n{}{}",
            function.replace("[function.bras]", &format!("[function.bras]\n{parameters}")),
            tap("server", outside, "192.0.2.254/24"),
        );
        let lab = Lab::new(&format!("bras-{isolation}"), &file);
        lab.ok(&["up", "lab.toml", "--detach"]);
        until("the ports are up", || {
            ["server", "inside", "outside"].iter().all(|port| lab.state(port) == "up")
        });
        within(outside, "ip link set lo up; ip route add 198.51.100.0/24 via 192.0.2.1");
        std::fs::write(
            lab.folder.join("file"),
            (0..FILE).map(|at| ((at * at) >> 7) as u8).collect::<Vec<u8>>(),
        )
        .unwrap();
        let server = file_server(outside, &lab.folder, "192.0.2.254");

        let attachment = Attachment::VhostUser { socket: lab.socket("client.sock"), listen: false };
        let mut spec = Spec::new("subscriber", Runner::Uml, vec![Interface::new(attachment)]);
        spec.drivers.extend(MODULES.map(String::from));
        spec.carried = vec![image::program("pppd").unwrap(), plugin];
        let guest = Guest::start(spec, &lab.folder.join("guest")).unwrap();
        guest.ready(BOOT).unwrap();
        let site = Site { lab, guest, outside: outside.to_string(), isolation, _server: server };
        site.ran("mkdir -p /etc/ppp /var/run /run/lock; touch /etc/ppp/options; test -c /dev/ppp");
        site
    }

    /// The output of a command that must succeed in the guest.
    fn ran(&self, command: &str) -> String {
        let output = self.guest.run(command, BOUND).unwrap();
        assert_eq!(output.status, 0, "{}: {command}: {}{}", self.isolation, output.text, self.log());
        output.text.trim().to_string()
    }

    fn log(&self) -> String {
        let pppd = self.guest.run("cat /tmp/log", BOUND).map(|output| output.text).unwrap_or_default();
        format!("\npppd: {pppd}\nringway: {}", self.lab.log())
    }

    fn read(&self, handler: &str) -> String {
        read(&self.lab, "bras", &format!("server.{handler}"))
    }

    /// Starts pppd for a user. Its exit status is in the file `status` when it has ended.
    fn start(&self, user: &str, password: &str, options: &str) {
        self.ran(&format!(
            "rm -f /tmp/status /tmp/log; for kind in pap chap; do \
             echo '{user} * {password} *' >/etc/ppp/$kind-secrets; chmod 600 /etc/ppp/$kind-secrets; done"
        ));
        self.ran(&format!(
            "(pppd plugin pppoe.so nic-eth0 user {user} noauth nodetach debug usepeerdns defaultroute \
             noipdefault +ipv6 noproxyarp logfile /tmp/log {options} >/dev/null 2>&1; \
             echo $? >/tmp/status) >/dev/null 2>&1 &"
        ));
    }

    /// Waits until the session is open, and uses it. Returns its line in the list.
    fn use_it(&self, address: &str) -> String {
        until("the session is open, or pppd has ended", || {
            self.read("sessions").contains(" open ")
                || self.guest.run("cat /tmp/status", BOUND).unwrap().status == 0
        });
        assert!(self.read("sessions").contains(" open "), "{}", self.log());
        let mut line = String::new();
        until("pppd has the address", || {
            line = self.guest.run("ip address show dev ppp0", BOUND).unwrap().text;
            line.contains(address) && line.contains("fe80::")
        });
        assert!(line.contains("peer 198.51.100.1/32"), "{line}");
        assert_eq!(self.ran("cat /etc/ppp/resolv.conf"), "nameserver 192.0.2.53");
        self.ran("ping -c 1 -W 20 198.51.100.1 && ping -c 1 -W 20 192.0.2.254");
        let sum = self.ran("wget -q -O - http://192.0.2.254/file | sha256sum");
        let file = self.lab.folder.join("file");
        let own = Command::new("sha256sum").stdin(std::fs::File::open(file).unwrap()).output().unwrap();
        assert_eq!(sum, String::from_utf8(own.stdout).unwrap().trim(), "{}", self.isolation);
        self.read("sessions")
    }

    /// pppd's exit status, when it has ended.
    fn status(&self) -> String {
        until("pppd ends", || self.guest.run("cat /tmp/status", BOUND).unwrap().status == 0);
        self.ran("cat /tmp/status")
    }

    /// Waits until pppd ends, and checks that authentication failed. pppd ends by itself, or by the server's request to
    /// end the link, which may come first.
    fn await_refusal(&self) {
        const AUTH_TOPEER_FAILED: &str = "19";
        const HANGUP: &str = "16";
        let (status, log) = (self.status(), self.log());
        assert!([AUTH_TOPEER_FAILED, HANGUP].contains(&status.as_str()), "{status}: {log}");
        assert!(log.contains("AP authentication failed"), "{log}");
    }

    /// Ends the session by pppd; returns its record.
    fn end(&self) -> String {
        self.ran("kill $(pidof pppd)");
        self.status();
        until("the session is gone", || self.read("count") == "0");
        self.read("accounting").lines().last().unwrap().to_string()
    }
}

#[test]
fn pppd_connects_with_pap_and_with_chap() {
    if !can_create_taps() {
        return;
    }
    let plugin = std::fs::read_dir("/usr/lib/pppd").ok().and_then(|folders| {
        folders.flatten().map(|folder| folder.path().join("pppoe.so")).find(|path| path.exists())
    });
    let (Some(plugin), Some(_), Some(_)) = (plugin, image::program("pppd"), image::program("linux.uml"))
    else {
        eprintln!("not run: it needs linux.uml, and pppd with its plugin pppoe.so");
        return;
    };
    at_once(|isolation| {
        let (_keeper, outside) = namespace();
        let site = Site::new(isolation, plugin.clone(), &outside);
        own_users(&site);
        radius_users(&site);
    });
}

fn own_users(site: &Site) {
    // CHAP, with later challenges, and a change of the configuration while the session is open.
    site.start("alice", "wonderland", "refuse-pap");
    let open = site.use_it("198.51.100.2");
    assert!(open.contains(" alice open 198.51.100.2 "), "{open}");
    until("it was challenged again", || {
        site.ran("grep -c 'rcvd .CHAP Success' /tmp/log").parse::<u32>().unwrap() >= 3
    });
    let file = site.lab.folder.join("changed.click");
    std::fs::write(&file, std::fs::read_to_string(example("bras.click")).unwrap() + "\n// Changed.\n")
        .unwrap();
    site.lab.ok(&["function", "update", "bras", file.to_str().unwrap()]);
    let open = site.use_it("198.51.100.2");
    assert!(open.contains(" alice open 198.51.100.2 "), "{open}");
    let record = site.end();
    assert!(record.contains(" alice User-Request 198.51.100.2 "), "{record}");
    let bytes: usize = record.split(' ').next_back().unwrap().parse().unwrap();
    assert!(bytes > 2 * FILE, "{record}");

    // PAP.
    site.start("bob", "builder", "refuse-chap");
    site.use_it("198.51.100.");
    assert!(site.ran("cat /tmp/log").contains("rcvd [PAP AuthAck"));
    // The operator ends the session.
    let number = site.read("sessions").split(' ').next().unwrap().to_string();
    site.lab.ok(&["function", "write", "bras", "server.disconnect", &number]);
    site.status();
    until("the session is gone", || site.read("count") == "0");
    assert!(site.read("accounting").lines().last().unwrap().contains(" bob Admin-Reset "));

    // A wrong password; then the right one, of a file of users.
    for method in ["refuse-pap", "refuse-chap"] {
        site.start("dave", "x", method);
        site.await_refusal();
    }
    write_file(&site.lab, "bras", "server.users", "# users\ndave:x\n").unwrap();
    site.start("dave", "x", "");
    site.use_it("198.51.100.");
    site.end();
}

fn radius_users(site: &Site) {
    let Some(program) = image::program("freeradius") else {
        eprintln!("users of RADIUS are left out: freeradius is not installed");
        return;
    };
    let folder = site.lab.folder.join("radius");
    std::fs::create_dir_all(&folder).unwrap();
    let at = folder.to_str().unwrap();
    std::fs::write(folder.join("radiusd.conf"), RADIUS.replace('@', at)).unwrap();
    std::fs::write(folder.join("users"), USERS).unwrap();
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", site.outside)).arg("--").arg(program).args(["-d", at, "-f", "-l"]);
    let log = folder.join("log");
    let _server = Running(command.arg(&log).stdin(Stdio::null()).spawn().unwrap());
    until("the RADIUS server is ready", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("Ready to process requests"))
    });
    // Reports of earlier sessions may still come.
    let detail = folder.join("detail");
    let reported = |lines: &[&str]| {
        let text = std::fs::read_to_string(&detail).unwrap_or_default();
        text.split("\n\n").any(|report| lines.iter().all(|line| report.contains(line)))
    };
    let who = ["User-Name = \"carol\"", "Framed-IP-Address = 198.51.100.77", "Class = 0x414243"];
    for method in ["refuse-pap", "refuse-chap"] {
        site.start("carol", "looking-glass", method);
        site.use_it("198.51.100.77");
        for status in ["Acct-Status-Type = Start", "Acct-Status-Type = Interim-Update"] {
            let lines = [&who[..], &[status, "Acct-Authentic = RADIUS"]].concat();
            until(status, || reported(&lines));
        }
        let record = site.end();
        assert!(record.contains(" carol User-Request 198.51.100.77 "), "{record}");
        let numbers: Vec<&str> = record.split(' ').skip(6).collect();
        let numbers = [
            format!("Acct-Input-Packets = {}\n", numbers[0]),
            format!("Acct-Input-Octets = {}\n", numbers[1]),
            format!("Acct-Output-Packets = {}\n", numbers[2]),
            format!("Acct-Output-Octets = {}\n", numbers[3]),
        ];
        let end = ["Acct-Status-Type = Stop", "Acct-Terminate-Cause = User-Request"];
        let lines: Vec<&str> = who.into_iter().chain(end).chain(numbers.iter().map(String::as_str)).collect();
        until(&format!("a report of the end with {numbers:?}"), || reported(&lines));
        std::fs::remove_file(&detail).unwrap();
    }
    site.start("carol", "wrong", "");
    site.await_refusal();
    assert_eq!(site.read("forged"), "0");
}
