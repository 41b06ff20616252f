//! Making the calls: sessions on their threads, from the barrier to the last call's end.

pub mod control;
pub mod fleet;
pub mod poll;
pub mod seat;
pub mod windows;
pub mod worker;
