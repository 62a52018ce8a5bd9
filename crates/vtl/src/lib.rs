//! vtl
