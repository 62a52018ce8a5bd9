//! Which start of the mover's machine each connection of a channel was with.

/// All connections so far.
#[derive(Debug, Default)]
pub(super) struct Greeted {
    connections: u64,
    /// The first connection with each start, in order: few, as machines seldom start.
    starts: Vec<(u64, u64)>,
}

impl Greeted {
    /// One more connection.
    pub fn note(&mut self, start: u64) {
        if self.starts.last().is_none_or(|(_, last)| *last != start) {
            self.starts.push((self.connections, start));
        }
        self.connections += 1;
    }

    /// How many there were.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// The start that a connection was with, counted from 0; none: it was not made yet.
    pub fn start(&self, connection: u64) -> Option<u64> {
        let of_it = self.starts.partition_point(|(first, _)| *first <= connection).checked_sub(1)?;
        self.starts.get(of_it).filter(|_| connection < self.connections).map(|(_, start)| *start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_the_start_that_it_was_with() {
        let mut greeted = Greeted::default();
        let all = [7, 7, 9, 9, 9, 7, 8];
        for (n, start) in (0..).zip(all) {
            assert_eq!((greeted.connections(), greeted.start(n)), (n, None));
            greeted.note(start);
        }
        assert_eq!((0..8).map_while(|n| greeted.start(n)).collect::<Vec<_>>(), all);
    }
}
