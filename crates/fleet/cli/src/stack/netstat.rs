//! The lines of `netstat -s`.

use ringway_exec::query::Counters;

/// Names of counters in a group, and their lines; `*` stands for the value.
type Group = (&'static str, &'static [(&'static str, &'static str)]);

/// In the order and with the words of net-tools. Those of `TcpExt` are left out while they are zero.
const GROUPS: &[Group] = &[
    (
        "Ip",
        &[
            ("InReceives", "* total packets received"),
            ("InHdrErrors", "* with invalid headers"),
            ("InAddrErrors", "* with invalid addresses"),
            ("InUnknownProtos", "* with unknown protocol"),
            ("OutRequests", "* requests sent out"),
            ("OutDiscards", "* outgoing packets dropped"),
            ("OutNoRoutes", "* dropped because of missing route"),
        ],
    ),
    ("Icmp", &[("InErrors", "* input ICMP message failed"), ("OutRateLimitGlobal", "OutRateLimitGlobal: *")]),
    (
        "Tcp",
        &[
            ("ActiveOpens", "* active connection openings"),
            ("PassiveOpens", "* passive connection openings"),
            ("AttemptFails", "* failed connection attempts"),
            ("EstabResets", "* connection resets received"),
            ("CurrEstab", "* connections established"),
            ("InSegs", "* segments received"),
            ("OutSegs", "* segments sent out"),
            ("RetransSegs", "* segments retransmitted"),
            ("InErrs", "* bad segments received"),
            ("OutRsts", "* resets sent"),
        ],
    ),
    (
        "Udp",
        &[
            ("InDatagrams", "* packets received"),
            ("NoPorts", "* packets to unknown port received"),
            ("InErrors", "* packet receive errors"),
            ("OutDatagrams", "* packets sent"),
            ("RcvbufErrors", "* receive buffer errors"),
        ],
    ),
    (
        TCP_EXT,
        &[
            ("SyncookiesSent", "* SYN cookies sent"),
            ("SyncookiesRecv", "* SYN cookies received"),
            ("SyncookiesFailed", "* invalid SYN cookies received"),
            ("OutOfWindowIcmps", "* ICMP packets dropped because they were out-of-window"),
            ("ListenOverflows", "* times the listen queue of a socket overflowed"),
            ("TCPSACKReorder", "Detected reordering * times using SACK"),
            ("TCPTimeouts", "TCPTimeouts: *"),
            ("TCPDSACKRecv", "TCPDSACKRecv: *"),
            ("TCPAbortOnMemory", "* connections aborted due to memory pressure"),
            ("TCPMemoryPressures", "TCPMemoryPressures: *"),
            ("TCPOFOQueue", "TCPOFOQueue: *"),
            ("TCPChallengeACK", "TCPChallengeACK: *"),
            ("TCPRcvQDrop", "TCPRcvQDrop: *"),
        ],
    ),
];
const TCP_EXT: &str = "TcpExt";

/// The lines.
pub fn lines(counters: &Counters) -> String {
    let mut out = String::new();
    for (group, names) in GROUPS {
        out += &format!("{group}:\n");
        for (name, line) in *names {
            let value = counters.get(*group).and_then(|group| group.get(*name)).copied().unwrap_or(0);
            if value > 0 || *group != TCP_EXT {
                out += &format!("    {}\n", line.replace('*', &value.to_string()));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_lines_of_netstat() {
        let mut counters = Counters::new();
        for (number, (group, names)) in GROUPS.iter().enumerate() {
            let group = counters.entry(group.to_string()).or_default();
            let values = (1..).map(|value| 10 * number as u64 + value);
            group.extend(names.iter().map(|(name, _)| name.to_string()).zip(values));
        }
        counters.entry(TCP_EXT.into()).or_default().insert("TCPTimeouts".into(), 0);
        let expected = "\
Ip:
    1 total packets received
    2 with invalid headers
    3 with invalid addresses
    4 with unknown protocol
    5 requests sent out
    6 outgoing packets dropped
    7 dropped because of missing route
Icmp:
    11 input ICMP message failed
    OutRateLimitGlobal: 12
Tcp:
    21 active connection openings
    22 passive connection openings
    23 failed connection attempts
    24 connection resets received
    25 connections established
    26 segments received
    27 segments sent out
    28 segments retransmitted
    29 bad segments received
    30 resets sent
Udp:
    31 packets received
    32 packets to unknown port received
    33 packet receive errors
    34 packets sent
    35 receive buffer errors
TcpExt:
    41 SYN cookies sent
    42 SYN cookies received
    43 invalid SYN cookies received
    44 ICMP packets dropped because they were out-of-window
    45 times the listen queue of a socket overflowed
    Detected reordering 46 times using SACK
    TCPDSACKRecv: 48
    49 connections aborted due to memory pressure
    TCPMemoryPressures: 50
    TCPOFOQueue: 51
    TCPChallengeACK: 52
    TCPRcvQDrop: 53
";
        assert_eq!(lines(&counters), expected);
    }
}
