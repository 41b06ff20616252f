//! Symbols of the kernel and of its modules: /proc/kallsyms. Pure: text to values.

/// Symbols by address.
#[derive(Debug, Default)]
pub struct Kallsyms {
    /// (address, name, module), by address.
    symbols: Vec<(u64, String, Option<String>)>,
    /// Begin of the kernel, from which its addresses are counted, as they differ with each boot.
    text: u64,
}

/// A function of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelSymbol<'k> {
    /// Name.
    pub name: &'k str,
    /// Its module, or None for the kernel itself.
    pub module: Option<&'k str>,
    /// Offset from the begin of the kernel, in a module from the begin of the function.
    pub offset: u64,
}

impl Kallsyms {
    /// Returns the symbols of a text, or None if it has none, or hides the addresses (all are 0).
    pub fn parse(text: &str) -> Option<Self> {
        let mut symbols: Vec<_> = text.lines().filter_map(line).collect();
        if symbols.is_empty() {
            return None;
        }
        let text = symbols
            .iter()
            .find(|(_, name, _)| name == "_stext" || name == "_text");
        let text = text.map_or(0, |(address, ..)| *address);
        symbols.sort_by_key(|(address, ..)| *address);
        symbols.dedup_by_key(|(address, ..)| *address); // of several names the first
        Some(Self { symbols, text })
    }

    /// Returns the function that `address` is in.
    pub fn find(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let after = self.symbols.partition_point(|(start, ..)| *start <= address);
        let (start, name, module) = self.symbols.get(after.checked_sub(1)?)?;
        let origin = if module.is_some() { *start } else { self.text };
        Some(KernelSymbol {
            name,
            module: module.as_deref(),
            offset: address.saturating_sub(origin),
        })
    }
}

/// `ffffffff81000000 T _stext` or `ffffffffc0001000 t ext4_read [ext4]`: functions only.
fn line(line: &str) -> Option<(u64, String, Option<String>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next()?;
    let name = words.next()?;
    let module = words.next().map(|m| m.trim_matches(['[', ']']).to_owned());
    let function = matches!(kind, "T" | "t" | "W" | "w");
    (address != 0 && function).then(|| (address, name.to_owned(), module))
}
