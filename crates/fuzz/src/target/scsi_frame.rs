//! Frames of SCSI over a unix socket, both directions. What is understood is written as bytes that mean the same.

use crate::input::Input;
use scsi::socket::{MAX_DATA, REPLY_BYTES, REQUEST_BYTES, ReplyHead, RequestHead};
use scsi::{Sense, SenseKey};

pub(super) fn run(bytes: &[u8]) {
    let mut request = [0; REQUEST_BYTES];
    let mut reply = [0; REPLY_BYTES];
    let mut input = Input::new(bytes);
    let raw = input.take(REQUEST_BYTES);
    request[..raw.len()].copy_from_slice(raw);
    let raw = input.take(REPLY_BYTES);
    reply[..raw.len()].copy_from_slice(raw);
    if let Ok(head) = RequestHead::decode(&request) {
        assert!(head.out_len <= MAX_DATA && head.in_alloc <= MAX_DATA && !head.cdb().is_empty());
        assert_eq!(RequestHead::decode(&head.encode()), Ok(head));
        let (out, room) = (head.out_len as usize, head.in_alloc as usize);
        let again = RequestHead::new(head.cdb(), out, room).expect("its own fields");
        assert_eq!((again.cdb(), again.out_len, again.in_alloc), (head.cdb(), head.out_len, head.in_alloc));
    }
    if let Ok(head) = ReplyHead::decode(&reply) {
        assert!(head.data_len <= MAX_DATA && head.sense.len() <= 96);
        assert_eq!(ReplyHead::decode(&head.encode()), Ok(head));
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let request = RequestHead::new(&[0x12, 0, 0, 0, 96, 0], 0, 96).expect("a good frame");
    let sense = Sense::new(SenseKey::NotReady, 0x3A, 0).encode();
    let reply = ReplyHead { status: 2, data_len: 0, sense };
    vec![[request.encode().as_slice(), &reply.encode()].concat(), request.encode().to_vec()]
}
