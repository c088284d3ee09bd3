//! Sockets with tokio's traits.
#![allow(clippy::unwrap_used)]

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ringway_sockets::tokio::{TcpListener, TcpStream, UdpSocket};
use ringway_sockets::{Config, Network, pair};
use std::convert::Infallible;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn networks() -> (Network, Network) {
    let (one, two) = pair().unwrap();
    let config = |address: &str| Config::new(address.parse().unwrap());
    (Network::new(one, config("fd00::1/64")).unwrap(), Network::new(two, config("fd00::2/64")).unwrap())
}

#[tokio::test]
async fn hyper_serves_and_fetches() {
    const LEN: usize = 3 << 20;
    let (one, two) = networks();
    let listener = TcpListener::bind(&two, "[::]:80").unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _peer) = listener.accept().await.unwrap();
            let answer = service_fn(|request: Request<Incoming>| async move {
                let len = request.uri().path().trim_start_matches('/').parse().unwrap();
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(vec![b'x'; len])))
            });
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
        }
    });
    let fetch = |len: usize| {
        let one = one.clone();
        async move {
            let stream = TcpStream::connect(&one, "[fd00::2]:80").await.unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let request = Request::get(format!("/{len}")).body(Empty::<Bytes>::new()).unwrap();
            let body = sender.send_request(request).await.unwrap().into_body();
            body.collect().await.unwrap().to_bytes().len()
        }
    };
    let (small, large, middle) = tokio::join!(fetch(1), fetch(LEN), fetch(70_000));
    assert_eq!([small, large, middle], [1, LEN, 70_000]);
}

#[tokio::test]
async fn halves_of_a_stream_work_in_separate_tasks() {
    const LEN: usize = 1 << 20;
    let (one, two) = networks();
    let listener = TcpListener::bind(&two, "[::]:7").unwrap();
    let (stream, accepted) = tokio::join!(TcpStream::connect(&one, "[fd00::2]:7"), listener.accept());
    let (mut echo_in, mut echo_out) = tokio::io::split(accepted.unwrap().0);
    tokio::spawn(async move {
        tokio::io::copy(&mut echo_in, &mut echo_out).await.unwrap();
        echo_out.shutdown().await.unwrap();
    });
    let (mut input, mut output) = tokio::io::split(stream.unwrap());
    let writer = tokio::spawn(async move {
        output.write_all(&[7; LEN]).await.unwrap();
        output.shutdown().await.unwrap();
    });
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).await.unwrap();
    assert_eq!((bytes.len(), bytes.iter().all(|byte| *byte == 7)), (LEN, true));
    writer.await.unwrap();
    let refused = TcpStream::connect(&one, "[fd00::2]:8").await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn datagrams_come_back() {
    let (one, two) = networks();
    let (socket, server) =
        (UdpSocket::bind(&one, "[::]:0").unwrap(), UdpSocket::bind(&two, "[::]:9").unwrap());
    let echo = async {
        let mut bytes = [0; 100];
        let (len, from) = server.recv_from(&mut bytes).await.unwrap();
        server.send_to(&bytes[..len], from).await.unwrap();
    };
    let ask = async {
        socket.send_to(b"there", "[fd00::2]:9").await.unwrap();
        let mut bytes = [0; 100];
        let (len, _from) = socket.recv_from(&mut bytes).await.unwrap();
        bytes[..len].to_vec()
    };
    assert_eq!(tokio::join!(echo, ask).1, b"there");
}
