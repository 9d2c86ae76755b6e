//! The files of another revision, beside those of this one.

use crate::{Result, child};
use std::path::Path;
use std::process::Command;

/// Makes a git worktree of a revision at this place, or leaves the one that is there if it is of this revision.
pub(crate) fn checkout(revision: &str, tree: &Path) -> Result<()> {
    let git = || {
        let mut git = Command::new("git");
        git.current_dir(child::root());
        git
    };
    if tree.exists() {
        let commit = |of: &str, dir: &Path| child::output(git().current_dir(dir).args(["rev-parse", of]));
        if commit("HEAD", tree)? == commit(&format!("{revision}^{{commit}}"), &child::root())? {
            return Ok(());
        }
        let _ = git().args(["worktree", "remove", "--force"]).arg(tree).status()?;
    }
    let made = git().args(["worktree", "add", "--quiet", "--force", "--detach"]).arg(tree).arg(revision).status()?;
    if made.success() { Ok(()) } else { Err(format!("no worktree of {revision}").into()) }
}
