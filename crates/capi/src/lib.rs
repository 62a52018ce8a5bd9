//! The C interface of the native library: `include/thermo.h` says what each function does, `libthermo.so` has them. Errors are -1 or
//! NULL with errno, and `thermo_error` has the sentence. No panic leaves the library.

mod archive;
mod error;
mod file;
mod locks;
mod names;
mod session;

pub use archive::*;
pub use error::thermo_error;
pub use file::*;
pub use locks::*;
pub use names::*;
pub use session::*;
