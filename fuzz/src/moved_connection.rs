//! The state of a connection that moves to another stack.
//!
//! What is accepted is a connection of which a program and its peer make use, and which can move again. Nothing
//! overflows, and nothing is left of it once its program has aborted it.

use ringway_frame::Needs;
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{Cidr, Frames, InterfaceConfig, MS, SECOND, Settings, SocketId, SocketOptions, Stack};

/// Bytes before the state: controller, options, rounds before it moves.
const HEAD: usize = 2;
/// Rounds with the connection that moved.
const ROUNDS: u64 = 24;
/// The time of a round.
const ROUND: u64 = 5 * MS;

fn host(last: u8, settings: &Settings) -> Stack {
    let mut stack = Stack::new(settings.clone(), [u64::from(last), 3]);
    stack.add_interface(InterfaceConfig {
        mac: [2, 0, 0, 0, 0, last].into(),
        mtu: 1500,
        addresses: vec![Cidr::new([10, 0, 0, last], 24)],
        offloads: Needs::NONE,
    });
    stack
}

/// Two hosts and their link, which loses a frame now and then.
struct World {
    now: u64,
    hosts: [Stack; 2],
    count: u64,
}

impl World {
    fn new(head: [u8; HEAD]) -> Option<(World, [SocketId; 2])> {
        let options = head[1];
        let settings = Settings {
            tcp_congestion_control: Algorithm::ALL[usize::from(head[0]) % Algorithm::ALL.len()],
            tcp_sack: options & 1 == 0,
            tcp_timestamps: options & 2 == 0,
            tcp_mtu_probing: options & 4,
            tcp_ecn: 1,
            ..Settings::default()
        };
        let mut world = World { now: SECOND, hosts: [1, 2].map(|last| host(last, &settings)), count: 0 };
        let listener = world.hosts[1].listen(([10, 0, 0, 2], 80).into(), 4).ok()?;
        let client = world.hosts[0].connect(world.now, ([10, 0, 0, 2], 80).into()).ok()?;
        (0..4).for_each(|_| world.round(false));
        let sockets = [client, world.hosts[1].accept(listener).ok()?.socket];
        for _ in 0..options >> 3 {
            world.use_it(sockets);
            world.round(true);
        }
        Some((world, sockets))
    }

    /// Both programs send and read.
    fn use_it(&mut self, sockets: [SocketId; 2]) {
        for (host, socket) in self.hosts.iter_mut().zip(sockets) {
            let _ = host.send(self.now, socket, &[7; 5000]);
            let _ = host.recv(self.now, socket, &mut [0; 4000]);
            let _ = host.info(socket);
            while host.next_event().is_some() {}
        }
    }

    /// Frames pass in both directions.
    fn round(&mut self, loses: bool) {
        for from in 0..2 {
            self.hosts[from].expire(self.now);
            let mut frames = Frames::default();
            self.hosts[from].transmit(self.now, 0, &mut frames);
            for (frame, offload) in frames.iter() {
                self.count += 1;
                if !loses || !self.count.is_multiple_of(11) {
                    self.hosts[1 - from].receive(self.now, 0, frame, offload);
                }
            }
        }
        self.now += ROUND;
    }
}

/// The state of a connection after some rounds.
fn state(head: [u8; HEAD]) -> Option<(World, SocketId, Vec<u8>)> {
    let (mut world, [client, server]) = World::new(head)?;
    let bytes = world.hosts[0].detach(world.now, client).ok()?;
    Some((world, server, bytes))
}

/// Moves a connection with any bytes as its state.
pub fn run(data: &[u8]) {
    let Some((head, bytes)) = data.split_first_chunk() else { return };
    let Some((mut world, server, _)) = state(*head) else { return };
    let now = world.now;
    let mut stack = host(1, &world.hosts[0].settings().clone());
    let Ok(socket) = stack.attach(now, bytes) else { return };
    stack.set_trace(socket, 20).expect("an open connection");
    world.hosts[0] = stack;
    for round in 0..ROUNDS {
        world.use_it([socket, server]);
        if round == ROUNDS / 2 {
            let options = SocketOptions { tcp_nodelay: true, so_keepalive: true, ..SocketOptions::default() };
            let _ = world.hosts[0].set_options(world.now, socket, options);
            let _ = world.hosts[0].shutdown(world.now, socket);
            if let Ok(again) = world.hosts[0].detach(world.now, socket) {
                assert_eq!(world.hosts[0].attach(world.now, &again), Ok(socket));
            }
        }
        world.round(true);
    }
    // Its peer is silent.
    for _ in 0..200 {
        world.now += 20 * SECOND;
        world.hosts[0].expire(world.now);
        world.hosts[0].transmit(world.now, 0, &mut Frames::default());
    }
    world.hosts[0].abort(world.now, socket).expect("an open connection");
    assert_eq!(world.hosts[0].socket_entries(0, 10).0, [], "a connection stays");
}

/// Connections of each controller, with different options, after few and many rounds.
pub fn seeds() -> Vec<Vec<u8>> {
    let heads = (0..5).flat_map(|controller| [0, 0x13, 0x44, 0xf9].map(|options| [controller, options]));
    heads.filter_map(|head| Some([&head[..], &state(head)?.2].concat())).collect()
}
