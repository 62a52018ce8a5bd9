//! Seeded changes of inputs for the bounded run in the tests, where no coverage guides the way.

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound` (which is at least 1).
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Bytes at which formats change their meaning.
const EDGES: [u8; 12] = [0, 1, 2, 0x1f, 0x20, b'<', b'&', b'%', 0x7f, 0x80, 0xfe, 0xff];

/// One to four changes of `input`: bits, bytes, numbers, pieces cut, doubled, moved, or taken from `other`.
pub fn mutate(random: &mut Random, input: &[u8], other: &[u8], most: usize) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(4) {
        change(random, &mut bytes, other);
    }
    bytes.truncate(most);
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(bytes.len());
    let piece = |random: &mut Random, from: &[u8]| {
        let start = random.below(from.len());
        let length = random.below(from.len() - start + 1).min(1 + random.below(64));
        from[start.min(from.len())..(start + length).min(from.len())].to_vec()
    };
    match random.below(8) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[at] = EDGES[random.below(EDGES.len())],
        2 if !bytes.is_empty() => bytes[at] = random.next() as u8,
        3 if !bytes.is_empty() => {
            let end = (at + (1 << random.below(4))).min(bytes.len());
            bytes[at..end].fill([0, 0xff, b'9'][random.below(3)]);
        }
        4 => {
            let end = at + random.below(bytes.len() - at.min(bytes.len()) + 1).min(1 + random.below(64));
            bytes.drain(at.min(bytes.len())..end.min(bytes.len()));
        }
        5 => {
            let piece = piece(random, bytes);
            bytes.splice(at..at, piece);
        }
        6 => {
            let piece = piece(random, other);
            bytes.splice(at..at, piece);
        }
        _ => {
            let piece = piece(random, other);
            let end = (at + piece.len()).min(bytes.len());
            bytes.splice(at..end, piece);
        }
    }
}
