//! Asking a drive for the order in which it would read.

use crate::Mounted;
use scsi::rao::DataSegment;

impl Mounted<'_> {
    /// The order in which the drive would read these stretches (first and last block of the data partition) from where it
    /// stands: places in `stretches`, each once. None: the drive does not say, or not for so many, or nonsense; what it
    /// thinks of that is no reason not to read.
    pub fn recommended_order(&mut self, stretches: &[(u64, u64)]) -> Option<Vec<usize>> {
        let (partition, _) = self.data("asking for the access order").ok()?;
        let most = self.head().attempt("asking for the access order", |ssc| ssc.most_segments()).ok()?;
        if stretches.len() > most {
            return None;
        }
        let segment =
            |(id, (begin, end)): (u64, &(u64, u64))| DataSegment { id, partition, begin: *begin, end: *end };
        let segments: Vec<DataSegment> = (0..).zip(stretches).map(segment).collect();
        let ordered = self
            .head()
            .attempt("asking for the access order", |ssc| ssc.recommended_order(&segments))
            .ok()?;
        permutation(&ordered, stretches.len())
    }
}

/// Each place once, or nothing.
fn permutation(ordered: &[DataSegment], count: usize) -> Option<Vec<usize>> {
    let mut seen = vec![false; count];
    for segment in ordered {
        let place = seen.get_mut(usize::try_from(segment.id).ok()?)?;
        if std::mem::replace(place, true) {
            return None;
        }
    }
    (ordered.len() == count).then(|| ordered.iter().map(|segment| segment.id as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_no_order_of_what_was_asked_is_not_followed() {
        let of = |ids: &[u64]| {
            let all: Vec<DataSegment> =
                ids.iter().map(|id| DataSegment { id: *id, partition: 1, begin: 0, end: 0 }).collect();
            permutation(&all, 3)
        };
        assert_eq!(of(&[2, 0, 1]), Some(vec![2, 0, 1]));
        for wrong in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3], &[0, 1, 2, 0], &[u64::MAX, 0, 1]] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }
}
