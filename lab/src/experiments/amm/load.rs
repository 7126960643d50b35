//! Loads of `hugeleaf-lab amm`: the work of both servers, phase by phase.

use std::str::FromStr;

pub(super) const NAMES: [&str; 2] = ["a", "b"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AmmLoad {
    /// Both servers read alike, and an equal split holds their frequently read data.
    Steady,
    /// One server is busy and the other is not; then they swap.
    Swap,
    /// One server is busy throughout; the other runs a report at night.
    Nightly,
    /// One server is busy throughout; the other gets statements that never repeat.
    Flood,
    /// As `Swap`, with order entry after the rules of TPC-C instead of reads by key.
    Tpcc,
}

/// A part of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LoadPhase {
    pub(super) name: &'static str,
    pub(super) activities: [ServerActivity; 2],
}

/// Work of a server in a phase. Frequently read data is a part of the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ServerActivity {
    Busy(f64),
    Light,
    Report,
    Flood,
}

pub(super) const LIGHT: f64 = 0.05;

/// Frequently read data of a server that alone is busy: more than half of the target.
const BUSY_PART: f64 = 0.75;

/// Frequently read data of each of two busy servers: fits half of the target.
const HALF: f64 = 0.4;

impl AmmLoad {
    /// All loads, in the order in which they run.
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

    pub(super) fn phases(self) -> &'static [LoadPhase] {
        const fn phase(name: &'static str, a: ServerActivity, b: ServerActivity) -> LoadPhase {
            LoadPhase {
                name,
                activities: [a, b],
            }
        }
        const BUSY: ServerActivity = ServerActivity::Busy(BUSY_PART);
        const ALIKE: ServerActivity = ServerActivity::Busy(HALF);
        const SWAP: &[LoadPhase] = &[
            phase("a busy", BUSY, ServerActivity::Light),
            phase("b busy", ServerActivity::Light, BUSY),
        ];
        match self {
            AmmLoad::Steady => const { &[phase("both busy", ALIKE, ALIKE)] },
            AmmLoad::Swap | AmmLoad::Tpcc => SWAP,
            AmmLoad::Nightly => {
                const {
                    &[
                        phase("day", BUSY, ServerActivity::Light),
                        phase("night", BUSY, ServerActivity::Report),
                        phase("next day", BUSY, ServerActivity::Light),
                    ]
                }
            }
            AmmLoad::Flood => {
                const {
                    &[
                        phase("before", BUSY, ServerActivity::Light),
                        phase("flood", BUSY, ServerActivity::Flood),
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
            .ok_or_else(|| format!("'{text}' is not one of {names}"))
    }
}
