//! A directory as a place for objects.

/// Objects as files below a directory.
#[derive(Debug)]
pub struct Directory {}
