//! Front-ends: waiting for them, or going to them.

use super::{Desk, Watched, What};
use ringway_port::vhost_user::open::{self, Listener, Retry};
use std::io;
use std::path::PathBuf;

/// Server: front-ends come to us, one after the other.
pub async fn serve(mut desk: Desk, mut door: Watched<Listener>) {
    loop {
        match door.until(|door| door.accept().map_err(io::Error::other)).await {
            Ok(socket) => {
                desk.arrived(vec![socket], false);
                desk.wait().await;
            }
            Err(error) => desk.trouble(error).await,
        }
    }
}

/// Client: we go to the front-end, for ever.
pub async fn connect(mut desk: Desk, path: PathBuf) {
    let mut retry = Retry::default();
    let mut told = false;
    loop {
        match open::connect(&path) {
            Ok(socket) => {
                (retry, told) = (Retry::default(), false);
                desk.arrived(vec![socket], false);
                desk.wait().await;
            }
            Err(error) if !told => {
                told = true;
                desk.say(What::Trouble(error.to_string()));
            }
            Err(_) => {}
        }
        // A front-end that hangs up at once must not keep us busy either.
        tokio::time::sleep(retry.wait()).await;
    }
}
