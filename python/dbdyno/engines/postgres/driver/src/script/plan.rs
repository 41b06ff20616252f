//! The scripts of a load with the bytes of their statements. Shared by all sessions of a group.

use std::collections::HashSet;
use std::ops::Range;

use dyno_model::{Error, Result};
use dyno_script::{
    AUTOMATIC, Action, Command, Frame, MOST_COMMANDS, Names, Operand, Options, Prefixes, Rng, Slot, Sql,
    Value, read,
};

use crate::plan::Protocol;
use crate::script::spec::{ScriptSessionSpec, ScriptsSpec};
use crate::script::statement::Statement;

/// Orders of a group of sessions.
#[derive(Debug)]
pub(crate) struct Plan {
    pub scripts: ScriptsSpec,
    pub session: ScriptSessionSpec,
    pub names: Names,
    /// For each script: which of the commands are its.
    pub places: Vec<Range<usize>>,
    /// Commands of all scripts, one after another; jumps name their numbers.
    pub commands: Vec<Planned>,
    /// All statements, in the order of commands; the validation, if there is one, is the last.
    pub statements: Vec<Statement>,
    pub validation: Option<usize>,
    /// Weights, each with those before it.
    reach: Vec<u64>,
}

/// One command.
#[derive(Debug)]
pub(crate) struct Planned {
    pub command: Command,
    /// If it is a statement: which one.
    pub statement: usize,
    /// If it is a statement: whether its rows go into variables.
    pub wants_rows: bool,
}

/// Numbers of clients of all drivers: seeds are made of them.
const MOST_CLIENTS: u64 = 1 << 32;

impl Plan {
    /// Reads the scripts.
    ///
    /// # Errors
    /// [`Error::Spec`] with file, line, column and cure of a mistake.
    pub fn new(scripts: ScriptsSpec, session: ScriptSessionSpec) -> Result<Self> {
        if scripts.first_client > MOST_CLIENTS {
            let words = format!("first_client: clients are numbered from 0 to {MOST_CLIENTS}");
            return Err(Error::Spec(words));
        }
        let mut names = Names::default();
        for name in AUTOMATIC
            .into_iter()
            .chain(scripts.variables.keys().map(String::as_str))
        {
            names.slot(name);
        }
        let options = Options {
            protocol_simple: session.protocol == Protocol::Simple,
            allow_shell: scripts.allow_shell,
        };
        let mut plan = Self {
            reach: reach(&scripts)?,
            scripts,
            session,
            names,
            places: Vec::new(),
            commands: Vec::new(),
            statements: Vec::new(),
            validation: None,
        };
        for file in &plan.scripts.files {
            let script = read(&file.name, &file.text, &options, &mut plan.names);
            let script = script.map_err(|e| Error::Spec(e.to_string()))?;
            let first = plan.commands.len();
            for command in script.commands {
                let planned = Planned::new(command, first, plan.session.protocol, &mut plan.statements)?;
                plan.commands.push(planned);
            }
            plan.places.push(first..plan.commands.len());
            if plan.commands.len() > MOST_COMMANDS {
                return Err(Error::Spec(format!(
                    "the scripts have more than {MOST_COMMANDS} commands in all: use fewer or shorter ones"
                )));
            }
        }
        plan.bind();
        plan.add_validation()?;
        Ok(plan)
    }

    /// Computes in advance what depends only on variables that never change.
    fn bind(&mut self) {
        let frame = self.frame(0);
        let mut changing: HashSet<Slot> = self.names.find("client_id").into_iter().collect();
        let mut prefixes = Vec::new();
        for planned in &self.commands {
            match &planned.command.action {
                Action::Set(slot, _) | Action::Shell(Some(slot), _) => drop(changing.insert(*slot)),
                // Whatever its columns are called.
                Action::Sql(sql) if planned.wants_rows => prefixes.push(sql.into.prefix().to_owned()),
                _ => {}
            }
        }
        changing.extend(self.names.beginning(&Prefixes::new(prefixes)));
        for planned in &mut self.commands {
            if let Action::Set(_, program) | Action::Unless(program, _) = &mut planned.command.action {
                program.bind(|slot| frame.get(slot).filter(|_| !changing.contains(&slot)).cloned());
            }
        }
    }

    fn add_validation(&mut self) -> Result<()> {
        let Some(text) = &self.session.validation else {
            return Ok(());
        };
        let sql = Sql {
            pieces: vec![Operand::Text(text.clone())],
            start: 0,
            into: dyno_script::Into::Nothing,
            statements: 1,
        };
        let number = self.statements.len();
        self.statements
            .push(Statement::new(self.session.protocol, number, &sql)?);
        self.validation = Some(number);
        Ok(())
    }

    /// Variables and generator of a session at its start.
    pub fn frame(&self, session: usize) -> Frame {
        let client = self.scripts.first_client + session as u64;
        let mut frame = Frame::new(&self.names, Rng::seeded(self.scripts.seed, 2 * client + 1));
        // One for all sessions: hash functions and permute() are to agree.
        let default_seed = Rng::seeded(self.scripts.seed, u64::MAX).bits();
        let automatic = [client, self.scripts.seed, default_seed, 1];
        for (name, value) in AUTOMATIC.into_iter().zip(automatic) {
            set(&self.names, &mut frame, name, Value::Int(value as i64));
        }
        for (name, text) in &self.scripts.variables {
            set(&self.names, &mut frame, name, given(text));
        }
        frame
    }

    /// The random generator that chooses a session's scripts. It is separate from that of its variables, which is set back
    /// when a transaction is tried again.
    pub fn chooser(&self, session: usize) -> Rng {
        let client = self.scripts.first_client + session as u64;
        Rng::seeded(self.scripts.seed, 2 * client)
    }

    /// The next script, by weight.
    #[inline]
    pub fn choose(&self, rng: &mut Rng) -> usize {
        if let [_] = self.reach[..] {
            return 0;
        }
        let drawn = rng.up_to(self.reach[self.reach.len() - 1] - 1);
        self.reach.partition_point(|&reach| reach <= drawn)
    }
}

fn set(names: &Names, frame: &mut Frame, name: &str, value: Value) {
    if let Some(slot) = names.find(name) {
        frame.set(slot, value);
    }
}

/// A number at once, if its text is a number's own.
fn given(text: &str) -> Value {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => Value::Int(number),
        _ => Value::Text(text.into()),
    }
}

fn reach(scripts: &ScriptsSpec) -> Result<Vec<u64>> {
    let mut sum: u64 = 0;
    let each = scripts.files.iter().map(|file| {
        sum = sum.saturating_add(file.weight);
        sum
    });
    let all: Vec<u64> = each.collect();
    match sum {
        0 => Err(Error::Spec(
            "no script would ever run: give a script a weight of 1 or more".to_owned(),
        )),
        _ => Ok(all),
    }
}

impl Planned {
    /// A command of the script whose first command has this number; adds its statement to all.
    fn new(mut command: Command, first: usize, protocol: Protocol, all: &mut Vec<Statement>) -> Result<Self> {
        let (statement, mut wants_rows) = (all.len(), false);
        match &mut command.action {
            Action::Sql(sql) => {
                wants_rows = sql.into != dyno_script::Into::Nothing;
                all.push(Statement::new(protocol, statement, sql)?);
            }
            Action::Unless(_, to) | Action::Jump(to) => *to += first,
            _ => {}
        }
        Ok(Self {
            command,
            statement,
            wants_rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(scripts: serde_json::Value) -> Result<Plan> {
        let session = serde_json::from_str("{}").unwrap();
        Plan::new(serde_json::from_value(scripts).unwrap(), session)
    }

    #[test]
    fn scripts_are_chosen_by_weight_and_weight_0_never() {
        let file =
            |name: &str, weight: u64| serde_json::json!({"name": name, "text": "select 1", "weight": weight});
        let scripts = serde_json::json!({"files": [file("a", 0), file("b", 3), file("c", 1)], "seed": 5});
        let plan = plan(scripts).unwrap();
        let (mut rng, mut chosen) = (plan.chooser(0), [0_i32; 3]);
        for _ in 0..40_000 {
            chosen[plan.choose(&mut rng)] += 1;
        }
        assert_eq!(chosen[0], 0);
        // Six standard deviations of a binomial count: sqrt(40000 * 3/4 * 1/4) = 87.
        assert!((chosen[1] - 30_000).abs() < 520, "{chosen:?}");
    }

    #[test]
    fn what_is_given_comes_before_what_is_automatic() {
        let file = serde_json::json!({"name": "a", "text": "select :client_id, :scale, :x"});
        let scripts = serde_json::json!({"files": [file], "first_client": 3, "variables": {"scale": "100", "x": "007"}});
        let plan = plan(scripts).unwrap();
        let frame = plan.frame(2);
        let value = |name: &str| frame.get(plan.names.find(name).unwrap()).cloned();
        assert_eq!(value("client_id"), Some(Value::Int(5)));
        assert_eq!(value("scale"), Some(Value::Int(100)));
        assert_eq!(value("x"), Some(Value::Text("007".into())));
    }

    /// Returns the value of `\\set x :NAME` if the variable has become 99 meanwhile.
    fn seen(before: &str, name: &str) -> Value {
        let file = serde_json::json!({"name": "a", "text": format!("{before}\n\\set x :{name}")});
        let plan = plan(serde_json::json!({"files": [file], "variables": {"p_a": "1", "q": "1"}})).unwrap();
        let mut frame = plan.frame(0);
        frame.set(plan.names.find(name).unwrap(), Value::Int(99));
        match &plan.commands.last().unwrap().command.action {
            Action::Set(_, program) => program.eval(&mut frame, &plan.names).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_a_variable_that_nothing_changes_is_taken_for_constant() {
        assert_eq!(seen("select 1;", "q"), Value::Int(1));
        assert_eq!(seen("select 1 as a \\gset p_", "q"), Value::Int(1));
        let changed = ["\\set q 99", "select 1 \\gset", "select 2 as q \\aset"];
        for before in changed {
            assert_eq!(seen(before, "q"), Value::Int(99), "{before}");
        }
        assert_eq!(seen("select 1 as a \\gset p_", "p_a"), Value::Int(99));
        assert_eq!(seen("select 1;", "client_id"), Value::Int(99));
    }

    #[test]
    fn a_mistake_is_a_wrong_specification_with_its_place() {
        let file = serde_json::json!({"name": "a.sql", "text": "select 1;\n\\nothing"});
        let Err(Error::Spec(words)) = plan(serde_json::json!({"files": [file]})) else {
            panic!("not refused")
        };
        assert!(words.starts_with("a.sql:2:"), "{words}");
        let none = plan(serde_json::json!({"files": []}));
        assert!(matches!(none, Err(Error::Spec(words)) if words.contains("weight")));
    }
}
