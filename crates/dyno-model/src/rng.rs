//! A small generator of random numbers, for sampling instants and arrivals: `SplitMix64` (Steele, Lea, Flood 2014, "Fast splittable
//! pseudorandom number generators", figure 17).

/// The generator; its whole state is one number.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The same seed gives the same sequence.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_sequence() {
        // Of the reference program splitmix64.c (Vigna 2015) with x = 1234567, as quoted on Rosetta Code.
        let mut rng = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn unit_stays_below_one_and_fills_the_interval() {
        let mut rng = SplitMix64::new(7);
        let values: Vec<f64> = (0..10_000).map(|_| rng.unit()).collect();
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
        for tenth in 0..10 {
            let n = values.iter().filter(|v| (**v * 10.0) as i32 == tenth).count();
            assert!((850..1150).contains(&n), "{n} of 10000 in tenth {tenth}");
        }
    }
}
