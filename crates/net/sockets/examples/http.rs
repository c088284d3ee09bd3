//! An HTTP server on a ring port: `http PATH ADDRESS/PREFIX`.
use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use ringway_sockets::{Config, Network, RingDevice, tokio::TcpListener};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, address] = &arguments[..] else { return Err("usage: http PATH ADDRESS/PREFIX".into()) };
    let network = Network::new(RingDevice::connect(path.as_ref())?, Config::new(address.parse()?))?;
    let listener = TcpListener::bind(&network, "0.0.0.0:80")?;
    loop {
        let (stream, peer) = listener.accept().await?;
        let answer = service_fn(move |request: Request<_>| async move {
            let text = format!("{peer} asked for {}\n", request.uri());
            Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::from(text)))
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}
