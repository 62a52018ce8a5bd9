//! After a crash: the sums of what was being written are computed anew, those and no others.

use crate::intents::{Found, REGION, TO_THE_END};
use crate::object::Object;
use crate::sidecar::BLOCKS_PER_PAGE;
use crate::target::{Target, refused};
use data::Refusal;
use data::sum::{self, BLOCK};

impl Target {
    /// Makes the sums of regions true, durably.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn recover(&self, found: &Found) -> Result<(), Refusal> {
        for (id, regions) in &found.unfinished {
            let object = match self.object(*id) {
                Ok(object) => object,
                // It was removed; or its file of sums is of no use, which whoever reads it is told.
                Err(Refusal::Missing(_) | Refusal::Corrupt(_)) => continue,
                Err(other) => return Err(other),
            };
            if object.is_untouched()? {
                continue;
            }
            let mut changed = 0;
            for (first, last) in regions {
                changed += object.recompute(*first, *last)?;
            }
            if found.rebooted {
                object.forget_done()?;
            }
            object.sync()?;
            tracing::info!(
                target = self.id().0,
                object = id.0,
                blocks = changed,
                "sums of what was being written at a crash made true"
            );
        }
        for id in found.unfinished.keys() {
            self.intents.end(*id).map_err(refused)?;
        }
        self.intents.shorten().map_err(refused)
    }
}

impl Object {
    /// Makes the sums of the regions `first..=last` true; says how many were not.
    fn recompute(&self, first: u32, last: u32) -> Result<u64, Refusal> {
        let Some(sidecar) = self.summed() else { return Ok(0) };
        let _all = self.gate.write();
        self.begin_sidecar()?;
        let blocks = self.length()?.div_ceil(BLOCK as u64);
        if u64::from(last) >= blocks / BLOCKS_PER_PAGE {
            // Behind the end there is nothing.
            sidecar.cut(blocks).map_err(refused)?;
        }
        let end = match last {
            TO_THE_END => blocks,
            last => blocks.min((u64::from(last) + 1) * (REGION / BLOCK as u64)),
        };
        let mut changed = 0;
        for block in u64::from(first) * (REGION / BLOCK as u64)..end {
            let sum = sum::part(0, &self.block(block)?);
            if sum != self.sum_of(sidecar, block)? {
                sidecar.write_sums(block, &[sum]).map_err(refused)?;
                changed += 1;
            }
        }
        Ok(changed)
    }
}
