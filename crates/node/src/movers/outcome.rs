//! What has become of a change of a layout when the catalogue did not say: whoever has the file open must use the columns that are on record.

use crate::Node;
use catalog::{CatalogError, Far};
use std::time::Duration;
use types::ObjectId;

/// Between two questions.
const AGAIN: Duration = Duration::from_secs(1);

impl Node {
    /// Waits until it is known whether a change took effect, after which the layout of an object `is` so. Nobody writes to the file meanwhile.
    ///
    /// # Errors
    /// It did not.
    pub(super) fn settled(
        &self,
        object: ObjectId,
        changed: catalog::Result<Far>,
        is: impl Fn(&Far) -> bool,
    ) -> Result<(), String> {
        // A change of its own comes after one that may still be on its way; a look might come before.
        let again = || (!self.stops_within(AGAIN)).then(|| self.catalog.raise_generation(object));
        settled(changed, again, is)
    }
}

fn settled(
    changed: catalog::Result<Far>,
    mut again: impl FnMut() -> Option<catalog::Result<Far>>,
    is: impl Fn(&Far) -> bool,
) -> Result<(), String> {
    let why = match changed {
        Ok(_) => return Ok(()),
        Err(CatalogError::Kv(why)) => why,
        Err(e) => return Err(e.to_string()),
    };
    tracing::warn!("whether a file on targets lies elsewhere is not known yet: {why}");
    loop {
        match again() {
            Some(Ok(far)) if is(&far) => return Ok(()),
            Some(Ok(_)) | None => return Err(why.to_string()),
            Some(Err(CatalogError::Kv(_))) => {}
            Some(Err(e)) => return Err(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::{Component, Layout, Redundancy};
    use types::TargetId;

    fn on(target: u32) -> Far {
        let component = Component {
            range: 0..u64::MAX,
            unit_bytes: 4096,
            redundancy: Redundancy::None,
            base: ObjectId(1),
            targets: vec![TargetId(target)],
        };
        Far {
            layout: Layout { generation: 1, components: vec![component] },
            stale: Vec::new(),
            then: Vec::new(),
            pool: None,
        }
    }

    fn lost() -> catalog::Result<Far> {
        let detail = "the connection was lost while a change was committed".to_owned();
        Err(CatalogError::Kv(kv::KvError::Server { address: "db".to_owned(), detail }))
    }

    #[test]
    fn a_change_whose_answer_was_lost_counts_if_the_catalogue_has_it() {
        let moved = |far: &Far| far.layout.components[0].targets == [TargetId(2)];
        let nobody = || -> Option<catalog::Result<Far>> { unreachable!("the outcome is known") };
        assert_eq!(settled(Ok(on(2)), nobody, moved), Ok(()));
        let refused = || CatalogError::Refused { what: "a move".to_owned(), why: "it is gone".to_owned() };
        assert!(settled(Err(refused()), nobody, moved).is_err());
        for (target, counts) in [(2, true), (1, false)] {
            let mut answers = vec![Some(Ok(on(target))), Some(lost()), Some(lost())];
            let outcome = settled(lost(), || answers.pop().flatten(), moved);
            assert_eq!((outcome.is_ok(), answers.len()), (counts, 0), "it lies on target {target}");
        }
        let mut answers = vec![Some(Err(refused()))];
        assert!(settled(lost(), || answers.pop().flatten(), moved).is_err());
        assert!(settled(lost(), || None, moved).is_err(), "the node stops");
    }
}
