//! Data that did not arrive: the host adapter or the device says how much of a record is missing.

use scsi::{CHECK_CONDITION, Data, GOOD, Reply, ScsiError, Sense, SenseKey, Ssc, Transport, TransportError};
use std::time::Duration;

/// Answers every command so.
struct Answers(Reply);

impl Transport for Answers {
    fn execute(&mut self, _: &[u8], _: Data<'_>, _: Duration) -> Result<Reply, TransportError> {
        Ok(self.0.clone())
    }

    fn name(&self) -> &str {
        "a strange way"
    }
}

fn written(reply: Reply) -> scsi::Result<scsi::WriteOutcome> {
    Ssc::new(Box::new(Answers(reply))).write(&[7; 100])
}

fn early_warning(left: Option<i64>) -> Reply {
    let sense = Sense { eom: true, information: left, ..Sense::new(SenseKey::NoSense, 0x00, 0x02) };
    Reply { status: CHECK_CONDITION, transferred: 100, sense: sense.encode() }
}

#[test]
fn a_record_of_which_a_part_is_missing_was_not_written() {
    assert!(written(Reply { status: GOOD, transferred: 100, sense: vec![] }).is_ok());
    for transferred in [0, 99] {
        let error = written(Reply { status: GOOD, transferred, sense: vec![] }).unwrap_err();
        assert!(matches!(error, ScsiError::Transport(TransportError::Lost { .. })), "{error}");
        assert!(error.to_string().contains(&format!("{transferred} of 100 bytes")), "{error}");
    }
    for left in [None, Some(0)] {
        assert!(written(early_warning(left)).unwrap().early_warning, "{left:?}");
    }
    let error = written(early_warning(Some(40))).unwrap_err();
    assert!(error.to_string().contains("60 of 100 bytes"), "{error}");
}
