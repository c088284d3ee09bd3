//! Intrusion prevention between an HTTP server and its client, with 5 and with 5000 rules.
use super::{fabric, read, write_file};
use crate::lab::net::{Script, can_create_taps, file_server, namespace, shell, within};
use crate::lab::{at_once, until};
use std::fmt::Write;

/// Prints the datagrams to port 53.
const NAME_SERVER: &str = r#"
import socket
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("10.0.0.1", 53))
print("ready")
while True:
    print(own.recv(100).decode().strip())
"#;

#[test]
fn pages_that_match_a_rule_do_not_arrive() {
    if !can_create_taps() {
        return;
    }
    at_once(|isolation| {
        let ((_one, inside), (_two, outside)) = (namespace(), namespace());
        let lab = fabric("ids", isolation, [&inside, &outside], ["10.0.0.1/24", "10.0.0.2/24"]);
        // The pattern is somewhere in the page, so in the middle of a segment or across two.
        for (name, word) in [("good", "nothing"), ("bad", "/ETC/passwd"), ("other", "needle-4711;")] {
            let page = format!("{}{word}{}", "x".repeat(40_000), "y".repeat(40_000));
            std::fs::write(lab.folder.join(name), page).unwrap();
        }
        let _server = file_server(&outside, &lab.folder, "10.0.0.2");
        let get = |name: &str, seconds: u32| {
            let words = format!("--silent --noproxy '*' --max-time {seconds} --output /dev/null");
            shell(&inside, &format!("curl {words} http://10.0.0.2/{name}")).status().unwrap().success()
        };
        let (fetches, is_blocked) = (|name: &str| get(name, 30), |name: &str| !get(name, 2));
        assert!(fetches("good") && fetches("other"), "{isolation}");
        assert!(is_blocked("bad"), "{isolation}");
        assert!(read(&lab, "ids", "rules.table").starts_with("1000001 "));
        let line = "[1:1000001:1] password file [**] {TCP} 10.0.0.2:80 -> 10.0.0.1:";
        // A function's lines may come later than its frames.
        until("the drop is reported", || lab.log().contains(line));

        // An alert is reported, and its packet passes; without the pattern in its place there is none.
        let mut name_server = Script::start(&inside, &lab.folder, NAME_SERVER, &[]);
        assert_eq!(name_server.line(), "ready");
        for text in ["...........?.?", "............?."] {
            within(&outside, &format!("exec bash -c 'echo \"{text}\" > /dev/udp/10.0.0.1/53'"));
            assert_eq!(name_server.line(), text, "{isolation}");
        }
        let alerts = || {
            let log = lab.log();
            log.lines().filter(|line| line.contains("[1:1000005:1]")).map(str::to_string).collect::<Vec<_>>()
        };
        until("the alert is there", || !alerts().is_empty());
        let alerts = alerts();
        assert!(alerts.len() == 1 && !alerts[0].contains("[drop]"), "{isolation}: {alerts:?}");
        assert!(
            alerts[0].contains("long name [**] {UDP} 10.0.0.2:") && alerts[0].contains(" -> 10.0.0.1:53")
        );

        let mut rules = String::from("# local rules\n");
        for number in 0..5000 {
            let _ = writeln!(
                rules,
                "drop tcp $EXTERNAL_NET any -> [10.0.0.0/8, 192.168.0.0/16] any \
                 (msg:\"needle\"; flow:established; \
                 content:\"needle-{number}\\;\"; nocase; sid:{number};)"
            );
        }
        rules += "alert tcp any any -> any any (pcre:\"/x/\"; content:\"x\"; sid:9;)\n";
        write_file(&lab, "ids", "rules.rules", &rules).unwrap();
        assert_eq!(read(&lab, "ids", "rules.count"), "5000");
        assert_eq!(read(&lab, "ids", "rules.skips"), "line 5002: pcre");
        assert!(fetches("good") && fetches("bad"), "{isolation}");
        assert!(is_blocked("other"), "{isolation}");
        assert!(read(&lab, "ids", "rules.table").starts_with("4711 "));
        let why =
            write_file(&lab, "ids", "rules.rules", "alert tcp any any -> any any (depth:1;)").unwrap_err();
        assert!(why.contains("line 1: depth without content"), "{why}");
        assert_eq!(read(&lab, "ids", "rules.count"), "5000");
    });
}
