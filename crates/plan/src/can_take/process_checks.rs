//! Limits of each process that uses the cache.

use hugeleaf_units::{Bytes, Failure};

use super::cache_case::CacheCase;
use super::model::{CapacityCheck, CheckId, Pinning};
use super::placement::Placement;

/// Size from which one registration fails: NVIDIA's driver keeps 16 bytes for each base page of 4K in one block of at most
/// 2G (vllm-project/vllm #51080, LMCache #5177).
pub(crate) const REGISTRATION: Bytes = Bytes::from_mib(512 << 10);
const UNLIMITED: u64 = u64::MAX;

impl CacheCase<'_> {
    pub(super) fn of_processes(&self, whole: &Placement) -> Result<Vec<CapacityCheck>, Failure> {
        let need = self.rank_bytes(whole);
        let limits = self.facts.limits;
        let mut checks = Vec::new();
        let limit = |id, have: Bytes, source: &str| CapacityCheck {
            id,
            ok: have >= need,
            need,
            have,
            source: source.to_owned(),
        };
        if let Some(error) = limits.address_space.error() {
            return Err(error.clone().into());
        }
        let addresses = limits.address_space.get();
        if let Some(have) = addresses.filter(|bytes| bytes.get() != UNLIMITED) {
            checks.push(limit(CheckId::AddressSpace, have, "RLIMIT_AS"));
        }
        let Some(pin) = self.request.pin else {
            return Ok(checks);
        };
        if !self.facts.ipc_lock {
            let have = limits.memlock.get().ok_or_else(|| self.unknown_memlock())?;
            if have.get() != UNLIMITED {
                checks.push(limit(CheckId::Memlock, have, "RLIMIT_MEMLOCK"));
            }
        }
        let piece = match pin {
            Pinning::Whole => need,
            Pinning::Pieces(bytes) => bytes.min(need),
        };
        let have = REGISTRATION - self.facts.host.base_page.bytes();
        checks.push(CapacityCheck {
            id: CheckId::Registration,
            ok: piece <= have,
            need: piece,
            have,
            source: "one registration with NVIDIA's driver".to_owned(),
        });
        Ok(checks)
    }

    fn unknown_memlock(&self) -> Failure {
        let error = self.facts.limits.memlock.error();
        let why = error.map_or("unknown".to_owned(), ToString::to_string);
        Failure::missing(
            format!("the limit of locked memory: {why}"),
            "leave out --pin, or run it where /proc/self/limits can be read",
        )
    }
}
