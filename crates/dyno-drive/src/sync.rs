//! Types that threads share. `make loom` replaces those of the standard library by those of loom, and tries all orders of the
//! threads' steps.

#[cfg(loom)]
pub use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize},
};
#[cfg(not(loom))]
pub use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize},
};
