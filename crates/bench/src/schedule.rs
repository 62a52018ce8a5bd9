//! The scheduler: recalls in simulated time against what is possible and against serving as asked, and what one look at a
//! very large system costs.

mod chance;
mod load;
mod oracle;
mod scale;
mod service;
mod world;

use crate::catalogue::anonymous;
use crate::place::timed;
use crate::{Figure, Plan, Target};
use anyhow::{Result, ensure};
use chance::Chance;
use load::{Load, first_come};
use scale::{Centre, Size};
use sched::{CopyPlace, choose_copy};
use std::collections::BTreeSet;
use types::CopyNo;

const DRIVES: u16 = 4;
/// Looks at the large system.
const LOOKS: usize = 5;
/// Requests placed for each value.
const PLACED: u64 = 200;

/// Measures the group.
pub fn measure(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let mut figures = recalls(plan, told)?;
    figures.extend(large(plan, told)?);
    figures.extend(service::measure(plan, told)?);
    Ok(figures)
}

/// One value for each of several random loads.
fn recalls(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let (loads, restarts) = (plan.amount(1, 5), plan.amount(5, 1_000) as usize);
    let (files, cartridges) = (plan.amount(240, 2_000) as usize, plan.amount(6, 20) as usize);
    let what = format!("schedule: {files} files on {cartridges} cartridges, {DRIVES} drives");
    let mut of_best =
        Figure::new(format!("{what}: time, of the best of {restarts} searches"), "", Target::AtMost(1.15));
    of_best.note = format!(
        "LTO-9 mechanics in simulated time, one value for each of {loads} random loads, files of 1 MB to 10 GB anywhere \
         on full cartridges; each search improves a random order and a random assignment as long as it can, and its \
         robot is never in the way"
    );
    let mut first =
        Figure::new(format!("{what}: time, first come first served ÷ ours"), "", Target::AtLeast(5.0));
    first.note =
        "each file goes to the drive that holds its cartridge, else to the one that is free first".into();
    let mut p90 = Figure::new(
        format!("{what}: p90 of the waits, first come first served ÷ ours"),
        "",
        Target::AtLeast(5.0),
    );
    p90.note = "all files are asked for at once, in random order".into();
    let mut p90_of_best =
        Figure::new(format!("{what}: p90 of the waits, of that of the best search"), "", Target::None);
    let mut total = Figure::new(format!("{what}: time"), "s", Target::None);
    for seed in 1..=loads {
        told(&format!("schedule: load {seed} of {loads}"));
        let mut chance = Chance::new(seed);
        let load = Load::new(files, cartridges, &mut chance);
        let ours = world::scheduled(&load, DRIVES);
        let served = first_come(&load, usize::from(DRIVES));
        let best = oracle::best(&load, usize::from(DRIVES), restarts, &mut chance);
        let all = [ours.files(), served.files(), best.files()];
        ensure!(all == [files; 3], "of {files} files {all:?} were read");
        total.values.push(ours.total_s());
        of_best.values.push(ours.total_s() / best.total_s());
        first.values.push(served.total_s() / ours.total_s());
        p90.values.push(served.p90_s() / ours.p90_s());
        p90_of_best.values.push(ours.p90_s() / best.p90_s());
    }
    Ok(vec![total, of_best, first, p90, p90_of_best])
}

fn large(plan: &Plan, told: &dyn Fn(&str)) -> Result<Vec<Figure>> {
    let (volumes, files) = (plan.amount(5_000, 50_000), plan.amount(100_000, 1_000_000));
    let size = Size { drives: plan.amount(100, 1_000) as u16, volumes, files };
    told("schedule: a very large system");
    let what = format!("schedule: {} drives, {volumes} volumes, {files} files wanted", size.drives);
    let mut chance = Chance::new(1);
    let before = anonymous()?;
    let mut centre = Centre::new(size, &mut chance);
    let mut memory = Figure::new(format!("{what}: memory of each file in its queue"), "bytes", Target::None);
    memory.values.push((anonymous()? - before) / files as f64);
    let mut pass = Figure::new(format!("{what}: a pass"), "ms", Target::AtMost(100.0));
    pass.note =
        "a third of the drives are at rest with a cartridge, a sixth are empty, the others are busy".into();
    for _ in 0..LOOKS {
        let (secs, plan) = timed(|| Ok(sched::plan(&centre.view())))?;
        ensure!(!plan.actions.is_empty(), "the plan of a large system is empty");
        pass.values.push(secs * 1e3);
    }
    let mut placed = Figure::new(format!("{what}: a new request placed"), "ms", Target::AtMost(1.0));
    placed.note = format!("two copies to choose from; the longest of {PLACED}");
    for _ in 0..LOOKS {
        let mut longest = 0.0f64;
        for n in 0..PLACED {
            let (one, other) = (scale::volume(n), scale::volume(volumes - 1 - n));
            let place = |(no, on)| CopyPlace { copy: CopyNo(no), volumes: vec![on] };
            let copies = [(1, one), (2, other)].map(place);
            let (secs, ()) = timed(|| {
                std::hint::black_box(choose_copy(&centre.view(), &copies, &BTreeSet::new()));
                centre.ask(size, &mut chance);
                Ok(())
            })?;
            longest = longest.max(secs);
        }
        placed.values.push(longest * 1e3);
    }
    Ok(vec![pass, placed, memory])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds of the figures, on a small load and with few searches.
    #[test]
    fn recalls_take_little_longer_than_possible_and_far_less_than_as_asked() {
        let mut chance = Chance::new(7);
        let load = Load::new(240, 4, &mut chance);
        let (ours, served) = (world::scheduled(&load, 2), first_come(&load, 2));
        let best = oracle::best(&load, 2, 5, &mut chance);
        assert_eq!([ours.files(), served.files(), best.files()], [240; 3]);
        let (of_best, of_served) = (ours.total_s() / best.total_s(), served.total_s() / ours.total_s());
        assert!(of_best < 1.15 && of_served > 3.0, "{of_best} of the best, {of_served} times as fast");
        assert!(served.p90_s() > 3.0 * ours.p90_s());
        let again = world::scheduled(&load, 2);
        assert!(again.total_s() == ours.total_s(), "the same load twice gives the same");
    }
}
