//! The searches of RFC 2544 find what a device can do.

use crate::virtual_line::{Fate, VirtualLine};
use ringway_pktgen::Flows;
use ringway_pktgen::rfc2544::{MeasureError, Options, Report, Verdict, measure, svg};

fn options(size: usize) -> Options {
    Options { sizes: vec![size], trial: 20_000_000, settle: 1_000_000, burst: 0, ..Options::default() }
}

/// A device that forwards so many frames a second, before a generator that sends ten million.
fn device(rate: f64) -> VirtualLine {
    VirtualLine { cost: 100, ..VirtualLine::new(rate) }
}

fn measured(line: &mut VirtualLine, options: &Options) -> Report {
    measure(line, &Flows::default(), options, |_, _| true).unwrap()
}

#[test]
fn the_throughput_is_the_rate_of_the_device() {
    for rate in [50_000.0, 1_000_000.0, 7_300_000.0] {
        let mut line = device(rate);
        let report = measured(&mut line, &options(64));
        let [size] = &report.sizes[..] else { panic!("one size") };
        let found = size.ndr.rate.unwrap();
        // The device's queue holds 64 frames more than a trial's rate.
        let most = rate * 1.006 + 64.0 / 0.02;
        assert!(found > rate * 0.99 && found <= most, "{found} of {rate}");
        let partial = size.pdr.rate.unwrap();
        assert!(partial >= found && partial <= most * 1.012, "{partial} of {rate}");
        assert_eq!(size.ndr.bits, Some(found * 512.0));
        assert!(size.ndr.why.contains("lost frames at"), "{}", size.ndr.why);
        assert!(line.announced as usize >= size.trials.len());
        // Latencies at 10, 50 and 90% are those of an empty queue.
        assert_eq!(size.latency.len(), 3);
        for at in &size.latency {
            assert!(at.is_clean && at.latency.p50 < 5_000 + 70_000_000_000 / rate as u64, "{at:?}");
        }
    }
}

#[test]
fn a_device_that_makes_the_sender_wait_has_a_throughput() {
    let mut line = VirtualLine { refuses: true, ..device(1e6) };
    let report = measured(&mut line, &options(128));
    let found = report.sizes[0].ndr.rate.unwrap();
    assert!(found > 0.98e6 && found < 1.01e6, "{found}");
    assert!(report.sizes[0].ndr.why.contains("did not take"), "{}", report.sizes[0].ndr.why);
    assert!(report.sizes[0].trials.iter().any(|trial| trial.verdict == Verdict::Refused));
    assert_eq!(report.failure(), None);
}

#[test]
fn there_is_no_result_if_the_generator_missed_its_rate() {
    // The generator sends 1 million frames a second at most.
    let line = || VirtualLine { cost: 1_000, ..device(5e6) };
    let report = measured(&mut line(), &options(64));
    let found = &report.sizes[0].ndr;
    assert_eq!((found.rate, found.bits), (None, None));
    assert!(found.at_least > 0.9e6 && found.at_least < 1.01e6, "{found:?}");
    assert!(found.why.contains("the generator missed"), "{found:?}");
    assert!(report.failure().unwrap().starts_with("no NDR for frames of 64 B: the generator missed"));
    let missed = report.sizes[0].trials.iter().filter(|trial| trial.verdict == Verdict::Missed);
    assert!(missed.count() >= 3, "each is tried three times");
    // Within the rate that was asked for at most, there is a result.
    let report = measured(&mut line(), &Options { most: Some(500_000.0), ..options(64) });
    assert_eq!(report.sizes[0].ndr.rate, Some(500_000.0));
    assert_eq!(report.sizes[0].ndr.why, "no higher rate was tried");
}

#[test]
fn a_device_that_always_loses_has_a_partial_drop_rate_only() {
    let fate = Box::new(|number| if number % 400 == 7 { Fate::Lost } else { Fate::Arrives });
    let mut line = VirtualLine { fate, ..device(1e6) };
    let report = measured(&mut line, &options(64));
    let size = &report.sizes[0];
    // Trials of fewer than 400 frames may pass.
    assert!(size.ndr.rate.unwrap() < 30_000.0, "{:?}", size.ndr);
    let partial = size.pdr.rate.unwrap();
    assert!(partial > 0.98e6 && partial < 1.02e6, "{partial}");
}

#[test]
fn the_longest_burst_is_what_the_queue_holds() {
    // Frames come at 50 million a second, and 1 million a second leave: 1000 of 1020 wait.
    let mut line = VirtualLine { queue: 1000, ..VirtualLine::new(1e6) };
    let report = measured(&mut line, &Options { burst: 100_000, repeat: 2, ..options(64) });
    let bursts = report.sizes[0].back_to_back.clone().unwrap();
    assert!((1010.0..=1025.0).contains(&bursts.frames), "{bursts:?}");
    assert!(bursts.searches.len() == 2 && !bursts.is_longest);
    let mut line = device(1e9);
    let bursts =
        measured(&mut line, &Options { burst: 5000, ..options(64) }).sizes[0].back_to_back.clone().unwrap();
    assert_eq!((bursts.frames, bursts.is_longest), (5000.0, true));
}

#[test]
fn a_measurement_can_be_ended_and_its_report_is_json_and_svg() {
    let mut trials = 0;
    let ended = measure(&mut device(1e6), &Flows::default(), &options(64), |_, _| {
        trials += 1;
        trials < 3
    });
    assert!(matches!(ended, Err(MeasureError::Ended)) && trials == 3);
    let wrong = measure(&mut device(1e6), &Flows::default(), &options(20), |_, _| true);
    assert!(matches!(wrong, Err(MeasureError::Shape(_))));
    let mut line = device(1e6);
    let report = measured(&mut line, &Options { sizes: vec![64, 1518], ..options(64) });
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["sizes"][1]["frame"], 1518);
    assert!(json["sizes"][0]["trials"].as_array().unwrap().len() > 5);
    let text = svg(&report);
    assert!(text.starts_with("<svg") && text.contains("1518 B") && text.contains("NDR"), "{text}");
}
