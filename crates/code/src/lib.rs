//! Erasure code of coded layouts: from `k` units of data `m` units of parity, such that any `k` of all `k + m` give the others.
//!
//! Reed-Solomon over GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), systematic, with a Cauchy matrix: parity unit `p` is
//! the sum over all data units `d` of `1 / ((k + p) XOR d)` times the unit (J. Blömer et al., "An XOR-Based Erasure-Resilient Coding Scheme",
//! ICSI TR-95-048). These are the matrix and bytes of Intel's ISA-L (`gf_gen_cauchy1_matrix`, `ec_encode_data`), which the tests use as
//! judge: what is stored can be repaired by others' programs. The code is linear, so a changed piece of one unit changes each
//! parity by a multiple of the difference alone.
#![deny(unsafe_code)]

mod field;
mod matrix;
mod multiply;

use matrix::Matrix;
pub use multiply::add_multiple;

/// Why units cannot be coded or repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// The numbers of units.
    #[error("{data} units of data with {parity} of parity: there must be at least 1 of each and 255 in all")]
    Units {
        /// Units of data.
        data: usize,
        /// Units of parity.
        parity: usize,
    },
    /// Too few units are left.
    #[error("{found} units are left of a stripe, {needed} are needed; the others have to come from tape")]
    Lost {
        /// Units that are there.
        found: usize,
        /// Units of data.
        needed: usize,
    },
    /// The units given do not fit the code or each other.
    #[error("units of different lengths, or not as many as the code has")]
    Shape,
}

/// A code of `k` units of data and `m` of parity.
#[derive(Clone, Debug)]
pub struct Code {
    data: usize,
    parity: usize,
    /// Rows of parity: factor of each unit of data.
    rows: Matrix,
}

impl Code {
    /// The code of these numbers.
    ///
    /// # Errors
    /// `Units`.
    pub fn new(data: usize, parity: usize) -> Result<Self, CodeError> {
        if data == 0 || parity == 0 || data + parity > 255 {
            return Err(CodeError::Units { data, parity });
        }
        Ok(Self { data, parity, rows: Matrix::cauchy(data, parity) })
    }

    /// Factor of a unit of data in a unit of parity.
    pub fn factor(&self, parity: usize, data: usize) -> u8 {
        self.rows.at(parity, data)
    }

    /// Computes all units of parity.
    ///
    /// # Errors
    /// `Shape`.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodeError> {
        let length = data.first().map_or(0, |unit| unit.len());
        let fits = data.len() == self.data
            && parity.len() == self.parity
            && data.iter().all(|unit| unit.len() == length)
            && parity.iter().all(|unit| unit.len() == length);
        if !fits {
            return Err(CodeError::Shape);
        }
        for (number, unit) in parity.iter_mut().enumerate() {
            self.rows.row(number).zip(data).enumerate().for_each(|(first, (factor, data))| match first {
                0 => multiply::set_multiple(unit, factor, data),
                _ => add_multiple(unit, factor, data),
            });
        }
        Ok(())
    }

    /// What a unit of parity changes by, when bytes of a unit of data change: `difference` is their XOR before and after; it is added,
    /// multiplied, to the same place of the parity.
    pub fn update(&self, parity: usize, data: usize, difference: &[u8], place: &mut [u8]) {
        add_multiple(place, self.factor(parity, data), difference);
    }

    /// Computes the units that are missing (data first, then parity) from those that are there.
    ///
    /// # Errors
    /// `Lost`, `Shape`: nothing is changed.
    pub fn repair(&self, units: &mut [Option<Vec<u8>>]) -> Result<(), CodeError> {
        let there: Vec<usize> = (0..units.len()).filter(|n| units[*n].is_some()).collect();
        if units.len() != self.data + self.parity {
            return Err(CodeError::Shape);
        }
        if there.len() < self.data {
            return Err(CodeError::Lost { found: there.len(), needed: self.data });
        }
        let used = &there[..self.data];
        let length = units[used[0]].as_ref().map_or(0, Vec::len);
        if there.iter().any(|n| units[*n].as_ref().is_some_and(|unit| unit.len() != length)) {
            return Err(CodeError::Shape);
        }
        // Rows that make the units used from the data; inverted, they make the data from the units used.
        let inverse = Matrix::of_rows(self.data, used.iter().map(|n| self.generator_row(*n))).inverse();
        let inverse = inverse.ok_or(CodeError::Shape)?;
        let missing: Vec<usize> = (0..units.len()).filter(|n| units[*n].is_none()).collect();
        let found: Vec<(usize, Vec<u8>)> = missing
            .into_iter()
            .map(|wanted| {
                let mut unit = vec![0; length];
                let factors = inverse.times(&self.generator_row(wanted));
                for (factor, from) in factors.into_iter().zip(used) {
                    add_multiple(&mut unit, factor, units[*from].as_deref().unwrap_or_default());
                }
                (wanted, unit)
            })
            .collect();
        found.into_iter().for_each(|(n, unit)| units[n] = Some(unit));
        Ok(())
    }

    /// How unit `n` is made from the data.
    fn generator_row(&self, n: usize) -> Vec<u8> {
        match n.checked_sub(self.data) {
            None => (0..self.data).map(|d| u8::from(d == n)).collect(),
            Some(parity) => self.rows.row(parity).collect(),
        }
    }
}
