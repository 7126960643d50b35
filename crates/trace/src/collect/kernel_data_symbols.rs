//! Names of the kernel's static data, from `/proc/kallsyms`. A static lock has a name, a lock in
//! allocated memory has none. The parser is pure.

/// Named data of the kernel, by address.
#[derive(Debug, Default)]
pub struct KernelDataSymbols {
    symbols: Vec<(u64, String)>,
    start: u64,
    end: u64,
}

impl KernelDataSymbols {
    /// Parses the list. Without addresses (`kernel.kptr_restrict`) the result is empty.
    pub fn parse(kallsyms: &str) -> KernelDataSymbols {
        let mut statics = KernelDataSymbols::default();
        for line in kallsyms.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };
            match name {
                "_sdata" => statics.start = address,
                "_end" => statics.end = address,
                _ => {}
            }
            // Data and zeroed data of the kernel itself; a module's symbols have a fourth word.
            let is_data = matches!(kind, "d" | "D" | "b" | "B");
            if is_data && address != 0 && words.next().is_none() {
                statics.symbols.push((address, name.to_owned()));
            }
        }
        statics.symbols.sort();
        statics
    }

    /// Returns the name of an address, with the offset if it is within an object.
    pub fn name(&self, address: u64) -> Option<String> {
        if !(self.start..self.end).contains(&address) {
            return None;
        }
        let after = self.symbols.partition_point(|(at, _)| *at <= address);
        let at = self.symbols[..after].last()?.0;
        // Take the first of several names of an address.
        let first = self.symbols.partition_point(|(a, _)| *a < at);
        let name = &self.symbols[first].1;
        Some(match address - at {
            0 => name.clone(),
            distance => format!("{name}+{distance:#x}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn static_locks_have_names() {
        let statics = KernelDataSymbols::parse(
            "1000 T code\n2000 D _sdata\n2000 D first\n2040 d tasklist_lock\n\
             3000 b other\t[module]\n4000 B _end\n",
        );
        assert_eq!(statics.name(0x2040).as_deref(), Some("tasklist_lock"));
        assert_eq!(statics.name(0x2048).as_deref(), Some("tasklist_lock+0x8"));
        assert_eq!(statics.name(0x1000), None);
        assert_eq!(statics.name(0xffff_8880_0000_0000), None);
        // Hidden addresses.
        assert_eq!(
            KernelDataSymbols::parse("0 D _sdata\n0 D lock\n0 B _end\n").name(0),
            None
        );
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*", address: u64) {
            let _ = KernelDataSymbols::parse(&text).name(address);
        }
    }
}
