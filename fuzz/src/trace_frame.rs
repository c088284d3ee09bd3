//! Frames to trace, as people and programs describe them, and what `data` says about frames that it traced.

use ringway_fabric::capture::LiveFrame;
use ringway_fabric::proto::{Traced, TracedCopy};
use ringway_wire::fields::{Described, hex};
use ringway_wire::summary::summary;

/// The longest frame: an IP packet of 64 KB, an Ethernet header and two tags.
const LONGEST: usize = 65_535 + 14 + 8;

/// Reads the bytes as a description, as the record of a traced frame, and as a frame.
pub fn run(data: &[u8]) {
    if let Some(live) = LiveFrame::of(data) {
        let bytes = live.to_bytes();
        assert_eq!(LiveFrame::of(&bytes), Some(live));
    }
    for len in [data.len(), data.len() / 2] {
        assert!(!summary(&data[..len], data.len() as u32).is_empty());
    }
    let text = String::from_utf8_lossy(data);
    match Described::read(&text) {
        Ok(Described { frame, .. }) => {
            assert!(frame.len() <= LONGEST, "{text}");
            if !frame.is_empty() {
                assert_eq!(Described::read(&hex(&frame)).map(|read| read.frame), Ok(frame), "{text}");
            }
        }
        Err(error) => {
            assert!((1..=text.chars().count() + 1).contains(&error.column), "{text}: {error}");
        }
    }
}

/// Descriptions of each protocol, bytes in hexadecimal, and a record.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "in_port=left,tcp,dl_dst=02:00:00:00:00:02,nw_src=10.0.0.1,tp_dst=80,tcp_flags=+syn-ack",
        "dl_vlan=5,dl_vlan_pcp=3,udp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,udp_dst=53,len=1514",
        "arp,arp_op=2,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_sha=02:00:00:00:00:01",
        "icmp6,icmpv6_type=135,nd_target=fd00::2,nw_ttl=255",
        "0x0000:  0200 0000 0002 0200 0000 0001 0806\n0x000e:  00:01",
    ];
    let copy =
        TracedCopy { port: "b".into(), verdict: "delivered".into(), frames: 1, ..TracedCopy::default() };
    let traced = Traced { lookup: "known".into(), copies: vec![copy], ..Traced::default() };
    let record = LiveFrame { traced, data: &[2; 20] }.to_bytes();
    texts.iter().map(|text| text.as_bytes().to_vec()).chain([record]).collect()
}
