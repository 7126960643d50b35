//! Random numbers and texts after clauses 2.1.6 and 4.3.2.

use std::sync::LazyLock;

use super::rules::{NAMES, TableCardinality};

/// A source of random numbers. The same seed and place give the same numbers.
#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

/// The constants C of the non-uniform numbers. They determine the most frequently requested customers
/// and items, and stay the same for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NurandConstants {
    pub last: i32,
    pub customer: i32,
    pub item: i32,
}

/// Constants A of NURand for last names, customer numbers and items (clause 2.1.6).
const A_LAST: i32 = 255;
const A_CUSTOMER: i32 = 1023;
const A_ITEM: i32 = 8191;

impl NurandConstants {
    pub fn for_load(seed: u64) -> NurandConstants {
        let mut random = Random::new(seed, &[0xC0]);
        NurandConstants {
            last: random.within(0, A_LAST),
            customer: random.within(0, A_CUSTOMER),
            item: random.within(0, A_ITEM),
        }
    }

    /// Draws the constants of a run on this load. The distance between both constants for last names
    /// must be from 65 to 119, but neither 96 nor 112 (clause 2.1.6.1).
    pub fn for_run(load: NurandConstants, seed: u64) -> NurandConstants {
        let mut random = Random::new(seed, &[0xC1]);
        let last = loop {
            let last = random.within(0, A_LAST);
            if NurandConstants::fits(load.last, last) {
                break last;
            }
        };
        NurandConstants {
            last,
            customer: random.within(0, A_CUSTOMER),
            item: random.within(0, A_ITEM),
        }
    }

    pub(crate) fn fits(load: i32, run: i32) -> bool {
        let distance = (load - run).abs();
        (65..=119).contains(&distance) && distance != 96 && distance != 112
    }
}

impl Random {
    /// Makes the numbers of one place (a table, a warehouse, a connection), independent of others.
    pub fn new(seed: u64, place: &[u64]) -> Random {
        // SplitMix64's step (Steele, Lea and Flood, 2014) spreads the differences between places.
        let mut state = seed;
        for part in place {
            state = mix(state ^ mix(*part));
        }
        Random(fastrand::Rng::with_seed(state))
    }

    /// Draws a uniform number, both ends included.
    pub fn within(&mut self, low: i32, high: i32) -> i32 {
        self.0.i32(low..=high)
    }

    /// Returns true in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.0.u32(0..100) < percent
    }

    /// Draws a uniform number between 0 and 1, never 0.
    pub fn share(&mut self) -> f64 {
        1.0 - self.0.f64()
    }

    /// Draws NURand(A, x, y) of clause 2.1.6.
    pub fn non_uniform(&mut self, a: i32, c: i32, low: i32, high: i32) -> i32 {
        let mixed = self.within(0, a) | self.within(low, high);
        (mixed + c) % (high - low + 1) + low
    }

    pub fn name(&mut self, constants: NurandConstants, scale: TableCardinality) -> i32 {
        self.non_uniform(A_LAST, constants.last, 0, scale.names() - 1)
    }

    pub fn customer(&mut self, constants: NurandConstants, scale: TableCardinality) -> i32 {
        self.non_uniform(A_CUSTOMER, constants.customer, 1, scale.customers)
    }

    pub fn item(&mut self, constants: NurandConstants, scale: TableCardinality) -> i32 {
        self.non_uniform(A_ITEM, constants.item, 1, scale.items)
    }

    /// Shuffles a slice.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        self.0.shuffle(things);
    }

    /// Draws an a-string: letters and digits, of a random length.
    pub fn letters(&mut self, out: &mut String, low: i32, high: i32) {
        const ALPHABET: &[u8; 62] =
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        self.draw(out, low, high, ALPHABET);
    }

    /// Draws an n-string: digits, of a random length.
    pub fn digits(&mut self, out: &mut String, low: i32, high: i32) {
        self.draw(out, low, high, b"0123456789");
    }

    /// Draws a zip code: four random digits and five ones (clause 4.3.2.7).
    pub fn zip(&mut self, out: &mut String) {
        self.digits(out, 4, 4);
        out.push_str("11111");
    }

    /// Draws an a-string of 26 to 50 characters; a tenth of them contain `ORIGINAL` (clause 4.3.3.1).
    pub fn data(&mut self, out: &mut String) {
        self.letters(out, 26, 50);
        if self.percent(10) {
            let at = self.0.usize(0..=out.len() - ORIGINAL.len());
            out.replace_range(at..at + ORIGINAL.len(), ORIGINAL);
        }
    }

    /// Draws four characters at a time, each from 16 bits. The bias of the remainder is negligible.
    fn draw(&mut self, out: &mut String, low: i32, high: i32, alphabet: &[u8]) {
        out.clear();
        let mut left = usize::try_from(self.within(low, high)).unwrap_or(0);
        let letters = alphabet.len() as u64;
        while left > 0 {
            let mut bits = self.0.u64(..);
            for _ in 0..left.min(4) {
                let at = ((bits & 0xffff) * letters) >> 16;
                out.push(char::from(alphabet[usize::try_from(at).unwrap_or(0)]));
                bits >>= 16;
            }
            left -= left.min(4);
        }
    }
}

/// Text in a tenth of the items and of the stock.
pub(crate) const ORIGINAL: &str = "ORIGINAL";

/// Returns the last name of a number from 0 to 999: three syllables (clause 4.3.2.3).
pub fn last_name(number: i32) -> &'static str {
    static NAMES_BY_NUMBER: LazyLock<Vec<String>> = LazyLock::new(|| {
        const SYLLABLES: [&str; 10] = [
            "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
        ];
        let syllable = |n: usize| SYLLABLES[n % 10];
        let name = |n: usize| [syllable(n / 100), syllable(n / 10), syllable(n)].concat();
        (0..NAMES.unsigned_abs() as usize).map(name).collect()
    });
    &NAMES_BY_NUMBER[usize::try_from(number).unwrap_or(0)]
}

fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_three_syllables() {
        // The examples of clause 4.3.2.3.
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn the_constants_of_a_run_keep_their_distance() {
        for seed in 0..500 {
            let load = NurandConstants::for_load(seed);
            let run = NurandConstants::for_run(load, seed + 1);
            let distance = (load.last - run.last).abs();
            assert!((65..=119).contains(&distance), "{distance}");
            assert!(distance != 96 && distance != 112, "{distance}");
            assert!((0..=255).contains(&run.last) && (0..=1023).contains(&run.customer));
            assert!((0..=8191).contains(&run.item));
        }
    }

    #[test]
    fn non_uniform_numbers_stay_within_and_are_not_uniform() {
        let mut random = Random::new(1, &[]);
        let mut counts = vec![0u32; 3001];
        const DRAWS: u32 = 300_000;
        for _ in 0..DRAWS {
            counts[usize::try_from(random.non_uniform(1023, 259, 1, 3000)).unwrap()] += 1;
        }
        assert_eq!(counts[0], 0);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let top: u32 = counts[..300].iter().sum();
        // With uniform draws, a tenth of the customers would get a tenth.
        assert!(top > DRAWS / 4, "{top}");
    }

    #[test]
    fn texts_have_the_length_and_the_letters() {
        let mut random = Random::new(7, &[]);
        let mut text = String::new();
        let (mut shortest, mut longest) = (usize::MAX, 0);
        for _ in 0..2000 {
            random.letters(&mut text, 8, 16);
            assert!(text.bytes().all(|b| b.is_ascii_alphanumeric()));
            shortest = shortest.min(text.len());
            longest = longest.max(text.len());
        }
        assert_eq!((shortest, longest), (8, 16));
        random.zip(&mut text);
        assert!(text.len() == 9 && text.ends_with("11111"), "{text}");
        assert!(text[..4].bytes().all(|b| b.is_ascii_digit()));
    }

    #[test]
    fn a_tenth_is_original() {
        let mut random = Random::new(9, &[]);
        let mut text = String::new();
        let mut original = 0;
        for _ in 0..20_000 {
            random.data(&mut text);
            assert!((26..=50).contains(&text.len()));
            original += i32::from(text.contains(ORIGINAL));
        }
        assert!((1900..=2100).contains(&original), "{original}");
    }

    #[test]
    fn a_place_has_its_own_numbers() {
        let draw = |place: &[u64]| Random::new(5, place).within(0, i32::MAX - 1);
        assert_eq!(draw(&[1, 2]), draw(&[1, 2]));
        assert_ne!(draw(&[1, 2]), draw(&[2, 1]));
        assert_ne!(draw(&[1]), draw(&[1, 0]));
    }
}
