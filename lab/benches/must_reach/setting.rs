//! Temporary values of kernel settings, and free pages in a pool.

use std::path::PathBuf;

use hugeleaf_host::pool_file;
use hugeleaf_units::{Bytes, PageSize};

use crate::Failed;

/// A kernel file whose value is restored when this is dropped.
pub struct RestoreSetting {
    path: PathBuf,
    before: String,
}

impl RestoreSetting {
    /// Provides `bytes` free bytes in a pool.
    ///
    /// They are added to the pages in use. `nr_hugepages` also counts surplus pages of overcommit, but a
    /// written value makes persistent pages. Therefore only the number of persistent pages is restored.
    pub fn free_pages(size: PageSize, bytes: Bytes) -> Result<RestoreSetting, Failed> {
        let path = PathBuf::from(pool_file(size, None, "nr_hugepages"));
        let total = pages(size, "nr_hugepages")?;
        let lasting = total - pages(size, "surplus_hugepages")?;
        let used = total - pages(size, "free_hugepages")?;
        let wanted = size.pages_for(bytes).get();
        let put = RestoreSetting {
            path,
            before: lasting.to_string(),
        };
        std::fs::write(&put.path, (used + wanted).to_string())?;
        match pages(size, "free_hugepages")? {
            got if got == wanted => Ok(put),
            got => Err(format!("{got} of {wanted} pages of {size} available").into()),
        }
    }
}

impl Drop for RestoreSetting {
    fn drop(&mut self) {
        if let Err(e) = std::fs::write(&self.path, &self.before) {
            eprintln!(
                "{}: not put back to {}: {e}",
                self.path.display(),
                self.before
            );
        }
    }
}

/// Returns a number of the pool of this size.
pub fn pages(size: PageSize, name: &str) -> Result<u64, Failed> {
    let text = std::fs::read_to_string(pool_file(size, None, name))?;
    Ok(text.trim().parse()?)
}
