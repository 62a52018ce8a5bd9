//! Epochs of the secrets that targets share with metadata services: a day of a turn. A turn begins when another node comes to serve the namespace; from
//! when on a target has heard of one, nothing counts there that was given out in a turn before.

/// Days of which a turn has epochs: since 1970 there are fewer until the year 2149.
const DAYS: u32 = 1 << 16;

/// The epoch of a day (since 1970) in a turn. Of turns 65,536 apart the epochs are the same; capabilities live for less than a day.
pub fn of(turn: u64, day: u32) -> u32 {
    u32::from(turn as u16) * DAYS + day % DAYS
}

/// Whether an epoch is one of a turn behind this one.
pub fn is_of_later(epoch: u32, turn: u64) -> bool {
    let ahead = ((epoch / DAYS) as u16).wrapping_sub(turn as u16);
    (1..1 << 15).contains(&ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_of_turns_are_told_apart_and_in_order() {
        assert_eq!(of(0, 20_000), 20_000);
        for turn in [0, 1, 7, 65_535, 65_536, u64::MAX - 1] {
            for day in [0, 20_000, 65_535] {
                let epoch = of(turn, day);
                assert!(!is_of_later(epoch, turn) && !is_of_later(epoch, turn + 1), "{turn} {day}");
                assert!(is_of_later(of(turn + 1, day), turn), "{turn} {day}");
            }
        }
    }
}
