//! A page for a browser.
