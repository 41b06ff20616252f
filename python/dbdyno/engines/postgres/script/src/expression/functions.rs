//! Operators and functions of expressions (PostgreSQL documentation 18, tables 292 and 293).

use super::scalar::Scalar::{self, Bool, Double, Int, Null};
use crate::Rng;

/// Operators and functions, binary operators of numbers first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Not,
    IsNull,
    IsTrue,
    IsFalse,
    Abs,
    Debug,
    ToDouble,
    ToInt,
    Exp,
    Ln,
    Sqrt,
    Pi,
    Power,
    Greatest,
    Least,
    Fnv1a,
    Murmur2,
    Permute,
    Random,
    Exponential,
    Gaussian,
    Zipfian,
}

use Function as F;

/// A function's name, what it is, and how many arguments it takes.
pub(crate) const NAMED: [(&str, Function, usize, usize); 21] = [
    ("abs", F::Abs, 1, 1),
    ("debug", F::Debug, 1, 1),
    ("double", F::ToDouble, 1, 1),
    ("exp", F::Exp, 1, 1),
    ("greatest", F::Greatest, 1, 1000),
    ("hash", F::Murmur2, 1, 2),
    ("hash_fnv1a", F::Fnv1a, 1, 2),
    ("hash_murmur2", F::Murmur2, 1, 2),
    ("int", F::ToInt, 1, 1),
    ("least", F::Least, 1, 1000),
    ("ln", F::Ln, 1, 1),
    ("mod", F::Modulo, 2, 2),
    ("permute", F::Permute, 2, 3),
    ("pi", F::Pi, 0, 0),
    ("pow", F::Power, 2, 2),
    ("power", F::Power, 2, 2),
    ("random", F::Random, 2, 2),
    ("random_exponential", F::Exponential, 3, 3),
    ("random_gaussian", F::Gaussian, 3, 3),
    ("random_zipfian", F::Zipfian, 3, 3),
    ("sqrt", F::Sqrt, 1, 1),
];

impl Function {
    /// Whether the same arguments always give the same result, and nothing else happens.
    pub(crate) fn is_pure(self) -> bool {
        !matches!(
            self,
            F::Debug | F::Random | F::Exponential | F::Gaussian | F::Zipfian
        )
    }

    /// Its result; the error is the message.
    #[inline]
    pub(crate) fn apply(self, values: &[Scalar], rng: &mut Rng) -> Result<Scalar, String> {
        if let [Int(left), Int(right)] = *values {
            match self {
                F::Random => return random(left, right, rng),
                _ if self.takes_ints() => return self.of_ints(left, right),
                _ => {}
            }
        }
        match (self, values) {
            (F::IsNull, [value]) => return Ok(Bool(*value == Null)),
            (F::IsTrue, [value]) => return Ok(Bool(*value == Bool(true))),
            (F::IsFalse, [value]) => return Ok(Bool(*value == Bool(false))),
            (F::Debug, [value]) => return Ok(*value),
            _ if values.contains(&Null) => return Ok(Null),
            (F::Random, [low, high]) => return random(low.int()?, high.int()?, rng),
            _ => {}
        }
        match *values {
            [] => Ok(Double(std::f64::consts::PI)),
            [value] if !matches!(self, F::Greatest | F::Least) => self.of_one(value),
            [left, right] if self.is_operator() => self.of_two(left, right),
            _ => self.of_more(values, rng),
        }
    }

    /// Whether it is an operator that makes of two integers what [`Function::of_ints`] does.
    fn takes_ints(self) -> bool {
        (self as u8) <= F::ShiftRight as u8
    }

    fn is_operator(self) -> bool {
        !matches!(self, F::Greatest | F::Least | F::Fnv1a | F::Murmur2 | F::Permute)
    }

    fn of_one(self, value: Scalar) -> Result<Scalar, String> {
        Ok(match (self, value) {
            (F::Not, value) => Bool(!value.bool()?),
            (F::Abs, Int(value)) => Int(value.wrapping_abs()),
            (F::Abs, value) => Double(value.double()?.abs()),
            (F::ToInt, value) => Int(value.int()?),
            (F::Exp, value) => Double(value.double()?.exp()),
            (F::Ln, value) => Double(value.double()?.ln()),
            (F::Sqrt, value) => Double(value.double()?.sqrt()),
            (_, value) => Double(value.double()?),
        })
    }

    fn of_two(self, left: Scalar, right: Scalar) -> Result<Scalar, String> {
        match self {
            F::Power => Ok(Double(left.double()?.powf(right.double()?))),
            F::Modulo | F::BitAnd | F::BitOr | F::BitXor | F::ShiftLeft | F::ShiftRight => {
                self.of_ints(left.int()?, right.int()?)
            }
            _ if matches!(left, Double(_)) || matches!(right, Double(_)) => {
                Ok(self.of_doubles(left.double()?, right.double()?))
            }
            _ => self.of_ints(left.int()?, right.int()?),
        }
    }

    fn of_doubles(self, left: f64, right: f64) -> Scalar {
        match self {
            F::Add => Double(left + right),
            F::Subtract => Double(left - right),
            F::Multiply => Double(left * right),
            F::Divide => Double(left / right),
            _ => Bool(self.compares(&left, &right)),
        }
    }

    #[inline]
    fn of_ints(self, left: i64, right: i64) -> Result<Scalar, String> {
        let checked = |result: Option<i64>, what| result.map(Int).ok_or_else(|| overflow(what));
        match self {
            F::Add => checked(left.checked_add(right), "+"),
            F::Subtract => checked(left.checked_sub(right), "-"),
            F::Multiply => checked(left.checked_mul(right), "*"),
            F::Divide | F::Modulo if right == 0 => Err("division by zero".into()),
            F::Divide => checked(left.checked_div(right), "/"),
            F::Modulo => Ok(Int(left.wrapping_rem(right))),
            F::BitAnd => Ok(Int(left & right)),
            F::BitOr => Ok(Int(left | right)),
            F::BitXor => Ok(Int(left ^ right)),
            F::ShiftLeft => Ok(Int(left.wrapping_shl(right as u32))),
            F::ShiftRight => Ok(Int(left.wrapping_shr(right as u32))),
            _ => Ok(Bool(self.compares(&left, &right))),
        }
    }

    fn compares<T: PartialOrd>(self, left: &T, right: &T) -> bool {
        match self {
            F::Equal => left == right,
            F::Unequal => left != right,
            F::Less => left < right,
            F::LessEqual => left <= right,
            F::Greater => left > right,
            _ => left >= right,
        }
    }

    fn of_more(self, values: &[Scalar], rng: &mut Rng) -> Result<Scalar, String> {
        let place = |i: usize| values[i].int();
        match self {
            F::Greatest | F::Least => self.extreme(values),
            F::Fnv1a => Ok(Int(fnv1a(place(0)? as u64, place(1)? as u64) as i64)),
            F::Murmur2 => Ok(Int(murmur2(place(0)? as u64, place(1)? as u64) as i64)),
            F::Permute => permute(place(0)?, place(1)?, place(2)? as u64),
            _ => self.distributed(place(0)?, place(1)?, values[2].double()?, rng),
        }
    }

    /// Beside a number that is none (NaN), the later one, as in pgbench.
    fn extreme(self, values: &[Scalar]) -> Result<Scalar, String> {
        let sign = if self == F::Greatest { F::Greater } else { F::Less };
        if values.iter().any(|value| matches!(value, Double(_))) {
            let mut best = values[0].double()?;
            for value in &values[1..] {
                let value = value.double()?;
                best = if sign.compares(&best, &value) { best } else { value };
            }
            return Ok(Double(best));
        }
        let mut best = values[0].int()?;
        for value in &values[1..] {
            let value = value.int()?;
            best = if sign.compares(&best, &value) { best } else { value };
        }
        Ok(Int(best))
    }

    fn distributed(self, low: i64, high: i64, parameter: f64, rng: &mut Rng) -> Result<Scalar, String> {
        let most = range(low, high)?;
        let share = match self {
            F::Exponential if parameter > 0.0 => rng.exponential(parameter),
            F::Exponential => return Err(format!("the parameter must be greater than 0, not {parameter}")),
            F::Gaussian if parameter >= 2.0 => rng.gaussian(parameter),
            F::Gaussian => return Err(format!("the parameter must be at least 2, not {parameter}")),
            _ if (1.001..=1000.0).contains(&parameter) => {
                return Ok(Int(
                    low.wrapping_add((rng.zipfian(most + 1, parameter) - 1) as i64)
                ));
            }
            _ => {
                return Err(format!(
                    "the parameter must be from 1.001 to 1000, not {parameter}"
                ));
            }
        };
        let drawn = ((most + 1) as f64 * share) as u64;
        Ok(Int(low.wrapping_add(drawn.min(most) as i64)))
    }
}

fn overflow(operator: &str) -> String {
    format!("the result of {operator} is too large for 64 bits")
}

#[inline]
fn random(low: i64, high: i64, rng: &mut Rng) -> Result<Scalar, String> {
    Ok(Int(low.wrapping_add(rng.up_to(range(low, high)?) as i64)))
}

/// The largest distance from `low`.
#[inline]
pub(super) fn range(low: i64, high: i64) -> Result<u64, String> {
    match high.checked_sub(low) {
        _ if low > high => Err(format!("the range from {low} to {high} is empty")),
        Some(most) if most < i64::MAX => Ok(most as u64),
        _ => Err(format!(
            "the range from {low} to {high} is too large: it needs more than 63 bits"
        )),
    }
}

/// FNV-1a of the eight bytes, with a seed mixed into the basis.
fn fnv1a(value: u64, seed: u64) -> u64 {
    let basis = 0xcbf2_9ce4_8422_2325 ^ seed;
    value.to_le_bytes().iter().fold(basis, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// `MurmurHash64A` (Appleby 2008) of the eight bytes.
fn murmur2(value: u64, seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |word: u64| word ^ (word >> 47);
    let block = mix(value.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    let hash = (seed ^ MULTIPLIER.wrapping_mul(8) ^ block).wrapping_mul(MULTIPLIER);
    mix(mix(hash).wrapping_mul(MULTIPLIER))
}

/// A permutation of 0..size: six rounds, each of which scatters the lower and the upper part that a power of two
/// covers, and turns the whole by a random offset. The results are pgbench's.
fn permute(value: i64, size: i64, seed: u64) -> Result<Scalar, String> {
    if size <= 0 {
        return Err(format!(
            "the size of a permutation must be greater than 0, not {size}"
        ));
    }
    if size == 1 {
        return Ok(Int(0));
    }
    let (most, bits) = (size as u64 - 1, size.ilog2());
    let mut rng = Rng::plain(seed);
    let mut place = value as u64 % size as u64;
    for _ in 0..6 {
        place = scatter(place, bits, &mut rng);
        place = most - scatter(most - place, bits, &mut rng);
        place = (place + rng.by_bits(most)) % (most + 1);
    }
    Ok(Int(place as i64))
}

/// One-to-one among numbers of so many bits: times an odd number, bits turned over, rotated by one.
fn scatter(place: u64, bits: u32, rng: &mut Rng) -> u64 {
    let mask = (1 << bits) - 1;
    let odd = (rng.bits() & mask) | 1;
    let turned = rng.bits() & mask;
    if place > mask {
        return place;
    }
    let mixed = (place.wrapping_mul(odd) ^ turned) & mask;
    ((mixed << 1) & mask) | (mixed >> (bits - 1))
}
