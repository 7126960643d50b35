//! A server that is asked through a library, in a process of its own.
//!
//! Libraries that speak a database's protocol believe what it says of the length of its answers, so one that is not
//! what it should be could fill or end whoever asks. Here that is a process that holds nothing and may have little
//! memory; it is ended where it does not answer, and started anew at the next call.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hugeleaf_host::Root;
use hugeleaf_sys::{confine, end_confined};
use hugeleaf_units::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::server::{Look, Opening, Server, ServerKind};
use hugeleaf_ask::{Unanswered, Wire};

/// What that process may have of memory of its own. It needs some 4M of it.
const MOST: Bytes = Bytes::from_mib(64);
/// No call that a kind makes takes longer; whoever has not answered by then never will.
const PATIENCE: Duration = Duration::from_secs(60);
/// The hidden command of `hugeleaf` that answers.
const COMMAND: &str = "ask-server";

/// What the process is told, a line each. The first is the address, which is no argument: it may hold a password, and
/// everybody sees arguments.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Question {
    Open(String),
    Look,
    Resize(Bytes),
    GiveBack,
}

/// What it says, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    Look(Look),
    Failed(Unanswered),
}

/// A server of any kind, asked from elsewhere.
pub(crate) struct Apart {
    kind: &'static ServerKind,
    address: String,
    root: Root,
    asked: Option<Asked>,
}

impl Apart {
    pub(crate) fn new(kind: &'static ServerKind, opening: &Opening) -> Apart {
        Apart {
            kind,
            address: opening.address.clone(),
            root: opening.root.clone(),
            asked: None,
        }
    }

    fn ask(&mut self, question: &Question) -> Result<Answer, Unanswered> {
        let mut asked = match self.asked.take() {
            Some(asked) => asked,
            None => {
                let mut asked = Asked::start(&self.root, self.kind)?;
                asked.ask(&Question::Open(self.address.clone()))?;
                asked
            }
        };
        let answer = asked.ask(question)?;
        self.asked = Some(asked);
        match answer {
            Answer::Failed(error) => Err(error),
            answer => Ok(answer),
        }
    }
}

impl Server for Apart {
    fn look(&mut self) -> Result<Look, Unanswered> {
        match self.ask(&Question::Look)? {
            Answer::Look(look) => Ok(look),
            _ => Err(Unanswered::new("no answer to that question")),
        }
    }

    fn resize(&mut self, to: Bytes) -> Result<(), Unanswered> {
        self.ask(&Question::Resize(to)).map(drop)
    }

    fn give_back(&mut self) -> Result<(), Unanswered> {
        self.ask(&Question::GiveBack).map(drop)
    }
}

/// The process; ended when dropped.
struct Asked {
    child: Child,
    wire: Wire,
}

impl Asked {
    fn start(root: &Root, kind: &ServerKind) -> Result<Asked, Unanswered> {
        let failed = |e: std::io::Error| Unanswered::new(format!("asking it: {e}"));
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        // This very program, also where its file was replaced meanwhile.
        let mut command = Command::new(root.path("proc/self/exe"));
        command
            .args([COMMAND, kind.name()])
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        confine(&mut command);
        let child = command.spawn().map_err(failed)?;
        Ok(Asked {
            child,
            wire: Wire::over(ours, kind.name(), PATIENCE),
        })
    }

    fn ask(&mut self, question: &Question) -> Result<Answer, Unanswered> {
        let line = serde_json::to_string(question).map_err(|e| Unanswered::new(e.to_string()))?;
        self.wire.send(format!("{line}\n").as_bytes())?;
        let line = self.wire.line()?;
        serde_json::from_str(&line).map_err(|_| Unanswered::new("its answer makes no sense"))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        end_confined(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers what the parent asks over standard input, a socket, until it hangs up.
///
/// # Errors
/// Standard input is no socket, or what comes over it is no question.
pub fn answer(kind: &ServerKind) -> std::io::Result<()> {
    let input = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    input.local_addr()?;
    let limit = Rlimit {
        current: Some(MOST.get()),
        maximum: Some(MOST.get()),
    };
    if getrlimit(Resource::Data)
        .current
        .is_none_or(|now| now > MOST.get())
    {
        setrlimit(Resource::Data, limit)?;
    }
    let mut output = input.try_clone()?;
    let mut server: Option<Box<dyn Server>> = None;
    for line in BufReader::new(input).lines() {
        let answer = match (serde_json::from_str(&line?)?, &mut server) {
            (Question::Open(address), _) => {
                server = Some((kind.open)(&Opening {
                    address,
                    root: Root::live(),
                    set_limit: false,
                }));
                Ok(Answer::Done)
            }
            (_, None) => Err(Unanswered::new("no address was said")),
            (Question::Look, Some(server)) => server.look().map(Answer::Look),
            (Question::Resize(to), Some(server)) => server.resize(to).map(|()| Answer::Done),
            (Question::GiveBack, Some(server)) => server.give_back().map(|()| Answer::Done),
        };
        let mut text = serde_json::to_string(&answer.unwrap_or_else(Answer::Failed))?;
        text.push('\n');
        output.write_all(text.as_bytes())?;
    }
    Ok(())
}
