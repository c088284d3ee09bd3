//! The formats of the state that one program leaves to another. A number says how a part is written; a program
//! refuses to go on with numbers that it does not know.
//!
//! Whoever changes a part raises its number, keeps the former number among [`Format::reads`] if this program still
//! reads that, and writes another example by `BLESS=1 cargo test -p ringway-control formats::`. The test fails as long
//! as a part differs from the example of its number in `tests/formats/`.

/// A row of [`FORMATS`].
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name of the format.
    pub name: &'static str,
    /// The number of what this program writes.
    pub number: u32,
    /// All numbers that this program reads.
    pub reads: &'static [u32],
    /// What is written in this format, for messages.
    pub content: &'static str,
}

/// Every format.
pub const FORMATS: &[Format] = &[
    Format {
        name: "keeper",
        number: crate::keeper::IMAGE_FORMAT,
        reads: &[1],
        content: "what the keeper hands to the program that takes its place",
    },
    Format {
        name: "fabric",
        number: 9,
        reads: &[1, 2, 3, 4, 5, 6, 7, 8, 9],
        content: "the description of the fabric",
    },
    Format { name: "port", number: 1, reads: &[1], content: "what is kept of a port" },
    Format { name: "data", number: 1, reads: &[1], content: "what is kept of the data process" },
    Format {
        name: "calls",
        number: 2,
        reads: &[1, 2],
        content: "requests to the data process that is replaced",
    },
    Format { name: "records", number: 1, reads: &[1], content: "what ports' peers told" },
    Format {
        name: "counters",
        number: 5,
        reads: &[1, 2, 3, 4, 5],
        content: "the page of counters and positions of rings",
    },
    Format {
        name: "rings",
        // 1 is the same without a program's buffers, which a program that reads only 1 would lose.
        number: 2,
        reads: &[1, 2],
        content: "the layout of programs' rings, and the descriptors of a program on a ring port",
    },
    Format {
        name: "processes",
        number: 3,
        reads: &[1, 2, 3],
        content: "what is kept of guests, programs, functions and hosts, and functions' messages",
    },
    Format {
        name: "command-line",
        number: 1,
        reads: &[1],
        content: "how a program is started by another one",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::KeptData;
    use crate::engine::{KeptFabric, KeptPort};
    use crate::file;
    use ringway_fabric::proto::{
        Call, DataMessage, FlowOrder, FlowState, PortState, Reply, Request, State, WorkerState,
    };
    use ringway_fabric::records::Record;
    use ringway_frame::{Counters, Reason, RingPlace};
    use serde::Serialize;
    use std::collections::BTreeMap;
    use std::fmt::Write;
    use std::mem::offset_of;
    use std::path::Path;

    fn json(value: &impl Serialize) -> String {
        format!("{}\n", serde_json::to_string_pretty(value).unwrap())
    }

    fn fabric() -> String {
        let host = crate::upgrade::check::tests::host();
        let mut text = String::new();
        for name in ["file/good", "formats/fabric"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
            let file = std::fs::read_to_string(path.with_extension("toml")).unwrap();
            let fabric =
                file::read("lab.toml", &file, &host).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            text += &json(&KeptFabric::new("lab.toml", "the text", fabric));
        }
        text
    }

    fn calls() -> String {
        let requests = [
            Request::State,
            Request::Leave,
            Request::EndCapture { number: 3 },
            Request::Hold { ports: vec!["left".into()], held: true, watched: false },
            Request::Quiet { ports: vec!["left".into()] },
            Request::StopFunction { number: 4 },
            Request::Detach { port: "left".into() },
            Request::Flows { switch: "s".into(), order: FlowOrder::Rules },
            Request::Flows { switch: "s".into(), order: FlowOrder::Dump { filter: String::new() } },
        ];
        let port = PortState {
            name: "left".into(),
            kind: "ring".into(),
            state: "up".into(),
            detail: String::new(),
            worker: "w0".into(),
            gauges: BTreeMap::from([("queued".into(), 5)]),
        };
        let worker = WorkerState {
            name: "w0".into(),
            queues: 1,
            active: 1,
            turns: 2,
            sleeps: 3,
            busy: 4,
            held: String::new(),
            helped: false,
        };
        let state = State {
            ports: vec![port],
            workers: vec![worker],
            switches: vec!["s".into()],
            functions: vec![4],
            captures: vec![3],
        };
        let flows = FlowState {
            revision: 5,
            flows: vec!["table=0 actions=drop".into()],
            meters: vec![("meter=1,kbps,bands=type=drop,rate=1".into(), [3, 1])],
            ..FlowState::default()
        };
        let replies = [
            Reply::Done,
            Reply::Refused("why".into()),
            Reply::Quiet(true),
            Reply::State(state),
            Reply::Flows(flows),
        ];
        let calls = requests.into_iter().map(|request| json(&Call { id: 7, request }));
        calls.chain(replies.into_iter().map(|reply| json(&DataMessage::Reply { id: 7, reply }))).collect()
    }

    fn records() -> String {
        let record = |bytes: Option<&[u8]>| {
            let bytes = Record { port: "left", key: 0x2_0001, bytes }.encode();
            bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>() + "\n"
        };
        record(Some(&[1, 2, 3])) + &record(None) + &json(&ringway_port::RECORD_KEYS)
    }

    fn counters() -> String {
        let mut text = format!("{} bytes for each queue\n", size_of::<Counters>());
        macro_rules! fields {
            ($type:ident: $($field:ident)*) => {
                $({
                    let at = offset_of!($type, $field);
                    writeln!(text, "{}.{} {at}", stringify!($type), stringify!($field)).unwrap();
                })*
            };
        }
        fields!(Counters: tx_frames tx_bytes rx_frames rx_bytes kicks interrupts bursts faults);
        fields!(Counters: tx_drops rx_drops);
        fields!(Counters: iotlb_hits iotlb_misses iotlb_invalidations iotlb_faults iotlb_rx_hits);
        fields!(Counters: memory_resident memory_grown moved session_pauses session settings unlearned);
        fields!(Counters: joined);
        fields!(Counters: tx_place rx_place control_place);
        fields!(RingPlace: position first later_drops answered);
        Reason::ALL.iter().for_each(|reason| writeln!(text, "{}", reason.name()).unwrap());
        text
    }

    /// An example of each format. The command line's is in the crate that has it.
    fn examples() -> Vec<(&'static str, String)> {
        vec![
            ("keeper", json(&crate::keeper::image_example())),
            ("fabric", fabric()),
            ("port", json(&KeptPort { counters: 1, queues: 2, has_peer: true })),
            ("data", json(&KeptData::example())),
            ("calls", calls()),
            ("records", records()),
            ("counters", counters()),
        ]
    }

    #[test]
    fn descriptions_of_all_numbers_are_read() {
        let format = FORMATS.iter().find(|format| format.name == "fabric").unwrap();
        for number in format.reads {
            let path = format!("{}/tests/formats/fabric.{number}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let read = serde_json::Deserializer::from_str(&text).into_iter::<KeptFabric>();
            let read = read.collect::<Result<Vec<_>, _>>().unwrap();
            assert_eq!(read.len(), 2, "fabric {number}");
            for port in read.iter().flat_map(KeptFabric::ports) {
                let kind = crate::kinds::find(port.kind.name(), &[]).unwrap();
                let read = kind.check_settings(&port.kind);
                assert!(read.is_ok(), "fabric {number}, port {}: {read:?}", port.name);
            }
        }
    }

    #[test]
    fn no_part_changes_without_its_number() {
        let examples = examples();
        let elsewhere = ["rings", "command-line", "processes"];
        for Format { name, number, reads, .. } in FORMATS.iter().filter(|row| !elsewhere.contains(&row.name))
        {
            assert!(reads.contains(number), "{name}: what this program writes, it reads");
            let (_, example) = examples.iter().find(|(known, _)| known == name).unwrap();
            let path = format!("{}/tests/formats/{name}.{number}", env!("CARGO_MANIFEST_DIR"));
            // The example of a number does not change any more.
            if std::env::var_os("BLESS").is_some() && !Path::new(&path).exists() {
                std::fs::write(&path, example).unwrap();
            }
            let known = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(*example == known, "format {name} differs from {path}: raise its number\n{example}");
        }
    }
}
