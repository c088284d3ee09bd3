use super::super::tests::run;

/// UDP from 10.0.0.1:9 to 10.0.0.2:8 in hexadecimal, for DATA: whole, and in two fragments.
const WHOLE: &str = "45000020 00010000 40116bca 0a000001 0a000002 00090008 000c0000 01020304";
const FIRST: &str = "4500001c 00072000 4011 0000 0a000001 0a000002 00090008 00140000";
const REST: &str = "45000020 00070001 4011 0000 0a000001 0a000002 01020304 05060708 090a0b0c";

fn source(data: &str, limit: &str) -> String {
    format!("InfiniteSource(DATA \\<{data}>, LIMIT {limit}) -> MarkIPHeader")
}

fn read(text: &str, handlers: &[&str]) -> Vec<String> {
    let mut values = Vec::new();
    for burst in [1, 32] {
        let mut router = run(text, burst);
        values = handlers.iter().map(|handler| router.read(handler).unwrap()).collect();
    }
    values
}

#[test]
fn a_time_filter_keeps_a_range() {
    let text = |time: &str, arguments: &str| {
        format!(
            "{} -> SetTimestamp({time}) -> f :: TimeFilter({arguments}) -> c :: Counter -> Discard;
             f[1] -> d :: Counter -> Discard",
            source(WHOLE, "2")
        )
    };
    let counts = |time, arguments| read(&text(time, arguments), &["c.count", "d.count", "f.end"]);
    assert_eq!(counts("1.5", "1, 2"), ["2", "0", "2.000000"]);
    assert_eq!(counts("0.5", "1, 2"), ["0", "2", "2.000000"]);
    assert_eq!(counts("2", "1, 2"), ["0", "2", "2.000000"]);
    assert_eq!(counts("2", "START_AFTER 1"), ["0", "2", "18446744073.709551615"]);
    assert_eq!(counts("2", "INTERVAL 0.5"), ["2", "0", "2.500000"]);
    assert_eq!(counts("9", "1, 2, END_CALL f.extend_interval 3"), ["2", "0", "11.000000"]);
    assert_eq!(counts("9", "1, 2, END_CALL f.end $t"), ["0", "2", "9.000000"]);
}

#[test]
fn flows_have_numbers_and_directions() {
    let text = format!(
        "{} -> t :: Tee -> a :: AggregateIPFlows -> p :: PaintSwitch -> c :: Counter -> Discard;
         t[1] -> IPMirror -> a; p[1] -> d :: Counter -> IPPrint(x, AGGREGATE true) -> Discard",
        source(WHOLE, "3")
    );
    assert_eq!(read(&text, &["c.count", "d.count"]), ["3", "3"]);
}

#[test]
fn fragments_wait_for_their_ports() {
    let text = |more: &str| {
        format!(
            "{} -> a :: AggregateIPFlows -> c :: Counter -> Discard; a[1] -> d :: Counter -> Discard; {more}",
            source(REST, "2")
        )
    };
    assert_eq!(read(&text(""), &["c.count", "d.count"]), ["0", "0"]);
    let first = format!("{} -> a", source(FIRST, "1"));
    assert_eq!(read(&text(&first), &["c.count", "d.count"]), ["3", "0"]);
    let mut router = run(&text(""), 1);
    router.write("a.clear").unwrap();
    assert_eq!(router.read("d.count").unwrap(), "2");
}

#[test]
fn icmp_errors_are_returned_to_the_sender() {
    let rewriters = [
        "UDPRewriter(pattern 1.2.3.4 1024-65535# - - 0 0)",
        "IPRewriter(pattern 1.2.3.4 1024-65535# - - 0 0)",
        "IPAddrRewriter(pattern 1.2.3.4 - 0 0)",
        "IPAddrPairRewriter(pattern 1.2.3.4 - 0 0)",
    ];
    for rewriter in rewriters {
        let text = format!(
            "{} -> SetIPChecksum -> SetUDPChecksum -> r :: {rewriter} -> ICMPError(5.5.5.5, unreachable)
             -> ICMPRewriter(r) -> CheckIPHeader(0) -> IPFilter(allow dst 10.0.0.1)
             -> CheckICMPHeader -> Strip(28) -> CheckIPHeader(0)
             -> IPFilter(allow src 10.0.0.1 and src port 9) -> CheckUDPHeader
             -> c :: Counter -> Discard",
            source(WHOLE, "2, STOP true")
        );
        assert_eq!(read(&text, &["c.count"]), ["2"], "{rewriter}");
    }
}
