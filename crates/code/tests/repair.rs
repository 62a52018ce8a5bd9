//! Any units may be lost, as many as there is parity; and another program computes the same parity.

use code::{Code, CodeError};
use proptest::prelude::*;
use std::process::Command;

fn encoded(code: &Code, data: &[Vec<u8>], parity: usize) -> Vec<Vec<u8>> {
    let mut made = vec![vec![0xee; data[0].len()]; parity];
    let units: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut rows: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
    code.encode(&units, &mut rows).unwrap();
    made
}

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(seed * 40_503) >> 9) as u8).collect()
}

#[test]
fn every_loss_that_the_parity_covers_is_repaired_and_no_other() {
    for (k, m) in [(2, 1), (3, 3), (4, 2), (8, 2)] {
        let code = Code::new(k, m).unwrap();
        let data: Vec<Vec<u8>> = (0..k).map(|n| bytes(77, n)).collect();
        let all: Vec<Vec<u8>> = data.iter().cloned().chain(encoded(&code, &data, m)).collect();
        for lost in 0..1_u32 << (k + m) {
            let mut units: Vec<Option<Vec<u8>>> =
                (0..k + m).map(|n| (lost >> n & 1 == 0).then(|| all[n].clone())).collect();
            let before = units.clone();
            match code.repair(&mut units) {
                Ok(()) => {
                    assert!(lost.count_ones() as usize <= m, "{k}+{m}: {lost:b}");
                    assert!(units.iter().flatten().eq(&all), "{k}+{m}: {lost:b}");
                }
                Err(e) => {
                    let found = k + m - lost.count_ones() as usize;
                    assert_eq!(e, CodeError::Lost { found, needed: k });
                    assert!(found < k && units == before);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn wide_codes_repair_random_losses(k in 1_usize..40, m in 1_usize..20, length in 1_usize..300, order: prop::sample::Selector) {
        let code = Code::new(k, m).unwrap();
        let data: Vec<Vec<u8>> = (0..k).map(|n| bytes(length, n)).collect();
        let all: Vec<Vec<u8>> = data.iter().cloned().chain(encoded(&code, &data, m)).collect();
        let mut units: Vec<Option<Vec<u8>>> = all.iter().cloned().map(Some).collect();
        let mut left: Vec<usize> = (0..k + m).collect();
        for _ in 0..m {
            let lost = *order.select(&left);
            left.retain(|n| *n != lost);
            units[lost] = None;
        }
        code.repair(&mut units).unwrap();
        prop_assert!(units.into_iter().flatten().eq(all));
    }

    #[test]
    fn a_changed_piece_changes_parity_by_its_difference(k in 1_usize..10, m in 1_usize..5, unit: prop::sample::Index, at in 0_usize..50, piece in proptest::collection::vec(any::<u8>(), 1..50)) {
        let code = Code::new(k, m).unwrap();
        let mut data: Vec<Vec<u8>> = (0..k).map(|n| bytes(100, n)).collect();
        let mut parity = encoded(&code, &data, m);
        let unit = unit.index(k);
        let place = &mut data[unit][at..at + piece.len()];
        let difference: Vec<u8> = place.iter().zip(&piece).map(|(old, new)| old ^ new).collect();
        place.copy_from_slice(&piece);
        for (number, row) in parity.iter_mut().enumerate() {
            code.update(number, unit, &difference, &mut row[at..at + piece.len()]);
        }
        prop_assert_eq!(parity, encoded(&code, &data, m));
    }
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    for (data, parity) in [(0, 1), (1, 0), (200, 56)] {
        assert_eq!(Code::new(data, parity).unwrap_err(), CodeError::Units { data, parity });
    }
    let code = Code::new(2, 1).unwrap();
    assert_eq!(code.encode(&[&[1], &[2, 3]], &mut [&mut [0]]), Err(CodeError::Shape));
    assert_eq!(code.repair(&mut [None, Some(vec![1])]), Err(CodeError::Shape));
    assert_eq!(code.repair(&mut [None, Some(vec![1]), Some(vec![1, 2])]), Err(CodeError::Shape));
}

/// Intel's ISA-L, from Debian, makes the parity of the same data.
#[test]
fn another_program_computes_the_same_parity() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("judge");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/judge.c");
    let built = Command::new("cc").args([source, "-o"]).arg(&program).arg("-lisal").status();
    assert!(built.is_ok_and(|status| status.success()), "the judge needs cc and Debian's libisal-dev");
    for (k, m) in [(4, 2), (8, 2), (10, 4), (20, 7)] {
        const LENGTH: usize = 1000;
        let data: Vec<Vec<u8>> = (0..k).map(|n| bytes(LENGTH, n)).collect();
        let input = dir.path().join("data");
        std::fs::write(&input, data.concat()).unwrap();
        let numbers = [k, m, LENGTH].map(|n| n.to_string());
        let output = Command::new(&program).args(numbers).arg(&input).output().unwrap();
        assert!(output.status.success());
        let ours = encoded(&Code::new(k, m).unwrap(), &data, m).concat();
        assert!(output.stdout == ours, "{k}+{m}");
    }
}
