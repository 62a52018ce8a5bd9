//! Gives the library its name for the loader: programs that were linked to it run with any release of the same interface.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libthermo.so.0");
}
