//! What was not written of something that goes on with the rest.

use crate::{Result, StripeError};
use std::collections::BTreeSet;
use types::ErrorClass;

/// The rows, and why.
#[derive(Default)]
pub(super) struct Failures {
    pub(super) rows: BTreeSet<u64>,
    /// The one that counts.
    why: Option<StripeError>,
    /// The rest would fail too, each after as long a wait, or all of it is begun anew.
    pub(super) ends: bool,
}

impl Failures {
    pub(super) fn note(&mut self, e: StripeError) {
        self.ends |= e.may_renew() || e.is_away();
        if self.why.as_ref().is_none_or(|why| weight(why) < weight(&e)) {
            self.why = Some(e);
        }
    }

    pub(super) fn note_rows(&mut self, e: StripeError, rows: impl IntoIterator<Item = u64>) {
        self.rows.extend(rows);
        self.note(e);
    }

    pub(super) fn outcome(self) -> Result<()> {
        self.why.map_or(Ok(()), Err)
    }
}

/// What a caller can do something about counts more.
fn weight(e: &StripeError) -> u8 {
    match e.class() {
        _ if e.may_renew() => 2,
        ErrorClass::NoSpace => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::{DataError, Refusal};
    use types::TargetId;

    fn mover(source: DataError) -> StripeError {
        StripeError::Mover { target: TargetId(1), source }
    }

    fn refused(refusal: &Refusal) -> StripeError {
        let message = refusal.to_string();
        mover(DataError::Refused { mover: "one".to_owned(), code: refusal.code(), message })
    }

    #[test]
    fn who_is_waited_for_in_vain_ends_it_and_what_can_be_helped_is_told() {
        let mut failures = Failures::default();
        failures.note_rows(refused(&Refusal::Sums), [7, 8]);
        assert!(!failures.ends && failures.rows == BTreeSet::from([7, 8]));
        failures.note(refused(&Refusal::NoSpace(String::new())));
        failures.note(refused(&Refusal::Sums));
        assert!(!failures.ends);
        let (mover_away, reason) = ("two".to_owned(), "silence".to_owned());
        failures.note(mover(DataError::Unreachable { mover: mover_away, reason }));
        assert!(failures.ends, "the next one would wait as long");
        assert_eq!(failures.why.as_ref().unwrap().class(), ErrorClass::NoSpace, "it is moved elsewhere");
        failures.note(StripeError::Interrupted);
        assert!(matches!(failures.outcome(), Err(StripeError::Interrupted)), "it begins anew");
        let mut failures = Failures::default();
        failures.note(refused(&Refusal::Fenced));
        assert!(failures.ends, "with another right");
    }
}
