//! Recordings of noise: what was accepted can be played on.
#![no_main]

use hugeleaf_proof::simulate::Noise;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(noise) = Noise::parse(&hugeleaf_fuzz::text(data)) {
        assert!(noise.samples.iter().all(|s| s.is_finite() && *s > 0.0));
        assert!(noise.interval_seconds > 0.0);
    }
});
