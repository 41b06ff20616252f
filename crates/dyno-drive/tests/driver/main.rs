//! The driver on sessions of known behaviour.

mod fleet;
mod load;
mod paced;
mod peer;
mod reconnect;
mod scripts;
mod windows;
