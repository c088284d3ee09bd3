//! A test, from its parameters to its results.

use crate::Bench;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;
use ringway_program::{Error, Program, TcpStream};
use serde_json::{Value, json};

/// States, as the protocol numbers them.
const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const CLIENT_TERMINATE: u8 = 12;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;
/// -2, and the number of "not implemented" among iperf3's errors.
const SERVER_ERROR: u8 = 0xfe;
const UNIMPLEMENTED: u32 = 13;
/// Attack: JSON without end.
const JSON: usize = 64 << 10;
/// Streams of a test, as iperf3 has at most.
const STREAMS: u64 = 128;
/// How long a peer may take for an answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes that are sent at once.
const BLOCK: usize = 64 << 10;

/// What the client asks for.
struct Parameters {
    streams: usize,
    reverse: bool,
}

/// The bytes of a stream.
struct Counted {
    bytes: Cell<u64>,
    ended: Cell<bool>,
}

async fn json_of(stream: &mut TcpStream) -> Result<Value, Error> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).await?;
    let len = u32::from_be_bytes(len) as usize;
    if len > JSON {
        return Err(Error::other(format_args!("{len} bytes of JSON are too many")));
    }
    let mut text = vec![0; len];
    stream.read_exact(&mut text).await?;
    serde_json::from_slice(&text).map_err(Error::other)
}

async fn send_json(stream: &mut TcpStream, value: &Value) -> Result<(), Error> {
    let text = format!("{value}");
    stream.write_all(&(text.len() as u32).to_be_bytes()).await?;
    stream.write_all(text.as_bytes()).await
}

/// Reads the parameters; `None` if this server can't do that.
fn parameters(value: &Value) -> Option<Parameters> {
    let is_set =
        |name: &str| value[name].as_bool().unwrap_or(value[name].as_u64().is_some_and(|set| set != 0));
    let streams = value["parallel"].as_u64().unwrap_or(1);
    if is_set("udp") || is_set("sctp") || is_set("bidirectional") || !(1..=STREAMS).contains(&streams) {
        return None;
    }
    Some(Parameters { streams: streams as usize, reverse: is_set("reverse") })
}

/// Runs a test; returns what it found.
pub async fn run(program: &Program, mut control: TcpStream, bench: &Bench) -> Result<String, Error> {
    control.set_nodelay(true)?;
    let late = || Err(Error::other("the client does not answer"));
    control.write_all(&[PARAM_EXCHANGE]).await?;
    let asked = program.timeout(PATIENCE, json_of(&mut control)).await.unwrap_or_else(late)?;
    let Some(parameters) = parameters(&asked) else {
        let mut error = vec![SERVER_ERROR];
        error.extend([UNIMPLEMENTED, 0].map(u32::to_be_bytes).concat());
        control.write_all(&error).await?;
        return Err(Error::other("only TCP in one direction is there"));
    };
    bench.want(parameters.streams);
    control.write_all(&[CREATE_STREAMS]).await?;
    let streams = program.timeout(PATIENCE, bench.streams()).await;
    let streams = streams.ok_or_else(|| Error::other("the client opens too few streams"))?;
    control.write_all(&[TEST_START, TEST_RUNNING]).await?;
    let begun = program.now();
    let counts = begin(program, streams, parameters.reverse)?;
    let mut state = [0];
    let told = control.read_exact(&mut state).await;
    counts.iter().for_each(|count| count.ended.set(true));
    told?;
    let time = program.now() - begun;
    match state[0] {
        TEST_END => {}
        CLIENT_TERMINATE => return Err(Error::other("the client ended it")),
        other => return Err(Error::other(format_args!("the client is in state {other}"))),
    }
    settle(program, &counts).await;
    control.write_all(&[EXCHANGE_RESULTS]).await?;
    program.timeout(PATIENCE, json_of(&mut control)).await.unwrap_or_else(late)?;
    send_json(&mut control, &results(&counts, time)).await?;
    control.write_all(&[DISPLAY_RESULTS]).await?;
    // IPERF_DONE, or the end.
    let _ = program.timeout(PATIENCE, control.read(&mut state)).await;
    let bytes = sum(&counts);
    let rate = bytes as u128 * 8_000 / time.as_nanos().max(1);
    let way = if parameters.reverse { "sent" } else { "received" };
    Ok(format!("{way} {} MB in {} ms, {rate} Mbit/s", bytes / 1_000_000, time.as_millis()))
}

fn sum(counts: &[Rc<Counted>]) -> u64 {
    counts.iter().map(|count| count.bytes.get()).sum()
}

/// Waits for what is still on the way: the control connection may be faster than the streams.
async fn settle(program: &Program, counts: &[Rc<Counted>]) {
    for _ in 0..50 {
        let before = sum(counts);
        program.sleep(Duration::from_millis(10)).await;
        if sum(counts) == before {
            return;
        }
    }
}

/// Begins to send or receive on all streams.
fn begin(program: &Program, streams: Vec<TcpStream>, reverse: bool) -> Result<Vec<Rc<Counted>>, Error> {
    let mut counts = Vec::new();
    for stream in streams {
        let counted = Rc::new(Counted { bytes: Cell::new(0), ended: Cell::new(false) });
        counts.push(counted.clone());
        // An error ends the stream; the control connection tells why.
        let task = async move {
            let _ = if reverse { send(stream, &counted).await } else { receive(stream, &counted).await };
        };
        program.spawn(task)?;
    }
    Ok(counts)
}

async fn receive(mut stream: TcpStream, counted: &Counted) -> Result<(), Error> {
    loop {
        match stream.skip(usize::MAX).await? {
            0 => return Ok(()),
            count => counted.bytes.set(counted.bytes.get() + count as u64),
        }
    }
}

async fn send(mut stream: TcpStream, counted: &Counted) -> Result<(), Error> {
    let block = vec![0; BLOCK];
    while !counted.ended.get() {
        let count = stream.write(&block).await?;
        counted.bytes.set(counted.bytes.get() + count as u64);
    }
    Ok(())
}

/// What the client shows of this side.
fn results(counts: &[Rc<Counted>], time: Duration) -> Value {
    let stream = |(at, count): (usize, &Rc<Counted>)| {
        json!({
            // iperf3 numbers streams 1, 3, 4 and so on.
            "id": if at == 0 { 1 } else { at + 2 },
            "bytes": count.bytes.get(),
            "retransmits": -1,
            "jitter": 0,
            "errors": 0,
            "omitted_errors": 0,
            "packets": 0,
            "omitted_packets": 0,
            "start_time": 0,
            "end_time": time.as_micros() as f64 / 1e6,
        })
    };
    json!({
        "cpu_util_total": 0,
        "cpu_util_user": 0,
        "cpu_util_system": 0,
        "sender_has_retransmits": 0,
        "streams": counts.iter().enumerate().map(stream).collect::<Vec<Value>>(),
    })
}
