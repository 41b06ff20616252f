//! Random numbers: xoroshiro128** (Blackman and Vigna 2018), and the distributions of pgbench's manual.

use std::f64::consts::TAU;

/// A session's generator.
#[derive(Clone, Debug)]
pub struct Rng(u64, u64);

impl Rng {
    /// The generator of one stream: streams of one seed are independent of each other.
    pub fn seeded(seed: u64, stream: u64) -> Self {
        let mut state = seed;
        let mut mixed = split_mix(&mut state) ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Self(split_mix(&mut mixed), split_mix(&mut mixed))
    }

    /// As PostgreSQL seeds its generator: for `permute()`, whose results must be pgbench's.
    pub(crate) fn plain(mut seed: u64) -> Self {
        Self(split_mix(&mut seed), split_mix(&mut seed))
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let result = self.0.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let mixed = self.1 ^ self.0;
        self.0 = self.0.rotate_left(24) ^ mixed ^ (mixed << 16);
        self.1 = mixed.rotate_left(37);
        result
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in 0..=`most`, without bias (Lemire 2019).
    #[inline]
    pub fn up_to(&mut self, most: u64) -> u64 {
        let Some(range) = most.checked_add(1) else {
            return self.bits();
        };
        let mut product = u128::from(self.bits()) * u128::from(range);
        if (product as u64) < range {
            let threshold = range.wrapping_neg() % range;
            while (product as u64) < threshold {
                product = u128::from(self.bits()) * u128::from(range);
            }
        }
        (product >> 64) as u64
    }

    /// Uniform in 0..=`most`, by the highest bits that suffice, as PostgreSQL draws.
    pub(crate) fn by_bits(&mut self, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        loop {
            let drawn = self.bits() >> most.leading_zeros();
            if drawn <= most {
                return drawn;
            }
        }
    }

    /// Exponential, cut at `parameter` and scaled to [0, 1).
    pub(crate) fn exponential(&mut self, parameter: f64) -> f64 {
        let cut = (-parameter).exp();
        let uniform = 1.0 - self.unit();
        -(cut + (1.0 - cut) * uniform).ln() / parameter
    }

    /// Normal, cut at `parameter` standard deviations on both sides and scaled to [0, 1).
    pub(crate) fn gaussian(&mut self, parameter: f64) -> f64 {
        loop {
            let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
            let deviation = radius * (TAU * self.unit()).sin();
            if (-parameter..parameter).contains(&deviation) {
                return (deviation + parameter) / (2.0 * parameter);
            }
        }
    }

    /// Zipfian in 1..=`n`, by rejection (Devroye 1986, X.6.1).
    pub(crate) fn zipfian(&mut self, most: u64, parameter: f64) -> u64 {
        let power = parameter - 1.0;
        let scale = power.exp2();
        loop {
            let (first, second) = (1.0 - self.unit(), self.unit());
            let drawn = first.powf(-1.0 / power).floor();
            let ratio = (1.0 + 1.0 / drawn).powf(power);
            if drawn <= most as f64 && second * drawn * (ratio - 1.0) / (scale - 1.0) <= ratio / scale {
                return drawn as u64;
            }
        }
    }
}

/// Splitmix64 (Steele and others 2014), which makes seeds.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
