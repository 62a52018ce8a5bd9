//! Preload library: sends the reading and writing of a program that knows nothing of it past the mount, to the objects of the files, or to the movers that have them.
//! `LD_PRELOAD=libthermo_preload.so program …`.
//!
//! Every file is really opened on the mount, so the program holds an ordinary descriptor, and all that is not taken over here (mapping,
//! locks, `stat`, `sendfile`, inheritance by other programs) works as ever. What is taken over is `read`, `write` and their relatives,
//! once a file has been worth it. Where a read or write begins is kept in the descriptor, by the kernel, so it is right for whoever
//! shares it: other threads, copies of the descriptor, children. Whatever is in the way (no node, no right, another kind of file, a
//! signal handler that came in between), the call goes to the mount, which has the last word on errors too.
//!
//! * `real.rs`: the functions of the C library.
//! * `calls.rs`: those that take their place; `numbers.rs`: of them those that make and close descriptors.
//! * `times.rs`: setting times, before which the node is told what was written.
//! * `table.rs`: which descriptors are files that may be on a mount.
//! * `open.rs`: an open file, and how its bytes go; `nodes.rs`: the nodes that it may be of.
//! * `threads.rs`: threads of the library itself.
//! * `own.rs`: descriptors of the library itself, which the program must not close; `log.rs`: what it did.

mod calls;
mod log;
mod nodes;
mod numbers;
mod open;
mod own;
mod real;
mod table;
mod threads;
mod times;
