//! tape
