//! Automatic memory in a process: one target for all components, moved by what each gains, in whole large pages.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hugeleaf_balance::{
    Benefit, Came, Component as Balanced, Granule as Unit, Move, OperationKind, Settings, State,
    View, changed, decide, learn, view,
};
use hugeleaf_units::{Bytes, Pages};

use crate::elastic::{Component, Elastic, ElasticError, Granule};

/// What a [`Manager`] keeps granules under while they are nobody's; no component may have this name.
const IN_HAND: &str = "manager";
/// So many rounds of orders in one look: what is freed is given in the next round of the same look.
const ROUNDS: usize = 64;

/// A component whose size a [`Manager`] sets: a buffer pool, a sort area, a cache of statements.
///
/// The manager calls it from the thread that calls [`Manager::step`], one call at a time. Those who read the component
/// meanwhile wait for nothing but what it makes them wait for: a granule moves by a change of its owner in a table, and
/// no memory is copied.
pub trait Managed: Send {
    /// What a granule more would save and one less would cost, as measured in the `elapsed` time since the last call:
    /// a [`hugeleaf_balance::Ghost`] for a cache, [`hugeleaf_balance::Spills`] for sorts. [`Benefit::default`]: not
    /// known.
    fn benefit(&mut self, elapsed: Duration) -> Benefit;

    /// These granules are the component's from now on. They hold what was in them before: zeroes, or another
    /// component's data.
    fn grow(&mut self, granules: &[Granule]);

    /// Empties up to `count` granules and names them: they are not the component's any more. Fewer, or none, where
    /// that cannot be done now.
    fn shrink(&mut self, count: usize) -> Vec<Granule>;

    /// Whether nobody uses it now and its content is of no use to anybody: all above its least is given back at the next
    /// look then, whatever [`Managed::benefit`] says. Never, unless a component says so.
    fn is_unused(&self) -> bool {
        false
    }

    /// Returns true if no memory may be moved now, because the system calls for that may be refused: nothing is done at the next
    /// look. Never, unless a component says so.
    fn is_frozen(&self) -> bool {
        false
    }
}

/// Memory of one process under one target: components on an [`Elastic`], resized by what they gain from it
/// (`hugeleaf-balance`), in whole granules and so on the large pages that they are on.
///
/// Call [`Manager::step`] every second or so, or have a thread do that ([`Manager::start`]). Never more is held than
/// the elastic's target, not even for a moment: a component is made smaller before another one grows.
pub struct Manager {
    elastic: Arc<Elastic>,
    settings: Settings,
    state: State,
    granule: Unit,
    hand: Component,
    in_hand: Vec<Granule>,
    parts: Vec<Part>,
    began: Instant,
    last: Option<Duration>,
}

struct Part {
    component: Component,
    managed: Box<dyn Managed>,
    /// As the policy sees it: its size is that of the granules that it has.
    balanced: Balanced,
}

/// Shows sizes, and not the components' own data.
impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts.iter().map(|part| &part.balanced);
        f.debug_list().entries(parts).finish()
    }
}

impl Manager {
    /// One without components. Granules of the elastic that nobody manages count into its target as well.
    ///
    /// # Errors
    /// Those of [`Elastic::component`].
    pub fn new(elastic: Arc<Elastic>, settings: Settings) -> Result<Manager, ElasticError> {
        let hand = elastic.component(IN_HAND, true)?;
        let granule = Unit::new(elastic.granule().bytes());
        let granule = granule.map_err(|_| ElasticError::Damaged("granules of 0 bytes".into()))?;
        Ok(Manager {
            elastic,
            settings,
            state: State::default(),
            granule,
            hand,
            in_hand: Vec::new(),
            parts: Vec::new(),
            began: Instant::now(),
            last: None,
        })
    }

    /// Adds a component that is never smaller than `least` and never larger than `most`, both rounded up to whole
    /// granules, and gives it its least. Where all of the target is held, those components give that lose least by it.
    ///
    /// # Errors
    /// [`ElasticError::NameTaken`]; those of [`Elastic::component`] and [`Elastic::take_many`]. It is not added then.
    pub fn add(
        &mut self,
        name: &str,
        (least, most): (Bytes, Bytes),
        mut managed: Box<dyn Managed>,
    ) -> Result<Component, ElasticError> {
        let is_taken = |part: &Part| part.balanced.name == name;
        if name == IN_HAND || self.parts.iter().any(is_taken) {
            return Err(ElasticError::NameTaken { name: name.into() });
        }
        let component = self.elastic.component(name, true)?;
        let least = self.granule.round_up(least);
        self.make_room(self.count(least))?;
        let granules = self.elastic.take_many(component, self.count(least))?;
        managed.grow(&granules);
        self.parts.push(Part {
            component,
            managed,
            balanced: Balanced {
                name: name.into(),
                least,
                most: self.granule.round_up(most).max(least),
                now: least,
                measured: None,
                granule: self.granule,
                resizable: true,
                benefit: Benefit::default(),
            },
        });
        Ok(component)
    }

    /// Gives a component up to `count` granules that nobody has, at once and without a look at what they would bring: a
    /// cache that fills need not wait for looks while memory is free. Returns how many it got: none where all of the
    /// target is held, or the component is as large as it may be.
    ///
    /// # Errors
    /// [`ElasticError::NoSuchComponent`]; those of [`Elastic::take_many`]. What it got until then is its own.
    pub fn claim(&mut self, component: Component, count: usize) -> Result<usize, ElasticError> {
        let at = self.parts.iter().position(|p| p.component == component);
        let at = at.ok_or(ElasticError::NoSuchComponent(component))?;
        let balanced = &self.parts[at].balanced;
        let before = balanced.now;
        let free = self.elastic.target() - self.elastic.held();
        let count = count.min(self.count_down(free.min(balanced.room())));
        if count == 0 {
            return Ok(0);
        }
        self.give_to(at, count)?;
        self.has_changed(at, "it needed more, and nobody had that memory");
        Ok(self.count(self.parts[at].balanced.now - before))
    }

    fn has_changed(&mut self, at: usize, why: &str) {
        let balanced = &self.parts[at].balanced;
        let now = self.began.elapsed();
        changed(&mut self.state, &balanced.name, balanced.now, why, now);
    }

    /// Frees so many granules for a new component, where it can: those give that lose least by it.
    fn make_room(&mut self, granules: usize) -> Result<(), ElasticError> {
        let loss = |part: &Part| part.balanced.benefit.less.map_or(0.0, |less| less.high());
        let mut givers: Vec<usize> = (0..self.parts.len()).collect();
        givers.sort_by(|a, b| loss(&self.parts[*a]).total_cmp(&loss(&self.parts[*b])));
        for at in givers {
            let free = self.elastic.target() - self.elastic.held();
            let missing = granules.saturating_sub(self.count_down(free));
            let surplus = self.count_down(self.parts[at].balanced.surplus());
            self.free(at, missing.min(surplus), "a new component needed room")?;
        }
        Ok(())
    }

    /// Has a component give up to so many granules to nobody, where it can.
    fn free(&mut self, at: usize, count: usize, why: &str) -> Result<(), ElasticError> {
        if count > 0 && self.take_from(at, count).is_ok() {
            self.return_rest()?;
            self.has_changed(at, why);
        }
        Ok(())
    }

    /// Frees what components have that nobody uses: whoever needs it claims it.
    fn take_unused(&mut self) -> Result<(), ElasticError> {
        for at in 0..self.parts.len() {
            let part = &self.parts[at];
            if part.managed.is_unused() {
                let surplus = self.count_down(part.balanced.surplus());
                self.free(at, surplus, "nobody uses it")?;
            }
        }
        Ok(())
    }

    /// Another target for all together; returns how much is held above it, which the next steps take from the
    /// components.
    ///
    /// # Errors
    /// Those of [`Elastic::set_target`].
    pub fn set_target(&mut self, target: Bytes) -> Result<Bytes, ElasticError> {
        self.elastic.set_target(target)
    }

    /// One look: asks each component what memory is worth to it, and moves granules. Returns how many orders were
    /// carried out.
    ///
    /// # Errors
    /// [`ElasticError::Forked`], [`ElasticError::Stuck`]: nothing can be moved. What single components do wrong is
    /// no error: it is in the [`Manager::view`].
    pub fn step(&mut self) -> Result<usize, ElasticError> {
        self.step_at(self.began.elapsed())
    }

    pub(crate) fn step_at(&mut self, now: Duration) -> Result<usize, ElasticError> {
        let elapsed = now.saturating_sub(self.last.unwrap_or(now));
        self.last = Some(now);
        if self.parts.iter().any(|part| part.managed.is_frozen()) {
            return Ok(0);
        }
        for part in &mut self.parts {
            part.balanced.benefit = part.managed.benefit(elapsed);
        }
        self.take_unused()?;
        let mut orders = 0;
        for _ in 0..ROUNDS {
            let components = self.components();
            let target = self.for_components();
            let moves = decide(&self.settings, &mut self.state, target, &components, now);
            if moves.is_empty() {
                break;
            }
            for one in &moves {
                orders += 1;
                let came = self.carry_out(one)?;
                learn(&self.settings, &mut self.state, one.id, &came, now);
            }
        }
        self.return_rest()?;
        Ok(orders)
    }

    /// How memory is divided, and what was done about it: the tables that Oracle shows as `v$sgainfo`,
    /// `v$memory_dynamic_components` and `v$memory_resize_ops`.
    pub fn view(&self) -> View {
        view(&self.state, &self.components())
    }

    /// Has a thread of its own step every so often, until that is dropped. It starts with the first component: a second
    /// thread makes system calls and locks of a program slower that has only one.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(self, every: Duration) -> std::io::Result<Running> {
        let has_any = !self.parts.is_empty();
        let running = Running {
            shared: Arc::new(Shared {
                manager: Mutex::new((self, None)),
                stop: Mutex::new(false),
                stopped: Condvar::new(),
            }),
            every,
            thread: Mutex::new(None),
        };
        if has_any {
            running.start()?;
        }
        Ok(running)
    }

    fn components(&self) -> Vec<Balanced> {
        self.parts
            .iter()
            .map(|part| part.balanced.clone())
            .collect()
    }

    /// The target less what others hold of the elastic.
    fn for_components(&self) -> Bytes {
        let ours: Bytes = self.parts.iter().map(|part| part.balanced.now).sum();
        let ours = ours + bytes_of(&self.elastic, self.in_hand.len());
        self.elastic.target() - (self.elastic.held() - ours)
    }

    fn carry_out(&mut self, one: &Move) -> Result<Came, ElasticError> {
        let order = &one.order;
        let is_it = |part: &Part| part.balanced.name == order.component;
        let Some(at) = self.parts.iter().position(is_it) else {
            let why = "it is no component of this manager".to_owned();
            return Ok(Came::Refused { why });
        };
        let outcome = match order.kind {
            OperationKind::Shrink => self.take_from(at, self.count(order.by())),
            OperationKind::Grow => self.give_to(at, self.count(order.by())),
        };
        match outcome {
            Ok(()) => Ok(Came::Resized {
                now_bytes: self.parts[at].balanced.now,
                measured_bytes: None,
            }),
            Err(error @ (ElasticError::Forked { .. } | ElasticError::Stuck { .. })) => Err(error),
            Err(error) => Ok(Came::Refused {
                why: error.to_string(),
            }),
        }
    }

    /// Has a component empty granules. What it names and does not hold is refused, all of it.
    fn take_from(&mut self, at: usize, count: usize) -> Result<(), ElasticError> {
        let part = &mut self.parts[at];
        let freed = part.managed.shrink(count);
        let freed = (self.elastic).transfer(part.component, self.hand, &freed)?;
        part.balanced.now = part.balanced.now - bytes_of(&self.elastic, freed.len());
        self.in_hand.extend(freed);
        Ok(())
    }

    /// What is in hand goes first: no memory is freed and filled anew for it.
    fn give_to(&mut self, at: usize, count: usize) -> Result<(), ElasticError> {
        let component = self.parts[at].component;
        let from_hand = self.in_hand.len() - count.min(self.in_hand.len());
        let handed = &self.in_hand[from_hand..];
        let mut granules = self.elastic.transfer(self.hand, component, handed)?;
        self.in_hand.truncate(from_hand);
        let more = (self.elastic).take_many(component, count - granules.len());
        let failed = more.map(|more| granules.extend(more)).err();
        if !granules.is_empty() {
            let part = &mut self.parts[at];
            part.managed.grow(&granules);
            part.balanced.now += bytes_of(&self.elastic, granules.len());
        }
        // What is there by now is said by its size.
        match failed {
            Some(error) if granules.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// What nobody got goes back to the system.
    fn return_rest(&mut self) -> Result<(), ElasticError> {
        let rest = std::mem::take(&mut self.in_hand);
        match self.elastic.give_back(self.hand, &rest) {
            // Nobody's any more; `Elastic::recover` tries again.
            Ok(()) | Err(ElasticError::NotYetBack { .. }) => Ok(()),
            Err(error) => {
                self.in_hand = rest;
                Err(error)
            }
        }
    }

    fn count_down(&self, bytes: Bytes) -> usize {
        self.count(self.granule.round_down(bytes))
    }

    fn count(&self, bytes: Bytes) -> usize {
        let granules = self.elastic.granule().pages_for(bytes);
        usize::try_from(granules.get()).unwrap_or(usize::MAX)
    }
}

fn bytes_of(elastic: &Elastic, granules: usize) -> Bytes {
    Pages(granules as u64).of(elastic.granule())
}

/// A [`Manager`] whose thread steps it. Dropped, it ends that thread; memory stays with who has it.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    every: Duration,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    /// The manager, and why its last step failed.
    manager: Mutex<(Manager, Option<String>)>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// One step; false where there can be no other.
    fn step(&self) -> bool {
        let (manager, failed) = &mut *lock(&self.manager);
        let stepped = catch_unwind(AssertUnwindSafe(|| manager.step()));
        let is_whole = stepped.is_ok();
        *failed = match stepped {
            Ok(stepped) => stepped.err().map(|error| error.to_string()),
            Err(_) => Some("a component panicked: nothing is moved any more".to_owned()),
        };
        is_whole
    }

    fn run(&self, every: Duration) {
        loop {
            if !self.step() {
                return;
            }
            let stop = lock(&self.stop);
            let waited = self.stopped.wait_timeout_while(stop, every, |stop| !*stop);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }
}

impl Running {
    /// Starts the thread, where there is none yet.
    fn start(&self) -> std::io::Result<()> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let (its, every) = (Arc::clone(&self.shared), self.every);
            let builder = std::thread::Builder::new().name("hugeleaf-manager".into());
            *thread = Some(builder.spawn(move || its.run(every))?);
        }
        Ok(())
    }

    /// As [`Manager::set_target`]; the next step acts on it.
    ///
    /// # Errors
    /// As there.
    pub fn set_target(&self, target: Bytes) -> Result<Bytes, ElasticError> {
        lock(&self.shared.manager).0.set_target(target)
    }

    /// As [`Manager::view`], and why the last step failed, where it did.
    pub fn view(&self) -> (View, Option<String>) {
        let (manager, failed) = &*lock(&self.shared.manager);
        (manager.view(), failed.clone())
    }

    /// As [`Manager::claim`], where the manager has nothing else to do; `None` where it has: whoever asks goes on with
    /// what it holds rather than wait.
    ///
    /// # Errors
    /// As there.
    pub fn claim(&self, component: Component, count: usize) -> Result<Option<usize>, ElasticError> {
        match self.shared.manager.try_lock() {
            Ok(mut manager) => manager.0.claim(component, count).map(Some),
            Err(TryLockError::Poisoned(manager)) => {
                manager.into_inner().0.claim(component, count).map(Some)
            }
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    /// Adds a component, as [`Manager::add`]. Where it is the first and no thread can be started, it keeps its size until
    /// one can (with the next component), and [`Running::view`] says so.
    ///
    /// # Errors
    /// As there.
    pub fn add(
        &self,
        name: &str,
        sizes: (Bytes, Bytes),
        managed: Box<dyn Managed>,
    ) -> Result<Component, ElasticError> {
        let added = lock(&self.shared.manager).0.add(name, sizes, managed)?;
        if let Err(error) = self.start() {
            lock(&self.shared.manager).1 = Some(format!("no thread can be started: {error}"));
        }
        Ok(added)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *lock(&self.shared.stop) = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}
