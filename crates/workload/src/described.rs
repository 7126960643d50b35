//! Workloads that a file describes: what they need, how they are prepared, which server is started on the pages of an arm,
//! what drives it, and how the figures are read from what that prints.
//!
//! [`Described::parse`] reads a file and says where it is wrong; [`figures`] takes the figures out of a run's output:
//! both pure. [`Stage`] runs the commands, in a folder of their own, and leaves nothing behind. Those that come with
//! hugeleaf are in [`SHIPPED`].

mod counts;
mod figures;
mod file;
mod needs;
mod shipped;
mod size;
mod stage;

pub use figures::{Figure, NoFigure, Ran, figures};
pub use file::{
    Better, Described, FileError, Load, Loop, Measure, OwnArm, SCHEMA, Script, Server, Source,
};
pub use needs::Needs;
pub use shipped::{SHIPPED, Shipped, shipped};
pub use size::Size;
pub use stage::{Running, Stage, StageError, Watched};
