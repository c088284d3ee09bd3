//! Looks up and sorts bursts of 64 frames of known stations, for callgrind, which counts the instructions of
//! [`look_up`] (`scripts/counts.sh`): `count_switch CASE FRAMES`, between two stations (`one`), or each frame from and
//! to others (`many`), untagged or in a VLAN (`many.vlan`); or runs TCP segments of 64 connections through ten flows
//! (`flow.10`): [`run_flows`].

use ringway_flow::{Arrival, Numbers, Pipeline, Rules, Tables, Worker};
use ringway_frame::{BURST, Burst, Offload, Storage};
use ringway_mem::Span;
use ringway_switch::{Learning, Lookup, NOWHERE, Sorter, Table, Verdicts};
use ringway_wire::fields::Described;
use std::error::Error;

const PORTS: usize = 8;
const STATIONS: u8 = 64;

fn frame(to: u8, from: u8, is_tagged: bool) -> [u8; 64] {
    let mut frame = [0; 64];
    (frame[0], frame[5], frame[6], frame[11]) = (2, to, 2, from);
    let kind: &[u8] = if is_tagged { &[0x81, 0, 0, 10, 8, 0] } else { &[8, 0] };
    frame[12..12 + kind.len()].copy_from_slice(kind);
    frame
}

/// What callgrind counts.
#[inline(never)]
fn look_up(lookup: &Learning, sorter: &mut Sorter, burst: &Burst<'_>, verdicts: &mut Verdicts) -> usize {
    lookup.lookup(burst, 0, 1_000_000_000, verdicts);
    let lists = sorter.sort(verdicts, (0, burst.len()), PORTS, |_, port| Some(u32::from(port)));
    lists.iter().map(|list| list.frames().len()).sum()
}

/// Ten flows with the masks of small tables.
const FLOWS: &str = "\
    priority=100,arp,actions=normal\n\
    priority=90,in_port=9,actions=drop\n\
    priority=80,tcp,nw_dst=10.9.0.0/16,tp_dst=22,actions=output:3\n\
    priority=80,tcp,nw_dst=10.9.0.0/16,tp_dst=25,actions=output:3\n\
    priority=70,udp,tp_dst=53,actions=output:4\n\
    priority=60,dl_vlan=7,actions=output:5\n\
    priority=50,tcp,nw_dst=10.0.0.0/24,tp_dst=80,actions=output:2\n\
    priority=40,ip,nw_dst=10.0.0.0/24,actions=output:6\n\
    priority=30,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=flood\n\
    priority=0,actions=drop\n";

/// What callgrind counts of flows: the frames that have a copy.
#[inline(never)]
fn run_flows(pipeline: &Pipeline, worker: &mut Worker, burst: &Burst<'_>) -> usize {
    let mut batch = pipeline.begin(worker, 1_000_000_000);
    let mut run = |frame: usize| {
        let arrival = Arrival { in_port: 1, ports: 8, len: burst.meta(frame).len, pending: None };
        batch.run(arrival, |at, out| burst.read(frame, at, out)).outputs.len()
    };
    (0..burst.len()).map(&mut run).sum()
}

fn count_flows(frames: usize) -> Result<(), Box<dyn Error>> {
    let mut tables = Tables::new(3);
    tables.replace(&Rules::read(FLOWS, &Numbers)?, 0)?;
    let frame = |at: usize| {
        let text = format!("tcp,nw_src=10.1.0.{at},nw_dst=10.0.0.1,tp_src={},tp_dst=80", 4096 + at);
        Described::parse(&text).map(|described| described.frame)
    };
    let bytes: Vec<Vec<u8>> = (0..BURST).map(frame).collect::<Result<_, _>>()?;
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    for bytes in &bytes {
        burst.push(Offload::default(), Span::of(bytes)).map_err(|_| "no room")?;
    }
    let (mut worker, mut moved) = (Worker::default(), 0);
    while moved < frames {
        let count = run_flows(tables.current(), &mut worker, &burst);
        if count != BURST {
            return Err(format!("{count} of {BURST} frames have a copy").into());
        }
        moved += count;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [case, frames] = &words[..] else { return Err("a case and a number of frames are needed".into()) };
    let (many, is_tagged) = match &case[..] {
        "one" => (false, false),
        "many" => (true, false),
        "many.vlan" => (true, true),
        "flow.10" => return count_flows(frames.parse()?),
        _ => return Err("the case is one, many, many.vlan or flow.10".into()),
    };
    let frames = frames.parse::<usize>()?;
    let lookup = Learning::new(Table::new(8192, PORTS, 300, 4096, 3), false);
    let (mut sorter, mut verdicts) = (Sorter::default(), [NOWHERE; BURST]);
    // Stations 0 to 63 are on port 0; those that frames go to, from 64 on, on the others.
    for station in STATIONS..2 * STATIONS {
        let learned = [frame(0, station, is_tagged)];
        let (mut storage, port) = (Storage::default(), 1 + station % 7);
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(&learned[0])).map_err(|_| "no room")?;
        lookup.lookup(&burst, u16::from(port), 1_000_000_000, &mut verdicts);
    }
    let number = |at: usize| if many { at as u8 % STATIONS } else { 0 };
    let bytes: Vec<_> = (0..BURST).map(|at| frame(STATIONS + number(at), number(at), is_tagged)).collect();
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    for bytes in &bytes {
        burst.push(Offload::default(), Span::of(bytes)).map_err(|_| "no room")?;
    }
    let mut moved = 0;
    while moved < frames {
        let count = look_up(&lookup, &mut sorter, &burst, &mut verdicts);
        if count != BURST {
            return Err(format!("{count} of {BURST} frames have a port").into());
        }
        moved += count;
    }
    Ok(())
}
