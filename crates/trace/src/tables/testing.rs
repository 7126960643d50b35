//! Small handmade traces for tests.

use std::collections::HashMap;

use crate::model::{
    CpuMode, Stack, StackSample, Symbol, Trace, TracedHost, TracedProcess, TracedTarget,
};

pub(crate) fn kernel(name: &str) -> Symbol {
    Symbol {
        name: name.to_owned(),
        module: "[kernel]".to_owned(),
        kernel: true,
        unnamed: false,
    }
}

pub(crate) fn user(name: &str) -> Symbol {
    Symbol {
        name: name.to_owned(),
        module: "/usr/bin/mover".to_owned(),
        kernel: false,
        unnamed: false,
    }
}

pub(crate) struct Maker {
    pub(crate) trace: Trace,
    symbols: HashMap<Symbol, u32>,
}

impl Maker {
    pub(crate) fn new() -> Maker {
        let trace = Trace {
            seconds: 10.0,
            samples_a_second: 100.0,
            host: TracedHost {
                cpus: 2,
                ..TracedHost::default()
            },
            target: Some(TracedTarget::default()),
            ..Trace::default()
        };
        Maker {
            trace,
            symbols: HashMap::new(),
        }
    }

    pub(crate) fn process(&mut self, pid: u32, name: &str, in_target: bool) -> u32 {
        self.trace.processes.push(TracedProcess {
            pid,
            name: name.to_owned(),
            in_target,
            ..TracedProcess::default()
        });
        u32::try_from(self.trace.processes.len() - 1).unwrap()
    }

    pub(crate) fn symbol(&mut self, symbol: &Symbol) -> u32 {
        let next = u32::try_from(self.trace.symbols.len()).unwrap();
        let place = *self.symbols.entry(symbol.clone()).or_insert(next);
        if place == next {
            self.trace.symbols.push(symbol.clone());
        }
        place
    }

    pub(crate) fn stack(&mut self, symbols: &[Symbol]) -> u32 {
        let frames = symbols.iter().map(|s| self.symbol(s)).collect();
        self.trace.stacks.push(Stack { frames });
        u32::try_from(self.trace.stacks.len() - 1).unwrap()
    }

    pub(crate) fn sample(
        &mut self,
        process: u32,
        tid: u32,
        mode: CpuMode,
        symbols: &[Symbol],
        count: u64,
    ) {
        let stack = self.stack(symbols);
        self.trace.samples.push(StackSample {
            process,
            tid,
            stack,
            mode,
            count,
        });
    }

    pub(crate) fn build(self) -> Trace {
        self.trace
    }
}
