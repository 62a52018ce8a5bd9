//! One program for all tests with a real node: they wait more than they work (for nodes that start, for tape, for time), so
//! `./test` runs more of them at a time than there are processors. Each has directories, mounts, sockets and
//! servers of its own; nothing that belongs to the whole process (environment, working directory, umask) may be changed here, and
//! nothing opened that a command started by another test could inherit: `engine_power`, which opens an engine, is another program.

#[path = "../../../kv/tests/postgres/server.rs"]
mod server;
mod support;

mod again;
mod ansi;
mod attached;
mod bad_input;
mod bench;
mod cartridges;
mod cluster;
mod commands;
mod crash;
mod demo;
mod devices;
mod engine_move;
mod engine_online;
mod engine_silent;
mod exchange;
mod junction_mounts;
mod junctions;
mod native;
mod native_joined;
mod native_locks;
mod nodes;
mod nonblock;
mod operators;
mod posix;
mod postgres;
mod preload;
mod preload_targets;
mod rebuild;
mod reload;
mod status;
mod straight;
mod subsystems;
mod tar_tapes;
mod tier;
mod torture;
mod turns;
