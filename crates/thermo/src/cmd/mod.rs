//! One file per command.

pub mod act;
pub mod bench;
pub mod catalog;
pub mod check;
pub mod class;
pub mod completions;
pub mod copy;
pub mod demo;
pub mod discover;
pub mod down;
pub mod drive;
pub mod du;
pub mod keep;
pub mod library;
pub mod ls;
pub mod mount;
pub mod pin;
pub mod pool;
pub mod quota;
pub mod quote;
pub mod request;
pub mod stat;
pub mod status;
pub mod undelete;
pub mod up;
pub mod volume;
