//! The big file: made on the spot from a generator, never on disk twice, read as a stream.

use super::ui::Progress;
use super::way::Way;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Bytes moved at a time.
const CHUNK: usize = 1 << 20;
/// Chunks between the thread that hashes and the one that moves.
const AHEAD: usize = 8;

/// Numbers that look random, from SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fill(&mut self, buffer: &mut [u8]) {
        for word in buffer.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes()[..word.len()]);
        }
    }
}

/// Writes `size` bytes and gives their SHA-256.
pub fn write(way: &Way, size: u64, seed: u64, progress: &Progress) -> Result<[u8; 32]> {
    progress.total(size);
    let mut out = way.create_big()?;
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<Vec<u8>>(AHEAD);
        let maker = scope.spawn(move || {
            let (mut hash, mut generator, mut left) = (Sha256::new(), Generator(seed), size);
            while left > 0 {
                let mut chunk = vec![0; left.min(CHUNK as u64) as usize];
                generator.fill(&mut chunk);
                hash.update(&chunk);
                left -= chunk.len() as u64;
                if send.send(chunk).is_err() {
                    break;
                }
            }
            hash.finalize().into()
        });
        let mut offset = 0;
        for chunk in receive {
            let length = chunk.len() as u64;
            out.write(offset, chunk).context("writing the big file")?;
            offset += length;
            progress.add(length);
        }
        out.finish().context("making the big file durable")?;
        maker.join().map_err(|_| anyhow::anyhow!("the generator panicked"))
    })
}

/// What reading gave.
pub struct Read {
    /// SHA-256 of all bytes.
    pub digest: [u8; 32],
    /// Bytes.
    pub bytes: u64,
    /// From before open(2) to the first bytes.
    pub first_byte: Duration,
}

/// Opens and reads the big file.
pub fn read(way: &Way, size: u64, progress: &Progress) -> Result<Read> {
    progress.total(size);
    let started = Instant::now();
    let mut file = way.open_big()?;
    let mut chunk = file.read(0, CHUNK).context("reading the big file")?;
    let first_byte = started.elapsed();
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<Vec<u8>>(AHEAD);
        let hasher = scope.spawn(move || digest(receive));
        let mut bytes = 0;
        while !chunk.is_empty() {
            bytes += chunk.len() as u64;
            progress.add(chunk.len() as u64);
            if send.send(chunk).is_err() {
                break;
            }
            chunk = file.read(bytes, CHUNK).context("reading the big file")?;
        }
        drop(send);
        let digest = hasher.join().map_err(|_| anyhow::anyhow!("hashing panicked"))?;
        Ok(Read { digest, bytes, first_byte })
    })
}

fn digest(chunks: Receiver<Vec<u8>>) -> [u8; 32] {
    let mut hash = Sha256::new();
    chunks.iter().for_each(|chunk| hash.update(&chunk));
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // First outputs of SplitMix64 for seed 1234567, as other implementations give them.
        let mut generator = Generator(1_234_567);
        assert_eq!(
            [generator.next(), generator.next(), generator.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
        let mut bytes = [0; 11];
        Generator(1_234_567).fill(&mut bytes);
        assert_eq!(bytes[..8], 6_457_827_717_110_365_317u64.to_le_bytes());
        assert_ne!(bytes[8..], [0, 0, 0]);
    }
}
