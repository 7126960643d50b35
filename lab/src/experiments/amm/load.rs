//! What the two servers do, phase by phase.

use std::str::FromStr;

pub(super) const NAMES: [&str; 2] = ["a", "b"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmmLoad {
    /// Both read alike, and an equal split holds what they read.
    Steady,
    /// One is busy and the other is not; then the other way round.
    Swap,
    /// One is busy throughout, on the other a report runs at night.
    Nightly,
    /// One is busy throughout, on the other statements come of which no two are alike.
    Flood,
    /// As `Swap`, with order entry after the rules of TPC-C in place of reads by key.
    Tpcc,
}

/// A part of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) does: [Does; 2],
}

/// What a server does in a phase. What is read often is a part of the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Does {
    Busy(f64),
    Light,
    Report,
    Flood,
}

pub(super) const LIGHT: f64 = 0.05;

/// What a busy server reads often where the other is not busy: more than half of the target.
const MUCH: f64 = 0.75;

/// Of two that are busy together: what half of the target holds.
const HALF: f64 = 0.4;

impl AmmLoad {
    /// All of them, in the order in which they run.
    pub const ALL: [AmmLoad; 5] = [
        AmmLoad::Steady,
        AmmLoad::Swap,
        AmmLoad::Nightly,
        AmmLoad::Flood,
        AmmLoad::Tpcc,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            AmmLoad::Steady => "steady",
            AmmLoad::Swap => "swap",
            AmmLoad::Nightly => "nightly",
            AmmLoad::Flood => "flood",
            AmmLoad::Tpcc => "tpcc",
        }
    }

    pub(super) fn phases(self) -> &'static [Phase] {
        const fn phase(name: &'static str, a: Does, b: Does) -> Phase {
            Phase { name, does: [a, b] }
        }
        const BUSY: Does = Does::Busy(MUCH);
        const ALIKE: Does = Does::Busy(HALF);
        const SWAP: &[Phase] = &[
            phase("a busy", BUSY, Does::Light),
            phase("b busy", Does::Light, BUSY),
        ];
        match self {
            AmmLoad::Steady => const { &[phase("both busy", ALIKE, ALIKE)] },
            AmmLoad::Swap | AmmLoad::Tpcc => SWAP,
            AmmLoad::Nightly => {
                const {
                    &[
                        phase("day", BUSY, Does::Light),
                        phase("night", BUSY, Does::Report),
                        phase("next day", BUSY, Does::Light),
                    ]
                }
            }
            AmmLoad::Flood => {
                const {
                    &[
                        phase("before", BUSY, Does::Light),
                        phase("flood", BUSY, Does::Flood),
                    ]
                }
            }
        }
    }

    pub(super) fn is_tpcc(self) -> bool {
        self == AmmLoad::Tpcc
    }
}

impl FromStr for AmmLoad {
    type Err = String;

    fn from_str(text: &str) -> Result<AmmLoad, String> {
        let mut all = AmmLoad::ALL.into_iter();
        let names = AmmLoad::ALL.map(AmmLoad::name).join(", ");
        all.find(|load| load.name() == text)
            .ok_or_else(|| format!("'{text}' is none of {names}"))
    }
}
