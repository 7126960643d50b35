//! Experiments: kits measured on pages of each size, as rows of a result.

pub mod amm;
mod layout;
pub mod mover;
pub mod oltp;
pub mod pagetables;
pub mod pin;
mod processors;
mod spaces;
