//! The targets, in the order of the rooms they try.

use crate::Target;

mod ansi_label;
mod archive;
mod bench;
mod cartridge;
mod catalogue;
mod config;
mod data_connection;
mod data_frame;
mod disk;
mod engine;
mod ident;
mod ident_handshake;
mod index;
mod index_names;
mod label;
mod memory;
mod mover_target;
mod record;
mod scsi_device;
mod scsi_frame;
mod scsi_reply;
mod section;
mod stripe_record;
mod vtl_command;
mod vtl_files;
mod wire_channel;
mod wire_frame;

macro_rules! targets {
    ($($name:literal = $module:ident, $longest:literal bytes, $rounds:literal rounds;)+) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target {
            name: $name,
            run: $module::run,
            seeds: $module::seeds,
            longest: $longest,
            rounds: $rounds,
        }),+];
    };
}

targets! {
    "label" = label, 4096 bytes, 900 rounds;
    "index" = index, 16384 bytes, 450 rounds;
    "index_names" = index_names, 1024 bytes, 450 rounds;
    "cartridge_memory" = memory, 1024 bytes, 3000 rounds;
    "ansi_label" = ansi_label, 512 bytes, 3000 rounds;
    "section" = section, 16384 bytes, 450 rounds;
    "archive" = archive, 16384 bytes, 900 rounds;
    "record" = record, 2048 bytes, 3000 rounds;
    "scsi_reply" = scsi_reply, 2048 bytes, 3000 rounds;
    "scsi_device" = scsi_device, 4096 bytes, 900 rounds;
    "scsi_frame" = scsi_frame, 256 bytes, 3000 rounds;
    "wire_frame" = wire_frame, 4096 bytes, 3000 rounds;
    "wire_channel" = wire_channel, 4096 bytes, 300 rounds;
    "vtl_command" = vtl_command, 4096 bytes, 60 rounds;
    "vtl_files" = vtl_files, 2048 bytes, 90 rounds;
    "cartridge" = cartridge, 16384 bytes, 60 rounds;
    "engine" = engine, 1024 bytes, 60 rounds;
    "catalogue" = catalogue, 2048 bytes, 300 rounds;
    "disk" = disk, 512 bytes, 60 rounds;
    "config" = config, 4096 bytes, 450 rounds;
    "ident" = ident, 2048 bytes, 900 rounds;
    "ident_handshake" = ident_handshake, 2048 bytes, 300 rounds;
    "data_frame" = data_frame, 256 bytes, 3000 rounds;
    "data_connection" = data_connection, 4096 bytes, 300 rounds;
    "mover_target" = mover_target, 8192 bytes, 30 rounds;
    "stripe_record" = stripe_record, 2048 bytes, 3000 rounds;
}
