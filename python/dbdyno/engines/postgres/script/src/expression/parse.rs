//! The grammar, by precedence (documentation 18, "pgbench Operators", lowest first), straight to a program.

use super::functions::{Function as F, NAMED};
use super::program::{Program, Step};
use super::scalar::Scalar;
use super::token::{Token, What, tokens};
use crate::Names;
use crate::error::Fault;

/// Expressions within expressions, at most.
const DEEPEST: usize = 200;

const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const IS: u8 = 4;
const COMPARE: u8 = 5;
const BITS: u8 = 6;
const SUM: u8 = 7;
const PRODUCT: u8 = 8;
const UNARY: u8 = 9;

const OPERATORS: [(&str, u8, F); 17] = [
    ("=", COMPARE, F::Equal),
    ("<>", COMPARE, F::Unequal),
    ("!=", COMPARE, F::Unequal),
    ("<", COMPARE, F::Less),
    ("<=", COMPARE, F::LessEqual),
    (">", COMPARE, F::Greater),
    (">=", COMPARE, F::GreaterEqual),
    ("|", BITS, F::BitOr),
    ("#", BITS, F::BitXor),
    ("&", BITS, F::BitAnd),
    ("<<", BITS, F::ShiftLeft),
    (">>", BITS, F::ShiftRight),
    ("+", SUM, F::Add),
    ("-", SUM, F::Subtract),
    ("*", PRODUCT, F::Multiply),
    ("/", PRODUCT, F::Divide),
    ("%", PRODUCT, F::Modulo),
];

/// The program of an expression that stands at this offset of the script.
pub(crate) fn compile(text: &str, at: usize, names: &mut Names) -> Result<Program, Fault> {
    let tokens = tokens(text, at)?;
    let mut parser = Parser {
        tokens,
        next: 0,
        names,
        program: Program::default(),
        depth: 0,
        nested: 0,
        fence: 0,
    };
    parser.expression(0)?;
    match parser.peek().clone() {
        Token { what: What::End, .. } => Ok(parser.program),
        other => Err(unexpected(&other)),
    }
}

struct Parser<'a> {
    tokens: Vec<Token>,
    next: usize,
    names: &'a mut Names,
    program: Program,
    /// Values on the stack at this point.
    depth: usize,
    nested: usize,
    /// Steps before this one are not folded: a jump leads here.
    fence: usize,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next]
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn accept(&mut self, what: &What) -> bool {
        let found = self.peek().what == *what;
        if found {
            self.take();
        }
        found
    }

    fn word(&mut self, word: &str) -> bool {
        self.accept(&What::Word(word.into()))
    }

    fn expect(&mut self, what: &What, cure: &str) -> Result<(), Fault> {
        if self.accept(what) {
            return Ok(());
        }
        Err(Fault::new(self.peek().at, unexpected_words(self.peek()), cure))
    }

    fn here(&self) -> u32 {
        self.program.steps.len() as u32
    }

    fn emit(&mut self, step: Step, at: usize) -> usize {
        match step {
            Step::Push(_) | Step::Load(_) => self.depth += 1,
            Step::Unless(_) | Step::Decided(..) => self.depth -= 1,
            _ => {}
        }
        self.program.depth = self.program.depth.max(self.depth);
        self.program.push(step, at as u32);
        self.program.steps.len() - 1
    }

    fn push(&mut self, value: Scalar, at: usize) {
        self.emit(Step::Push(value), at);
    }

    /// A jump that is known now leads to the next step.
    fn lead(&mut self, step: usize) {
        let here = self.here();
        self.fence = here as usize;
        match &mut self.program.steps[step] {
            Step::Unless(to) | Step::Jump(to) | Step::Decided(_, to) => *to = here,
            _ => {}
        }
    }

    /// A function of the topmost values.
    fn apply(&mut self, function: F, count: usize, at: usize) {
        self.program.apply(function, count as u16, at as u32, self.fence);
        self.depth = self.depth + 1 - count;
        self.program.depth = self.program.depth.max(self.depth);
    }

    /// An expression whose operators bind at least so strongly.
    fn expression(&mut self, least: u8) -> Result<(), Fault> {
        self.nested += 1;
        if self.nested > DEEPEST {
            let cure = "Split it into several \\set commands.";
            return Err(Fault::new(
                self.peek().at,
                format!("the expression is nested more than {DEEPEST} levels deep"),
                cure,
            ));
        }
        self.operand()?;
        let mut compared = false;
        loop {
            let Token { what, at } = self.peek().clone();
            compared = match &what {
                What::Word(word) if word == "or" && least <= OR => {
                    self.lazily(true, OR)?;
                    false
                }
                What::Word(word) if word == "and" && least <= AND => {
                    self.lazily(false, AND)?;
                    false
                }
                What::Word(word) if matches!(word.as_str(), "is" | "isnull" | "notnull") && least <= IS => {
                    self.test(at)?;
                    false
                }
                What::Sign(sign) => {
                    let Some(&(_, level, function)) = OPERATORS
                        .iter()
                        .find(|(known, level, _)| known == sign && *level >= least)
                    else {
                        break;
                    };
                    if level == COMPARE && compared {
                        let cure = "Join comparisons with AND: a < b AND b < c.";
                        return Err(Fault::new(at, "a comparison of a comparison", cure));
                    }
                    self.take();
                    self.expression(level + 1)?;
                    self.apply(function, 2, at);
                    level == COMPARE
                }
                _ => break,
            };
        }
        self.nested -= 1;
        Ok(())
    }

    /// AND, OR: the right side is evaluated where the left one does not decide.
    fn lazily(&mut self, or: bool, level: u8) -> Result<(), Fault> {
        let at = self.take().at;
        let decided = self.emit(Step::Decided(or, 0), at);
        self.expression(level + 1)?;
        self.emit(Step::Boolean, at);
        self.lead(decided);
        Ok(())
    }

    /// IS [NOT] NULL, TRUE, FALSE, ISNULL, NOTNULL.
    fn test(&mut self, at: usize) -> Result<(), Fault> {
        let (function, negated) = if self.word("isnull") {
            (F::IsNull, false)
        } else if self.word("notnull") {
            (F::IsNull, true)
        } else {
            self.take();
            let negated = self.word("not");
            let tests = [("null", F::IsNull), ("true", F::IsTrue), ("false", F::IsFalse)];
            let Some((_, function)) = tests.into_iter().find(|(word, _)| self.word(word)) else {
                let cure = "Write NULL, TRUE or FALSE behind IS or IS NOT.";
                return Err(Fault::new(self.peek().at, unexpected_words(self.peek()), cure));
            };
            (function, negated)
        };
        self.apply(function, 1, at);
        if negated {
            self.apply(F::Not, 1, at);
        }
        Ok(())
    }

    fn operand(&mut self) -> Result<(), Fault> {
        let token = self.take();
        let at = token.at;
        match &token.what {
            What::Int(value) => self.push(Scalar::Int(*value), at),
            What::Double(value) => self.push(Scalar::Double(*value), at),
            What::BeyondInt => {
                let message = "9223372036854775808 is too large for 64 bits";
                return Err(Fault::new(at, message, "Only -9223372036854775808 is a number."));
            }
            What::Variable(name) => {
                let slot = self.names.slot(name);
                self.emit(Step::Load(slot), at);
            }
            What::Sign("(") => {
                self.expression(0)?;
                self.expect(&What::Sign(")"), "Close the parenthesis with ).")?;
            }
            What::Sign("+") => self.expression(UNARY)?,
            What::Sign("-") if self.accept(&What::BeyondInt) => self.push(Scalar::Int(i64::MIN), at),
            What::Sign("-") => self.prefixed(0, F::Subtract, UNARY, at)?,
            What::Sign("~") => self.prefixed(-1, F::BitXor, BITS + 1, at)?,
            What::Word(word) => self.worded(word, &token)?,
            _ => return Err(unexpected(&token)),
        }
        Ok(())
    }

    /// Unary minus and ~, as operators of two values.
    fn prefixed(&mut self, left: i64, function: F, level: u8, at: usize) -> Result<(), Fault> {
        self.emit(Step::Push(Scalar::Int(left)), at);
        self.expression(level)?;
        self.apply(function, 2, at);
        Ok(())
    }

    fn worded(&mut self, word: &str, token: &Token) -> Result<(), Fault> {
        let value = match word {
            "null" => Scalar::Null,
            "true" => Scalar::Bool(true),
            "false" => Scalar::Bool(false),
            "not" => {
                self.expression(NOT)?;
                self.apply(F::Not, 1, token.at);
                return Ok(());
            }
            "case" => return self.case(token.at),
            _ if self.accept(&What::Sign("(")) => return self.call(word, token.at),
            _ => return Err(unexpected(token)),
        };
        self.emit(Step::Push(value), token.at);
        Ok(())
    }

    fn case(&mut self, at: usize) -> Result<(), Fault> {
        const CURE: &str = "Write CASE WHEN condition THEN value ... [ELSE value] END.";
        let when = || What::Word("when".into());
        self.expect(&when(), CURE)?;
        let mut ends = Vec::new();
        loop {
            self.expression(0)?;
            self.expect(&What::Word("then".into()), CURE)?;
            let unless = self.emit(Step::Unless(0), at);
            self.expression(0)?;
            ends.push(self.emit(Step::Jump(0), at));
            self.depth -= 1; // the other branches begin without this one's value
            self.lead(unless);
            if !self.accept(&when()) {
                break;
            }
        }
        if self.word("else") {
            self.expression(0)?;
        } else {
            self.emit(Step::Push(Scalar::Null), at);
        }
        self.expect(&What::Word("end".into()), CURE)?;
        for end in ends {
            self.lead(end);
        }
        Ok(())
    }

    fn call(&mut self, name: &str, at: usize) -> Result<(), Fault> {
        let Some(&(_, function, least, most)) = NAMED.iter().find(|(known, ..)| *known == name) else {
            let known = NAMED.map(|(name, ..)| name).join(", ");
            return Err(Fault::new(
                at,
                format!("unknown function {name}()"),
                format!("Functions are: {known}."),
            ));
        };
        let mut count = 0;
        if !self.accept(&What::Sign(")")) {
            loop {
                self.expression(0)?;
                count += 1;
                if !self.accept(&What::Sign(",")) {
                    break;
                }
            }
            self.expect(
                &What::Sign(")"),
                "Part arguments with commas; close the parenthesis with ).",
            )?;
        }
        if count < least || count > most {
            let wanted = if least == most {
                least.to_string()
            } else {
                format!("{least} to {most}")
            };
            let message = format!("{name}() has {count} arguments");
            return Err(Fault::new(at, message, format!("It takes {wanted}.")));
        }
        if matches!(function, F::Murmur2 | F::Fnv1a | F::Permute) && count < most {
            let seed = self.names.slot("default_seed");
            self.emit(Step::Load(seed), at);
            count = most;
        }
        self.apply(function, count, at);
        Ok(())
    }
}

fn unexpected_words(token: &Token) -> String {
    match &token.what {
        What::End => "the expression ends too early".into(),
        What::Sign(sign) => format!("unexpected {sign}"),
        What::Word(word) => format!("unexpected {word}"),
        What::Variable(name) => format!("unexpected :{name}"),
        What::Int(_) | What::BeyondInt | What::Double(_) => "unexpected number".into(),
    }
}

fn unexpected(token: &Token) -> Fault {
    let cure = match &token.what {
        What::Word(word) if NAMED.iter().any(|(known, ..)| known == word) => {
            "Write its arguments in parentheses."
        }
        What::Word(_) => "Write a colon before the name of a variable.",
        What::End => "Write a value behind the operator.",
        _ => "An operator and a value must follow each other.",
    };
    Fault::new(token.at, unexpected_words(token), cure)
}
