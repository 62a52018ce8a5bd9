//! A peer that writes what it likes to a socket: the node's end answers or leaves, and so does the client's.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use wire::{Call, Channel, Reply, serve_connection};

pub(super) fn run(bytes: &[u8]) {
    let Some((side, bytes)) = bytes.split_first() else { return };
    let (near, mut far) = UnixStream::pair().expect("a socket pair");
    // what fits into a socket's buffer need not wait for a reader
    far.write_all(bytes).expect("the buffer takes it");
    far.shutdown(Shutdown::Write).expect("the socket is open");
    if side & 1 == 0 {
        let mut handled = 0;
        let _ = serve_connection(near, "fuzz", &mut |call: Call| {
            handled += 1;
            let reply = if call == Call::Status { Reply::Done } else { Reply::Count(handled) };
            Ok(reply.into())
        });
    } else if let Ok(mut channel) = Channel::open(near, "fuzz") {
        while let Ok(inbound) = channel.receive_result() {
            assert!(inbound.descriptor.is_none());
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let plain = super::wire_frame::seeds();
    let hello = &plain[0][..13 + 24];
    let sides = |bytes: &Vec<u8>| [0, 1].map(|side| [&[side], hello, bytes].concat());
    plain.iter().flat_map(sides).collect()
}
