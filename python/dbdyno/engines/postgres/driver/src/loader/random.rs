//! Random numbers by what they are for: each depends on the seed, a stream and a key alone, so any worker can
//! make any row.

/// The next state's distance (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers of one key.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(stream: u64, key: i64) -> Self {
        Self(mixed(stream ^ mixed((key as u64).wrapping_mul(STEP))))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// From `low` to `high`, both included. The bias of the multiplication is below 2^-32 up to 2^32 values.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = (i128::from(high) - i128::from(low) + 1).max(1) as u128;
        low.wrapping_add(((u128::from(self.next()) * span) >> 64) as i64)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A stream by its name (FNV-1a over it, mixed with the seed).
pub fn stream(seed: u64, name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    mixed(hash ^ mixed(seed.wrapping_add(STEP)))
}

fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Zipf's law over 1..=n, by rejection-inversion (Hörmann, Derflinger: "Rejection-inversion to generate variates
/// from monotone discrete distributions", 1996).
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    n: f64,
    exponent: f64,
    first: f64,
    last: f64,
    surely: f64,
}

impl Zipf {
    pub fn new(n: i64, exponent: f64) -> Self {
        let n = n as f64;
        let mut zipf = Self {
            n,
            exponent,
            first: 0.0,
            last: 0.0,
            surely: 0.0,
        };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(n + 0.5);
        zipf.surely = 2.0 - zipf.inverse(zipf.integral(2.5) - 2.0_f64.powf(-exponent));
        zipf
    }

    pub fn draw(&self, random: &mut Random) -> i64 {
        loop {
            let u = self.last + random.unit() * (self.first - self.last);
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.surely || u >= self.integral(k + 0.5) - k.powf(-self.exponent) {
                return k as i64;
            }
        }
    }

    /// Integral of x^-exponent.
    fn integral(&self, x: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if rest.abs() < 1e-9 {
            x.ln()
        } else {
            (x.powf(rest) - 1.0) / rest
        }
    }

    fn inverse(&self, y: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if rest.abs() < 1e-9 {
            y.exp()
        } else {
            (1.0 + y * rest).max(0.0).powf(1.0 / rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform_and_repeat() {
        let mut counts = [0_u32; 10];
        for key in 0..100_000 {
            let value = Random::new(stream(1, "t.a"), key).between(-4, 5);
            assert_eq!(value, Random::new(stream(1, "t.a"), key).between(-4, 5));
            counts[(value + 4) as usize] += 1;
        }
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 33.7, "{chi}"); // 9 degrees of freedom, p = 1e-4
    }

    #[test]
    fn zipf_follows_its_law() {
        for exponent in [0.8, 1.0, 1.5] {
            let zipf = Zipf::new(8, exponent);
            let mut counts = [0.0; 8];
            for key in 0..100_000 {
                counts[zipf.draw(&mut Random::new(stream(2, "z"), key)) as usize - 1] += 1.0;
            }
            let weights: Vec<f64> = (1..=8).map(|k| f64::from(k).powf(-exponent)).collect();
            let all: f64 = weights.iter().sum();
            let chi = |(c, w): (&f64, &f64)| (c - 1e5 * w / all).powi(2) / (1e5 * w / all);
            let chi: f64 = counts.iter().zip(&weights).map(chi).sum();
            assert!(chi < 29.9, "{exponent}: {chi}"); // 7 degrees of freedom, p = 1e-4
        }
    }
}
