//! Programs that nodes speak for.

use sha2::{Digest, Sha256};

/// Number of a program's session at other nodes than its own: it follows from the number that the program has drawn for itself (64 bits, which nobody else knows) and its user, so all
/// nodes, also those that are started anew, know it by the same, and of users who choose the same number each has his own. The first eight bytes of the SHA-256 of the user (4 bytes,
/// little-endian) and that number (8 bytes, little-endian).
pub fn session_of_program(uid: u32, number: u64) -> u64 {
    let digest = Sha256::new().chain_update(uid.to_le_bytes()).chain_update(number.to_le_bytes()).finalize();
    let (first, _) = digest.split_at(8);
    first.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_users_who_choose_the_same_number_each_has_a_session_of_his_own_and_all_nodes_call_it_the_same() {
        let numbers = [session_of_program(0, 7), session_of_program(1, 7), session_of_program(0, 8)];
        assert!(numbers[0] != numbers[1] && numbers[0] != numbers[2]);
        // By sha256sum.
        assert_eq!(numbers[0], 0x3ddd_b1ee_e9e3_831a);
    }
}
