//! The common part of the Python module and the agent: loads and watches from their specifications (docs/core.md),
//! the one match over engines, operations and their answers, tables as columns of bytes.

mod encoded;
mod engines;
mod loads;
pub mod ops;
mod watches;

pub use encoded::{Encoded, encoded};
pub use engines::{Loader, launch, loader};
pub use loads::load;
pub use watches::watch;
