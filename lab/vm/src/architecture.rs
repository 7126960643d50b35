//! Differences between the architectures of guests.

use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum Architecture {
    /// 64-bit x86.
    #[serde(rename = "x86-64")]
    X86,
    /// 64-bit ARM.
    #[serde(rename = "arm64")]
    Arm,
}

impl Architecture {
    /// Returns the architecture that this program was compiled for, if guests can have it.
    pub fn own() -> Option<Architecture> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Architecture::X86),
            "aarch64" => Some(Architecture::Arm),
            _ => None,
        }
    }

    fn either(self, x86: &'static str, arm: &'static str) -> &'static str {
        match self {
            Architecture::X86 => x86,
            Architecture::Arm => arm,
        }
    }

    pub fn debian(self) -> &'static str {
        self.either("amd64", "arm64")
    }

    /// Returns Debian's name of the 32-bit architecture whose programs it also runs.
    pub fn debian_32(self) -> &'static str {
        self.either("i386", "armhf")
    }

    /// Returns Rust's target for programs with the GNU C library.
    pub fn target(self) -> &'static str {
        self.either("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
    }

    /// Returns the name prefix of compilers and their tools.
    pub fn tool_prefix(self) -> &'static str {
        self.either("x86_64-linux-gnu-", "aarch64-linux-gnu-")
    }

    pub fn emulator(self) -> &'static str {
        self.either("qemu-system-x86_64", "qemu-system-aarch64")
    }

    pub fn emulator_package(self) -> &'static str {
        self.either("qemu-system-x86", "qemu-system-arm")
    }

    /// Returns the Debian packages of a compiler for this architecture on another architecture.
    pub fn compiler_packages(self) -> &'static str {
        self.either(
            "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
            "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        )
    }

    /// Returns the kernel's name of QEMU's first serial port, used as the console.
    pub fn console(self) -> &'static str {
        self.either("ttyS0", "ttyAMA0")
    }
}
