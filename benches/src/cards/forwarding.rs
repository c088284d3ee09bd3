//! PVP with two ports: each guest returns the frames of its card, with and without an IOMMU, ours and DPDK's.

use super::overload::goodput;
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::bare::Work;
use crate::harness::fabric::{Harness, vhost_user};
use crate::harness::front::Stream;
use crate::harness::guest::{Addresses, Iommu, Shape};
use crate::harness::memory::GuestMemory;
use crate::harness::single_guest::Passing;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::keys::Folder;
use crate::machine;
use crate::peer::Peer;
use crate::peer::testpmd::{self, Testpmd};
use crate::plan::Plan;
use ringway_port::source;
use ringway_spec::{Kind, MacAddress, Poll, Port, To};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);
const OFF: Shape = Shape { packed: false, ring: 1024, frame: 64, iommu: Iommu::Off };
const ON: Shape = Shape { iommu: Iommu::Pages(2 << 20), ..OFF };

/// Memory for two guests.
type Homes = [(GuestMemory, Addresses); 2];

/// Millions of frames a second that both guests return.
fn rate(guests: &mut [Passing<'_, Stream>], time: Duration) -> Result<f64, Failure> {
    let rate = goodput(time, || {
        for guest in guests.iter_mut() {
            guest.monitor.answer()?;
        }
        let mut count = 0;
        for _ in 0..256 {
            for guest in guests.iter_mut() {
                count += guest.round()? as u64;
            }
        }
        Ok(count)
    })?;
    match rate {
        0.0 => Err("no frame came".into()),
        rate => Ok(rate),
    }
}

/// Memory for two guests.
fn homes(shape: &Shape) -> Result<Homes, Failure> {
    Ok([Addresses::new(shape)?, Addresses::new(shape)?])
}

/// That rate with our ports, in a fabric and with guests of their own: its sources never rest.
fn ours(shape: &Shape, time: Duration) -> Result<f64, Failure> {
    let homes = homes(shape)?;
    let mut harness = Harness::start(&[WORKER], 4, Poll::Adaptive)?;
    let mut fronts = Vec::new();
    for number in 0..2u8 {
        let address = |last| MacAddress([2, 0, 0, 0, number, last]);
        let settings = source::Settings { size: shape.frame, to: address(2), from: address(1), rate: None };
        let [card, guest] = ["card", "guest"].map(|name| format!("{name}{number}"));
        harness.add_port(Port::new(&guest, vhost_user(), Some(To::Patch(card.clone()))))?;
        let (ours, theirs) = UnixStream::pair()?;
        harness.attach(&guest, vec![ours.into()])?;
        fronts.push(Stream::from(theirs));
        harness.add_port(Port::new(
            &card,
            Kind::new(source::KIND.name, &settings),
            Some(To::Patch(guest)),
        ))?;
    }
    harness.serve_while(|| {
        let _pinned = Pinned::to(LOAD)?;
        let guests = fronts.into_iter().zip(&homes);
        let guests = guests.map(|(front, home)| Passing::new(front, home, shape, Work::Through));
        rate(&mut guests.collect::<Result<Vec<_>, _>>()?, time)
    })
}

/// DPDK's back-end with two devices that send endlessly, and its guests.
struct Theirs<'m> {
    testpmd: Testpmd,
    guests: Vec<Passing<'m, Stream>>,
}

impl<'m> Theirs<'m> {
    fn new(folder: &Path, name: &str, homes: &'m Homes, shape: &Shape) -> Result<Theirs<'m>, Failure> {
        let support = u8::from(shape.iommu != Iommu::Off);
        let path = |number: usize| folder.join(format!("{name}{number}"));
        let devices = (0..2).flat_map(|number| {
            let socket = path(number);
            [
                format!("net_vhost{number},iface={},iommu-support={support}", socket.display()),
                format!("net_null{number},size={}", shape.frame),
            ]
        });
        let mut testpmd = testpmd::forwarding("io", folder, name, devices.collect(), WORKER, &[])?;
        let mut guests = Vec::new();
        for (number, home) in homes.iter().enumerate() {
            let front = Stream::from(UnixStream::connect(path(number))?);
            guests.push(Passing::new(front, home, shape, Work::Through)?);
            let mut answer = || {
                guests
                    .iter_mut()
                    .try_for_each(|guest: &mut Passing<'m, Stream>| guest.monitor.answer().map(drop))
            };
            let word = "now ready for processing";
            testpmd.wait_with(word, number + 1, Duration::from_secs(5), &mut answer)?;
        }
        rate(&mut guests, SLICE)?;
        testpmd.run(false)?;
        Ok(Theirs { testpmd, guests })
    }

    fn slice(&mut self, time: Duration) -> Result<f64, Failure> {
        self.testpmd.run(true)?;
        let rate = rate(&mut self.guests, time);
        self.testpmd.run(false)?;
        rate.map_err(|error| format!("{error}; testpmd printed {}", self.testpmd.last()).into())
    }
}

/// The four sides in turn.
pub fn measure(plan: &Plan) -> Result<Entry, Failure> {
    let folder = Folder::new()?;
    let other = [homes(&ON)?, homes(&OFF)?];
    // Started before this thread is pinned, which they would inherit.
    let theirs = Theirs::new(folder.path(), "on", &other[0], &ON)
        .and_then(|with| Ok([with, Theirs::new(folder.path(), "off", &other[1], &OFF)?]));
    let (mut theirs, missing) = match theirs {
        Ok(theirs) => (Some(theirs), None),
        Err(error) => (None, Some(format!("no peer of DPDK's: {error}"))),
    };
    let mut rates = [const { Vec::new() }; 4];
    for _ in 0..plan.slices(4 * SLICE) {
        machine::sample();
        rates[0].push(ours(&ON, SLICE)?);
        rates[1].push(ours(&OFF, SLICE)?);
        let _pinned = Pinned::to(LOAD)?;
        for (side, rates) in theirs.iter_mut().flatten().zip(&mut rates[2..]) {
            rates.push(side.slice(SLICE)?);
        }
    }
    let entry = Slices::of(&rates[0], &rates[1]).entry("Mpps", Better::More).ratio_at_least(0.97);
    let mut entry = entry.note("each card a source of the worker; peer: without an IOMMU");
    for (name, rates) in ["ours, on", "ours, off", "DPDK's, on", "DPDK's, off"].iter().zip(&rates) {
        let rate = median(rates).map(|rate| ("Mpps", rate));
        entry = entry.step(*name, rate.as_slice());
    }
    if theirs.is_some() {
        let beside = Slices::of(&rates[0], &rates[2]).entry("Mpps", Better::More);
        let holds = beside.ratio_interval.is_some_and(|[low, _]| low >= 1.1);
        entry = entry.with("ours over DPDK's, both on", beside.ratio.unwrap_or(f64::NAN));
        entry = entry.mark("over DPDK's, both on >= 1.1", holds);
    }
    Ok(match missing {
        Some(missing) => entry.note(missing),
        None => entry,
    })
}
