//! Intrusion prevention between an HTTP server and its client, with 5 and with 5000 rules.
use super::lab::net::{can_create_taps, file_server, namespace, shell};
use super::{fabric, read, write_file};
use std::fmt::Write;

#[test]
fn pages_that_match_a_rule_do_not_arrive() {
    if !can_create_taps() {
        return;
    }
    for isolation in ["process", "worker"] {
        let ((_one, inside), (_two, outside)) = (namespace(), namespace());
        let lab = fabric("ids", isolation, [&inside, &outside], ["10.0.0.1/24", "10.0.0.2/24"]);
        // The pattern is somewhere in the page, so in the middle of a segment or across two.
        for (name, word) in [("good", "nothing"), ("bad", "/ETC/passwd"), ("other", "needle-4711;")] {
            let page = format!("{}{word}{}", "x".repeat(40_000), "y".repeat(40_000));
            std::fs::write(lab.folder.join(name), page).unwrap();
        }
        let _server = file_server(&outside, &lab.folder, "10.0.0.2");
        let fetches = |name: &str| {
            let get =
                format!("curl --silent --noproxy '*' --max-time 3 --output /dev/null http://10.0.0.2/{name}");
            shell(&inside, &get).status().unwrap().success()
        };
        assert!(fetches("good") && fetches("other"), "{isolation}");
        assert!(!fetches("bad"), "{isolation}");
        assert!(read(&lab, "ids", "rules.table").starts_with("1000001 "));
        assert!(lab.log().contains("[1:1000001:1] password file [**] {TCP} 10.0.0.2:80 -> 10.0.0.1:"));

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
        assert!(!fetches("other"), "{isolation}");
        assert!(read(&lab, "ids", "rules.table").starts_with("4711 "));
        let why =
            write_file(&lab, "ids", "rules.rules", "alert tcp any any -> any any (depth:1;)").unwrap_err();
        assert!(why.contains("line 1: depth without content"), "{why}");
        assert_eq!(read(&lab, "ids", "rules.count"), "5000");
    }
}
