//! Which start of the machine this is.

/// A number that changes when the machine starts: the first half of the kernel's boot id.
///
/// # Errors
/// The kernel does not tell it.
pub fn start_of_machine() -> std::io::Result<u64> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).map_err(std::io::Error::other)
}
