//! Automatic memory management in a process. One target covers all components, and whole huge pages move by benefit.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hugeleaf_balance::{
    Benefit, Component as Balanced, Granule as Unit, Move, OperationKind, OracleViews, OrderResult,
    Settings, State, changed, decide, learn, view,
};
use hugeleaf_units::{Bytes, Pages};

use crate::elastic::{Component, Elastic, ElasticError, Granule};

/// Owner of granules that belong to no component meanwhile; no component may have this name.
const UNASSIGNED: &str = "manager";
/// Maximum rounds of orders in one step. Granules freed in one round are given out in the next.
const ROUNDS: usize = 64;

/// A component whose size a [`Manager`] sets: a buffer pool, a sort area, a cache of statements.
///
/// The manager calls it from the thread that calls [`Manager::step`], one call at a time. The manager adds no locking
/// for readers of the component. A granule moves by a change of its owner in a table, and no memory is copied.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::balance::{Benefit, Spills};
/// use hugeleaf::{Bytes, Granule, Managed};
///
/// /// Memory for sorts, which count what they spill.
/// struct SortArea {
///     granules: Vec<Granule>,
///     spills: Spills,
///     queries: usize,
/// }
///
/// impl Managed for SortArea {
///     fn benefit(&mut self, elapsed: Duration) -> Benefit {
///         self.spills.set_size(Bytes::from_mib(2) * self.granules.len() as u64);
///         self.spills.pass(elapsed);
///         self.spills.benefit()
///     }
///
///     fn grow(&mut self, granules: &[Granule]) {
///         self.granules.extend(granules);
///     }
///
///     fn shrink(&mut self, count: usize) -> Vec<Granule> {
///         let left = self.granules.len().saturating_sub(count);
///         self.granules.split_off(left)
///     }
///
///     fn is_unused(&self) -> bool {
///         self.queries == 0
///     }
/// }
/// # let granule = hugeleaf::balance::Granule::new(Bytes::from_mib(2)).unwrap();
/// # let spills = Spills::new(granule, Bytes::ZERO, 1e-9);
/// # let mut area = SortArea { granules: Vec::new(), spills, queries: 0 };
/// # assert!(area.is_unused() && !area.is_frozen() && area.shrink(1).is_empty());
/// # assert_eq!(area.benefit(Duration::from_secs(1)).more.map(|more| more.value), Some(0.0));
/// ```
pub trait Managed: Send {
    /// Returns what one more granule would save and one less would cost, measured over the `elapsed` time since the
    /// last call. Use a [`crate::balance::GhostList`] for a cache and [`crate::balance::Spills`] for sorts.
    /// [`Benefit::default`] means unknown.
    fn benefit(&mut self, elapsed: Duration) -> Benefit;

    /// Gives granules to the component. They hold their previous contents: zeroes, or another component's data.
    fn grow(&mut self, granules: &[Granule]);

    /// Empties up to `count` granules and returns them; the component no longer owns them. Returns fewer, or none, if
    /// they cannot be emptied now.
    fn shrink(&mut self, count: usize) -> Vec<Granule>;

    /// True if the component is unused and its contents have no further value. The next step then frees all memory
    /// above its least, regardless of [`Managed::benefit`]. Default: false.
    fn is_unused(&self) -> bool {
        false
    }

    /// True if no memory may be moved now because the system calls may be refused. The next step then does nothing.
    /// Default: false.
    fn is_frozen(&self) -> bool {
        false
    }
}

/// Memory of one process under one target. Components on an [`Elastic`] are resized by their benefit
/// (`hugeleaf-balance`), in whole granules, so they stay on huge pages.
///
/// Call [`Manager::step`] about every second, or let a thread do it ([`Manager::start`]). The memory held never exceeds
/// the elastic's target, not even briefly: one component shrinks before another grows.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use hugeleaf::balance::{Benefit, Settings};
/// use hugeleaf::{Bytes, Elastic, ElasticOptions, Granule, Managed, Manager};
///
/// # struct Sort(Vec<Granule>);
/// # impl Managed for Sort {
/// #     fn benefit(&mut self, _: Duration) -> Benefit { Benefit::default() }
/// #     fn grow(&mut self, granules: &[Granule]) { self.0.extend(granules) }
/// #     fn shrink(&mut self, count: usize) -> Vec<Granule> {
/// #         self.0.split_off(self.0.len().saturating_sub(count))
/// #     }
/// # }
///
/// let memory = ElasticOptions::new(Bytes::from_mib(16), "2M".parse()?);
/// let memory = Arc::new(Elastic::new(&memory)?);
/// let mut manager = Manager::new(Arc::clone(&memory), Settings::in_process())?;
/// // Sort implements Managed. It has at least 2M, and at most 8M.
/// let sizes = (Bytes::from_mib(2), Bytes::from_mib(8));
/// let sort = manager.add("sort area", sizes, Box::new(Sort(Vec::new())))?;
///
/// // A large query takes free memory at once. The loop of the program steps about every second.
/// assert_eq!(manager.claim(sort, 2)?, 2);
/// manager.step()?;
/// assert_eq!(manager.view().components[0].current_size_bytes, Bytes::from_mib(6));
///
/// // An administrator lowers the target. The next steps take what is above it.
/// assert_eq!(manager.set_target(Bytes::from_mib(4))?, Bytes::from_mib(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Manager {
    elastic: Arc<Elastic>,
    settings: Settings,
    state: State,
    granule: Unit,
    unassigned_owner: Component,
    unassigned: Vec<Granule>,
    parts: Vec<ManagedComponent>,
    began: Instant,
    last: Option<Duration>,
}

struct ManagedComponent {
    component: Component,
    managed: Box<dyn Managed>,
    /// The component for the policy; its size is that of the granules it owns.
    balanced: Balanced,
}

/// Shows the sizes and not the data of the components.
impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts.iter().map(|part| &part.balanced);
        f.debug_list().entries(parts).finish()
    }
}

impl Manager {
    /// Creates a manager without components. Unmanaged granules of the elastic count into its target as well.
    ///
    /// # Errors
    /// Errors of [`Elastic::component`].
    pub fn new(elastic: Arc<Elastic>, settings: Settings) -> Result<Manager, ElasticError> {
        let hand = elastic.component(UNASSIGNED, true)?;
        let granule = Unit::new(elastic.granule().bytes());
        let granule = granule.map_err(|_| ElasticError::Damaged("granules of 0 bytes".into()))?;
        Ok(Manager {
            elastic,
            settings,
            state: State::default(),
            granule,
            unassigned_owner: hand,
            unassigned: Vec::new(),
            parts: Vec::new(),
            began: Instant::now(),
            last: None,
        })
    }

    /// Adds a component between `least` and `most` bytes, both rounded up to whole granules, and gives it its least. If
    /// all of the target is held, the components that lose least give up the granules.
    ///
    /// # Errors
    /// [`ElasticError::NameTaken`]; errors of [`Elastic::component`] and [`Elastic::take_many`]. It is not added then.
    pub fn add(
        &mut self,
        name: &str,
        (least, most): (Bytes, Bytes),
        mut managed: Box<dyn Managed>,
    ) -> Result<Component, ElasticError> {
        let is_taken = |part: &ManagedComponent| part.balanced.name == name;
        if name == UNASSIGNED || self.parts.iter().any(is_taken) {
            return Err(ElasticError::NameTaken { name: name.into() });
        }
        let component = self.elastic.component(name, true)?;
        let least = self.granule.round_up(least);
        self.make_room(self.count(least))?;
        let granules = self.elastic.take_many(component, self.count(least))?;
        managed.grow(&granules);
        self.parts.push(ManagedComponent {
            component,
            managed,
            balanced: Balanced {
                name: name.into(),
                min: least,
                max: self.granule.round_up(most).max(least),
                size: least,
                measured: None,
                granule: self.granule,
                resizable: true,
                benefit: Benefit::default(),
            },
        });
        Ok(component)
    }

    /// Gives a component up to `count` free granules at once, without considering their benefit. A cache that fills
    /// need not wait for steps while memory is free. Returns the number of granules given. It is 0 if all of the target
    /// is held or the component has its maximum size.
    ///
    /// # Errors
    /// [`ElasticError::NoSuchComponent`]; errors of [`Elastic::take_many`]. The component keeps what it got before the
    /// error.
    pub fn claim(&mut self, component: Component, count: usize) -> Result<usize, ElasticError> {
        let at = self.parts.iter().position(|p| p.component == component);
        let at = at.ok_or(ElasticError::NoSuchComponent(component))?;
        let balanced = &self.parts[at].balanced;
        let before = balanced.size;
        let free = self.elastic.target() - self.elastic.held();
        let count = count.min(self.count_down(free.min(balanced.room())));
        if count == 0 {
            return Ok(0);
        }
        self.grow_component(at, count)?;
        self.has_changed(at, "needed more; taken from free memory");
        Ok(self.count(self.parts[at].balanced.size - before))
    }

    fn has_changed(&mut self, at: usize, why: &str) {
        let balanced = &self.parts[at].balanced;
        let now = self.began.elapsed();
        changed(&mut self.state, &balanced.name, balanced.size, why, now);
    }

    /// Frees granules for a new component where possible, from the components that lose least.
    fn make_room(&mut self, granules: usize) -> Result<(), ElasticError> {
        let loss =
            |part: &ManagedComponent| part.balanced.benefit.less.map_or(0.0, |less| less.high());
        let mut givers: Vec<usize> = (0..self.parts.len()).collect();
        givers.sort_by(|a, b| loss(&self.parts[*a]).total_cmp(&loss(&self.parts[*b])));
        for at in givers {
            let free = self.elastic.target() - self.elastic.held();
            let missing = granules.saturating_sub(self.count_down(free));
            let surplus = self.count_down(self.parts[at].balanced.surplus());
            self.free(at, missing.min(surplus), "freed for a new component")?;
        }
        Ok(())
    }

    /// Makes a component return up to `count` granules to the system, where possible.
    fn free(&mut self, at: usize, count: usize, why: &str) -> Result<(), ElasticError> {
        if count > 0 && self.shrink_component(at, count).is_ok() {
            self.return_rest()?;
            self.has_changed(at, why);
        }
        Ok(())
    }

    /// Frees the surplus of unused components; components that need it claim it.
    fn take_unused(&mut self) -> Result<(), ElasticError> {
        for at in 0..self.parts.len() {
            let part = &self.parts[at];
            if part.managed.is_unused() {
                let surplus = self.count_down(part.balanced.surplus());
                self.free(at, surplus, "unused")?;
            }
        }
        Ok(())
    }

    /// Sets a new target for all components. Returns the bytes held above it, which the next steps take from the
    /// components.
    ///
    /// # Errors
    /// Errors of [`Elastic::set_target`].
    pub fn set_target(&mut self, target: Bytes) -> Result<Bytes, ElasticError> {
        self.elastic.set_target(target)
    }

    /// Performs one step: asks each component for its benefit and moves granules. Returns the number of orders carried
    /// out.
    ///
    /// # Errors
    /// [`ElasticError::Forked`], [`ElasticError::LockTimeout`]: nothing can be moved. Mistakes of single components are no
    /// error and appear in the [`Manager::view`].
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

    /// Returns the division of memory and the resize operations: the tables that Oracle shows as `v$sgainfo`,
    /// `v$memory_dynamic_components` and `v$memory_resize_ops`.
    pub fn view(&self) -> OracleViews {
        view(&self.state, &self.components())
    }

    /// Starts a thread that calls [`Manager::step`] at this interval until the result is dropped. The thread starts
    /// with the first component, because a second thread slows down system calls and locks of a single-threaded
    /// process.
    ///
    /// # Errors
    /// Errors of starting a thread.
    pub fn start(self, every: Duration) -> std::io::Result<ManagerThread> {
        let has_any = !self.parts.is_empty();
        let running = ManagerThread {
            manager: Arc::new(Mutex::new((self, None))),
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

    /// Returns the target less the memory that unmanaged components hold.
    fn for_components(&self) -> Bytes {
        let ours: Bytes = self.parts.iter().map(|part| part.balanced.size).sum();
        let ours = ours + bytes_of(&self.elastic, self.unassigned.len());
        self.elastic.target() - (self.elastic.held() - ours)
    }

    fn carry_out(&mut self, one: &Move) -> Result<OrderResult, ElasticError> {
        let order = &one.order;
        let is_it = |part: &ManagedComponent| part.balanced.name == order.component;
        let Some(at) = self.parts.iter().position(is_it) else {
            let why = "it is not a component of this manager".to_owned();
            return Ok(OrderResult::Refused { why });
        };
        let outcome = match order.kind {
            OperationKind::Shrink => self.shrink_component(at, self.count(order.by())),
            OperationKind::Grow => self.grow_component(at, self.count(order.by())),
        };
        match outcome {
            Ok(()) => Ok(OrderResult::Resized {
                now_bytes: self.parts[at].balanced.size,
                measured_bytes: None,
            }),
            Err(error @ (ElasticError::Forked { .. } | ElasticError::LockTimeout { .. })) => {
                Err(error)
            }
            Err(error) => Ok(OrderResult::Refused {
                why: error.to_string(),
            }),
        }
    }

    /// Makes a component empty granules. If it names a granule that it does not own, the whole answer is refused.
    fn shrink_component(&mut self, at: usize, count: usize) -> Result<(), ElasticError> {
        let part = &mut self.parts[at];
        let freed = part.managed.shrink(count);
        let freed = (self.elastic).transfer(part.component, self.unassigned_owner, &freed)?;
        part.balanced.size = part.balanced.size - bytes_of(&self.elastic, freed.len());
        self.unassigned.extend(freed);
        Ok(())
    }

    /// Gives granules in hand first, so that no memory is freed and populated again.
    fn grow_component(&mut self, at: usize, count: usize) -> Result<(), ElasticError> {
        let component = self.parts[at].component;
        let from_hand = self.unassigned.len() - count.min(self.unassigned.len());
        let handed = &self.unassigned[from_hand..];
        let mut granules = self
            .elastic
            .transfer(self.unassigned_owner, component, handed)?;
        self.unassigned.truncate(from_hand);
        let more = (self.elastic).take_many(component, count - granules.len());
        let failed = more.map(|more| granules.extend(more)).err();
        if !granules.is_empty() {
            let part = &mut self.parts[at];
            part.managed.grow(&granules);
            part.balanced.size += bytes_of(&self.elastic, granules.len());
        }
        // A partial success is visible in the size.
        match failed {
            Some(error) if granules.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns unassigned granules to the system.
    fn return_rest(&mut self) -> Result<(), ElasticError> {
        let rest = std::mem::take(&mut self.unassigned);
        match self.elastic.give_back(self.unassigned_owner, &rest) {
            // They have no owner any more; `Elastic::recover` tries again.
            Ok(()) | Err(ElasticError::ReturnPending { .. }) => Ok(()),
            Err(error) => {
                self.unassigned = rest;
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
    Pages(granules as u64).in_bytes(elastic.granule())
}

/// A [`Manager`] with a thread that steps it. A drop ends the thread; components keep their memory.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use hugeleaf::balance::{Benefit, Settings};
/// use hugeleaf::{Bytes, Elastic, ElasticOptions, Granule, Managed, Manager, ManagerThread};
///
/// # struct Sort(Vec<Granule>);
/// # impl Managed for Sort {
/// #     fn benefit(&mut self, _: Duration) -> Benefit { Benefit::default() }
/// #     fn grow(&mut self, granules: &[Granule]) { self.0.extend(granules) }
/// #     fn shrink(&mut self, count: usize) -> Vec<Granule> {
/// #         self.0.split_off(self.0.len().saturating_sub(count))
/// #     }
/// # }
///
/// let memory = ElasticOptions::new(Bytes::from_mib(16), "2M".parse()?);
/// let memory = Arc::new(Elastic::new(&memory)?);
/// let manager = Manager::new(memory, Settings::in_process())?;
/// // The thread steps every second until `running` is dropped.
/// let running: ManagerThread = manager.start(Duration::from_secs(1))?;
/// let sizes = (Bytes::from_mib(2), Bytes::from_mib(8));
/// let sort = running.add("sort area", sizes, Box::new(Sort(Vec::new())))?;
///
/// // Queries do not wait for a step: `None` if one runs now.
/// if let Some(granules) = running.claim(sort, 2)? {
///     println!("{granules} granules more");
/// }
/// running.set_target(Bytes::from_mib(12))?;
/// let (view, failed) = running.view();
/// assert!(failed.is_none());
/// assert_eq!(view.components.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ManagerThread {
    /// The manager, and the error of its last step.
    manager: Arc<Mutex<(Manager, Option<String>)>>,
    every: Duration,
    /// The thread, and the sender whose drop ends it.
    thread: Mutex<Option<(JoinHandle<()>, mpsc::Sender<()>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Performs one step; false if no further step is possible.
fn step(manager: &Mutex<(Manager, Option<String>)>) -> bool {
    let (manager, failed) = &mut *lock(manager);
    let stepped = catch_unwind(AssertUnwindSafe(|| manager.step()));
    let is_whole = stepped.is_ok();
    *failed = match stepped {
        Ok(stepped) => stepped.err().map(|error| error.to_string()),
        Err(_) => Some("a component panicked: all resizes have stopped".to_owned()),
    };
    is_whole
}

impl ManagerThread {
    /// Starts the thread unless it runs already.
    fn start(&self) -> std::io::Result<()> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let (manager, every) = (Arc::clone(&self.manager), self.every);
            let (stop, stopped) = mpsc::channel::<()>();
            let waits = move || stopped.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout);
            let builder = std::thread::Builder::new().name("hugeleaf-manager".into());
            let its = builder.spawn(move || while step(&manager) && waits() {})?;
            *thread = Some((its, stop));
        }
        Ok(())
    }

    /// As [`Manager::set_target`]; the next step acts on it.
    ///
    /// # Errors
    /// As [`Manager::set_target`].
    pub fn set_target(&self, target: Bytes) -> Result<Bytes, ElasticError> {
        lock(&self.manager).0.set_target(target)
    }

    /// As [`Manager::view`], with the error of the last step.
    pub fn view(&self) -> (OracleViews, Option<String>) {
        let (manager, failed) = &*lock(&self.manager);
        (manager.view(), failed.clone())
    }

    /// As [`Manager::claim`], but `None` if the manager is busy. The caller then goes on with the memory it holds
    /// instead of waiting.
    ///
    /// # Errors
    /// As [`Manager::claim`].
    pub fn claim(&self, component: Component, count: usize) -> Result<Option<usize>, ElasticError> {
        match self.manager.try_lock() {
            Ok(mut manager) => manager.0.claim(component, count).map(Some),
            Err(TryLockError::Poisoned(manager)) => {
                manager.into_inner().0.claim(component, count).map(Some)
            }
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    /// As [`Manager::add`]. If no thread can be started for the first component, it keeps its size until one can (with
    /// the next component), and [`ManagerThread::view`] reports that.
    ///
    /// # Errors
    /// As [`Manager::add`].
    pub fn add(
        &self,
        name: &str,
        sizes: (Bytes, Bytes),
        managed: Box<dyn Managed>,
    ) -> Result<Component, ElasticError> {
        let added = lock(&self.manager).0.add(name, sizes, managed)?;
        if let Err(error) = self.start() {
            lock(&self.manager).1 = Some(format!("cannot start a thread: {error}"));
        }
        Ok(added)
    }
}

impl Drop for ManagerThread {
    fn drop(&mut self) {
        if let Some((thread, stop)) = lock(&self.thread).take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
