//! Types of other crates that are part of the public API, each with an example that uses it through this crate. The
//! examples are here because only documents of this crate are compiled against it.

/// Sizes in bytes, as settings and logs write them.
///
/// ```
/// use hugeleaf::Bytes;
///
/// let buffers: Bytes = "96M".parse()?;
/// let sort = Bytes::from_mib(32);
/// assert_eq!((buffers + sort).to_string(), "128M");
/// assert_eq!(format!("{:#}", Bytes::from_kib(4)), "4096");
/// assert_eq!(sort.share_of(buffers + sort), Some(0.25));
/// // A difference is never negative.
/// assert!((sort - buffers).is_zero());
/// # Ok::<(), hugeleaf::ParseError>(())
/// ```
pub use hugeleaf_units::Bytes;
/// Page sizes to try, in order, as a setting of a database would name them.
///
/// ```
/// use hugeleaf::{Ladder, PageKind};
///
/// // Without a `!` at its end, a ladder ends in base pages.
/// let ladder: Ladder = "hugetlb:1G,2M".parse()?;
/// assert!(!ladder.is_mandatory());
/// assert_eq!(ladder.rungs()[0].kind, Some(PageKind::Hugetlb));
/// assert_eq!(ladder.to_string(), "hugetlb:1G,2M");
///
/// assert!("2M!".parse::<Ladder>()?.is_mandatory());
/// # Ok::<(), hugeleaf::ParseError>(())
/// ```
pub use hugeleaf_units::Ladder;
/// Mechanisms of the kernel that provide pages.
///
/// ```
/// use hugeleaf::{Bytes, PageKind, Region, RegionOptions};
///
/// let region = Region::new(&RegionOptions::new(Bytes::from_mib(4), "2M".parse()?))?;
/// let extents = region.extents()?;
/// let base = extents.iter().filter(|extent| extent.kind == PageKind::Base);
/// let base: Bytes = base.map(|extent| extent.range.len()).sum();
/// println!("{base} on {} pages", PageKind::Base.name());
/// # assert!(base <= region.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use hugeleaf_units::PageKind;
/// Sizes of pages, to round lengths to whole pages.
///
/// ```
/// use hugeleaf::{Bytes, PageSize, Pages};
///
/// let page: PageSize = "2M".parse()?;
/// // A hash table of 5 MB, rounded up to whole pages.
/// let pages = page.pages_for(Bytes(5_000_000));
/// assert_eq!(pages, Pages(3));
/// assert_eq!(pages.in_bytes(page), Bytes::from_mib(6));
/// assert!(page.divides(page.bytes().get()));
/// # Ok::<(), hugeleaf::ParseError>(())
/// ```
pub use hugeleaf_units::PageSize;
/// Numbers of pages of one size.
///
/// ```
/// use hugeleaf::{Bytes, PageSize, Pages};
///
/// let page: PageSize = "2M".parse()?;
/// let (wanted, got) = (Pages(12), Pages(7));
/// println!("{} pages of {page} are missing: {}", wanted - got, (wanted - got).in_bytes(page));
/// # assert_eq!((wanted - got).in_bytes(page), Bytes::from_mib(10));
/// # Ok::<(), hugeleaf::ParseError>(())
/// ```
pub use hugeleaf_units::Pages;
/// Errors of parsing a setting.
///
/// ```
/// use hugeleaf::{Ladder, ParseError};
///
/// let error: ParseError = "3M".parse::<Ladder>().unwrap_err();
/// assert!(error.to_string().contains("'3M' is not a page size"));
/// ```
pub use hugeleaf_units::ParseError;
/// Address ranges of regions and their extents.
///
/// ```
/// use hugeleaf::{Bytes, Region, RegionOptions};
///
/// let region = Region::new(&RegionOptions::new(Bytes::from_mib(4), "2M".parse()?))?;
/// let range = region.range();
/// assert_eq!(range.len(), region.len());
/// assert!(range.contains(region.as_ptr() as u64));
/// // The part that whole huge pages can map.
/// println!("{range}: {:?}", range.aligned_inside("2M".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use hugeleaf_units::Range;
/// Single page sizes of a ladder.
///
/// ```
/// use hugeleaf::{Ladder, PageKind, Rung};
///
/// let rung = Rung { size: "2M".parse()?, kind: Some(PageKind::Thp) };
/// let ladder = Ladder::new(vec![rung], false);
/// assert_eq!(ladder.to_string(), "thp:2M");
/// # Ok::<(), hugeleaf::ParseError>(())
/// ```
pub use hugeleaf_units::Rung;

/// Error numbers of the kernel.
///
/// ```
/// use hugeleaf::{Errno, MemoryError};
///
/// /// Another attempt can succeed after other processes have closed files.
/// fn is_temporary(error: &MemoryError) -> bool {
///     matches!(error, MemoryError::Sys(error) if error.errno == Errno::NFILE)
/// }
/// # assert!(!is_temporary(&MemoryError::Empty));
/// ```
pub use hugeleaf_sys::Errno;
/// NUMA nodes of a region's or an elastic's pages.
///
/// ```
/// use hugeleaf::{Bytes, ElasticOptions, NodePolicy, RegionOptions};
///
/// // A buffer pool that all processors read, and the log buffer of a thread on node 1.
/// let buffers = ElasticOptions::new(Bytes::from_mib(64), "2M".parse()?)
///     .nodes(NodePolicy::Interleave(vec![0, 1]));
/// let log = RegionOptions::new(Bytes::from_mib(4), "2M".parse()?)
///     .nodes(NodePolicy::Bind(vec![1]));
/// assert_ne!(buffers.nodes, log.nodes);
/// # Ok::<(), hugeleaf::ParseError>(())
/// ```
pub use hugeleaf_sys::NodePolicy;
/// Private or shared memory.
///
/// ```
/// use hugeleaf::{Bytes, MemoryError, Region, RegionOptions, Sharing};
///
/// let options = RegionOptions::new(Bytes::from_mib(2), "2M".parse()?);
/// let region = Region::new(&options.sharing(Sharing::Private))?;
/// assert_eq!(region.handle().unwrap_err(), MemoryError::NotShared);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use hugeleaf_sys::Sharing;
/// Failed system calls, as [`crate::MemoryError::Sys`] holds them.
///
/// ```
/// use hugeleaf::{Errno, MemoryError, SysError};
///
/// let failed = SysError::new("mmap", "of 64G", Errno::NOMEM);
/// let error = MemoryError::from(failed);
/// println!("{error}\n  next: {}", error.next());
/// # assert!(error.next().contains("ulimit -v"));
/// ```
pub use hugeleaf_sys::SysError;

/// Files of the host that could not be read, as [`crate::MemoryError::Unreadable`] holds them.
///
/// ```
/// use hugeleaf::{MemoryError, ReadError};
///
/// /// Names the file that a sandbox hides from this process.
/// fn hidden(error: &MemoryError) -> Option<&ReadError> {
///     match error {
///         MemoryError::Unreadable(error) if error.denied => Some(error),
///         _ => None,
///     }
/// }
/// # let meminfo = ReadError::new("meminfo".into(), "no permission");
/// # assert!(hidden(&ReadError { denied: true, ..meminfo.clone() }.into()).is_some());
/// # assert!(hidden(&meminfo.into()).is_none());
/// ```
pub use hugeleaf_host::ReadError;
