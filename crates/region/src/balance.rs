//! Benefit measurement and resizing decisions for a [`Manager`](crate::Manager) and its components.
//!
//! A [`Manager`](crate::Manager) decides for components of an [`Elastic`](crate::Elastic). A program that resizes
//! servers, or memory of another kind, calls [`decide`] and [`learn`] itself:
//!
//! ```
//! use std::time::Duration;
//!
//! use hugeleaf::Bytes;
//! use hugeleaf::balance::{
//!     Benefit, OrderResult, Component, Estimate, Granule, Settings, State, decide, learn,
//! };
//!
//! let saved = Estimate { value: 0.2, error: 0.01, samples: 1000.0 };
//! let mut pages = Component {
//!     name: "page cache".into(),
//!     min: Bytes::from_mib(4),
//!     max: Bytes::from_mib(64),
//!     size: Bytes::from_mib(16),
//!     measured: None,
//!     granule: Granule::new(Bytes::from_mib(2))?,
//!     resizable: true,
//!     // In a program: GhostList::benefit, Spills::benefit or MissRateModel::benefit.
//!     benefit: Benefit { more: Some(saved), less: Some(saved), pressure: 0.5 },
//! };
//! let (settings, mut state) = (Settings::in_process(), State::default());
//! for second in 0..10 {
//!     let now = Duration::from_secs(second);
//!     let target = Bytes::from_mib(32);
//!     for one in decide(&settings, &mut state, target, &[pages.clone()], now) {
//!         println!("{}: {} to {}", one.why, one.order.component, one.order.goal);
//!         // In a program: the resize, and the size after it.
//!         pages.size = one.order.goal;
//!         let came = OrderResult::Resized { now_bytes: pages.size, measured_bytes: None };
//!         learn(&settings, &mut state, one.id, &came, now);
//!     }
//! }
//! assert!(pages.size > Bytes::from_mib(16) && pages.size <= Bytes::from_mib(32));
//! # Ok::<(), hugeleaf::balance::NoGranule>(())
//! ```

/// Savings and costs of one granule, as a component reports them.
///
/// ```
/// use hugeleaf::balance::{Benefit, Estimate};
///
/// // A cache that measured its hits, and one that has not yet.
/// let hits = Estimate { value: 0.02, error: 0.002, samples: 400.0 };
/// let measured = Benefit { more: Some(hits), less: Some(hits), pressure: 0.3 };
/// assert!(measured.more.is_some());
/// assert_eq!(Benefit::default().more, None);
/// ```
pub use hugeleaf_balance::Benefit;
/// Components as [`decide`] sees them.
///
/// ```
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{Benefit, Component, Granule};
///
/// let sort = Component {
///     name: "sort area".into(),
///     min: Bytes::from_mib(4),
///     max: Bytes::from_mib(32),
///     size: Bytes::from_mib(10),
///     measured: Some(Bytes::from_mib(11)),
///     granule: Granule::new(Bytes::from_mib(4))?,
///     resizable: true,
///     benefit: Benefit::default(),
/// };
/// assert_eq!(sort.held(), Bytes::from_mib(11));
/// // In whole granules:
/// assert_eq!(sort.surplus(), Bytes::from_mib(4));
/// assert_eq!(sort.room(), Bytes::from_mib(20));
/// assert!(!sort.exceeds_reported());
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::Component;
/// States of components, as [`State::standings`] returns them.
///
/// ```
/// use hugeleaf::balance::{ComponentState, State};
///
/// /// Lists the components that are skipped for a while, each with the reason.
/// fn skipped(state: &State) -> Vec<String> {
///     let apart = state.standings().filter(|(_, standing)| standing.is_excluded());
///     apart.map(|(name, standing)| format!("{name}: {standing}")).collect()
/// }
/// # assert!(skipped(&State::default()).is_empty());
/// # assert_eq!(ComponentState::default().to_string(), "ready");
/// ```
pub use hugeleaf_balance::ComponentState;
/// Parts of a curve of hits over size.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::balance::{GhostList, CurveStep};
///
/// let mut ghost = GhostList::new(1000, 256, 2000);
/// for page in (0..2).flat_map(|_| 0..1200) {
///     ghost.touch(page);
/// }
/// ghost.pass(Duration::from_secs(1));
/// // Two steps below the size of the cache, and two above it.
/// let curve: Vec<CurveStep> = ghost.curve(2);
/// for CurveStep { from_items, hits } in &curve {
///     println!("from {from_items} pages on: {hits:.0} hits/s");
/// }
/// # assert_eq!(curve.len(), 4);
/// ```
pub use hugeleaf_balance::CurveStep;
/// Sizes, limits and resizes of one component.
///
/// ```
/// use hugeleaf::balance::DynamicComponent;
///
/// fn line(one: &DynamicComponent) -> String {
///     let (now, least, most) =
///         (one.current_size_bytes, one.user_specified_size_bytes, one.most_bytes);
///     format!("{}: {now} of {least} to {most}, {}", one.component, one.standing)
/// }
/// # use hugeleaf::Bytes;
/// # use hugeleaf::balance::{Benefit, Component, Granule, State, view};
/// # let sort = Component {
/// #     name: "sort area".into(), min: Bytes::from_mib(2), max: Bytes::from_mib(8),
/// #     size: Bytes::from_mib(4), measured: None, granule: Granule::new(Bytes::from_mib(2))?,
/// #     resizable: true, benefit: Benefit::default(),
/// # };
/// # let view = view(&State::default(), &[sort]);
/// # assert_eq!(line(&view.components[0]), "sort area: 4M of 2M to 8M, ");
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::DynamicComponent;
/// Measured values with their error.
///
/// ```
/// use hugeleaf::balance::Estimate;
///
/// let saved = Estimate { value: 0.5, error: 0.25, samples: 4.0 };
/// assert_eq!((saved.low(), saved.high()), (0.25, 0.75));
/// // Without a value, nothing is gained and all may be lost.
/// let unknown = Estimate { value: f64::NAN, ..saved };
/// assert_eq!((unknown.low(), unknown.high()), (0.0, f64::INFINITY));
/// ```
pub use hugeleaf_balance::Estimate;
/// Ghost lists: hits of a cache at other sizes.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::balance::GhostList;
///
/// // A cache of 1000 pages of 8K, resized by 2M; 2000 keys are remembered.
/// let mut ghost = GhostList::new(1000, 256, 2000).half_life(Duration::from_secs(5));
/// // Queries read 1200 pages in a circle, slightly more than fit.
/// for page in (0..3).flat_map(|_| 0..1200) {
///     ghost.touch(page);
/// }
/// ghost.pass(Duration::from_secs(1));
/// assert!(ghost.hit_ratio(1500) > ghost.hit_ratio(1000));
///
/// // The manager asks for the benefit of 2M more. A miss costs 0.1 ms.
/// let more = ghost.benefit(256, 0.000_1).more;
/// assert!(more.is_some_and(|more| more.value > 0.0));
/// // The cache grew.
/// ghost.set_capacity(1256);
/// ```
pub use hugeleaf_balance::GhostList;
/// Units of resizing, for whole granules of memory.
///
/// ```
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::Granule;
///
/// let chunk = Granule::new(Bytes::from_mib(128))?;
/// assert_eq!(chunk.round_up(Bytes::from_mib(200)), Bytes::from_mib(256));
/// assert_eq!(chunk.round_down(Bytes::from_mib(200)), chunk.bytes());
/// assert_eq!(chunk.count(Bytes::from_mib(192)), 1.5);
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::Granule;
/// Benefit of memory to a server that has only counters.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{MissRateModel, Granule};
///
/// // A miss costs a read of the disk, 0.1 ms.
/// let mut counters = MissRateModel::new(Granule::new(Bytes::from_mib(128))?, 0.000_1);
/// let scan = Duration::from_secs(10);
/// counters.observe(Bytes::from_mib(512), 1_000_000, 20_000, scan);
/// // With one size only, the benefit of another is unknown.
/// assert!(counters.benefit().more.is_none());
///
/// counters.skip(scan); // the server was resized meanwhile
/// counters.observe_unfilled(1_000_000, 30_000, scan); // its new memory was empty
/// counters.observe(Bytes::from_mib(640), 1_000_000, 10_000, scan);
/// let benefit = counters.benefit();
/// assert!(benefit.more.is_some_and(|more| more.value > 0.0));
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::MissRateModel;
/// Moves that [`decide`] returns.
///
/// ```
/// use hugeleaf::balance::Move;
///
/// fn log(one: &Move) -> String {
///     let from = one.from.as_deref().unwrap_or("free memory");
///     let to = one.to.as_deref().unwrap_or("nobody");
///     format!("{} from {from} to {to}: {}", one.order.by(), one.why)
/// }
/// # use hugeleaf::{Bytes, balance::{OperationKind, Order}};
/// # let order = Order {
/// #     component: "sort area".into(), kind: OperationKind::Grow,
/// #     before: Bytes::from_mib(2), goal: Bytes::from_mib(4),
/// # };
/// # let to = Some("sort area".into());
/// # let one = Move { id: 1, from: None, to, order, why: "needs 4M".into() };
/// # assert_eq!(log(&one), "2M from free memory to sort area: needs 4M");
/// ```
pub use hugeleaf_balance::Move;
/// Errors of a granule without a size.
///
/// ```
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{Granule, NoGranule};
///
/// // A setting that was left at 0.
/// assert_eq!(Granule::new(Bytes::ZERO), Err(NoGranule));
/// println!("{NoGranule}");
/// ```
pub use hugeleaf_balance::NoGranule;
/// Directions of resizes.
///
/// ```
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{OperationKind, Order};
///
/// let order = Order {
///     component: "sort area".into(),
///     kind: OperationKind::Shrink,
///     before: Bytes::from_mib(8),
///     goal: Bytes::from_mib(6),
/// };
/// let sign = match order.kind {
///     OperationKind::Grow => '+',
///     OperationKind::Shrink => '-',
/// };
/// assert_eq!(format!("{sign}{}", order.by()), "-2M");
/// ```
pub use hugeleaf_balance::OperationKind;
/// Tables of components and resizes.
///
/// ```
/// use hugeleaf::balance::{State, OracleViews, view};
///
/// let view: OracleViews = view(&State::default(), &[]);
/// if let Some(problem) = &view.problem {
///     println!("warning: {problem}");
/// }
/// println!("{} resizes, {} moves reverted", view.operations_total, view.taken_back);
/// ```
pub use hugeleaf_balance::OracleViews;
/// Orders to resize one component, as a server's setting.
///
/// ```
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{OperationKind, Order};
///
/// fn statement(order: &Order) -> String {
///     format!("SET GLOBAL innodb_buffer_pool_size = {:#}", order.goal)
/// }
///
/// let order = Order {
///     component: "mariadb".into(),
///     kind: OperationKind::Grow,
///     before: Bytes::from_mib(256),
///     goal: Bytes::from_mib(384),
/// };
/// assert_eq!(statement(&order), "SET GLOBAL innodb_buffer_pool_size = 402653184");
/// ```
pub use hugeleaf_balance::Order;
/// Deviations of components from their orders.
///
/// ```
/// use hugeleaf::balance::{ComponentState, OrderFailure};
///
/// /// Returns the reason of a component that refused an order.
/// fn refusal(standing: &ComponentState) -> Option<&str> {
///     match standing {
///         ComponentState::LetBe { trouble: OrderFailure::Refused { why }, .. } => Some(why),
///         _ => None,
///     }
/// }
/// # assert_eq!(refusal(&ComponentState::Ready), None);
/// ```
pub use hugeleaf_balance::OrderFailure;
/// Results of orders, for [`learn`].
///
/// ```
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{OrderResult, Order};
///
/// fn carry_out(order: &Order, is_in_use: bool) -> OrderResult {
///     match is_in_use {
///         true => OrderResult::Refused { why: "a query uses it".into() },
///         false => OrderResult::Resized { now_bytes: order.goal, measured_bytes: None },
///     }
/// }
/// # use hugeleaf::balance::OperationKind::Shrink;
/// # let (before, goal) = (Bytes::from_mib(8), Bytes::from_mib(4));
/// # let order = Order { component: "sort area".into(), kind: Shrink, before, goal };
/// # assert_eq!(carry_out(&order, false), OrderResult::Resized { now_bytes: goal, measured_bytes: None });
/// # assert_ne!(carry_out(&order, true), carry_out(&order, false));
/// ```
pub use hugeleaf_balance::OrderResult;
/// Resizes kept by a [`State`].
///
/// ```
/// use hugeleaf::balance::{ResizeHistory, State};
///
/// let state = State::default();
/// let history: &ResizeHistory = state.history();
/// for operation in history.operations().rev().take(10) {
///     println!("{} {}: {}", operation.component, operation.kind.name(), operation.why);
/// }
/// assert!(history.total >= history.operations().count() as u64);
/// ```
pub use hugeleaf_balance::ResizeHistory;
/// Origins of resizes, to list those by hand apart.
///
/// ```
/// use hugeleaf::balance::{ResizeMode, OracleViews};
///
/// fn by_hand(view: &OracleViews) -> usize {
///     view.operations.iter().filter(|operation| operation.mode == ResizeMode::Manual).count()
/// }
/// # assert_eq!(by_hand(&hugeleaf::balance::view(&Default::default(), &[])), 0);
/// ```
pub use hugeleaf_balance::ResizeMode;
/// Resizes with their sizes and times.
///
/// ```
/// use hugeleaf::balance::ResizeOperation;
///
/// fn row(operation: &ResizeOperation) -> String {
///     let end = operation.end_size.map_or("-".into(), |size| size.to_string());
///     let status = operation.status.name();
///     format!("{} {} {end} {status}", operation.component, operation.initial)
/// }
/// # use hugeleaf::balance::{ResizeMode, OperationKind, ResizeStatus};
/// # let operation = ResizeOperation {
/// #     id: 1, component: "cache".into(), kind: OperationKind::Grow, mode: ResizeMode::Deferred,
/// #     initial: hugeleaf::Bytes::from_mib(4), target: hugeleaf::Bytes::from_mib(6),
/// #     end_size: None, status: ResizeStatus::Pending, start_seconds: 1.0, end_seconds: None,
/// #     why: String::new(),
/// # };
/// # assert_eq!(row(&operation), "cache 4M - PENDING");
/// ```
pub use hugeleaf_balance::ResizeOperation;
/// Results of resizes, to count the failed ones.
///
/// ```
/// use hugeleaf::balance::{ResizeStatus, OracleViews};
///
/// fn failed(view: &OracleViews) -> usize {
///     view.operations.iter().filter(|operation| operation.status == ResizeStatus::Error).count()
/// }
/// # assert_eq!(failed(&hugeleaf::balance::view(&Default::default(), &[])), 0);
/// ```
pub use hugeleaf_balance::ResizeStatus;
/// Settings for the speed and caution of moves.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::balance::Settings;
///
/// // Memory moves at most once in ten seconds.
/// let calm = Settings { moves_per_second: 0.1, ..Settings::in_process() };
/// // Servers need more time than components of a process to show an effect.
/// assert!(Settings::servers().check_after > calm.check_after);
/// # assert!(calm.persist <= Duration::from_secs(10));
/// ```
pub use hugeleaf_balance::Settings;
/// Lines of `v$sgainfo`.
///
/// ```
/// use hugeleaf::balance::{SgaInfo, State, view};
///
/// let view = view(&State::default(), &[]);
/// for SgaInfo { name, bytes, resizable } in &view.info {
///     println!("{name:<32} {bytes:>10} {resizable}");
/// }
/// # assert_eq!(view.info.len(), 2);
/// ```
pub use hugeleaf_balance::SgaInfo;
/// Benefit of memory to sorts and hash joins.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{Granule, WorkAreaOperation, Spills};
///
/// // A sort area of 16M. A spilled byte costs 1 ns.
/// let mut spills = Spills::new(Granule::new(Bytes::from_mib(2))?, Bytes::from_mib(16), 1e-9);
/// // A sort lacked 1M, and wrote that much to disk.
/// spills.ran(WorkAreaOperation {
///     needed: Bytes::from_mib(17),
///     granted: Bytes::from_mib(16),
///     spilled: Bytes::from_mib(1),
/// });
/// spills.pass(Duration::from_secs(1));
/// assert!(spills.benefit().more.is_some_and(|more| more.value > 0.0));
/// // The manager gave it a granule.
/// spills.set_size(Bytes::from_mib(18));
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::Spills;
/// Knowledge that [`decide`] and [`learn`] keep between scans.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{Settings, State, decide};
///
/// let mut state = State::default();
/// let moves = decide(
///     &Settings::in_process(),
///     &mut state,
///     Bytes::from_mib(64),
///     &[], // no components yet
///     Duration::ZERO,
/// );
/// assert!(moves.is_empty() && state.problem().is_none());
/// assert_eq!(state.free(), Bytes::from_mib(64));
/// println!("{} resizes, {} reverted moves", state.history().total, state.taken_back());
/// ```
pub use hugeleaf_balance::State;
/// Problems that concern all components.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{Benefit, Component, Granule, TargetProblem, Settings, State, decide};
///
/// let cache = Component {
///     name: "page cache".into(),
///     min: Bytes::from_mib(64),
///     max: Bytes::from_mib(128),
///     size: Bytes::from_mib(64),
///     measured: None,
///     granule: Granule::new(Bytes::from_mib(2))?,
///     resizable: true,
///     benefit: Benefit::default(),
/// };
/// let mut state = State::default();
/// // The target is below the minimum of the only component.
/// decide(&Settings::in_process(), &mut state, Bytes::from_mib(32), &[cache], Duration::ZERO);
/// assert!(matches!(state.problem(), Some(TargetProblem::FloorsAboveTarget { .. })));
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::TargetProblem;
/// Sorts and hash joins that have ended, for [`Spills::ran`].
///
/// ```
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::WorkAreaOperation;
///
/// // A hash join that fitted, and one that wrote its last 3M to disk.
/// let fitted = WorkAreaOperation {
///     needed: Bytes::from_mib(8),
///     granted: Bytes::from_mib(8),
///     spilled: Bytes::ZERO,
/// };
/// let spilled = WorkAreaOperation { needed: Bytes::from_mib(11), spilled: Bytes::from_mib(3), ..fitted };
/// # assert_eq!(spilled.needed - spilled.granted, spilled.spilled);
/// ```
pub use hugeleaf_balance::WorkAreaOperation;
/// Records a resize that the policy did not order.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{Benefit, Component, Granule, Settings, State, changed, decide};
///
/// let mut cache = Component {
///     name: "page cache".into(),
///     min: Bytes::from_mib(4),
///     max: Bytes::from_mib(32),
///     size: Bytes::from_mib(4),
///     measured: None,
///     granule: Granule::new(Bytes::from_mib(2))?,
///     resizable: true,
///     benefit: Benefit::default(),
/// };
/// let (settings, mut state) = (Settings::in_process(), State::default());
/// let target = Bytes::from_mib(32);
/// decide(&settings, &mut state, target, &[cache.clone()], Duration::ZERO);
/// // The cache fills, and takes free memory between two scans.
/// cache.size = Bytes::from_mib(6);
/// let now = Duration::from_secs(1);
/// changed(&mut state, "page cache", cache.size, "fills; free memory", now);
/// decide(&settings, &mut state, target, &[cache], now);
/// // It is not taken for a resize by hand.
/// assert!(state.standings().all(|(_, standing)| !standing.is_excluded()));
/// assert_eq!(state.history().total, 1);
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::changed;
/// Returns the moves of one scan.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{Benefit, Component, Granule, Settings, State, decide};
///
/// // A sort area that starts below its minimum gets memory at once.
/// let sort = Component {
///     name: "sort area".into(),
///     min: Bytes::from_mib(4),
///     max: Bytes::from_mib(32),
///     size: Bytes::from_mib(2),
///     measured: None,
///     granule: Granule::new(Bytes::from_mib(2))?,
///     resizable: true,
///     benefit: Benefit::default(),
/// };
/// let (settings, mut state) = (Settings::in_process(), State::default());
/// let moves = decide(&settings, &mut state, Bytes::from_mib(64), &[sort], Duration::ZERO);
/// assert_eq!(moves[0].order.goal, Bytes::from_mib(4));
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::decide;
/// Takes over the result of an order.
///
/// ```
/// use std::time::Duration;
///
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{
///     Benefit, OrderResult, Component, Granule, Settings, ComponentState, State, decide, learn,
/// };
///
/// let sort = Component {
///     name: "sort area".into(),
///     min: Bytes::from_mib(4),
///     max: Bytes::from_mib(32),
///     size: Bytes::from_mib(2),
///     measured: None,
///     granule: Granule::new(Bytes::from_mib(2))?,
///     resizable: true,
///     benefit: Benefit::default(),
/// };
/// let (settings, mut state) = (Settings::in_process(), State::default());
/// let (target, now) = (Bytes::from_mib(64), Duration::ZERO);
/// let moves = decide(&settings, &mut state, target, &[sort.clone()], now);
///
/// // A component that refuses an order is skipped for a while.
/// let refused = OrderResult::Refused { why: "no address space".into() };
/// learn(&settings, &mut state, moves[0].id, &refused, now);
/// decide(&settings, &mut state, target, &[sort], now + Duration::from_secs(1));
/// assert!(state.standings().any(|(_, standing)| matches!(standing, ComponentState::LetBe { .. })));
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::learn;
/// Returns the tables of one scan.
///
/// ```
/// use hugeleaf::Bytes;
/// use hugeleaf::balance::{Benefit, Component, Granule, State, view};
///
/// let sort = Component {
///     name: "sort area".into(),
///     min: Bytes::from_mib(4),
///     max: Bytes::from_mib(32),
///     size: Bytes::from_mib(8),
///     measured: None,
///     granule: Granule::new(Bytes::from_mib(2))?,
///     resizable: true,
///     benefit: Benefit::default(),
/// };
/// let view = view(&State::default(), &[sort]);
/// assert_eq!(view.info[0].name, "sort area");
/// assert_eq!(view.components[0].current_size_bytes, Bytes::from_mib(8));
/// # Ok::<(), hugeleaf::balance::NoGranule>(())
/// ```
pub use hugeleaf_balance::view;
