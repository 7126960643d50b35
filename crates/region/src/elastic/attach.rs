//! Handles that give an elastic to other processes.
//!
//! A handle comes from another process and is not trusted. Its text is derived again on this host
//! and must be identical. Every descriptor is checked, and the table is compared with both.

use hugeleaf_sys::{MemoryFile, MemorySyscalls, NodePolicy, Sharing, own_pid};
use hugeleaf_units::{Bytes, Ladder, PageSize};

use super::backing::{Backing, BackingPlan, pools_of};
use super::ledger::Ledger;
use super::{Elastic, ElasticError, ElasticOptions, plan};
use crate::error::MemoryError;
use crate::host_memory::HostMemory;
use crate::ladder_steps::LadderSteps;
use crate::shared_handle::{Handle, HandleLines, bad, held_in};

/// Version of the text format. Changes with the format or the meaning of the table.
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
struct ElasticDescription {
    ladder: Ladder,
    max: Bytes,
    granule: PageSize,
    nodes: NodePolicy,
}

impl ElasticDescription {
    /// Returns the text with the resolved rungs, which must be the same in all processes.
    fn text(&self, steps: &LadderSteps) -> String {
        let mut text = format!(
            "hugeleaf-elastic {VERSION}\nladder {}\nmax {}\ngranule {}\nnodes {}\n",
            self.ladder,
            self.max.get(),
            self.granule.bytes().get(),
            nodes_text(&self.nodes),
        );
        for step in &steps.list {
            let named = if step.named { "named" } else { "last" };
            let size = step.size.bytes().get();
            text.push_str(&format!("rung {} {size} {named}\n", step.kind));
        }
        text.push_str("end\n");
        text
    }

    /// Parses the first lines of the output of [`ElasticDescription::text`].
    fn parse(text: &str) -> Result<ElasticDescription, MemoryError> {
        let mut lines = HandleLines::parse(
            text,
            "hugeleaf-elastic",
            VERSION,
            "it is not the handle of an elastic",
        )?;
        let ladder = lines.word("ladder ")?.parse();
        let ladder = ladder.map_err(|e| bad(format!("{e}")))?;
        let max = Bytes(number(lines.word("max ")?)?);
        let granule = PageSize::new(Bytes(number(lines.word("granule ")?)?));
        let granule = granule.map_err(|e| bad(e.to_string()))?;
        let nodes = nodes_of(lines.word("nodes ")?)?;
        Ok(ElasticDescription {
            ladder,
            max,
            granule,
            nodes,
        })
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, MemoryError> {
    word.parse()
        .map_err(|_| bad(format!("'{word}' is not a number")))
}

fn nodes_text(nodes: &NodePolicy) -> String {
    let list = |nodes: &[u32]| {
        let words: Vec<String> = nodes.iter().map(u32::to_string).collect();
        words.join(",")
    };
    match nodes {
        NodePolicy::Inherit => "inherit".to_owned(),
        NodePolicy::Local => "local".to_owned(),
        NodePolicy::Bind(nodes) => format!("bind {}", list(nodes)),
        NodePolicy::Interleave(nodes) => format!("interleave {}", list(nodes)),
    }
}

fn nodes_of(text: &str) -> Result<NodePolicy, MemoryError> {
    let list =
        |words: &str| -> Result<Vec<u32>, MemoryError> { words.split(',').map(number).collect() };
    match text.split_once(' ') {
        None if text == "inherit" => Ok(NodePolicy::Inherit),
        None if text == "local" => Ok(NodePolicy::Local),
        Some(("bind", words)) => list(words).map(NodePolicy::Bind),
        Some(("interleave", words)) => list(words).map(NodePolicy::Interleave),
        _ => Err(bad(format!("'{text}' names no nodes"))),
    }
}

impl Elastic {
    /// Returns a handle for other processes.
    ///
    /// # Errors
    /// [`MemoryError::NotShared`]; [`ElasticError::Forked`]; EMFILE.
    pub fn handle(&self) -> Result<Handle, ElasticError> {
        self.check_process()?;
        if self.sharing != Sharing::Shared {
            return Err(MemoryError::NotShared.into());
        }
        let memory = self.backing.space.memory();
        let mut files = vec![memory.duplicate(&self.table)?];
        for file in self.backing.files() {
            files.push(memory.duplicate(file)?);
        }
        let description = ElasticDescription {
            ladder: self.ladder.clone(),
            max: self.max,
            granule: self.granule(),
            nodes: self.backing.nodes.clone(),
        };
        let text = description.text(&self.backing.steps);
        Ok(Handle { text, files })
    }

    /// Attaches the elastic of a handle. Its addresses differ per process, but the names of
    /// granules do not. [`Elastic::address`] returns the address of a granule in this process.
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`] if the descriptors do not match the handle,
    /// [`ElasticError::Damaged`] if the table does not, [`ElasticError::OtherNamespace`],
    /// [`ElasticError::TooManyProcesses`]; errors of the system calls.
    pub fn attach(handle: &Handle) -> Result<Elastic, ElasticError> {
        Elastic::attach_with(handle, &MemorySyscalls::new())
    }

    /// As [`Elastic::attach`], with the given system calls, which may be behind a gate.
    pub(crate) fn attach_with(
        handle: &Handle,
        memory: &MemorySyscalls,
    ) -> Result<Elastic, ElasticError> {
        let said = ElasticDescription::parse(&handle.text)?;
        let room = HostMemory::read()?;
        room.check_nodes(&said.nodes)?;
        let host = room.host;
        let options = ElasticOptions::new(said.max, said.ladder.clone())
            .shared()
            .granule(said.granule)
            .nodes(said.nodes.clone());
        let plan = plan(&options, &host)?;
        if said.text(&plan.steps) != handle.text {
            return Err(bad("its values are inconsistent on this host").into());
        }
        let (table, files) = check(memory, handle, &plan)?;
        let shape = plan.shape;
        let backing = Backing::over(memory, plan, files)?;
        let ledger = Ledger::attach(memory, &table, shape, host.base_page)?;
        Ok(Elastic {
            pid: own_pid(),
            max: said.max,
            asked: said.ladder.rungs()[0],
            ladder: said.ladder,
            sharing: Sharing::Shared,
            ledger,
            table,
            backing,
        })
    }
}

/// Checks that the descriptors match the handle and can no longer be truncated. Returns duplicates:
/// the table, and the files of the rungs.
fn check(
    memory: &MemorySyscalls,
    handle: &Handle,
    plan: &BackingPlan<'_>,
) -> Result<(MemoryFile, Vec<MemoryFile>), MemoryError> {
    let table_length = plan.shape.length(plan.host.base_page);
    let rungs = pools_of(&plan.steps, Sharing::Shared).into_iter();
    let mut expected = vec![(None, table_length, table_length)];
    expected.extend(rungs.map(|pool| (pool, plan.max, Bytes::ZERO)));
    if expected.len() != handle.files.len() {
        return Err(bad(format!(
            "it has {} descriptors instead of {}",
            handle.files.len(),
            expected.len()
        )));
    }
    let mut files = Vec::new();
    for (file, (pool, length, held)) in handle.files.iter().zip(expected) {
        if held_in(memory, file, pool, length)? < held {
            return Err(bad("the table has holes"));
        }
        files.push(memory.duplicate(file)?);
    }
    let table = files.remove(0);
    Ok((table, files))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::support::host_with;
    use hugeleaf_units::PageKind;
    use proptest::prelude::*;

    fn sample(nodes: NodePolicy) -> (ElasticDescription, LadderSteps) {
        let ladder: Ladder = "1G,2M".parse().unwrap();
        let host = host_with(&[
            ("4K", PageKind::Base),
            ("2M", PageKind::Thp),
            ("2M", PageKind::Hugetlb),
            ("1G", PageKind::Hugetlb),
        ]);
        let steps = LadderSteps::of(&ladder, Sharing::Shared, &host).unwrap();
        let description = ElasticDescription {
            ladder,
            max: Bytes(8 << 30),
            granule: "1G".parse().unwrap(),
            nodes,
        };
        (description, steps)
    }

    #[test]
    fn reads_what_it_writes() {
        for nodes in [
            NodePolicy::Inherit,
            NodePolicy::Local,
            NodePolicy::Bind(vec![0, 3]),
            NodePolicy::Interleave(vec![1]),
        ] {
            let (description, steps) = sample(nodes);
            let text = description.text(&steps);
            assert_eq!(ElasticDescription::parse(&text).unwrap(), description);
        }
    }

    #[test]
    fn others_are_told() {
        let (description, steps) = sample(NodePolicy::Inherit);
        let text = description.text(&steps);
        for (from, to, said) in [
            ("elastic 1", "elastic 2", "has version 2"),
            (
                "hugeleaf-elastic",
                "hugeleaf-region",
                "handle of an elastic",
            ),
            ("granule 1073741824", "granule 3", "3"),
            ("nodes inherit", "nodes here", "'here'"),
            ("max 8589934592", "max all", "'all'"),
        ] {
            let forged = text.replacen(from, to, 1);
            let error = ElasticDescription::parse(&forged).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s)(hugeleaf-elastic 1\n)?.{0,200}") {
            let _ = ElasticDescription::parse(&text);
        }
    }
}
