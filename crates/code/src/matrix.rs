//! Matrices over the field.

use crate::field::{inverse, product};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    columns: usize,
    cells: Vec<u8>,
}

impl Matrix {
    /// Rows of parity of a code with `data` columns.
    pub(crate) fn cauchy(data: usize, parity: usize) -> Self {
        let cells =
            (0..parity).flat_map(|p| (0..data).map(move |d| inverse(((data + p) ^ d) as u8))).collect();
        Self { columns: data, cells }
    }

    pub(crate) fn of_rows(columns: usize, rows: impl Iterator<Item = Vec<u8>>) -> Self {
        Self { columns, cells: rows.flatten().collect() }
    }

    pub(crate) fn at(&self, row: usize, column: usize) -> u8 {
        self.cells[row * self.columns + column]
    }

    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = u8> + '_ {
        self.cells[row * self.columns..][..self.columns].iter().copied()
    }

    /// A row times this matrix.
    pub(crate) fn times(&self, row: &[u8]) -> Vec<u8> {
        (0..self.columns)
            .map(|column| {
                row.iter().enumerate().fold(0, |sum, (n, factor)| sum ^ product(*factor, self.at(n, column)))
            })
            .collect()
    }

    /// The inverse of a square matrix, by Gauss and Jordan; `None` if there is none.
    pub(crate) fn inverse(&self) -> Option<Self> {
        let size = self.columns;
        let mut left: Vec<Vec<u8>> = (0..size).map(|row| self.row(row).collect()).collect();
        let mut right: Vec<Vec<u8>> =
            (0..size).map(|row| (0..size).map(|n| u8::from(n == row)).collect()).collect();
        for column in 0..size {
            let pivot = (column..size).find(|row| left[*row][column] != 0)?;
            left.swap(column, pivot);
            right.swap(column, pivot);
            let factor = inverse(left[column][column]);
            for cell in left[column].iter_mut().chain(&mut right[column]) {
                *cell = product(*cell, factor);
            }
            let (pivot_left, pivot_right) = (left[column].clone(), right[column].clone());
            for row in (0..size).filter(|row| *row != column) {
                let factor = left[row][column];
                let add = |cells: &mut Vec<u8>, pivot: &[u8]| {
                    cells.iter_mut().zip(pivot).for_each(|(cell, other)| *cell ^= product(*other, factor));
                };
                add(&mut left[row], &pivot_left);
                add(&mut right[row], &pivot_right);
            }
        }
        Some(Self { columns: size, cells: right.into_iter().flatten().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_undoes_a_matrix() {
        let matrix = Matrix::cauchy(9, 9);
        let inverse = matrix.inverse().unwrap();
        for n in 0..9 {
            let row: Vec<u8> = (0..9).map(|m| u8::from(m == n)).collect();
            assert_eq!(inverse.times(&matrix.times(&row)), row);
        }
        assert_eq!(Matrix { columns: 2, cells: vec![1, 2, 1, 2] }.inverse(), None);
    }
}
