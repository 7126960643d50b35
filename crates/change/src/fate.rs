//! What became of a block.

use crate::outcome::Reason;

/// What became of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing was tried (a dry run).
    Planned,
    /// It is where it should be.
    Done,
    /// It is not.
    Failed(Reason),
    /// It turned out to be nothing to ask for.
    LeftOut(Reason),
}

impl Fate {
    /// Of one block in two places: what was not got in one of them was not got. A process that has
    /// ended takes nothing from what the others got.
    pub(crate) fn worse(self, other: Fate) -> Fate {
        let rank = |fate: Fate| match fate {
            Fate::Planned | Fate::LeftOut(_) => 0,
            Fate::Failed(Reason::ProcessEnded) => 1,
            Fate::Done => 2,
            Fate::Failed(_) => 3,
        };
        match rank(other) > rank(self) {
            true => other,
            false => self,
        }
    }
}
